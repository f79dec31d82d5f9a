//! What a gate starts from: which worker it is, and randomness.

use crate::ids::WorkerId;
use ringgate_core::secret::Key;

/// Randomness that a gate starts from.
#[derive(Debug)]
pub struct Seed {
    /// Seals challenge tokens.
    pub challenge_key: Key,
    /// Where sequences start, and the keys of hash tables.
    pub random: [u64; 4],
}

impl Seed {
    /// From the operating system's generator.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut random = [0; 4];
        for word in &mut random {
            *word = getrandom::u64()?;
        }
        Ok(Self { challenge_key: Key::generate()?, random })
    }
}

/// Which worker a gate belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerIndex {
    /// Its number.
    pub id: WorkerId,
    /// How many there are.
    pub count: u16,
}

/// Random numbers from a seed: `SplitMix64` over a random start. Unpredictability is not needed
/// where they are used (first sequence numbers), only that two runs do not meet.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Leaves out more numbers than another process with the same seed has drawn meanwhile.
    pub(crate) fn skip(&mut self) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(1 << 32));
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
