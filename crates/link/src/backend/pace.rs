//! How long a busy game process waits before it looks again.
//!
//! A process that sleeps until a bundle comes costs the gateway's worker a wake-up, and itself
//! another, for each bundle. Where bundles follow each other closely (several workers, or one that
//! does not wait for more itself) it had better sleep for a moment with nobody to wake it, and then
//! take what has come. This is the decision: bundles go in, a delay comes out.
//!
//! A worker that waits for more has waited for both: what the game's config allows the two together
//! is said on the links, and the game takes no more than what workers have left of it.

use std::time::Duration;

/// Chooses the delay from the bundles that came lately.
#[derive(Debug)]
pub(super) struct Pace {
    /// What the game has chosen; without a choice it goes by the gateway.
    chosen_ns: Option<u64>,
    /// How long the gateway lets both wait together, where it says so.
    told_ns: Option<u64>,
    /// What a sleep costs, as it was of late; 0 until one was measured.
    sleep_cost_ns: u64,
    /// Time that has passed and bundles that came in it, in thousandths; an eighth of both is
    /// forgotten at each look.
    passed_ns: u64,
    bundles: u64,
    noted_ns: u64,
    waits: bool,
}

impl Pace {
    /// Waits for so long at most; not at all with zero.
    pub(super) fn new(longest: Option<Duration>) -> Self {
        let chosen_ns = longest.map(|longest| longest.as_nanos() as u64);
        let (told_ns, sleep_cost_ns) = (None, 0);
        let (passed_ns, bundles, noted_ns, waits) = (0, 0, 0, false);
        Self { chosen_ns, told_ns, sleep_cost_ns, passed_ns, bundles, noted_ns, waits }
    }

    /// The gateway lets both together wait for so long.
    pub(super) const fn note_told(&mut self, us: Option<u32>) {
        self.told_ns = match us {
            Some(us) => Some(1000 * us as u64),
            None => None,
        };
    }

    /// A sleep has cost so much of the thread's processor time, if it was measured.
    pub(super) fn note_sleep_cost(&mut self, cost_ns: Option<u64>) {
        self.sleep_cost_ns = match (self.sleep_cost_ns, cost_ns) {
            (known, None) => known,
            (0, Some(cost_ns)) => cost_ns,
            (known, Some(cost_ns)) => known - known / 8 + cost_ns.min(4 * known) / 8,
        };
    }

    /// How long it may wait where so many workers each send a bundle in so many nanoseconds: for
    /// that long their payloads may have waited there.
    fn longest_ns(&self, workers: u64, apart_ns: u64) -> u64 {
        match (self.chosen_ns, self.told_ns) {
            (Some(chosen_ns), _) => chosen_ns,
            (None, None) => LEAST_NS,
            (None, Some(_)) if workers == 1 => 0,
            (None, Some(told_ns)) => {
                told_ns.saturating_sub(apart_ns).min(LEAST_NS.max(SLEEP_SHARE * self.sleep_cost_ns))
            }
        }
    }

    /// How long to sleep before the next look, after so many bundles of so many workers since the
    /// last call.
    pub(super) fn next(&mut self, now_ns: u64, bundles: u64, workers: u64) -> Duration {
        if bundles == 0 {
            return Duration::ZERO;
        }
        let passed_ns = now_ns.saturating_sub(self.noted_ns).min(PASSED_NS_MAX);
        self.passed_ns = self.passed_ns / 8 * 7 + passed_ns;
        self.bundles = self.bundles / 8 * 7 + 1000 * bundles;
        self.noted_ns = now_ns;
        let gap_ns = 1000 * self.passed_ns / self.bundles;
        let worth = if self.waits { WORTH_GOING_ON } else { WORTH_BEGINNING };
        let longest_ns = self.longest_ns(workers, gap_ns * workers);
        self.waits = 2 * longest_ns > worth * gap_ns;
        if !self.waits || bundles >= FULL {
            return Duration::ZERO;
        }
        Duration::from_nanos(longest_ns.min(GATHERED * gap_ns))
    }
}

