//! Repeatable randomness for schedules, sizes and bad networks: a run with the same seed makes the
//! same decisions.
//!
//! Splitmix64: one word of state, so that every player can have a stream of its own. Nothing secret
//! comes from here.

/// A stream of pseudo-random words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not 0. The bias is below `end` / 2^32 for the small ranges
    /// used here.
    #[inline]
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.word() as u128 * end as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        if high <= low { low } else { low + self.below(high - low + 1) }
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
    }

    /// Whether something happens that has this chance in percent.
    #[inline]
    pub fn percent(&mut self, chance: f64) -> bool {
        chance > 0.0 && (self.word() >> 11) as f64 * (100.0 / (1_u64 << 53) as f64) < chance
    }
}

/// Spreads a number over 64 bits: similar numbers become different ones.
#[inline]
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_come_true_as_often_as_they_should() {
        let mut rng = Rng::new(1);
        let hits = (0..100_000).filter(|_| rng.percent(3.0)).count();
        assert!((2_800..3_200).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| rng.percent(0.0)) && (0..1000).all(|_| rng.percent(100.0)));
    }

    #[test]
    fn ranges_include_both_ends_and_nothing_else() {
        let mut rng = Rng::new(2);
        let mut seen = [0; 4];
        (0..1000).for_each(|_| seen[(rng.between(5, 8) - 5) as usize] += 1);
        assert!(seen.iter().all(|count| *count > 150), "{seen:?}");
        assert_eq!(rng.between(7, 7), 7);
    }
}
