//! A capture of what a gate in memory is sent and sends.

use std::sync::Arc;

use super::rig::Rig;
use crate::capture::{Capture, Captured, Meant};
use crate::counters::Ledger;
use crate::mail::Mail;
use ringgate_core::drops::DropReason;

pub(super) struct Lens(pub(super) Arc<Capture>);

/// What is worth comparing of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) is_outbound: bool,
    pub(super) dropped: Option<DropReason>,
    pub(super) client_id: Option<u64>,
    pub(super) is_clear: bool,
    pub(super) bytes: Vec<u8>,
}

impl Lens {
    /// From the next turn on.
    pub(super) fn new(rig: &mut Rig, meant: Meant, in_clear: bool) -> Self {
        let worker = rig.host.gate().common.worker.id;
        let capture = Capture::new(meant, in_clear, u64::MAX, Vec::new(), worker.index() + 1);
        let capture = Arc::new(capture);
        rig.mail(Mail::Capture(Arc::clone(&capture)));
        Self(capture)
    }

    /// Of everything, as it is on the wire.
    pub(super) fn wide(rig: &mut Rig) -> Self {
        Self::new(rig, Meant::default(), false)
    }

    /// What has passed since the last look.
    pub(super) fn take(&self) -> Vec<Sight> {
        self.each(|captured| Sight {
            is_outbound: captured.seen.is_outbound,
            dropped: captured.seen.dropped,
            client_id: captured.seen.client_id,
            is_clear: captured.is_clear,
            bytes: captured.bytes.clone(),
        })
    }

    /// Why something of it went no further.
    pub(super) fn drops(&self) -> Vec<DropReason> {
        self.each(|captured| captured.seen.dropped).into_iter().flatten().collect()
    }

    pub(super) fn each<T>(&self, look: impl Fn(&Captured) -> T) -> Vec<T> {
        let mut found = Vec::new();
        self.0.drain(|captured| {
            found.push(look(captured));
            true
        });
        found
    }

    /// That a drop was seen, where it is one of a datagram that came from a player.
    pub(super) fn has_seen(&self, reason: DropReason) {
        if Ledger::of(reason) == Ledger::Datagrams {
            let count = self.drops().iter().filter(|seen| **seen == reason).count();
            assert_eq!(count, 1, "{reason:?}: captured once, with its reason");
        }
    }
}

impl Drop for Lens {
    fn drop(&mut self) {
        self.0.end();
    }
}
