//! What a gate starts from: which worker it is, and randomness.

use crate::ids::WorkerId;
use ringgate_core::secret::Key;
use ringgate_core::splitmix;

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

/// Random numbers from a seed, over a random start. Unpredictability is not needed
/// where they are used (first sequence numbers), only that two runs do not meet.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Leaves out more numbers than another process with the same seed has drawn meanwhile.
    pub(crate) fn skip(&mut self) {
        self.0 = self.0.wrapping_add(splitmix::STEP.wrapping_mul(1 << 32));
    }

    pub(crate) fn next(&mut self) -> u64 {
        splitmix::next(&mut self.0)
    }
}
