//! Numbers that wrap: which of two is newer, how far apart they are, and which full number a
//! truncated one stands for.
//!
//! Unreal counts packets in 14 bits and reliable bunches in 10, UNet and the delivery layer count
//! in 16 and 14, TCP in 32. All of them ask the same question, so it is answered once, with the
//! rule of RFC 1323 (section 4, PAWS): `a` is newer than `b` when `0 < (a - b) mod 2^BITS <
//! 2^(BITS-1)`. The number exactly half a range away could be either; it counts as old, because
//! taking something old for new moves state, and taking something new for old only drops it.
//!
//! "Newer" is no order: it is not transitive over more than half a range. `Seq` therefore has no
//! `Ord`, and numbers of different widths do not compare at all. Where an order is needed,
//! [`Seq::extend`] gives full numbers.

use crate::carry::{Broken, Carry, Reader, Writer};

/// A number of `BITS` bits that wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq<const BITS: u32>(
    /// Invariant: the bits from `BITS` upwards are zero.
    u64,
);

impl<const BITS: u32> Seq<BITS> {
    /// The largest number before the wrap.
    pub const MAX: Self = Self(Self::MASK);

    /// The low `BITS` bits of `value`.
    #[inline]
    pub const fn new(value: u64) -> Self {
        Self(value & Self::MASK)
    }

    /// The number, between 0 and [`MAX`](Self::MAX).
    #[inline]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The number `steps` later.
    #[inline]
    #[must_use]
    pub const fn wrapping_add(self, steps: u64) -> Self {
        Self::new(self.0.wrapping_add(steps))
    }

    /// The number `steps` earlier.
    #[inline]
    #[must_use]
    pub const fn wrapping_sub(self, steps: u64) -> Self {
        Self::new(self.0.wrapping_sub(steps))
    }

    /// Steps from `base` to here: positive when this is newer, negative when it is older, and
    /// `-2^(BITS-1)` at the half-range point.
    #[inline]
    pub const fn distance_from(self, base: Self) -> i64 {
        distance(BITS, self.0, base.0)
    }

    /// Whether this comes after `other`.
    #[inline]
    pub const fn is_newer_than(self, other: Self) -> bool {
        self.distance_from(other) > 0
    }

    /// The full number that this one is the end of, if it lies less than half a range after
    /// `latest` or at most half a range before it. `None` where no such number exists: before 0,
    /// and past the last `u64`.
    #[inline]
    pub const fn extend(self, latest: u64) -> Option<u64> {
        latest.checked_add_signed(self.distance_from(Self::new(latest)))
    }

    const MASK: u64 = {
        assert!(BITS >= 2 && BITS <= u64::BITS, "a width from 2 to 64 bits");
        u64::MAX >> (u64::BITS - BITS)
    };
}

impl<const BITS: u32> Carry for Seq<BITS> {
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        u64::read(from).map(Self::new)
    }
}

