//! Seals and opens a player's packets, one at a time.

use crate::crypto::{Aead, Job, Verdict};
use crate::drops::DropReason;
use crate::proto::netcode::client::{OpenWork, Transmit};
use crate::proto::netcode::packet::AadTable;
use crate::secret::Key;

/// The cipher of one protocol id. Keys are the connection's, and come as arguments.
#[derive(Debug)]
pub struct Cipher {
    aad: Box<AadTable>,
    aead: Aead,
}

impl Cipher {
    /// For packets of that protocol id.
    pub fn new(protocol_id: u64) -> Self {
        Self { aad: Box::new(AadTable::new(protocol_id)), aead: Aead::detect() }
    }

    /// Opens a datagram in place.
    pub fn open(
        &mut self,
        key: &Key,
        work: &OpenWork,
        datagram: &mut [u8],
    ) -> Result<(), DropReason> {
        let (nonce, aad) = (work.header.nonce(), self.aad.of(work.header.prefix));
        let mut jobs = [Job::new(key, nonce, aad, &mut datagram[work.sealed()])];
        self.aead.open(&mut jobs);
        if jobs[0].verdict == Verdict::Done { Ok(()) } else { Err(DropReason::PacketForged) }
    }

    /// Seals a datagram in place, if it is one that is sealed.
    pub fn seal(&mut self, key: &Key, transmit: &Transmit, out: &mut [u8]) {
        let Some(header) = transmit.seal else { return };
        let (nonce, aad) = (header.nonce(), self.aad.of(header.prefix));
        self.aead.seal(&mut [Job::new(key, nonce, aad, &mut out[transmit.sealed()])]);
    }
}
