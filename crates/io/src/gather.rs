//! Sleeps that nothing ends but the bell, or a link that answers, and what they cost the thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use arrayvec::ArrayVec;

use ringgate_batch::{IoStats, Wait};
use ringgate_os::clock::SleepCosts;
use ringgate_os::notify;

use crate::bell::Bell;
use crate::send::ASKED_MAX;

/// Sleeps on a bell, and measures some of its sleeps.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    costs: SleepCosts,
}

impl Sleeper {
    /// As a wait says that is on purpose, where these links were sent to. Returns whether one of
    /// them has ended it.
    pub(crate) fn gather<'fd>(
        &mut self,
        bell: &Bell,
        wait: Wait,
        links: impl Iterator<Item = BorrowedFd<'fd>>,
        stats: &mut IoStats,
    ) -> io::Result<bool> {
        match wait {
            Wait::No | Wait::AtMost(_) => Ok(false),
            Wait::Gather(time) => self.sleep(bell, time, stats).map(|()| false),
            Wait::GatherAnswers(time) => {
                let mut awaited = ArrayVec::<_, { 1 + ASKED_MAX }>::new();
                awaited.push(notify::awaited(bell.fd().as_raw_fd()));
                awaited.extend(links.map(|fd| notify::awaited(fd.as_raw_fd())));
                stats.syscalls += 1;
                match notify::wait(&mut awaited, time) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
                    Err(e) => Err(e),
                    Ok(_) => Ok(awaited[1..].iter().any(|link| link.revents != 0)),
                }
            }
        }
    }

    /// So long, or until the bell rings.
    fn sleep(&mut self, bell: &Bell, time: Duration, stats: &mut IoStats) -> io::Result<()> {
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
