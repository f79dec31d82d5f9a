//! Sleeps that nothing ends but the bell, and what they cost the thread.
//!
//! What a sleep costs differs by ten times between machines (a hypervisor may make timers and halts
//! dear), so it is measured where it is paid: the thread's processor time around some of them.

use std::io;
use std::time::Duration;

use ringgate_batch::IoStats;
use ringgate_os::clock;

use crate::bell::Bell;

/// Sleeps on a bell, and measures some of its sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    /// Sleeps until the next one that is measured.
    unmeasured: u8,
}

impl Sleeper {
    /// So long, or until the bell rings.
    pub(crate) fn sleep(
        &mut self,
        bell: &Bell,
        time: Duration,
        stats: &mut IoStats,
    ) -> io::Result<()> {
        stats.syscalls += 1;
        if self.unmeasured > 0 {
            self.unmeasured -= 1;
            return bell.wait(time);
        }
        let before_ns = clock::thread_cpu_ns();
        let slept = bell.wait(time);
        stats.sleeps_cpu_ns += clock::thread_cpu_ns().saturating_sub(before_ns);
        stats.sleeps_measured += 1;
        stats.syscalls += 2;
        // The first of them are all measured: soon it is known what they cost.
        if stats.sleeps_measured >= AT_FIRST {
            self.unmeasured = UNMEASURED;
        }
        slept
    }
}

const AT_FIRST: u64 = 16;

/// One in 16 is measured, by two system calls of 0.2 µs each: 0.1 % of a worker's time where it
/// sleeps five thousand times a second, and less where it sleeps less.
const UNMEASURED: u8 = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sleeps_and_some_of_the_others_are_measured() {
        let bell = Bell::new().expect("a descriptor");
        let (mut sleeper, mut stats) = (Sleeper::default(), IoStats::default());
        for _ in 0..16 + 2 * 16 {
            sleeper.sleep(&bell, Duration::from_micros(1), &mut stats).expect("it sleeps");
        }
        assert_eq!(stats.sleeps_measured, 16 + 2);
        assert_eq!(stats.syscalls, 48 + 2 * 18);
        assert!(stats.sleeps_cpu_ns > 0, "none of them is for nothing");
    }
}
