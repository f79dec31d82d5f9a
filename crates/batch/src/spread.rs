//! Which worker gets what comes from a source, where the kernel asks a table for that.
//!
//! Every source, by address and port, falls into one of many *buckets*, by a keyed hash that the
//! kernel's program and this process compute alike. A bucket is one word of memory that both read:
//! the worker that has it, and how many sessions it has. A bucket with sessions stays with its
//! worker; an empty one is given to a worker that takes newcomers. To begin a session and to give a
//! bucket away are one step each on that word, so no bucket is given away under a session that
//! begins: either the session is first, and the bucket stays, or the session is refused
//! ([`Spread::begin`]), and its player's next datagram comes to the other worker.
//!
//! The memory also says what it is, so a process that is given it needs to be told nothing else.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Endpoint;

/// How many buckets there are. More of them than players, or a worker would never be rid of its
/// own.
pub const BUCKETS: usize = 1 << 16;

/// How many words the memory has: one for each bucket, and behind them what it is.
pub const SPREAD_WORDS: usize = BUCKETS + 8;

/// Of a bucket's word, the bits that name its worker.
pub const WORKER_BITS: u32 = 16;

/// In place of a worker: the kernel chooses, as where there is no table.
pub const KERNEL: u16 = u16::MAX;

/// By which sources fall into buckets: one of many functions, so that who does not know it cannot
/// aim at a bucket. Two sources fall into one bucket for one in 65,536 keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SpreadKey {
    /// What the sum begins with.
    pub start: u64,
    /// By which each word of an address is multiplied. Of IPv4 there is one.
    pub words: [u64; 4],
    /// By which the port is.
    pub port: u64,
}

impl SpreadKey {
    /// Of random numbers.
    pub const fn new([start, a, b, c, d, port]: [u64; 6]) -> Self {
        Self { start, words: [a, b, c, d], port }
    }

    /// The bucket of a source.
    #[inline]
    pub fn bucket(&self, source: &Endpoint) -> usize {
        let port = u16::from_ne_bytes(source.port().to_be_bytes());
        let (words, _) = source.ip_bytes().as_chunks::<4>();
        let first = if source.is_v4() { 3 } else { 0 };
        let words = words[first..].iter().map(|it| u32::from_ne_bytes(*it));
        let start = self.start.wrapping_add(self.port.wrapping_mul(port.into()));
        let sum = words
            .zip(self.words)
            .fold(start, |sum, (word, key)| sum.wrapping_add(key.wrapping_mul(word.into())));
        (sum >> BUCKET_SHIFT) as usize
    }
}

/// How far a sum is shifted to become a bucket.
pub const BUCKET_SHIFT: u32 = 48;
const _: () = assert!(BUCKETS == 1 << (64 - BUCKET_SHIFT));

ringgate_core::shown_by!(SpreadKey {});

/// Who has a bucket, and how many sessions it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The worker, or [`KERNEL`].
    pub worker: u16,
    /// Sessions, and handshakes of which something is kept.
    pub sessions: u64,
}

impl Bucket {
    const fn of(word: u64) -> Self {
        Self { worker: word as u16, sessions: word >> WORKER_BITS }
    }

    const fn word(self) -> u64 {
        self.sessions << WORKER_BITS | self.worker as u64
    }
}

/// The buckets, in memory that the kernel's program reads, too.
pub struct Spread {
    words: Box<dyn AsRef<[AtomicU64]> + Send + Sync>,
    key: SpreadKey,
    workers: u16,
}

impl Spread {
    /// New ones in memory of [`SPREAD_WORDS`] words that says nothing yet; the kernel chooses.
    pub fn new(
        words: Box<dyn AsRef<[AtomicU64]> + Send + Sync>,
        key: SpreadKey,
        workers: u16,
    ) -> Self {
        let spread = Self { words, key, workers };
        for bucket in 0..BUCKETS {
            spread.set(bucket, Bucket { worker: KERNEL, sessions: 0 });
        }
        let SpreadKey { start, words: [a, b, c, d], port } = key;
        let notes = [MAGIC, workers.into(), start, a, b, c, d, port];
        for (word, note) in spread.words()[BUCKETS..].iter().zip(notes) {
            word.store(note, Ordering::Relaxed);
        }
        spread
    }

