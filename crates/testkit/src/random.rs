//! Random numbers from a seed: what makes a simulation the same twice.

use std::ops::Range;

/// A small generator (wyrand). Nothing secret may depend on it.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// A number of the range, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        let scaled = u128::from(self.word()) * u128::from(range.end - range.start);
        range.start + (scaled >> 64) as u64
    }

    /// True so many times out of a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.within(0..1000) < u64::from(per_mille)
    }

    /// One of several things.
    pub fn pick<'t, T>(&mut self, things: &'t [T]) -> Option<&'t T> {
        if things.is_empty() {
            None
        } else {
            things.get(self.within(0..things.len() as u64) as usize)
        }
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills a slice with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range_and_reach_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[random.within(10..17) as usize - 10] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
        let chances = (0..10_000).filter(|_| random.chance(250)).count();
        assert!((2300..2700).contains(&chances), "{chances}");
    }
}
