//! Numbers to choose by. Nothing secret depends on them: secrets of tokens come from the operating
//! system.

use ringgate_core::splitmix::{self, mixed};
use ringgate_fleet::copy::checksum;

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn number(&mut self) -> u64 {
        splitmix::next(&mut self.0)
    }

    /// A number below this one, which is not 0.
    pub const fn below(&mut self, end: usize) -> usize {
        ((self.number() as u128 * end as u128) >> 64) as usize
    }
}

/// A number for a text, the same in every process.
pub fn of_text(text: &str) -> u64 {
    mixed(checksum(text.as_bytes()))
}
