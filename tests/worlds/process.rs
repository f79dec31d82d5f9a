//! A process in virtual time: its tasks, its clocks and its memory go with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringgate_fleet::clocks::Clocks;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// A process. Dropped, it is killed: each of its tasks ends where it waits.
pub(crate) struct Process {
    runtime: Runtime,
    clock: Arc<GivenClock>,
    began_ms: u64,
    /// For how long it has prepared before that.
    prepared_ms: u64,
}

/// Clocks that the world sets, in nanoseconds.
#[derive(Debug)]
pub(crate) struct GivenClock {
    now: AtomicU64,
    unix: AtomicU64,
    /// How far its wall clock is ahead of the world's.
    ahead_ns: u64,
}

impl Clocks for GivenClock {
    fn now_ns(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    fn unix_ns(&self) -> u64 {
        self.unix.load(Ordering::Relaxed)
    }
}

impl Process {
    /// One that begins now, whose wall clock is so far ahead.
    pub(crate) fn start(now_ms: u64, ahead_ms: u64) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let (now, unix) = (AtomicU64::new(0), AtomicU64::new(0));
        let clock = Arc::new(GivenClock { now, unix, ahead_ns: ahead_ms * NS_PER_MS });
        let runtime = runtime.expect("a runtime");
        let process = Self { runtime, clock, began_ms: now_ms, prepared_ms: 0 };
        process.set_clock(now_ms);
        process
    }

    /// It has read what there is so long ago, and goes on now.
    pub(crate) fn prepare(&mut self, ms: u64) {
        self.prepared_ms = ms;
        self.set_clock(self.began_ms);
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clocks> {
        Arc::clone(&self.clock) as Arc<dyn Clocks>
    }

    /// Nanoseconds of its own clock, and seconds of the world's as it has them.
    pub(crate) fn now(&self) -> (u64, u64) {
        (self.clock.now_ns(), self.clock.unix_s())
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Goes on for so long, up to this moment of the world.
    pub(crate) fn run(&self, now_ms: u64, step_ms: u64) {
        self.set_clock(now_ms);
        let step = Duration::from_millis(step_ms);
        self.runtime.block_on(async { tokio::time::sleep(step).await });
    }

    /// It did not run for so long, as a machine that was stopped.
    pub(crate) fn skip(&self, ms: u64) {
        let pause = Duration::from_millis(ms);
        self.runtime.block_on(async { tokio::time::advance(pause).await });
    }

    fn set_clock(&self, now_ms: u64) {
        let now_ns = (1 + self.prepared_ms + now_ms - self.began_ms) * NS_PER_MS;
        self.clock.now.store(now_ns, Ordering::Relaxed);
        let unix_ns = UNIX_START_S * 1_000_000_000 + now_ms * NS_PER_MS + self.clock.ahead_ns;
        self.clock.unix.store(unix_ns, Ordering::Relaxed);
    }
}

/// When the world begins, in seconds since 1970.
pub(crate) const UNIX_START_S: u64 = 1_700_000_000;
const NS_PER_MS: u64 = 1_000_000;
