//! Token buckets per source prefix, in fixed memory: what a block of addresses may cost us before anything is decrypted.
//!
//! A prefix is a /24 of IPv4 or a /48 of IPv6. Buckets live in an array that a keyed hash indexes; prefixes that collide
//! share a bucket, which can only make the limit stricter. There is nothing to allocate, expire or evict, so a flood from
//! spoofed prefixes changes eight bytes at a time.

use super::hash::HashKey;
use crate::buf::Endpoint;

/// How much one bucket admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Sustained admissions per second.
    pub per_second: u32,
    /// Admissions that may come at once.
    pub burst: u32,
}

/// Limits how often each source prefix is served.
pub(crate) struct Admission {
    key: HashKey,
    buckets: Vec<Bucket>,
    rate: Rate,
}

/// Tokens left, in thousandths, as of a time.
#[derive(Clone, Copy)]
struct Bucket {
    millitokens: u32,
    as_of_ms: u32,
}

impl Admission {
    /// Full buckets, as of `now_ns`.
    pub(crate) fn new(rate: Rate, bucket_count: usize, key: HashKey, now_ns: u64) -> Self {
        let full = Bucket { millitokens: rate.burst.saturating_mul(1000), as_of_ms: ms(now_ns) };
        Self { key, buckets: vec![full; bucket_count.next_power_of_two()], rate }
    }

    /// Whether `source` may be served now; takes a token if so.
    #[inline]
    pub(crate) fn admit(&mut self, source: &Endpoint, now_ns: u64) -> bool {
        let at = self.key.hash(prefix(source)) as usize & (self.buckets.len() - 1);
        self.buckets[at].take(self.rate, ms(now_ns))
    }
}

impl Bucket {
    fn take(&mut self, rate: Rate, now_ms: u32) -> bool {
        // A token per second is a thousandth per millisecond. Times wrap after 49 days: a bucket that was last used
        // longer ago than that may be refilled less than it deserves, once.
        let elapsed_ms = now_ms.wrapping_sub(self.as_of_ms);
        let refill = rate.per_second.saturating_mul(elapsed_ms);
        self.millitokens =
            self.millitokens.saturating_add(refill).min(rate.burst.saturating_mul(1000));
        self.as_of_ms = now_ms;
        let Some(left) = self.millitokens.checked_sub(1000) else { return false };
        self.millitokens = left;
        true
    }
}

/// The first 24 bits of an IPv4 address (the mapped prefix included), the first 48 of an IPv6 one.
fn prefix(source: &Endpoint) -> [u64; 3] {
    let (high, low) = source.ip_words();
    if source.is_v4() { [high, low & !0xff, 0] } else { [high & !0xffff, 0, 0] }
}

fn ms(now_ns: u64) -> u32 {
    (now_ns / 1_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 10, burst: 5 };
    const KEY: HashKey = HashKey::new([1, 2]);

    fn admitted(admission: &mut Admission, source: Endpoint, now_ms: u64, tries: u32) -> u32 {
        (0..tries).filter(|_| admission.admit(&source, now_ms * 1_000_000)).count() as u32
    }

    #[test]
    fn a_burst_then_the_rate_and_never_more_than_the_burst() {
        let mut admission = Admission::new(RATE, 1024, KEY, 0);
        let source = Endpoint::v4([192, 0, 2, 1], 1);
        assert_eq!(admitted(&mut admission, source, 0, 100), 5);
        assert_eq!(admitted(&mut admission, source, 100, 100), 1);
        assert_eq!(admitted(&mut admission, source, 350, 100), 2);
        assert_eq!(admitted(&mut admission, source, 60_000, 100), 5);
    }

    #[test]
    fn neighbours_share_a_bucket_and_strangers_do_not() {
        let mut admission = Admission::new(RATE, 1 << 16, KEY, 0);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 2, 1], 1), 0, 9), 5);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 2, 200], 7), 0, 9), 0);
        assert_eq!(admitted(&mut admission, Endpoint::v4([192, 0, 3, 1], 1), 0, 9), 5);

        let mut v6 = [0x20, 1, 0xd, 0xb8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(admitted(&mut admission, Endpoint::v6(v6, 0, 1), 0, 9), 5);
        v6[7] = 9;
        assert_eq!(admitted(&mut admission, Endpoint::v6(v6, 0, 1), 0, 9), 0);
        v6[5] = 9;
        assert_eq!(admitted(&mut admission, Endpoint::v6(v6, 0, 1), 0, 9), 5);
    }
}
