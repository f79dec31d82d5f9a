//! What goes along with every step of a turn: its time, the batch in which everything leaves, and
//! what all fronts share.

use crate::common::Common;
use crate::now::Now;
use ringgate_batch::{Flush, TxBatch};

/// A turn at hand.
pub(crate) struct Turn<'a> {
    pub(crate) now: Now,
    /// The driver's outgoing batch, empty at the start of a turn and at its end.
    pub(crate) tx: &'a mut TxBatch,
    /// Sends it.
    pub(crate) out: &'a mut dyn Flush,
    pub(crate) common: &'a mut Common,
}
