//! What goes along with every step of a turn: its time, and the batch in which everything leaves.

use ringgate_batch::{Flush, TxBatch};

/// The time of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Nanoseconds of a clock that only goes forward.
    pub mono_ns: u64,
    /// Seconds since 1970, by which tokens expire.
    pub unix_s: u64,
}

/// A turn at hand.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    /// The driver's outgoing batch, empty at the start of a turn and at its end.
    pub(crate) tx: &'a mut TxBatch,
    /// Sends it.
    pub(crate) out: &'a mut dyn Flush,
}
