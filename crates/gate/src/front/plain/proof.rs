//! Sources that are proven by an echo, and the slots of those that are not.

use crate::common::Common;
use crate::front::plain::echo::word_at;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, rules_of};
use crate::ids::BackendId;
use crate::setup::{Echo, Limits, Plain};
use crate::store::entry::Entry;
use crate::store::table::{Address, Place};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::plain::Guard;

impl PlainFront {
    /// Whether a datagram has brought back what the source was sent.
    pub(crate) fn is_echo(&self, entry: Entry<Session>, word: Option<u32>) -> bool {
        word.is_some_and(|word| self.echoes.has(entry, word))
    }

    /// The source of an open session is where it says.
    pub(crate) fn prove(&mut self, common: &Common, entry: Entry<Session>) {
        let session = self.sessions.at_mut(entry);
        if session.stage == (Stage::Open { is_proven: false }) {
            session.stage = Stage::Open { is_proven: true };
            let backend = session.backend;
            common.claims.shares().leave(backend, self.sessions.address(entry));
        }
    }

    /// Notes what a source that is not proven is sent.
    pub(crate) fn note_sent(&mut self, echo: Option<Echo>, entry: Entry<Session>, bytes: &[u8]) {
        if let Some(word) = echo.and_then(|echo| word_at(bytes, echo.sent)) {
            self.echoes.note(entry, word);
        }
    }

    /// Counts an open session among those of a server, and of its source, that are not proven.
    pub(crate) fn enter_unproven(
        common: &Common,
        rules: &Plain,
        backend: BackendId,
        address: &Address,
    ) -> Result<(), DropReason> {
        let percent = u64::from(rules.unproven_percent);
        let part = |all: u32| (u64::from(all) * percent).div_ceil(100) as u32;
        let (slots, all) = (common.setup.backends[backend].slots, common.limits(address.listener));
        let parts = Limits {
            sessions_per_address: part(all.sessions_per_address),
            sessions_per_site: part(all.sessions_per_site),
            sessions_per_block: part(all.sessions_per_block),
            ..Limits::NONE
        };
        let (max, limits) =
            if percent < 100 { (part(slots), parts) } else { (u32::MAX, Limits::NONE) };
        common.claims.shares().enter((backend, max), address, &limits)
    }

    /// Writes what is known of a source beside its session.
    pub(crate) fn hand_over_proof(&self, entry: Entry<Session>, out: &mut Writer<'_>) {
        let session = self.sessions.at(entry);
        let proof = Proof {
            is_proven: session.stage == (Stage::Open { is_proven: true }),
            credit: session.credit,
            awaited: self.guards[0].get(entry).and_then(Guard::awaited),
            // Of no use once it is proven.
            sent: match session.stage {
                Stage::Open { is_proven: true } | Stage::Barred => Vec::new(),
                Stage::HalfOpen { .. } | Stage::Open { .. } => self.echoes.of(entry).to_vec(),
            },
        };
        self.sessions.place(entry).write(out);
        proof.write(out);
    }

    /// Goes on with it.
    pub(crate) fn take_proof(
        &mut self,
        common: &Common,
        from: &mut Reader<'_>,
    ) -> Result<(), Broken> {
        let (place, proof) = (Place::read(from)?, Proof::read(from)?);
        let entry = self.sessions.live(place).ok_or(Broken::Foreign)?;
        let listener = self.sessions.address(entry).listener;
        let rules = rules_of(common, listener).map_err(|_| Broken::Foreign)?;
        self.sessions.at_mut(entry).credit = proof.credit;
        if rules.sequence.is_some() {
            self.guards[0].of(entry).wait_for(proof.awaited);
        }
        if rules.echo.is_some() {
            self.echoes.start(entry, &proof.sent);
        }
        if proof.is_proven {
            self.prove(common, entry);
        }
        Ok(())
    }
}

/// What is known of a source, in a record that a process without proofs passes over.
struct Proof {
    is_proven: bool,
    credit: u32,
    /// The number that would confirm a jump.
    awaited: Option<u64>,
    /// The words at the echo's place that it was sent.
    sent: Vec<u32>,
}

ringgate_core::carried!(Proof { is_proven, credit, awaited, sent });
