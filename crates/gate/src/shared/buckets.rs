//! Which worker gets what comes from a source, as tables of sessions have to know it: shared by all
//! workers, and touched when an address gets an entry or loses one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::ids::{ListenerId, WorkerId};
use crate::store::table::Address;
use ringgate_batch::spread::Spread;
use ringgate_core::limits::LISTENERS_MAX;

/// Buckets of sources, and the listeners whose sockets go by them.
#[derive(Debug)]
pub struct Buckets {
    spread: Spread,
    goes_by: [AtomicBool; LISTENERS_MAX],
    among: AtomicU16,
}

/// A worker's end of it.
pub(crate) struct Share {
    buckets: Arc<Buckets>,
    worker: WorkerId,
}

impl Buckets {
    /// No listener goes by them yet.
    pub fn new(spread: Spread) -> Self {
        let among = AtomicU16::new(spread.workers());
        Self { spread, goes_by: [const { AtomicBool::new(false) }; LISTENERS_MAX], among }
    }

    /// Who has which bucket.
    pub const fn spread(&self) -> &Spread {
        &self.spread
    }

    /// A listener's sockets go by them from now on, or not. Nobody may have a session there.
    pub fn set_listener(&self, listener: ListenerId, goes_by: bool) {
        self.goes_by[listener.index()].store(goes_by, Ordering::Relaxed);
    }

    /// So many workers are awake from now on.
    pub fn set_among(&self, workers: u16) {
        self.among.store(workers, Ordering::Relaxed);
    }

    /// How many workers are awake.
    pub fn among(&self) -> u16 {
        self.among.load(Ordering::Relaxed)
    }

    /// The bucket of an address, if its listener goes by them.
    pub fn bucket_of(&self, address: &Address) -> Option<usize> {
        let goes_by = self.goes_by[address.listener.index()].load(Ordering::Relaxed);
        goes_by.then(|| self.spread.key().bucket(&address.endpoint))
    }
}

impl Share {
    pub(crate) fn of(buckets: &Arc<Buckets>, worker: WorkerId) -> Self {
        Self { buckets: Arc::clone(buckets), worker }
    }

    /// A datagram has come in from an address that is to get its first entry. False where another
    /// worker has its bucket by now.
    pub(crate) fn begin(&self, address: &Address) -> bool {
        let bucket = self.buckets.bucket_of(address);
        bucket.is_none_or(|bucket| self.buckets.spread.begin(bucket, self.worker.0))
    }

    /// An address has one more entry.
    pub(crate) fn enter(&self, address: &Address) {
        let bucket = self.buckets.bucket_of(address);
        bucket.inspect(|bucket| self.buckets.spread.enter(*bucket, self.worker.0));
    }

    /// An address has one less.
    pub(crate) fn leave(&self, address: &Address) {
        let bucket = self.buckets.bucket_of(address);
        bucket.inspect(|bucket| self.buckets.spread.leave(*bucket));
    }
}
