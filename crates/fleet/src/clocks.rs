//! The clocks that a process of a fleet decides by: the host's, or what somebody else says.

use std::fmt::Debug;
use std::sync::Arc;

use ringgate_os::clock::{self, Clock};

/// The time of one process.
pub trait Clocks: Debug + Send + Sync {
    /// Nanoseconds since its start, on a clock that nobody sets.
    fn now_ns(&self) -> u64;

    /// Nanoseconds since 1970, on a clock that operators set.
    fn unix_ns(&self) -> u64;

    /// Milliseconds since its start.
    fn now_ms(&self) -> u64 {
        self.now_ns() / 1_000_000
    }

    /// Seconds since 1970.
    fn unix_s(&self) -> u64 {
        self.unix_ns() / 1_000_000_000
    }
}

impl Clocks for Clock {
    fn now_ns(&self) -> u64 {
        Self::now_ns(self)
    }

    fn unix_ns(&self) -> u64 {
        clock::unix_ns()
    }
}

/// The host's, from now on.
pub fn of_host() -> Arc<dyn Clocks> {
    Arc::new(Clock::start())
}
