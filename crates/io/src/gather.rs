//! Sleeps that nothing ends but the bell, and what they cost the thread.

use std::io;
use std::time::Duration;

use ringgate_batch::IoStats;
use ringgate_os::clock::SleepCosts;

use crate::bell::Bell;

/// Sleeps on a bell, and measures some of its sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    costs: SleepCosts,
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
        let (slept, cost_ns) = self.costs.of(|| bell.wait(time));
        if let Some(ns) = cost_ns {
            stats.sleeps_cpu_ns += ns;
            stats.sleeps_measured += 1;
            stats.syscalls += 2;
        }
        slept
    }
}

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
