//! The buffers that the packet path and the drivers hand to each other.
//!
//! A driver fills an [`RxBatch`] and sends a [`TxBatch`]; the gate reads the one and fills the other. Neither knows more of
//! its counterpart than these two types, so the gate runs in the simulator on batches that no kernel has ever seen.

mod arena;
mod endpoint;
mod rx;
mod tx;

pub use arena::Arena;
pub use endpoint::{Endpoint, LocalIp};
pub use rx::{IoEvent, RxBatch, RxMeta};
pub use tx::{LargeSlot, SendFailure, TxBatch, TxEntry, TxTarget};

/// A socket as a driver numbers it. Meaning is given to it elsewhere: drivers know no listener and no backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);