/// As long as a busy worker waits itself where sleeps are cheap: less is hardly worth a sleep, and
/// players would feel more.
const LEAST_NS: u64 = 50_000;

/// Where a sleep is dear, sleeping is to take less than a tenth of the core.
const SLEEP_SHARE: u64 = 12;

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

    const WORKERS: u64 = 4;

    /// Bundles at equal distances for 10 ms, to a process that does nothing else. Returns how long
    /// it slept the last time, and how often it has begun or ended to.
    fn play(pace: &mut Pace, now_ns: &mut u64, gap_ns: u64) -> (Duration, u32) {
        let end_ns = *now_ns + 10_000_000;
        let (mut taken_ns, mut sleep, mut changes) = (*now_ns, Duration::ZERO, 0);
        while *now_ns < end_ns {
            let bundles = (*now_ns - taken_ns) / gap_ns;
            taken_ns += bundles * gap_ns;
            let before = pace.waits;
            sleep = pace.next(*now_ns, bundles, WORKERS);
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
        let (mut pace, mut now_ns) = (Pace::new(None), 0);
        assert_eq!(play(&mut pace, &mut now_ns, 60_000), (us(0), 0));
        assert_eq!(play(&mut pace, &mut now_ns, 15_000), (us(50), 1));
        assert_eq!(play(&mut pace, &mut now_ns, 30_000), (us(50), 0), "it has begun");
        let (sleep, changes) = play(&mut pace, &mut now_ns, 4000);
        assert!(sleep < us(50) && changes == 0, "{sleep:?}");
        assert_eq!(play(&mut pace, &mut now_ns, 200_000), (us(0), 1));
        let mut never = Pace::new(Some(us(0)));
        assert_eq!(play(&mut never, &mut now_ns, 4000), (us(0), 0));
    }

    #[test]
    fn a_pause_ends_the_waiting_and_a_full_turn_is_followed_by_a_look() {
        let us = Duration::from_micros;
        let (mut pace, mut now_ns) = (Pace::new(None), 0);
        play(&mut pace, &mut now_ns, 10_000);
        assert_eq!(pace.next(now_ns + 50_000, 8, WORKERS), us(0));
        assert_eq!(pace.next(now_ns + 100_000, 5, WORKERS), us(50));
        assert_eq!(pace.next(now_ns + 20_100_000, 1, WORKERS), us(0));
    }

    /// The last sleep where bundles of so many workers come so far apart.
    fn slept(told_us: Option<u32>, sleep_cost_ns: u64, gap_ns: u64, workers: u64) -> Duration {
        let mut pace = Pace::new(None);
        pace.note_told(told_us);
        pace.note_sleep_cost(Some(sleep_cost_ns));
        let slept = (0..200).map(|n| pace.next(n * gap_ns, 1, workers)).last();
        Duration::from_micros(slept.expect("there are some").as_micros() as u64)
    }

    #[test]
    fn what_one_worker_has_gathered_is_not_gathered_again() {
        for (cost_ns, gap_ns) in [(2500, 15_000), (20_000, 15_000), (20_000, 60_000)] {
            assert_eq!(slept(Some(190), cost_ns, gap_ns, 1), Duration::ZERO, "{gap_ns}");
            assert_eq!(slept(Some(0), cost_ns, gap_ns, 4), Duration::ZERO, "{gap_ns}");
        }
        assert_eq!(slept(None, 20_000, 15_000, 1), Duration::from_micros(50), "it is not told");
    }

    #[test]
    fn a_game_takes_no_more_than_its_workers_have_left_and_as_much_as_a_sleep_is_worth() {
        let us = Duration::from_micros;
        assert_eq!(slept(Some(190), 2500, 15_000, 4), us(50));
        assert_eq!(slept(Some(190), 8000, 15_000, 4), us(96));
        assert_eq!(slept(Some(190), 20_000, 15_000, 4), us(120), "8 bundles");
        assert_eq!(slept(Some(190), 20_000, 20_000, 4), us(109), "80 have passed at a worker");
        assert_eq!(slept(Some(190), 20_000, 45_000, 4), us(0), "180 have");
    }
}