    /// Those that another process has made. `None` where this is no such memory.
    pub fn adopt(words: Box<dyn AsRef<[AtomicU64]> + Send + Sync>) -> Option<Self> {
        let notes = (*words).as_ref().get(BUCKETS..SPREAD_WORDS)?;
        let notes: Vec<_> = notes.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        let [MAGIC, workers, key @ ..] = <[u64; 8]>::try_from(notes).ok()? else { return None };
        Some(Self { words, key: SpreadKey::new(key), workers: u16::try_from(workers).ok()? })
    }

    /// By which sources fall into buckets.
    pub const fn key(&self) -> &SpreadKey {
        &self.key
    }

    /// Among how many workers.
    pub const fn workers(&self) -> u16 {
        self.workers
    }

    /// Who has a bucket.
    pub fn bucket(&self, bucket: usize) -> Bucket {
        Bucket::of(self.words()[bucket].load(Ordering::Relaxed))
    }

    /// A session begins at a worker that has received a datagram of its source. An empty bucket is
    /// that worker's from now on. False where another has it, with sessions: then none begins.
    #[must_use]
    pub fn begin(&self, bucket: usize, worker: u16) -> bool {
        let is_begun = |it: Bucket| {
            let is_own = it.sessions == 0 || it.worker == worker || it.worker == KERNEL;
            is_own.then(|| it.entered(worker))
        };
        self.change(bucket, is_begun)
    }

    /// A session is at a worker, whoever has its bucket. Others tell that worker what comes.
    pub fn enter(&self, bucket: usize, worker: u16) {
        self.change(bucket, |it| Some(it.entered(worker)));
    }

    /// It is not any more. Said once for each time that it has begun or entered.
    pub fn leave(&self, bucket: usize) {
        let is_left =
            self.change(bucket, |it| Some(Bucket { sessions: it.sessions.checked_sub(1)?, ..it }));
        debug_assert!(is_left, "who leaves has entered");
    }

    /// Gives each empty bucket to one of these workers, as many to each. Returns how many others
    /// have buckets still: those go when their sessions do.
    pub fn give_empty(&self, takers: &[u16]) -> usize {
        let mut others = 0;
        for bucket in 0..BUCKETS {
            let worker = takers[bucket % takers.len()];
            let (it, empty) = (self.bucket(bucket), Bucket { worker, sessions: 0 });
            if it.sessions > 0 {
                others += usize::from(!takers.contains(&it.worker));
            } else if it.worker != worker {
                // One that has a session by now keeps it.
                self.change(bucket, |it| (it.sessions == 0).then_some(empty));
            }
        }
        others
    }

    /// Says of all buckets how many sessions each has, in place of whatever was counted.
    pub fn recount(&self, sessions: &[u64]) {
        for (bucket, &sessions) in sessions.iter().enumerate() {
            self.change(bucket, |it| Some(Bucket { sessions, ..it }));
        }
    }

    /// Says who has a bucket, whoever has had it: for buckets that nobody goes by yet.
    pub fn set(&self, bucket: usize, to: Bucket) {
        self.words()[bucket].store(to.word(), Ordering::Relaxed);
    }

    /// Changes a bucket's word in one step, if there is anything to change.
    fn change(&self, bucket: usize, change: impl Fn(Bucket) -> Option<Bucket>) -> bool {
        let change = |word| change(Bucket::of(word)).map(Bucket::word);
        self.words()[bucket].fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
    }

    fn words(&self) -> &[AtomicU64] {
        (*self.words).as_ref()
    }
}

impl Bucket {
    fn entered(self, worker: u16) -> Self {
        let worker = if self.sessions == 0 { worker } else { self.worker };
        Self { worker, sessions: self.sessions + 1 }
    }
}

ringgate_core::shown_by!(Spread { workers });

