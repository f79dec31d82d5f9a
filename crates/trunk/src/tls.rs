//! The stream of a trunk: TLS 1.3, both sides with certificates, without a socket of its own.
//!
//! rustls reads from and writes to whatever the caller has, so the same code runs over a socket and
//! in a simulator. Which cipher provider it uses is the caller's to say.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::sync::Arc;

use ringgate_core::crypto::Key;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, Error, RootCertStore,
    ServerConfig, ServerConnection,
};
use zeroize::Zeroize;

use crate::control::{ALPN, Inbox, Outbox};
use crate::lane::{EXPORTER_LABEL, Secrets};

/// Encrypted bytes that rustls keeps for a peer that does not read; what waits beyond them waits in
/// the [`Outbox`], which has a bound of its own.
const BUFFER_BYTES: usize = 64 * 1024;

/// Who one is, and whose word one takes: files in PEM, as their bytes.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    /// Certificates of the authority that has signed the other side's.
    pub authority: &'a [u8],
    /// The own certificate, and those between it and the authority.
    pub certificate: &'a [u8],
    /// Its key.
    pub key: &'a [u8],
}

/// What is wrong with an [`Identity`].
#[derive(Debug)]
pub enum Mistake {
    /// In the authority's certificates.
    Authority(String),
    /// In the own certificate.
    Certificate(String),
    /// In the key.
    Key(String),
    /// In all of it together.
    Tls(Error),
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authority(why) => write!(f, "the authority's certificate: {why}"),
            Self::Certificate(why) => write!(f, "the certificate: {why}"),
            Self::Key(why) => write!(f, "the key: {why}"),
            Self::Tls(why) => write!(f, "certificate and key: {why}"),
        }
    }
}

impl std::error::Error for Mistake {}

/// A gateway's side, for all agents that connect.
#[derive(Clone, Debug)]
pub struct Gateway(Arc<ServerConfig>);

/// An agent's side, for all gateways that it connects to.
#[derive(Clone, Debug)]
pub struct Agent(Arc<ClientConfig>);

impl Gateway {
    /// Everything that is wrong with the files is said here and not at the first connection.
    pub fn new(provider: Arc<CryptoProvider>, identity: Identity<'_>) -> Result<Self, Mistake> {
        let roots = Arc::new(identity.roots()?);
        let agents = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
            .build()
            .map_err(|why| Mistake::Authority(why.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Mistake::Tls)?
            .with_client_cert_verifier(agents)
            .with_single_cert(identity.chain()?, identity.key()?)
            .map_err(Mistake::Tls)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        // Each connection proves anew who is there: a certificate that was replaced counts no more.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self(Arc::new(config)))
    }

    /// A connection that an agent has made.
    pub fn accept(&self) -> Result<Stream, Error> {
        ServerConnection::new(Arc::clone(&self.0)).map(|it| Stream::new(it.into()))
    }
}

impl Agent {
    /// Everything that is wrong with the files is said here and not at the first connection.
    pub fn new(provider: Arc<CryptoProvider>, identity: Identity<'_>) -> Result<Self, Mistake> {
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Mistake::Tls)?
            .with_root_certificates(identity.roots()?)
            .with_client_auth_cert(identity.chain()?, identity.key()?)
            .map_err(Mistake::Tls)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self(Arc::new(config)))
    }

    /// A connection to a gateway, whose certificate has to be for this host name or address.
    pub fn connect(&self, gateway: ServerName<'static>) -> Result<Stream, Error> {
        ClientConnection::new(Arc::clone(&self.0), gateway).map(|it| Stream::new(it.into()))
    }
}

impl Identity<'_> {
    fn roots(&self) -> Result<RootCertStore, Mistake> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(self.authority).map_err(Mistake::Authority)? {
            roots.add(certificate).map_err(|why| Mistake::Authority(why.to_string()))?;
        }
        Ok(roots)
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, Mistake> {
        certificates(self.certificate).map_err(Mistake::Certificate)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, Mistake> {
        PrivateKeyDer::from_pem_slice(self.key).map_err(|why| Mistake::Key(why.to_string()))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = read.map_err(|why| why.to_string())?;
    if found.is_empty() { Err("there is none".to_owned()) } else { Ok(found) }
}

/// One connection.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
}

