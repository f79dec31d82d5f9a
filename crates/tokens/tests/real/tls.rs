//! TLS for callers, with certificates of `openssl`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ringgate_tokens::tls;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::http::{converse, say};
use crate::office::{Fleet, Office, with_tls};
use crate::rig::{Folder, is_installed, skip, until};

/// A certificate for `localhost`, signed by itself.
fn certificate(folder: &Folder) -> Option<tls::Files> {
    let files = tls::Files { certificate: folder.path("cert.pem"), key: folder.path("key.pem") };
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=tokens", "-addext", "subjectAltName=DNS:localhost", "-days", "2"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&files.key)
        .arg("-out")
        .arg(&files.certificate)
        .output();
    match made {
        Ok(made) if made.status.success() => {
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&files.key, mode).expect("our own file");
            Some(files)
        }
        _ => {
            skip("openssl is not there");
            None
        }
    }
}

fn connector(authority: &Path) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(authority).expect("openssl made it");
    roots.add(certificate).expect("a certificate");
    let provider = Arc::new(rustls_graviola::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("known versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn tokens_are_served_over_tls() {
    let folder = Folder::new();
    let Some(files) = certificate(&folder) else { return };
    if !is_installed() {
        return;
    }
    let fleet = Fleet::start(1, 1, 10).await;
    let office = Office::start(with_tls(fleet.options("one"), files.clone()));
    let connector = connector(&files.certificate);
    let connect = async || {
        let stream = TcpStream::connect(office.address()).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        connector.connect(name, stream).await.expect("the certificate is right")
    };
    let ready = async || {
        let answer = converse(connect().await, "GET", "/readyz", "", "").await;
        answer.status == 200
    };
    until("it is ready", ready).await;
    let head = "Authorization: Bearer matchmaker-secret\r\n";
    let answer = converse(connect().await, "POST", "/v1/tokens", head, r#"{"client_id": 1}"#).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // Who speaks in the clear gets no answer, and nothing else suffers from it.
    let clear = TcpStream::connect(office.address()).await.expect("it listens");
    let answer = say(clear, b"GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert!(answer.is_none());
    assert!(ready().await);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = Folder::new();
    let Some(files) = certificate(&folder) else { return };
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(&files.key, mode).expect("our own file");
    let why = tls::acceptor(&files).err().expect("it is refused");
    assert!(why.ends_with("others may use it (mode 0640): chmod 600"), "{why}");
}
