//! What each listener and each backend has carried, for series of their own.
//!
//! Counted in what a datagram's step has in its cache anyway: the listener's and the backend's
//! state. Arrivals are counted once for each run of datagrams, everything else by an addition.

use ringgate_core::delivery::Counts;

/// What has come in and gone out at a listener. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerTraffic {
    /// Datagrams from its sockets.
    pub datagrams_in: u64,
    /// Bytes in them.
    pub bytes_in: u64,
    /// Packets for its players.
    pub packets_out: u64,
    /// Bytes in them.
    pub bytes_out: u64,
    /// Handshakes completed.
    pub sessions_opened: u64,
    /// Datagrams from its sockets that went no further, as releases read it that do not read their
    /// reasons. In a gate 0: there they are counted by their reasons.
    pub drops: u64,
}

/// What has been said in messages at a listener that delivers them. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryTraffic {
    /// Whole messages from its players.
    pub messages_in: u64,
    /// Whole messages queued for its players.
    pub messages_out: u64,
    /// Packets of messages and acknowledgements that were sent to its players.
    pub packets_sent: u64,
    /// Packets with messages that did not reach their player, as far as is known.
    pub packets_lost: u64,
    /// Parts of reliable messages that were sent again.
    pub parts_repeated: u64,
    /// Messages on other channels that made room for newer ones before they were sent.
    pub messages_displaced: u64,
}

/// What has been said between a backend and its players. Starts anew when its number is given to
/// another backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackendTraffic {
    /// Payloads handed over to it.
    pub payloads_up: u64,
    /// Bytes in them.
    pub bytes_up: u64,
    /// Payloads of its that were sent to players.
    pub payloads_down: u64,
    /// Bytes in them.
    pub bytes_down: u64,
    /// Players that were sent there.
    pub sessions_opened: u64,
    /// Payloads to it or from it that went no further.
    pub drops: u64,
}

impl ListenerTraffic {
    /// Adds another worker's.
    pub const fn merge(&mut self, other: &Self) {
        self.datagrams_in += other.datagrams_in;
        self.bytes_in += other.bytes_in;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
        self.sessions_opened += other.sessions_opened;
        self.drops += other.drops;
    }
}

impl DeliveryTraffic {
    /// Adds another worker's.
    pub const fn merge(&mut self, other: &Self) {
        self.messages_in += other.messages_in;
        self.messages_out += other.messages_out;
        self.packets_sent += other.packets_sent;
        self.packets_lost += other.packets_lost;
        self.parts_repeated += other.parts_repeated;
        self.messages_displaced += other.messages_displaced;
    }

    /// Adds what an end has done since.
    pub(crate) const fn note(&mut self, before: &Counts, now: &Counts) {
        self.packets_sent += now.packets_sent - before.packets_sent;
        self.packets_lost += now.packets_lost - before.packets_lost;
        self.parts_repeated += now.parts_repeated - before.parts_repeated;
        self.messages_displaced += now.messages_displaced - before.messages_displaced;
    }
}

impl BackendTraffic {
    /// Adds another worker's.
    pub const fn merge(&mut self, other: &Self) {
        self.payloads_up += other.payloads_up;
        self.bytes_up += other.bytes_up;
        self.payloads_down += other.payloads_down;
        self.bytes_down += other.bytes_down;
        self.sessions_opened += other.sessions_opened;
        self.drops += other.drops;
    }

    /// A payload was handed over.
    #[inline]
    pub(crate) const fn note_up(&mut self, len: usize) {
        self.payloads_up += 1;
        self.bytes_up += len as u64;
    }

    /// A payload was sent to its player.
    #[inline]
    pub(crate) const fn note_down(&mut self, len: usize) {
        self.payloads_down += 1;
        self.bytes_down += len as u64;
    }
}

ringgate_core::carried!(ListenerTraffic {
    datagrams_in,
    bytes_in,
    packets_out,
    bytes_out,
    sessions_opened,
    drops,
});
ringgate_core::carried!(DeliveryTraffic {
    messages_in,
    messages_out,
    packets_sent,
    packets_lost,
    parts_repeated,
    messages_displaced,
});
ringgate_core::carried!(BackendTraffic {
    payloads_up,
    bytes_up,
    payloads_down,
    bytes_down,
    sessions_opened,
    drops,
});
