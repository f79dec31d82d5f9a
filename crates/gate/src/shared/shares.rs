//! How many players of each backend have proven by nothing that they are where they say, over all
//! workers: they may hold a share of its slots.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ids::{BackendId, IdVec};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::BACKENDS_MAX;

pub(crate) struct Shares(IdVec<BackendId, AtomicU32>);

impl Shares {
    pub(crate) fn new() -> Self {
        Self((0..BACKENDS_MAX).map(|_| AtomicU32::new(0)).collect())
    }

    /// One more, if there are fewer than `max`.
    pub(crate) fn enter(&self, backend: BackendId, max: u32) -> Result<(), DropReason> {
        let enter = |count: u32| (count < max).then_some(count + 1);
        let entered = self.0[backend].fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter);
        entered.map(drop).map_err(|_| DropReason::UnprovenFull)
    }

    /// One more, a player that another process has had.
    pub(crate) fn resume(&self, backend: BackendId) {
        self.0[backend].fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub(crate) fn leave(&self, backend: BackendId) {
        self.0[backend].fetch_sub(1, Ordering::Relaxed);
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn of(&self, backend: BackendId) -> u32 {
        self.0[backend].load(Ordering::Relaxed)
    }
}
