//! TLS for callers: 1.3, with a certificate and its key from files. The key's file has to be closed
//! to others.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use zeroize::Zeroizing;

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, and those that lead to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Reads the files. Everything that is wrong with them is said here.
pub fn acceptor(files: &Files) -> Result<TlsAcceptor, String> {
    ringgate_os::processor::suffices_for_tls()?;
    let Files { certificate, key } = files;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificate)
        .map_err(|why| wrong(certificate, &why))?
        .collect();
    let chain = chain.map_err(|why| wrong(certificate, &why))?;
    if chain.is_empty() {
        return Err(wrong(certificate, &"no certificate is in it"));
    }
    let own = PrivateKeyDer::from_pem_slice(&read_closed(key)?).map_err(|why| wrong(key, &why))?;
    let provider = Arc::new(rustls_graviola::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| why.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, own)
        .map_err(|why| wrong(key, &why))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn read_closed(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let file = File::open(path).map_err(|why| wrong(path, &why))?;
    let mode = file.metadata().map_err(|why| wrong(path, &why))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(wrong(path, &format!("others may use it (mode {mode:04o}): chmod 600")));
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX));
    let read = file.take(KEY_FILE_BYTES_MAX as u64).read_to_end(&mut bytes);
    read.map_err(|why| wrong(path, &why))?;
    Ok(bytes)
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

const KEY_FILE_BYTES_MAX: usize = 64 << 10;