/// What this memory is, and in which form.
const MAGIC: u64 = u64::from_le_bytes(*b"buckets1");

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SpreadKey = SpreadKey::new([3, 5 << 40 | 1, 7, 11, 13, 17 << 50 | 3]);

    fn memory() -> Box<dyn AsRef<[AtomicU64]> + Send + Sync> {
        Box::new((0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect::<Vec<_>>())
    }

    fn at(worker: u16, sessions: u64) -> Bucket {
        Bucket { worker, sessions }
    }

    #[test]
    fn a_bucket_with_sessions_stays_and_one_without_is_whose_session_begins() {
        let spread = Spread::new(memory(), KEY, 4);
        assert_eq!(spread.bucket(7), at(KERNEL, 0));
        assert_eq!(spread.give_empty(&[0]), 0);
        assert!(spread.begin(7, 0) && spread.begin(7, 0));
        assert_eq!(spread.give_empty(&[1, 2]), 1);
        assert_eq!(spread.bucket(7), at(0, 2));
        assert_eq!([6, 8].map(|bucket| spread.bucket(bucket)), [at(1, 0), at(1, 0)]);
        // Worker 0 has received something before bucket 8 was given away.
        assert!(spread.begin(8, 0) && !spread.begin(8, 1));
        assert_eq!(spread.bucket(8), at(0, 1));
        spread.enter(8, 3);
        assert_eq!(spread.bucket(8), at(0, 2), "a session that has its worker already");
        (0..2).for_each(|_| spread.leave(8));
        (0..2).for_each(|_| spread.leave(7));
        assert_eq!(spread.give_empty(&[1, 2]), 0);
        assert_eq!(spread.bucket(7), at(2, 0));
    }

    #[test]
    fn where_the_kernel_chooses_it_goes_on_as_long_as_there_are_sessions() {
        let spread = Spread::new(memory(), KEY, 2);
        spread.set(1, at(KERNEL, 1));
        assert!(spread.begin(1, 0) && spread.begin(1, 1));
        assert_eq!(spread.give_empty(&[0]), 1);
        assert_eq!(spread.bucket(1), at(KERNEL, 3));
        (0..3).for_each(|_| spread.leave(1));
        assert_eq!((spread.give_empty(&[0]), spread.bucket(1)), (0, at(0, 0)));
    }

    #[test]
    fn memory_says_what_it_is() {
        let words = memory();
        assert!(Spread::adopt(memory()).is_none() && Spread::adopt(Box::new(vec![])).is_none());
        let spread = Spread::new(words, KEY, 3);
        spread.set(9, at(2, 5));
        let copy: Vec<_> = spread.words().iter().map(|it| it.load(Ordering::Relaxed)).collect();
        let copy = Box::new(copy.into_iter().map(AtomicU64::new).collect::<Vec<_>>());
        let adopted = Spread::adopt(copy).expect("it says so");
        assert_eq!((adopted.workers(), *adopted.key(), adopted.bucket(9)), (3, KEY, at(2, 5)));
        adopted.recount(&vec![0; BUCKETS]);
        assert_eq!(adopted.bucket(9), at(2, 0), "its owner stays");
    }

    #[test]
    fn sources_fall_into_all_buckets_and_mapped_addresses_where_plain_ones_do() {
        let key = SpreadKey::new(
            [1, 2, 3, 4, 5, 6]
                .map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) | 1),
        );
        let mut found = vec![0_u32; 64];
        for n in 0..64_000_u32 {
            let source = Endpoint::v4([10, (n >> 8) as u8, n as u8, 1], (n % 7) as u16 + 1024);
            found[key.bucket(&source) / (BUCKETS / 64)] += 1;
        }
        assert!(found.iter().all(|it| (500..2000).contains(it)), "{found:?}");
        let plain = Endpoint::v4([192, 0, 2, 1], 7);
        let mapped = Endpoint::v6(*plain.ip_bytes(), 0, 7);
        assert_eq!(key.bucket(&plain), key.bucket(&mapped));
    }
}
