//! What each listener and each backend has carried, for series of their own.
//!
//! Counted in what a datagram's step has in its cache anyway: the listener's and the backend's
//! state. Arrivals are counted once for each run of datagrams, everything else by an addition.

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
    /// Datagrams of its players, and of others, that went no further.
    pub drops: u64,
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
ringgate_core::carried!(BackendTraffic {
    payloads_up,
    bytes_up,
    payloads_down,
    bytes_down,
    sessions_opened,
    drops,
});
