//! What each listener and each backend has carried, for series of their own.
//!
//! Counted in what a datagram's step has in its cache anyway: the listener's and the backend's
//! state. Arrivals are counted once for each run of datagrams, everything else by an addition.

pub use ringgate_core::delivery::Traffic as DeliveryTraffic;

ringgate_core::numbered! {
    /// What has come in and gone out at a listener. All only grow.
    pub struct ListenerTraffic;
    /// Datagrams from its sockets.
    datagrams_in,
    /// Bytes in them.
    bytes_in,
    /// Packets for its players.
    packets_out,
    /// Bytes in them.
    bytes_out,
    /// Handshakes completed.
    sessions_opened,
    /// Datagrams from its sockets that went no further, as releases read it that do not read their
    /// reasons. In a gate 0: there they are counted by their reasons.
    drops,
}

ringgate_core::numbered! {
    /// What has been said between a backend and its players. Starts anew when its number is given
    /// to another backend.
    pub struct BackendTraffic;
    /// Payloads handed over to it.
    payloads_up,
    /// Bytes in them.
    bytes_up,
    /// Payloads of its that were sent to players.
    payloads_down,
    /// Bytes in them.
    bytes_down,
    /// Players that were sent there.
    sessions_opened,
    /// Payloads to it or from it that went no further.
    drops,
}

impl BackendTraffic {
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
