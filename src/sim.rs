//! A gateway without a kernel: the real gate over sockets, a network, players and game processes that exist only in memory.
//!
//! Everything here is driven by a seed and a virtual clock, so a run that fails can be run again, step by step.
//!
//! - [`Host`]: one worker's gate with its batches. What arrives is pushed in, what leaves is handed to a closure.

mod host;

pub use host::{Carry, Host};
