//! Datagrams on their way out of a swarm: those being written and sealed, and those that the
//! network holds back.

use std::cmp::Ordering;

use ringgate_batch::Endpoint;
use ringgate_core::limits::TX_SLOT_BYTES;
use ringgate_core::proto::netcode::client::Transmit;
use ringgate_core::proto::netcode::packet::Header;

/// Datagrams that are being made ready.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) bytes: Box<[u8]>,
    pub(super) items: Vec<Item>,
    pub(super) payload: Box<[u8; TX_SLOT_BYTES]>,
    /// The same for messages that no datagram holds.
    pub(super) message: Vec<u8>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) player: u32,
    pub(super) len: u16,
    /// Where body and tag begin.
    pub(super) sealed_from: u16,
    pub(super) seal: Option<Header>,
    pub(super) to: Endpoint,
    pub(super) tag: u64,
}

impl Item {
    /// What goes out as it was written.
    pub(super) const fn bare(player: u32, len: usize, to: Endpoint, tag: u64) -> Self {
        Self { player, len: len as u16, sealed_from: 0, seal: None, to, tag }
    }

    /// What a client has written into the next slot.
    pub(super) fn of(player: u32, transmit: &Transmit) -> Self {
        Self {
            player,
            len: transmit.len as u16,
            sealed_from: transmit.sealed().start as u16,
            seal: transmit.seal,
            to: transmit.to,
            tag: 0,
        }
    }
}

impl Staged {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; STAGED_MAX * TX_SLOT_BYTES].into_boxed_slice(),
            items: Vec::with_capacity(STAGED_MAX),
            payload: Box::new([0; TX_SLOT_BYTES]),
            message: Vec::new(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.items.len() == STAGED_MAX
    }

    /// Room for the next datagram.
    pub(super) fn slot(&mut self) -> &mut [u8] {
        let start = self.items.len() * TX_SLOT_BYTES;
        &mut self.bytes[start..start + TX_SLOT_BYTES]
    }
}

/// A datagram that is on its way, in either direction.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Delayed {
    pub(super) due_ns: u64,
    /// How many were delayed before it: what is due at the same time travels in that order.
    pub(super) order: u64,
    pub(super) player: u32,
    pub(super) session: u32,
    pub(super) way: Way,
    pub(super) bytes: Vec<u8>,
}

/// Which way it goes, and what has to be known there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the gateway.
    Up { to: Endpoint, tag: u64 },
    /// To the player.
    Down { from: Endpoint },
}

impl Ord for Delayed {
    /// The heap's top is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due_ns, other.order).cmp(&(self.due_ns, self.order))
    }
}

impl PartialOrd for Delayed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Marks entries that carry a payload.
pub(super) const TAG_PAYLOAD: u64 = 1;

/// Marks entries that are game packets without a payload.
pub(super) const TAG_PLAIN: u64 = 2;

/// Players visited between two flushes.
pub(super) const VISITS_MAX: usize = 256;

/// Players whose memory is asked for before the first of them is visited: as much as a core's first
/// cache holds.
pub(super) const FETCHED_AT_ONCE: usize = 32;

/// Datagrams sealed in one batch.
pub(super) const STAGED_MAX: usize = 256;

/// Delayed datagrams released between two flushes.
pub(super) const RELEASES_MAX: usize = 128;

/// A staged datagram may leave twice, or draw one behind it that was held back.
pub(super) const DATAGRAMS_PER_STAGED: usize = 2;

/// Slots that a batch for [`Swarm::transmit`](super::Swarm::transmit) needs, so that none runs out.
pub const TX_SLOTS: usize = DATAGRAMS_PER_STAGED * STAGED_MAX + RELEASES_MAX + 64;
