//! Repeatable randomness for schedules, sizes and bad networks.

pub use ringgate_impair::rng::{Rng, mix};
