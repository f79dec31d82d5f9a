//! The only place that reads a clock or sleeps.
#![allow(
    clippy::disallowed_methods,
    reason = "everything else takes `now` as an argument; it comes from here"
)]

use std::sync::OnceLock;
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

    /// A clock that started when another one did, in a process of the same boot of this host.
    pub fn since(epoch_ns: u64) -> Self {
        // In this order it is early rather than late, so that time never goes back.
        let start = Instant::now();
        let ago = Duration::from_nanos(monotonic_ns().saturating_sub(epoch_ns));
        Self { start: start.checked_sub(ago).unwrap_or(start) }
    }

    /// When it started, for [`since`](Self::since): a moment of the host's monotonic clock.
    pub fn epoch_ns(&self) -> u64 {
        // As above.
        let now_ns = monotonic_ns();
        now_ns.saturating_sub(self.now_ns())
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
pub fn monotonic_us() -> u64 {
    monotonic_ns() / 1000
}

/// Tells this boot of the host from others, as far as the kernel says. Read once: a confined daemon
/// cannot read it later.
pub fn boot_id() -> [u8; 16] {
    static READ: OnceLock<[u8; 16]> = OnceLock::new();
    *READ.get_or_init(read_boot_id)
}

fn read_boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        text.chars().filter_map(|it| it.to_digit(16)).map(|it| it as u8).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = pair[0] << 4 | pair[1];
    }
    id
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock that the program stamps frames with.
pub fn monotonic_ns() -> u64 {
    ns_of(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds that the calling thread has had of a processor, with the interrupts that the kernel
/// charges it for. A system call, unlike the other clocks.
pub fn thread_cpu_ns() -> u64 {
    ns_of(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[expect(unsafe_code, reason = "the standard library does not show these clocks' numbers")]
fn ns_of(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a live `timespec`, which the call fills; it cannot fail for the clocks that
    // are named above.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What some of a thread's sleeps cost it, in processor time: the wake-up, and what the kernel does
/// on the thread's bill meanwhile. That differs by ten times between machines (a hypervisor may
/// make timers and halts dear), so it is measured where it is paid.
#[derive(Debug, Default)]
pub struct SleepCosts {
    /// How many were measured, up to [`AT_FIRST`].
    measured: u8,
    /// Sleeps until the next one that is measured.
    unmeasured: u8,
}

impl SleepCosts {
    /// Sleeps, and says what that has cost where it was measured: all of the first, so that it is
    /// known soon, then one in 16. Two system calls of 0.2 µs each measure it: 0.1 % of the time of
    /// a thread that sleeps five thousand times a second, and less where it sleeps less.
    pub fn of<T>(&mut self, sleep: impl FnOnce() -> T) -> (T, Option<u64>) {
        if self.unmeasured > 0 {
            self.unmeasured -= 1;
            return (sleep(), None);
        }
        let before_ns = thread_cpu_ns();
        let slept = sleep();
        let cost_ns = thread_cpu_ns().saturating_sub(before_ns);
        self.measured = (self.measured + 1).min(AT_FIRST);
        self.unmeasured = if self.measured == AT_FIRST { UNMEASURED } else { 0 };
        (slept, Some(cost_ns))
    }
}

const AT_FIRST: u8 = 16;
const UNMEASURED: u8 = 15;

/// What a sleep of 50 µs costs the calling thread now: the middle one of 33.
pub fn sleep_cost_ns() -> u64 {
    let mut all: [u64; 33] = std::array::from_fn(|_| {
        let before_ns = thread_cpu_ns();
        sleep(Duration::from_micros(50));
        thread_cpu_ns().saturating_sub(before_ns)
    });
    all.sort_unstable();
    all[all.len() / 2]
}

/// Sleeps, for control threads and tests that wait for a condition.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}