/// What reading has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing more, for now.
    Nothing,
    /// Perhaps something in the inbox: read again once that is taken out.
    Something,
    /// The other side has closed the connection in order.
    Closed,
}

/// Why a connection is over.
#[derive(Debug)]
pub enum Failure {
    /// The other side has not proven who it is, or breaks TLS.
    Tls(Error),
    /// It speaks TLS, and not this protocol.
    Protocol,
    /// The connection has ended without a word, or failed.
    Io(io::Error),
}

impl Failure {
    /// Its name in metrics and events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Io(_) => "connection",
            Self::Protocol => "protocol",
            Self::Tls(Error::NoCertificatesPresented) => "certificate_missing",
            Self::Tls(Error::InvalidCertificate(why)) => match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "certificate_expired"
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => "certificate_foreign",
                _ => "certificate_unknown",
            },
            Self::Tls(Error::AlertReceived(_)) => "refused_by_peer",
            Self::Tls(_) => "tls",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(why) => why.fmt(f),
            Self::Protocol => f.write_str("the other side does not speak this protocol"),
            Self::Io(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl Stream {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Self { connection }
    }

    /// Whether both sides have proven who they are. Nothing comes in or leaves before.
    pub fn is_proven(&self) -> bool {
        !self.connection.is_handshaking() && self.connection.alpn_protocol() == Some(ALPN)
    }

    /// Whether the other side's certificate, which was verified, is for this name.
    pub fn is_certified_for(&self, name: &str) -> bool {
        let certificate = self.connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.and_then(|it| ParsedCertificate::try_from(it).ok());
        let name = ServerName::try_from(name).ok();
        let both = certificate.zip(name);
        both.is_some_and(|(certificate, name)| verify_server_name(&certificate, &name).is_ok())
    }

    /// The secrets of a lane: the same at both ends, and known to nobody else.
    pub fn secrets(&self, lane: u8) -> Result<Secrets, Error> {
        Secrets::export(lane, |context| {
            let secret = [0; 32];
            let mut secret =
                self.connection.export_keying_material(secret, EXPORTER_LABEL, Some(&context))?;
            let key = Key::from_bytes(secret);
            secret.zeroize();
            Ok(key)
        })
    }

    /// Reads what there is, as far as the inbox has room.
    pub fn receive(
        &mut self,
        source: &mut impl Read,
        inbox: &mut Inbox,
    ) -> Result<Received, Failure> {
        if let Some(read) = self.take_out(inbox)? {
            return Ok(read);
        }
        match self.connection.read_tls(source) {
            Err(why) if is_blocked(&why) => return Ok(Received::Nothing),
            Err(why) => return Err(Failure::Io(why)),
            Ok(_) => {}
        }
        self.connection.process_new_packets().map_err(Failure::Tls)?;
        if !self.connection.is_handshaking() && !self.is_proven() {
            return Err(Failure::Protocol);
        }
        Ok(self.take_out(inbox)?.unwrap_or(Received::Something))
    }

    /// Writes what waits, as far as the sink takes it: of the outbox only once both sides are
    /// proven. Also what a failure has left to say.
    pub fn transmit(&mut self, sink: &mut impl Write, outbox: &mut Outbox) -> io::Result<()> {
        loop {
            if self.is_proven() && !outbox.bytes().is_empty() {
                let taken = self.connection.writer().write(outbox.bytes())?;
                outbox.handle_sent(taken);
            }
            if !self.connection.wants_write() {
                return Ok(());
            }
            match self.connection.write_tls(sink) {
                Err(why) if is_blocked(&why) => return Ok(()),
                Err(why) => return Err(why),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
            }
        }
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether something waits that the sink has not taken.
    pub fn wants_to_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Takes opened bytes out. `None` where there are none.
    fn take_out(&mut self, inbox: &mut Inbox) -> Result<Option<Received>, Failure> {
        let room = inbox.room();
        match self.connection.reader().read(room) {
            Ok(0) if !room.is_empty() => Ok(Some(Received::Closed)),
            Ok(bytes) => {
                inbox.handle_read(bytes);
                Ok(Some(Received::Something))
            }
            Err(why) if is_blocked(&why) => Ok(None),
            Err(why) => Err(Failure::Io(why)),
        }
    }
}

fn is_blocked(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
