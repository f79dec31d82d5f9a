//! A packet that waits to be sealed.

use ringgate_core::proto::netcode::packet::Header;

/// A packet that waits to be sealed.
#[derive(Clone, Copy)]
pub(crate) struct Seal {
    /// Which small slot of the batch it lies in.
    pub(crate) slot: u32,
    pub(crate) session: u32,
    pub(crate) header: Header,
    pub(crate) len: u16,
}
