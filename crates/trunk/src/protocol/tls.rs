//! The stream of a trunk: TLS 1.3, both sides with certificates, without a socket of its own.
//!
//! rustls reads from and writes to whatever the caller has, so the same code runs over a socket and
//! in a simulator. Which cipher provider it uses is the caller's to say.

mod bare;
mod failure;
pub mod paper;
mod peer;
mod proof;
mod records;
#[cfg(test)]
pub(crate) mod tests;
mod whole;

use std::io::{self, Read, Write};
use std::sync::Arc;

use ringgate_core::carry;
use ringgate_core::crypto::Key;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, Error, RootCertStore, ServerConfig,
    ServerConnection,
};
use zeroize::{Zeroize, zeroize_stack};

use crate::protocol::control::{ALPN, Inbox, Outbox};
use crate::protocol::lane::{EXPORTER_LABEL, Secrets};
use bare::Bare;
pub use failure::{Failure, Received};
pub use peer::{DOMAIN, Peer, certified_name};
pub use proof::Proof;
use records::Records;
#[cfg(test)]
pub(crate) use tests::fixtures;
use whole::{BUFFER_BYTES, Come, is_blocked, is_proven};

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

ringgate_core::told! {
    /// What is wrong with an [`Identity`].
    #[derive(Debug)]
    pub enum Mistake;
    /// In the authority's certificates.
    Authority(why: String) = "the authority's certificate: {why}",
    /// In the own certificate.
    Certificate(why: String) = "the certificate: {why}",
    /// In the key.
    Key(why: String) = "the key: {why}",
    /// In all of it together.
    Tls(why: Error) = "certificate and key: {why}",
}

/// A gateway's side, for all agents that connect.
#[derive(Clone, Debug)]
pub struct Gateway {
    config: Arc<ServerConfig>,
    /// Who has signed agents' certificates.
    authorities: Arc<RootCertStore>,
    agents: Arc<dyn ClientCertVerifier>,
}

/// An agent's side, for all gateways that it connects to.
#[derive(Clone, Debug)]
pub struct Agent(Arc<ClientConfig>);

impl Gateway {
    /// Everything that is wrong with the files is said here and not at the first connection.
    pub fn new(provider: Arc<CryptoProvider>, identity: Identity<'_>) -> Result<Self, Mistake> {
        Self::speaking(ALPN, provider, identity)
    }

    fn speaking(
        alpn: &[u8],
        provider: Arc<CryptoProvider>,
        identity: Identity<'_>,
    ) -> Result<Self, Mistake> {
        let (provider, authorities) = (portable(provider), Arc::new(identity.roots()?));
        let agents = WebPkiClientVerifier::builder_with_provider(
            Arc::clone(&authorities),
            Arc::clone(&provider),
        );
        let agents = agents.build().map_err(|why| Mistake::Authority(why.to_string()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Mistake::Tls)?
            .with_client_cert_verifier(Arc::clone(&agents))
            .with_single_cert(identity.chain()?, identity.key()?)
            .map_err(Mistake::Tls)?;
        config.alpn_protocols = vec![alpn.to_vec()];
        // Each connection proves anew who is there: a certificate that was replaced counts no more.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.enable_secret_extraction = true;
        Ok(Self { config: Arc::new(config), authorities, agents })
    }

    /// Whether one of the authorities here has signed what an agent has shown, maybe to a gateway
    /// with others.
    pub fn vouches_for(&self, proof: &Proof) -> Result<(), Failure> {
        proof.is_good_for(&*self.agents)
    }

    /// Whether its authorities are another one's.
    pub fn has_authorities_of(&self, other: &Self) -> bool {
        self.authorities.roots == other.authorities.roots
    }

    /// A connection that an agent has made.
    pub fn accept(&self) -> Result<Stream, Error> {
        ServerConnection::new(Arc::clone(&self.config)).map(|it| Stream::new(it.into()))
    }
}

impl Agent {
    /// Everything that is wrong with the files is said here and not at the first connection.
    pub fn new(provider: Arc<CryptoProvider>, identity: Identity<'_>) -> Result<Self, Mistake> {
        Self::speaking(ALPN, provider, identity)
    }

