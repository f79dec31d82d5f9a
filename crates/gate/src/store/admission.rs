//! Token buckets per source block, in fixed memory: what a block of addresses may cost us before
//! anything is decrypted.
//!
//! Buckets live in an array that a keyed hash indexes; blocks that collide share a bucket, which
//! can only make the limit stricter. There is nothing to allocate, expire or evict, so a flood from
//! spoofed blocks changes eight bytes at a time. What a bucket admits comes with each question, so
//! that a reload changes it.

use crate::store::area::Area;
use crate::store::hash::HashKey;
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// How much one bucket admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Sustained admissions per second; 0 for as many as come.
    pub(crate) per_second: u32,
    /// Admissions that may come at once.
    pub(crate) burst: u32,
}

impl Rate {
    /// So many a second, and those of so many seconds at once.
    pub(crate) const fn new(per_second: u32, burst_seconds: u32) -> Self {
        Self { per_second, burst: per_second.saturating_mul(burst_seconds) }
    }
}

/// Limits how often each area is served.
pub(crate) struct Admission {
    key: HashKey,
    buckets: Vec<Bucket>,
}

/// Tokens left, in thousandths, as of a time.
#[derive(Clone, Copy)]
pub(crate) struct Bucket {
    millitokens: u32,
    as_of_ms: u32,
}

impl Admission {
    /// Full buckets, as of `now_ns`.
    pub(crate) fn new(bucket_count: usize, key: HashKey, now_ns: u64) -> Self {
        Self { key, buckets: vec![Bucket::full(now_ns); bucket_count.next_power_of_two()] }
    }

    /// Whether an area may be served now; takes a token if so.
    #[inline]
    pub(crate) fn admit(&mut self, area: &Area, rate: Rate, now_ns: u64) -> bool {
        self.bucket(area).take(rate, 1, now_ns)
    }

    /// Whether an area might be served now.
    pub(crate) fn would_admit(&mut self, area: &Area, rate: Rate, now_ns: u64) -> bool {
        self.bucket(area).level(rate, now_ns) > 0
    }

    /// The bucket of an area, and of others whose hash is the same.
    pub(crate) fn bucket(&mut self, area: &Area) -> &mut Bucket {
        let at = area.hash(self.key) as usize & (self.buckets.len() - 1);
        &mut self.buckets[at]
    }
}

/// Those that were used: the others are full. They are found by the same key in the process that
/// takes over.
impl Admission {
    /// Writes what is left in each.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { key: _, buckets } = self;
        let used = (0_u32..).zip(buckets).filter(|(_, bucket)| bucket.millitokens != u32::MAX);
        (used.clone().count() as u32).write(out);
        for (at, bucket) in used {
            at.write(out);
            bucket.write(out);
        }
    }

    /// Goes on with it.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        for (at, bucket) in Vec::<(u32, Bucket)>::read(from)? {
            let place = self.buckets.get_mut(at as usize).ok_or(Broken::Invalid("bucket"))?;
            *place = bucket;
        }
        Ok(())
    }
}

ringgate_core::carried!(Bucket { millitokens, as_of_ms });

impl Bucket {
    /// Fuller than any rate allows: the first use cuts it to its burst.
    pub(crate) const fn full(now_ns: u64) -> Self {
        Self { millitokens: u32::MAX, as_of_ms: ms(now_ns) }
    }

    /// How many tokens there are now.
    pub(crate) fn level(&mut self, rate: Rate, now_ns: u64) -> u32 {
        if rate.per_second == 0 {
            return u32::MAX;
        }
        // Times wrap after 49 days: a bucket that was last used longer ago than that may be
        // refilled less than it deserves, once.
        let mut elapsed_ms = ms(now_ns).wrapping_sub(self.as_of_ms);
        if elapsed_ms > BEHIND_MS_MAX.wrapping_neg() {
            elapsed_ms = 0;
        }
        // A token per second is a thousandth per millisecond.
        let refill = rate.per_second.saturating_mul(elapsed_ms);
        self.millitokens =
            self.millitokens.saturating_add(refill).min(rate.burst.saturating_mul(TOKEN));
        self.as_of_ms = self.as_of_ms.wrapping_add(elapsed_ms);
        self.millitokens / TOKEN
    }

