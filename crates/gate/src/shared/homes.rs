//! Which workers have sessions of an address: a packet from a new port of it may belong to one.
//!
//! Every datagram of an unknown source asks, so nothing here is locked: a fixed table of bits, one
//! for each worker in each bucket of addresses. A worker writes when the first of its sessions
//! comes into a bucket and when the last has left, that is while players connect and leave; it
//! knows by its own list of residents when that is. Addresses that share a bucket are taken for
//! each other here; the worker that has the sessions tells them apart.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::WorkerId;
use crate::store::area::Area;
use crate::store::hash::HashKey;
use ringgate_core::limits::WORKERS_MAX;

/// Shared by all workers.
pub(crate) struct Homes {
    key: HashKey,
    /// Invariant: as many as a power of two.
    buckets: Box<[[AtomicU64; WORDS]]>,
}

/// The workers that have sessions in a bucket of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workers(u128);

impl Homes {
    /// A table in which that many addresses rarely share a bucket.
    pub(crate) fn new(addresses_max: usize, key: HashKey) -> Self {
        let count = (2 * addresses_max).next_power_of_two().clamp(BUCKETS_MIN, BUCKETS_MAX);
        let buckets = std::iter::repeat_with(|| [const { AtomicU64::new(0) }; WORDS]);
        Self { key, buckets: buckets.take(count).collect() }
    }

    /// How many buckets there are.
    pub(crate) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Where an address belongs.
    #[inline]
    pub(crate) fn bucket(&self, area: &Area) -> u32 {
        area.hash(self.key) as u32 & (self.buckets.len() as u32 - 1)
    }

    /// Who has sessions in a bucket. It may be a moment old: then the player's next packet finds
    /// them.
    #[inline]
    pub(crate) fn workers(&self, bucket: u32) -> Workers {
        let [low, high] = &self.buckets[bucket as usize];
        let [low, high] = [low, high].map(|word| u128::from(word.load(Ordering::Relaxed)));
        Workers(high << 64 | low)
    }

    /// The first session of a worker has come into a bucket.
    pub(crate) fn enter(&self, bucket: u32, worker: WorkerId) {
        self.word(bucket, worker).fetch_or(1 << (worker.0 % 64), Ordering::Relaxed);
    }

    /// The last one has left it.
    pub(crate) fn leave(&self, bucket: u32, worker: WorkerId) {
        self.word(bucket, worker).fetch_and(!(1 << (worker.0 % 64)), Ordering::Relaxed);
    }

    fn word(&self, bucket: u32, worker: WorkerId) -> &AtomicU64 {
        &self.buckets[bucket as usize][worker.index() / 64]
    }
}

impl Workers {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) const fn one(worker: WorkerId) -> Self {
        Self(1 << worker.0)
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether a worker is one of them.
    pub(crate) const fn contains(self, worker: WorkerId) -> bool {
        self.0 >> worker.0 & 1 == 1
    }

    /// All but one.
    pub(crate) const fn without(self, worker: WorkerId) -> Self {
        Self(self.0 & !(1 << worker.0))
    }

    /// How many they are.
    pub(crate) const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// One after the other.
    pub(crate) fn iter(self) -> impl Iterator<Item = WorkerId> {
        (0..u128::BITS as u16).map(WorkerId).filter(move |worker| self.contains(*worker))
    }
}

/// Words of bits in a bucket.
const WORDS: usize = 2;
const _: () = assert!(WORKERS_MAX <= WORDS * u64::BITS as usize);

const BUCKETS_MIN: usize = 1 << 10;

/// 64 MiB.
const BUCKETS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_come_and_go_by_themselves() {
        let homes = Homes::new(1, HashKey::new([1, 2]));
        let there =
            |bucket| homes.workers(bucket).iter().map(|worker| worker.0).collect::<Vec<_>>();
        homes.enter(7, WorkerId(0));
        homes.enter(7, WorkerId(64));
        homes.enter(7, WorkerId(126));
        homes.enter(8, WorkerId(1));
        assert_eq!((there(7), there(8), there(9)), (vec![0, 64, 126], vec![1], vec![]));
        homes.leave(7, WorkerId(64));
        assert_eq!(there(7), [0, 126]);
        let workers = homes.workers(7);
        assert!(workers.contains(WorkerId(126)) && !workers.contains(WorkerId(64)));
        assert_eq!(
            (workers.count(), workers.without(WorkerId(0)).iter().collect()),
            (2, vec![WorkerId(126)])
        );
        homes.leave(8, WorkerId(1));
        assert!(homes.workers(8).is_empty());
    }
}
