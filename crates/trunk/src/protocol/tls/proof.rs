//! What an agent has proven itself with, kept beside its connection: authorities come and go while
//! that stands, also in the process that goes on with it.
//!
//! It is judged as of the time at which it was shown. A certificate that expires meanwhile ends no
//! connection that was made with it: it counts at the next one.

use std::time::Duration;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::{Connection, Error};

use super::failure::Failure;

/// A chain of certificates that was verified once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The agent's own first. Invariant: not empty.
    chain: Vec<CertificateDer<'static>>,
    /// When it was shown, in seconds of the Unix epoch.
    shown_s: u64,
}

impl Proof {
    pub(super) fn of(connection: &Connection, shown_s: u64) -> Option<Self> {
        let chain = connection.peer_certificates().filter(|chain| !chain.is_empty())?;
        Some(Self::shown(chain, shown_s))
    }

    pub(super) fn shown(chain: &[CertificateDer<'_>], shown_s: u64) -> Self {
        Self { chain: chain.iter().map(|it| it.clone().into_owned()).collect(), shown_s }
    }

    /// Whether this verifier would have taken it then.
    pub(super) fn is_good_for(&self, verifier: &dyn ClientCertVerifier) -> Result<(), Failure> {
        let Some((own, between)) = self.chain.split_first() else {
            return Err(Failure::Tls(Error::NoCertificatesPresented));
        };
        let shown = UnixTime::since_unix_epoch(Duration::from_secs(self.shown_s));
        verifier.verify_client_cert(own, between, shown).map(drop).map_err(Failure::Tls)
    }
}

impl Carry for Proof {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { chain, shown_s } = self;
        shown_s.write(out);
        (chain.len() as u32).write(out);
        for certificate in chain {
            certificate.len().write(out);
            out.bytes(certificate);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (shown_s, count) = (u64::read(from)?, u32::read(from)?);
        let mut chain = Vec::new();
        for _ in 0..count {
            let len = usize::read(from)?;
            chain.push(CertificateDer::from(from.bytes(len)?.to_vec()));
        }
        let is_one = !chain.is_empty();
        is_one.then_some(Self { chain, shown_s }).ok_or(Broken::Invalid("certificate"))
    }
}
