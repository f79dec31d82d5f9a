//! TLS 1.3 to a member. The ciphers are Graviola's: they need no C compiler and no assembler, and
//! a processor with AES and AVX2 (x86-64) or AES, SHA-2 and PMULL (64-bit Arm).

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::Error;
use crate::servers::{Endpoint, TlsFiles};
use ringgate_os::processor;

/// Reads the files. Everything that is wrong with them is said here, not at the first connection.
pub(super) fn connector(files: &TlsFiles) -> Result<TlsConnector, Error> {
    processor::suffices_for_tls().map_err(|why| Error::Config(why.into()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.ca)? {
        roots.add(certificate).map_err(|why| wrong(&files.ca, &why))?;
    }
    let provider = Arc::new(rustls_graviola::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|why| Error::Config(why.to_string()))?
        .with_root_certificates(roots);
    let mut config = match &files.own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|why| wrong(key, &why))?;
            let chain = certificates(certificate)?;
            builder.with_client_auth_cert(chain, own).map_err(|why| wrong(key, &why))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Proves who is there.
pub(super) async fn connect(
    tls: &TlsConnector,
    endpoint: &Endpoint,
    socket: TcpStream,
) -> Result<TlsStream<TcpStream>, Error> {
    let name = ServerName::try_from(endpoint.host.clone())
        .map_err(|why| Error::Config(format!("{endpoint}: {why}")))?;
    tls.connect(name, socket).await.map_err(|why| Error::broken(&why))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).map_err(|why| wrong(path, &why))?;
    let found: Result<Vec<_>, _> = read.collect();
    let found = found.map_err(|why| wrong(path, &why))?;
    if found.is_empty() {
        return Err(wrong(path, &"no certificate is in it"));
    }
    Ok(found)
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::Config(format!("{}: {why}", path.display()))
}
