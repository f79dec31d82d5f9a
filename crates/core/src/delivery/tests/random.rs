//! Random numbers from a seed (splitmix64): the same run twice.

use std::ops::Range;

#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number of the range, which is not empty.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        let scaled = u128::from(self.word()) * u128::from(range.end - range.start);
        range.start + (scaled >> 64) as u64
    }

    /// True so many times out of a hundred.
    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }
}
