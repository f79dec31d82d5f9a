//! The buffers that the packet path and the drivers hand to each other.
//!
//! A driver fills an [`RxBatch`] and sends a [`TxBatch`]; the gate reads the one and fills the
//! other. Neither knows more of its counterpart than these two types, so the gate runs in the
//! simulator on batches that no kernel has ever seen.
#![deny(unsafe_code)]

mod arena;
mod clock;
mod driver;
pub mod filter;
mod nameless;
mod prefetch;
mod rx;
pub mod spread;
mod tx;

pub use arena::{Arena, PAGE_BYTES};
pub use clock::{Clock, Moment};
pub use driver::{Batches, Driver, Flush, IoStats, Port, Wait};
pub use nameless::{Nameless, Newcomer};
pub use prefetch::{LINE_BYTES, prefetch_line};
pub use ringgate_core::endpoint::{Endpoint, LocalIp};
pub use rx::{Credentials, IoEvent, RxBatch, RxMeta};
pub use tx::{LargeSlot, Room, SendFailure, TxBatch, TxEntry, TxTarget};

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// A socket as a driver numbers it. Meaning is given to it elsewhere: drivers know no listener and
/// no backend.
///
/// The lower half is a small index that is used again when a socket is closed, so that tables can
/// be indexed by it; the upper half tells the sockets apart that have had the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

impl SocketId {
    /// The index, which another socket may have had before.
    #[inline]
    pub const fn index(self) -> usize {
        (self.0 & 0xffff) as usize
    }
}

/// Sockets have other numbers in the process that takes over.
impl Carry for SocketId {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        from.socket().map(Self)
    }
}
