//! The operating system, where nothing else may touch it: clocks, limits, signals, privileges.

pub mod clock;
