//! Which worker gets what comes from a source, as tables of sessions have to know it: shared by all
//! workers, and touched when an address gets an entry or loses one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use crate::ids::{ListenerId, WorkerId};
use ringgate_batch::Endpoint;
use ringgate_batch::spread::{KERNEL, Spread};
use ringgate_core::limits::LISTENERS_MAX;

/// Buckets of sources, and the listeners whose sockets go by them.
#[derive(Debug)]
pub struct Buckets {
    spread: Spread,
    goes_by: [AtomicBool; LISTENERS_MAX],
    among: AtomicU16,
}

/// A worker's end of it.
#[derive(Clone)]
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

    /// So many workers do what there is to do, from now on.
    pub fn set_among(&self, workers: u16) {
        self.among.store(workers, Ordering::Relaxed);
    }

    /// How many workers do what there is to do.
    pub fn among(&self) -> u16 {
        self.among.load(Ordering::Relaxed)
    }

    /// The bucket of a source, if the listener goes by them.
    pub fn bucket_of(&self, listener: ListenerId, source: &Endpoint) -> Option<usize> {
        let goes_by = self.goes_by[listener.index()].load(Ordering::Relaxed);
        goes_by.then(|| self.spread.key().bucket(source))
    }
}

impl Share {
    pub(crate) fn of(buckets: &Arc<Buckets>, worker: WorkerId) -> Self {
        Self { buckets: Arc::clone(buckets), worker }
    }

    /// A datagram has come in from a source that is to get its first entry. False where another
    /// worker has its bucket by now.
    pub(crate) fn begin(&self, listener: ListenerId, source: &Endpoint) -> bool {
        let bucket = self.buckets.bucket_of(listener, source);
        bucket.is_none_or(|bucket| self.buckets.spread.begin(bucket, self.worker.0))
    }

    /// The worker that gets what comes from a source, if the listener goes by buckets and the
    /// kernel does not choose.
    pub(crate) fn worker_of(&self, listener: ListenerId, source: &Endpoint) -> Option<WorkerId> {
        let bucket = self.buckets.bucket_of(listener, source)?;
        let worker = self.buckets.spread.bucket(bucket).worker;
        (worker != KERNEL).then_some(WorkerId(worker))
    }

    /// A source has one more entry.
    pub(crate) fn enter(&self, listener: ListenerId, source: &Endpoint) {
        let bucket = self.buckets.bucket_of(listener, source);
        bucket.inspect(|bucket| self.buckets.spread.enter(*bucket, self.worker.0));
    }

    /// A source has one less.
    pub(crate) fn leave(&self, listener: ListenerId, source: &Endpoint) {
        let bucket = self.buckets.bucket_of(listener, source);
        bucket.inspect(|bucket| self.buckets.spread.leave(*bucket));
    }
}