    fn speaking(
        alpn: &[u8],
        provider: Arc<CryptoProvider>,
        identity: Identity<'_>,
    ) -> Result<Self, Mistake> {
        let mut config = ClientConfig::builder_with_provider(portable(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(Mistake::Tls)?
            .with_root_certificates(identity.roots()?)
            .with_client_auth_cert(identity.chain()?, identity.key()?)
            .map_err(Mistake::Tls)?;
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_secret_extraction = true;
        Ok(Self(Arc::new(config)))
    }

    /// A connection to a gateway, whose certificate has to be for this host name or address.
    pub fn connect(&self, gateway: ServerName<'static>) -> Result<Stream, Error> {
        ClientConnection::new(Arc::clone(&self.0), gateway).map(|it| Stream::new(it.into()))
    }
}

/// The same with the one cipher that a stream may have whose keys another process goes on with
/// ([`Stream::make_portable`]): datagrams have it too, and no number of records wears its keys out.
fn portable(mut provider: Arc<CryptoProvider>) -> Arc<CryptoProvider> {
    let is_it = |suite: CipherSuite| suite == CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    Arc::make_mut(&mut provider).cipher_suites.retain(|suite| is_it(suite.suite()));
    provider
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
    state: State,
    records: Records,
}

#[derive(Debug)]
enum State {
    Whole(Box<Connection>),
    /// Keys and numbers alone: what another process can go on with. In a place of their own, or
    /// each move of a stream would leave a copy behind.
    Bare(Box<Bare>),
    /// Its keys could not be had.
    Over,
}

impl Stream {
    fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Self { state: State::Whole(Box::new(connection)), records: Records::default() }
    }

    /// Whether both sides have proven who they are. Nothing comes in or leaves before.
    pub fn is_proven(&self) -> bool {
        match &self.state {
            State::Whole(connection) => is_proven(connection),
            State::Bare(_) => true,
            State::Over => false,
        }
    }

    /// Whether the other side's certificate, which was verified, is for this name, and otherwise
    /// for whom it is. Only the process that has verified it can say so.
    pub fn certified_for(&self, name: &str) -> Result<(), String> {
        let State::Whole(connection) = &self.state else { return Err(String::new()) };
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.and_then(|it| ParsedCertificate::try_from(it).ok());
        let both = certificate.zip(ServerName::try_from(name).ok());
        let (certificate, name) = both.ok_or_else(|| format!("{name} is no name"))?;
        verify_server_name(&certificate, &name).map_err(|why| Failure::Tls(why).to_string())
    }

    /// What the other side has proven itself with, now. Only the process that has verified it can
    /// say so.
    pub fn proof(&self, now_s: u64) -> Option<Proof> {
        let State::Whole(connection) = &self.state else { return None };
        Proof::of(connection, now_s)
    }

    /// The secrets of a lane: the same at both ends, and known to nobody else. Only the process
    /// that has made the connection can say them.
    pub fn secrets(&self, lane: u8) -> Result<Secrets, Error> {
        let State::Whole(connection) = &self.state else { return Err(Error::HandshakeNotComplete) };
        Secrets::export(lane, |context| {
            let secret = [0; 32];
            let mut secret =
                connection.export_keying_material(secret, EXPORTER_LABEL, Some(&context))?;
            let key = Key::from_bytes(secret);
            secret.zeroize();
            Ok(key)
        })
    }

    /// Has it be nothing but keys, numbers and bytes, which can be carried to another
    /// process; until then it goes on here as before. An error is its end.
    pub fn make_portable(&mut self) -> Result<(), Failure> {
        if matches!(self.state, State::Bare(_)) {
            return Ok(());
        }
        let made = self.take_keys();
        zeroize_stack::<STACK_BYTES>();
        made
    }

    /// Apart, so that all of the stack that keys pass lies below who wipes it.
    #[inline(never)]
    fn take_keys(&mut self) -> Result<(), Failure> {
        let State::Whole(connection) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(over());
        };
        self.state = State::Bare(Box::new(Bare::of(*connection, &mut self.records)?));
        Ok(())
    }

    #[inline(never)]
    fn read_keys(from: &mut carry::Reader<'_>) -> Result<State, carry::Broken> {
        <Bare as carry::Carry>::read(from).map(|bare| State::Bare(Box::new(bare)))
    }

    /// Reads what there is, as far as the inbox has room.
    pub fn receive(
        &mut self,
        source: &mut impl Read,
        inbox: &mut Inbox,
    ) -> Result<Received, Failure> {
        match &mut self.state {
            State::Whole(connection) => {
                whole::receive(connection, &mut self.records.of(source), inbox.room()).map(|come| {
                    match come {
                        Come::Nothing => Received::Nothing,
                        Come::Closed => Received::Closed,
                        Come::Bytes(bytes) => {
                            inbox.handle_read(bytes);
                            Received::Something
                        }
                    }
                })
            }
            State::Bare(bare) => bare.receive(&mut self.records, source, inbox),
            State::Over => Err(over()),
        }
    }

    /// Writes what waits, as far as the sink takes it: of the outbox only once both sides are
    /// proven. Also what a failure has left to say.
    pub fn transmit(&mut self, sink: &mut impl Write, outbox: &mut Outbox) -> io::Result<()> {
        let connection = match &mut self.state {
            State::Whole(connection) => connection,
            State::Bare(bare) => return bare.transmit(sink, outbox),
            State::Over => return Err(io::ErrorKind::NotConnected.into()),
        };
        loop {
            if is_proven(connection) && !outbox.bytes().is_empty() {
                let taken = connection.writer().write(outbox.bytes())?;
                outbox.handle_sent(taken);
            }
            if !connection.wants_write() {
                return Ok(());
            }
            match connection.write_tls(sink) {
                Err(why) if is_blocked(&why) => return Ok(()),
                Err(why) => return Err(why),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
            }
        }
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        match &mut self.state {
            State::Whole(connection) => connection.send_close_notify(),
            State::Bare(bare) => bare.close(),
            State::Over => {}
        }
    }

    /// Whether something waits that the sink has not taken.
    pub fn wants_to_write(&self) -> bool {
        match &self.state {
            State::Whole(connection) => connection.wants_write(),
            State::Bare(bare) => bare.wants_to_write(),
            State::Over => false,
        }
    }
}

/// A stream that is [portable](Stream::make_portable).
impl carry::Carry for Stream {
    fn write(&self, out: &mut carry::Writer<'_>) {
        let Self { state, records } = self;
        let bare = if let State::Bare(bare) = state { Some(bare) } else { None };
        carry::Carry::write(&bare.is_some(), out);
        if let Some(bare) = bare {
            carry::Carry::write(&**bare, out);
            carry::Carry::write(records, out);
        }
    }

    fn read(from: &mut carry::Reader<'_>) -> Result<Self, carry::Broken> {
        if !<bool as carry::Carry>::read(from)? {
            return Err(carry::Broken::Invalid("stream"));
        }
        let state = Self::read_keys(from);
        zeroize_stack::<STACK_BYTES>();
        Ok(Self { state: state?, records: carry::Carry::read(from)? })
    }
}

/// More of the stack than keys pass on their way to their place, in a build that optimises nothing.
const STACK_BYTES: usize = 16 << 10;

fn over() -> Failure {
    Failure::Io(io::ErrorKind::NotConnected.into())
}
