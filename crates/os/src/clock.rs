//! The only place that reads a clock or sleeps.
#![allow(
    clippy::disallowed_methods,
    reason = "everything else takes `now` as an argument; it comes from here"
)]

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time since an arbitrary start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Nanoseconds since 1970, the clock that the kernel stamps datagrams with.
#[inline]
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Seconds since 1970, the clock that connect tokens name.
#[inline]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Microseconds of `CLOCK_MONOTONIC`, by which the service manager orders what it is told.
#[expect(unsafe_code, reason = "the standard library does not show this clock's numbers")]
pub fn monotonic_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live `timespec`, which the call fills; it cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Sleeps, for control threads and tests that wait for a condition.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}
