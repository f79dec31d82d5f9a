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

/// Whether this moment is later than anybody else's clock can say: they have `written` last then,
/// and nobody decides for others by such a clock. Not known where there is nobody.
pub fn is_ahead(now_s: u64, written: impl Iterator<Item = u64>) -> bool {
    written.max().is_some_and(|last_s| now_s > last_s.saturating_add(AHEAD_S_MAX))
}

/// Each of them writes once a minute at least.
const AHEAD_S_MAX: u64 = 120;

/// The host's, from now on.
pub fn of_host() -> Arc<dyn Clocks> {
    Arc::new(Clock::start())
}

#[cfg(test)]
mod tests {
    use super::is_ahead;

    #[test]
    fn a_clock_is_ahead_of_the_last_who_has_written() {
        assert!(!is_ahead(u64::MAX, [].into_iter()));
        assert!(!is_ahead(1120, [7, 1000].into_iter()));
        assert!(is_ahead(1121, [7, 1000].into_iter()));
        assert!(!is_ahead(1121, [7, u64::MAX].into_iter()));
    }
}