/// Steps from `base` to `number`, of which the low `bits` bits count, for a width from 1 to 64 bits
/// that is known only at run time.
#[inline]
pub(crate) const fn distance(bits: u32, number: u64, base: u64) -> i64 {
    // The difference goes to the top of the word, so that its highest bit becomes the sign.
    let spare_bits = u64::BITS - bits;
    (number.wrapping_sub(base) << spare_bits).cast_signed() >> spare_bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same questions over integers that do not wrap.
    struct Oracle {
        range: i128,
    }

    impl Oracle {
        fn new(bits: u32) -> Self {
            Self { range: 1 << bits }
        }

        fn distance(&self, to: u64, from: u64) -> i128 {
            let ahead = (i128::from(to) - i128::from(from)).rem_euclid(self.range);
            if ahead < self.range / 2 { ahead } else { ahead - self.range }
        }

        /// Looks at every candidate instead of computing one.
        fn extend(&self, truncated: u64, latest: u64) -> Option<u64> {
            let latest = i128::from(latest);
            let block = latest - latest.rem_euclid(self.range);
            [-1, 0, 1]
                .map(|blocks| block + blocks * self.range + i128::from(truncated))
                .into_iter()
                .find(|full| (-self.range / 2..self.range / 2).contains(&(full - latest)))
                .and_then(|full| u64::try_from(full).ok())
        }
    }

    fn agrees_with_the_oracle<const BITS: u32>(a: u64, b: u64) {
        let oracle = Oracle::new(BITS);
        let (short_a, short_b) = (Seq::<BITS>::new(a), Seq::<BITS>::new(b));
        let distance = oracle.distance(short_a.value(), short_b.value());
        assert_eq!(i128::from(short_a.distance_from(short_b)), distance, "{a} - {b}, {BITS} bits");
        assert_eq!(short_a.is_newer_than(short_b), distance > 0, "{a} > {b}, {BITS} bits");
        assert_eq!(short_a.extend(b), oracle.extend(short_a.value(), b), "{a} at {b}, {BITS} bits");
        assert_eq!(short_b.wrapping_add(a).wrapping_sub(b), short_a.wrapping_sub(0));
        assert_eq!(
            i128::from(short_b.wrapping_add(a).value()),
            (i128::from(a) + i128::from(b)).rem_euclid(oracle.range)
        );
    }

    fn all_widths_agree(a: u64, b: u64) {
        agrees_with_the_oracle::<10>(a, b);
        agrees_with_the_oracle::<14>(a, b);
        agrees_with_the_oracle::<16>(a, b);
        agrees_with_the_oracle::<32>(a, b);
        agrees_with_the_oracle::<64>(a, b);
    }

    /// Numbers close to a wrap or to a half-range point of some width, where the mistakes are.
    fn edgy() -> impl Strategy<Value = u64> {
        let edge = prop::sample::select(vec![0_u32, 9, 10, 13, 14, 15, 16, 31, 32, 63]);
        prop_oneof![
            any::<u64>(),
            (edge, 0_u64..4, -3_i64..=3).prop_map(|(bit, multiple, offset)| {
                multiple.wrapping_shl(bit).wrapping_add_signed(offset)
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn every_width_agrees_with_wide_integers(a in edgy(), b in edgy()) {
            all_widths_agree(a, b);
        }

        #[test]
        fn neighbours_agree_across_every_wrap(base in edgy(), step in -600_i64..600) {
            all_widths_agree(base.wrapping_add_signed(step), base);
        }
    }

    #[test]
    fn every_pair_of_ten_bit_numbers_agrees() {
        for a in 0..1024 {
            for b in 0..1024 {
                agrees_with_the_oracle::<10>(a, b);
            }
        }
    }

    #[test]
    fn the_half_range_point_is_old_from_both_sides() {
        let (a, b) = (Seq::<14>::new(5), Seq::<14>::new(5 + 0x2000));
        assert!(!a.is_newer_than(b) && !b.is_newer_than(a));
        assert_eq!(a.distance_from(b), -0x2000);
        assert!(b.wrapping_sub(1).is_newer_than(a));
    }

    #[test]
    fn extension_follows_a_counter_through_many_wraps_and_back() {
        let mut latest = 0;
        for full in (0..1_000_000).step_by(8191) {
            assert_eq!(Seq::<14>::new(full).extend(latest), Some(full));
            latest = full;
        }
        for full in (0..latest).rev().step_by(8192) {
            assert_eq!(Seq::<14>::new(full).extend(latest), Some(full));
            latest = full;
        }
    }

    #[test]
    fn extension_invents_no_number_outside_u64() {
        assert_eq!(Seq::<16>::new(u64::MAX).extend(0), None);
        assert_eq!(Seq::<16>::new(0).extend(u64::MAX), None);
        assert_eq!(Seq::<64>::new(u64::MAX).extend(u64::MAX - 1), Some(u64::MAX));
    }
}