    /// Takes so many tokens, if they are there. Where any number may come none is taken.
    pub(crate) fn take(&mut self, rate: Rate, count: u32, now_ns: u64) -> bool {
        if rate.per_second == 0 {
            return true;
        }
        let is_there = self.level(rate, now_ns) >= count;
        if is_there {
            self.spend(count);
        }
        is_there
    }

    /// Takes so many tokens, or what there is.
    pub(crate) fn spend(&mut self, count: u32) {
        self.millitokens = self.millitokens.saturating_sub(count.saturating_mul(TOKEN));
    }
}

const fn ms(now_ns: u64) -> u32 {
    (now_ns / 1_000_000) as u32
}

/// Of threads that share a bucket, one may ask as of the beginning of its turn when another has
/// asked as of later: by no more than this.
const BEHIND_MS_MAX: u32 = 10_000;

/// In thousandths.
const TOKEN: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerId;
    use ringgate_batch::Endpoint;

    const RATE: Rate = Rate { per_second: 10, burst: 5 };
    const KEY: HashKey = HashKey::new([1, 2]);

    fn admitted(admission: &mut Admission, source: Endpoint, now_ms: u64, tries: u32) -> u32 {
        let area = Area::block(ListenerId(0), &source);
        (0..tries).filter(|_| admission.admit(&area, RATE, now_ms * 1_000_000)).count() as u32
    }

    #[test]
    fn a_burst_then_the_rate_and_never_more_than_the_burst() {
        let mut admission = Admission::new(1024, KEY, 0);
        let source = Endpoint::v4([192, 0, 2, 1], 1);
        assert_eq!(admitted(&mut admission, source, 0, 100), 5);
        assert_eq!(admitted(&mut admission, source, 100, 100), 1);
        assert_eq!(admitted(&mut admission, source, 350, 100), 2);
        assert_eq!(admitted(&mut admission, source, 60_000, 100), 5);
    }

    #[test]
    fn to_ask_takes_nothing_and_a_rate_of_0_is_none() {
        let mut admission = Admission::new(16, KEY, 0);
        let area = Area::block(ListenerId(0), &Endpoint::v4([192, 0, 2, 1], 1));
        assert!((0..100).all(|_| admission.would_admit(&area, RATE, 0)));
        assert_eq!((0..100).filter(|_| admission.admit(&area, RATE, 0)).count(), 5);
        assert!(!admission.would_admit(&area, RATE, 99_000_000));
        assert!(admission.would_admit(&area, RATE, 100_000_000));
        let off = Rate::new(0, 2);
        assert!((0..100).all(|_| admission.admit(&area, off, 0)));
    }

    #[test]
    fn a_thread_whose_clock_is_behind_finds_what_the_others_have_left() {
        let (mut bucket, ms) = (Bucket::full(0), |ms: u64| ms * 1_000_000);
        assert!(bucket.take(RATE, 5, ms(5003)));
        for now_ms in [5000, 5003, 4000, 5102] {
            assert!(!bucket.take(RATE, 1, ms(now_ms)), "at {now_ms}");
        }
        assert!(bucket.take(RATE, 1, ms(5103)) && !bucket.take(RATE, 1, ms(5103)));
        // However long it was not asked.
        for days in [20, 60, 120] {
            assert!(bucket.take(RATE, 5, ms(days * 86_400_000)), "{days} days from the start");
        }
    }

    #[test]
    fn neighbours_share_a_bucket_and_strangers_do_not() {
        let mut admission = Admission::new(1 << 16, KEY, 0);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 2, 1], 1), 0, 9), 5);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 2, 200], 7), 0, 9), 0);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 3, 1], 1), 0, 9), 5);
    }
}
