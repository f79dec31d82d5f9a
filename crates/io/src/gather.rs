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
                let (slept, cost_ns) = self.costs.of(|| notify::wait(&mut awaited, time));
                match slept {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
                    Err(e) => Err(e),
                    // What a link has ended may have been no sleep.
                    Ok(_) if awaited[1..].iter().any(|link| link.revents != 0) => Ok(true),
                    Ok(_) => {
                        note(cost_ns, stats);
                        Ok(false)
                    }
                }
            }
        }
    }

    /// So long, or until the bell rings.
    fn sleep(&mut self, bell: &Bell, time: Duration, stats: &mut IoStats) -> io::Result<()> {
        stats.syscalls += 1;
        let (slept, cost_ns) = self.costs.of(|| bell.wait(time));
        note(cost_ns, stats);
        slept
    }
}

/// What a sleep has cost, where that was measured.
fn note(cost_ns: Option<u64>, stats: &mut IoStats) {
    if let Some(ns) = cost_ns {
        stats.sleeps_cpu_ns += ns;
        stats.sleeps_measured += 1;
        stats.syscalls += 2;
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

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

    #[test]
    fn sleeps_that_wait_for_answers_in_vain_are_measured_too() {
        let bell = Bell::new().expect("a descriptor");
        let (mut sleeper, mut stats) = (Sleeper::default(), IoStats::default());
        let (link, game) = std::os::unix::net::UnixDatagram::pair().expect("a pair");
        let mut gather = |stats: &mut IoStats| {
            let wait = Wait::GatherAnswers(Duration::from_micros(1));
            let links = std::iter::once(link.as_fd());
            sleeper.gather(&bell, wait, links, stats).expect("it sleeps")
        };
        (0..16).for_each(|_| assert!(!gather(&mut stats), "nobody has answered"));
        assert_eq!(stats.sleeps_measured, 16);
        game.send(b"an answer").expect("there is room");
        (0..32).for_each(|_| assert!(gather(&mut stats)));
        assert_eq!(stats.sleeps_measured, 16);
    }
}
