//! How long a busy game process waits before it looks again.
//!
//! A process that sleeps until a bundle comes costs the gateway's worker a wake-up, and itself
//! another, for each bundle. Where bundles follow each other closely (several workers, or one that
//! does not wait for more itself) it had better sleep for a moment with nobody to wake it, and then
//! take what has come. This is the decision: bundles go in, a delay comes out.

use std::time::Duration;

/// Chooses the delay from the bundles that came lately.
#[derive(Debug)]
pub(super) struct Pace {
    longest_ns: u64,
    /// Time that has passed and bundles that came in it, in thousandths; an eighth of both is
    /// forgotten at each look.
    passed_ns: u64,
    bundles: u64,
    noted_ns: u64,
    waits: bool,
}

impl Pace {
    /// Waits for so long at most; not at all with zero.
    pub(super) const fn new(longest: Duration) -> Self {
        let longest_ns = longest.as_nanos() as u64;
        Self { longest_ns, passed_ns: 0, bundles: 0, noted_ns: 0, waits: false }
    }

    /// How long to sleep before the next look, after so many bundles since the last call.
    pub(super) fn next(&mut self, now_ns: u64, bundles: u64) -> Duration {
        if bundles == 0 {
            return Duration::ZERO;
        }
        let passed_ns = now_ns.saturating_sub(self.noted_ns).min(PASSED_NS_MAX);
        self.passed_ns = self.passed_ns / 8 * 7 + passed_ns;
        self.bundles = self.bundles / 8 * 7 + 1000 * bundles;
        self.noted_ns = now_ns;
        let gap_ns = 1000 * self.passed_ns / self.bundles;
        let worth = if self.waits { WORTH_GOING_ON } else { WORTH_BEGINNING };
        self.waits = 2 * self.longest_ns > worth * gap_ns;
        if !self.waits || bundles >= FULL {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.longest_ns.min(GATHERED * gap_ns))
    }
}

/// Bundles that a sleep has to gather, by expectation, in halves: it costs about as much as to be
/// woken by one. Going on takes less, so that a rate near the border settles.
const WORTH_BEGINNING: u64 = 4;
const WORTH_GOING_ON: u64 = 3;

/// Bundles that are gathered where the delay may be as long as that takes.
const GATHERED: u64 = 8;

/// After so many there may be more, and nothing is gained by waiting for it.
const FULL: u64 = 8;

/// A pause that is longer tells no more: nothing waits behind it.
const PASSED_NS_MAX: u64 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bundles at equal distances for 10 ms, to a process that does nothing else. Returns how long
    /// it slept the last time, and how often it has begun or ended to.
    fn play(pace: &mut Pace, now_ns: &mut u64, gap_ns: u64) -> (Duration, u32) {
        let end_ns = *now_ns + 10_000_000;
        let (mut taken_ns, mut sleep, mut changes) = (*now_ns, Duration::ZERO, 0);
        while *now_ns < end_ns {
            let bundles = (*now_ns - taken_ns) / gap_ns;
            taken_ns += bundles * gap_ns;
            let before = pace.waits;
            sleep = pace.next(*now_ns, bundles);
            changes += u32::from(pace.waits != before);
            *now_ns += sleep.as_nanos() as u64;
            if *now_ns < taken_ns + gap_ns {
                *now_ns = taken_ns + gap_ns + 5000;
            }
        }
        (sleep, changes)
    }

    #[test]
    fn only_bundles_that_follow_each_other_closely_are_waited_for() {
        let us = Duration::from_micros;
        let (mut pace, mut now_ns) = (Pace::new(us(50)), 0);
        assert_eq!(play(&mut pace, &mut now_ns, 60_000), (us(0), 0));
        assert_eq!(play(&mut pace, &mut now_ns, 15_000), (us(50), 1));
        assert_eq!(play(&mut pace, &mut now_ns, 30_000), (us(50), 0), "it has begun");
        let (sleep, changes) = play(&mut pace, &mut now_ns, 4000);
        assert!(sleep < us(50) && changes == 0, "{sleep:?}");
        assert_eq!(play(&mut pace, &mut now_ns, 200_000), (us(0), 1));
        let mut never = Pace::new(us(0));
        assert_eq!(play(&mut never, &mut now_ns, 4000), (us(0), 0));
    }

    #[test]
    fn a_pause_ends_the_waiting_and_a_full_turn_is_followed_by_a_look() {
        let us = Duration::from_micros;
        let (mut pace, mut now_ns) = (Pace::new(us(50)), 0);
        play(&mut pace, &mut now_ns, 10_000);
        assert_eq!(pace.next(now_ns + 50_000, 8), us(0));
        assert_eq!(pace.next(now_ns + 100_000, 5), us(50));
        assert_eq!(pace.next(now_ns + 20_100_000, 1), us(0));
    }
}
