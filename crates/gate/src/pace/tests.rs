//! The choice of the delay, over arrivals that were made up and in time that is counted.

use std::collections::VecDeque;

use super::*;

/// A worker that takes turns over given arrivals: a turn takes 2 µs and 0.8 µs for each datagram,
/// to be woken takes 5.
struct Trial {
    pace: Pace,
    now_ns: u64,
    arrivals: VecDeque<u64>,
    /// When the choice was what, each time it was another.
    choices: Vec<(u64, u64)>,
    /// Datagrams of each turn that found some, with its time.
    turns: Vec<(u64, usize)>,
    /// Times it has waited on purpose.
    sleeps: usize,
    /// Nanoseconds that each datagram waited.
    waited: Vec<u64>,
    /// Whether a game process answers a look at once, or in time for the next one; `None` where
    /// there is none.
    answers_at_once: Option<bool>,
}

impl Trial {
    fn new(limit: BatchDelay, room: u32) -> Self {
        Self {
            pace: Pace::new(limit, Rules::new(room), 0),
            now_ns: 0,
            arrivals: VecDeque::new(),
            choices: vec![(0, 0)],
            turns: Vec::new(),
            sleeps: 0,
            waited: Vec::new(),
            answers_at_once: None,
        }
    }

    fn answering(mut self, at_once: bool) -> Self {
        self.answers_at_once = Some(at_once);
        self
    }

    /// Datagrams that arrive at random, so many a second for so many milliseconds.
    fn poisson(mut self, rate: f64, ms: u64, mut seed: u64) -> Self {
        let (mut at, end) = (self.now_ns as f64, (self.now_ns + ms * MS) as f64);
        loop {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = ((seed >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            at -= uniform.ln() * 1e9 / rate;
            if at >= end {
                break;
            }
            self.arrivals.push_back(at as u64);
        }
        self.run(end as u64)
    }

    /// Datagrams at equal distances.
    fn spread(mut self, rate: u64, ms: u64) -> Self {
        let gap_ns = 1_000_000_000 / rate;
        let end_ns = self.now_ns + ms * MS;
        let next_ns = self.now_ns.next_multiple_of(gap_ns);
        self.arrivals.extend((next_ns..end_ns).step_by(gap_ns as usize));
        self.run(end_ns)
    }

    /// As many at once as a tick of so many microseconds brings.
    fn ticks(mut self, rate: u64, tick_us: u64, ms: u64) -> Self {
        let end_ns = self.now_ns + ms * MS;
        let at_once = rate * tick_us / 1_000_000;
        for at in (self.now_ns..end_ns).step_by(1000 * tick_us as usize) {
            self.arrivals.extend(std::iter::repeat_n(at, at_once as usize));
        }
        self.run(end_ns)
    }

    /// Nothing arrives; the worker turns every 50 ms as workers do.
    fn silence(self, ms: u64) -> Self {
        let end_ns = self.now_ns + ms * MS;
        self.run(end_ns)
    }

    fn run(mut self, end_ns: u64) -> Self {
        while self.now_ns < end_ns {
            let delay_ns = self.pace.delay_ns();
            self.sleeps += usize::from(delay_ns.is_some());
            self.now_ns = match delay_ns {
                Some(ns) => self.now_ns + ns.max(2000),
                None => match self.arrivals.front() {
                    Some(next_ns) if *next_ns <= self.now_ns => self.now_ns + 2000,
                    Some(next_ns) => next_ns + 5000,
                    None => (self.now_ns + 50 * MS).min(end_ns),
                },
            };
            self.turn(delay_ns.is_some());
        }
        self
    }

    fn turn(&mut self, has_slept: bool) {
        let mut count = 0;
        while count < 64 && self.arrivals.front().is_some_and(|at| *at <= self.now_ns) {
            self.waited.extend(self.arrivals.pop_front().map(|at| self.now_ns - at));
            count += 1;
        }
        let awaits = self.pace.awaits_answers() && self.answers_at_once == Some(true);
        let late = usize::from(self.answers_at_once.is_some() && !awaits);
        let found = Found { has_slept, from_players: count as u64, from_all: count + late };
        self.pace.note(self.now_ns, found);
        if awaits && has_slept {
            self.pace.note_answers(1);
        }
        if count > 0 {
            self.turns.push((self.now_ns, count));
        }
        if (self.pace.chosen_ns() > 0) != (self.choices[self.choices.len() - 1].1 > 0) {
            self.choices.push((self.now_ns, self.pace.chosen_ns()));
        }
        self.now_ns += 800 * count as u64;
    }

    /// Datagrams in a turn that found some, on average since a moment.
    fn gathered(&self, since_ms: u64) -> f64 {
        let turns = self.turns.iter().filter(|(at, _)| *at >= since_ms * MS);
        let (count, sum) = turns.fold((0, 0), |(count, sum), (_, it)| (count + 1, sum + it));
        f64::from(sum as u32) / f64::from(count)
    }

    /// Times the worker has begun to wait or has ended it.
    fn changes(&self) -> usize {
        self.choices.len() - 1
    }

    fn waits(&self) -> bool {
        self.pace.chosen_ns() > 0
    }
}

const AUTO: BatchDelay = BatchDelay::AUTO;
const ROOM: u32 = 4000;

#[test]
fn nobody_waits_at_low_rates_whatever_the_delay() {
    for limit in [AUTO, BatchDelay::AtMost(Duration::from_millis(1))] {
        for rate in [1000.0, 2000.0, 5000.0] {
            let trial = Trial::new(limit, ROOM).poisson(rate, 2000, 1);
            assert_eq!(trial.changes(), 0, "{limit:?} at {rate}");
        }
    }
}

#[test]
fn a_steady_rate_has_one_choice_within_milliseconds_and_keeps_it() {
    for (rate, at_least_us, at_most_us) in
        [(20_000.0, 75, 90), (60_000.0, 50, 60), (100_000.0, 45, 55), (400_000.0, 40, 45)]
    {
        for seed in 1..6 {
            let trial = Trial::new(AUTO, ROOM).poisson(rate, 3000, seed);
            assert!(trial.waits() && trial.changes() == 1, "{rate}: {:?}", trial.choices);
            assert!(trial.choices[1].0 < 30 * MS, "{rate}: {:?}", trial.choices);
            let us = trial.pace.chosen_ns() / 1000;
            assert!((at_least_us..=at_most_us).contains(&us), "{rate}: {us} us");
        }
    }
}

#[test]
fn waiting_gathers_what_makes_it_worth_its_while() {
    for (rate, least) in [(20_000.0, 1.5), (60_000.0, 3.0), (100_000.0, 4.5), (400_000.0, 15.0)] {
        let waiting = Trial::new(AUTO, ROOM).poisson(rate, 500, 3);
        assert!(waiting.gathered(50) > least, "{rate}: {}", waiting.gathered(50));
    }
    let millisecond = BatchDelay::AtMost(Duration::from_millis(1));
    for rate in [20_000, 100_000, 400_000] {
        let gathered = Trial::new(millisecond, ROOM).spread(rate, 500).gathered(50);
        assert!((16.0..=32.0).contains(&gathered), "{rate}: {gathered}");
    }
}

#[test]
fn nobody_waits_longer_than_the_delay_that_was_set() {
    let limit = Duration::from_micros(70);
    let trial = Trial::new(BatchDelay::AtMost(limit), ROOM).poisson(60_000.0, 500, 9);
    assert_eq!(trial.pace.chosen_ns(), 70_000);
    // A turn's own time comes on top.
    let longest = trial.waited.iter().max().expect("some have arrived");
    assert!(*longest < 100_000, "{longest}");
    let off = Trial::new(BatchDelay::OFF, ROOM).poisson(100_000.0, 500, 9);
    assert_eq!(off.changes(), 0);
    // What would not gather one and a half datagrams is not worth a sleep.
    let short = BatchDelay::AtMost(Duration::from_micros(20));
    assert_eq!(Trial::new(short, ROOM).poisson(20_000.0, 500, 9).changes(), 0);
}

#[test]
fn a_rate_that_changes_is_followed_within_milliseconds() {
    let mut trial = Trial::new(AUTO, ROOM).poisson(2000.0, 400, 5);
    for step in 0..4 {
        let rises_at = trial.now_ns;
        trial = trial.poisson(100_000.0, 1000, 6 + step);
        assert!(trial.waits());
        let (since_ns, _) = trial.choices[trial.choices.len() - 1];
        assert!(since_ns - rises_at < 5 * MS, "{since_ns} after {rises_at}");
        let falls_at = trial.now_ns;
        trial = trial.poisson(2000.0, 1000, 16 + step);
        assert!(!trial.waits());
        let (since_ns, _) = trial.choices[trial.choices.len() - 1];
        assert!(since_ns - falls_at < 25 * MS, "{since_ns} after {falls_at}");
    }
    assert_eq!(trial.changes(), 8, "{:?}", trial.choices);
}

#[test]
fn rates_that_swing_around_a_border_change_nothing() {
    for (low, high) in [(13_000.0, 18_000.0), (13_000.0, 30_000.0)] {
        let mut trial = Trial::new(AUTO, ROOM).poisson(25_000.0, 100, 2);
        for round in 0..50 {
            trial = trial.poisson(low, 30, 2 * round).poisson(high, 30, 2 * round + 1);
        }
        assert!(trial.changes() <= 3, "{:?}", trial.choices);
    }
}

#[test]
fn the_delay_of_a_steady_rate_stays_about_the_same() {
    let mut trial = Trial::new(AUTO, ROOM).poisson(40_000.0, 100, 4);
    let (mut least, mut most) = (u64::MAX, 0);
    for round in 0..1000 {
        trial = trial.poisson(40_000.0, 1, 100 + round);
        least = least.min(trial.pace.chosen_ns());
        most = most.max(trial.pace.chosen_ns());
    }
    assert!(least > 50_000 && most < 80_000, "{least} to {most}");
}

#[test]
fn a_burst_is_taken_without_a_wait_and_silence_ends_the_waiting() {
    let mut trial = Trial::new(AUTO, ROOM).poisson(50_000.0, 100, 7);
    let burst_at = trial.now_ns;
    trial.arrivals.extend((0..640).map(|n| burst_at + n * 100));
    trial = trial.run(burst_at + 2 * MS);
    let turns: Vec<_> = trial.turns.iter().filter(|(at, _)| *at > burst_at).collect();
    assert!(turns.iter().filter(|(_, count)| *count == 64).count() >= 9, "{turns:?}");
    assert!(trial.turns[trial.turns.len() - 1].0 < burst_at + MS, "no wait in between");
    // The sockets are armed after a few looks in vain, before the rate has noticed.
    let before_ns = trial.now_ns;
    let trial = trial.silence(1);
    assert_eq!(trial.pace.delay_ns(), None);
    assert_eq!(trial.now_ns, before_ns + MS);
}

#[test]
fn a_quiet_gateway_s_bursts_are_answered_as_fast_as_without_waiting() {
    let median = |limit| {
        let mut trial = Trial::new(limit, ROOM);
        // 2,000 a second, all players in the same millisecond.
        trial
            .arrivals
            .extend((0..30).flat_map(|burst| (0..200).map(move |n| burst * 100 * MS + n * 5000)));
        let mut waited = trial.run(3000 * MS).waited;
        waited.sort_unstable();
        waited[waited.len() / 2]
    };
    let (auto, off) = (median(AUTO), median(BatchDelay::OFF));
    assert!(auto * 100 <= off * 105, "{auto} instead of {off}");
}

/// Each sends again when it was answered, 15 µs after its turn.
fn play_in_a_loop(players: u64, ms: u64) -> Trial {
    let mut trial = Trial::new(AUTO, ROOM);
    trial.arrivals.extend((0..players).map(|player| player * 1000));
    while trial.now_ns < ms * MS {
        let delay_ns = trial.pace.delay_ns();
        let next_ns = match (delay_ns, trial.arrivals.front()) {
            (Some(ns), _) => trial.now_ns + ns.max(2000),
            (None, Some(next_ns)) => next_ns.max(&trial.now_ns) + 5000,
            (None, None) => trial.now_ns + MS,
        };
        trial.now_ns = next_ns;
        let before = trial.waited.len();
        trial.turn(delay_ns.is_some());
        let answered = (trial.waited.len() - before) as u64;
        trial.arrivals.extend((0..answered).map(|n| trial.now_ns + 15_000 + n * 500));
    }
    trial
}

#[test]
fn players_who_wait_for_answers_are_not_waited_for_again_and_again() {
    let alone = play_in_a_loop(1, 4000);
    let waiting: u64 =
        alone.choices.windows(2).filter(|it| it[0].1 > 0).map(|it| it[1].0 - it[0].0).sum();
    assert!(waiting < 400 * MS, "{} of 4000 ms: {:?}", waiting / MS, alone.choices);
    assert!(alone.changes() < 60, "{:?}", alone.choices);
    let eight = play_in_a_loop(8, 1000);
    assert!(eight.waits() && eight.changes() == 1, "{:?}", eight.choices);
}

#[test]
fn a_small_receive_buffer_bounds_the_delay_after_a_burst() {
    let limit = BatchDelay::AtMost(Duration::from_millis(1));
    let small = Trial::new(limit, 184).poisson(20_000.0, 100, 11);
    assert_eq!(small.pace.chosen_ns(), 1_000_000);
    let small = small.poisson(1_000_000.0, 3, 12).poisson(20_000.0, 10, 13);
    assert!(small.pace.chosen_ns() < 200_000, "{}", small.pace.chosen_ns());
    let small = small.poisson(20_000.0, 2000, 14);
    assert!(small.pace.chosen_ns() > 900_000, "forgotten: {}", small.pace.chosen_ns());
}

#[test]
fn another_limit_holds_from_the_next_window_on() {
    let mut trial = Trial::new(AUTO, ROOM).poisson(60_000.0, 100, 1);
    trial.pace.limit(BatchDelay::OFF);
    assert_eq!(trial.pace.delay_ns(), None);
    trial = trial.poisson(60_000.0, 100, 2);
    assert!(!trial.waits());
    trial.pace.limit(BatchDelay::AtMost(Duration::from_micros(30)));
    trial = trial.poisson(60_000.0, 100, 3);
    assert_eq!(trial.pace.chosen_ns(), 30_000);
}

#[test]
fn a_slower_world_waits_in_proportion() {
    let slow = Rules::new(ROOM).slowed(1000);
    let mut pace = Pace::new(AUTO, slow, 0);
    for step in 1..40 {
        let found = Found { has_slept: false, from_players: 30, from_all: 0 };
        pace.note(step * 500 * MS, found);
    }
    let chosen = pace.chosen_ns();
    assert!((50_000_000..60_000_000).contains(&chosen), "{chosen} at 60 a second");
}

#[test]
fn answers_that_come_one_by_one_make_no_turn_full() {
    let mut trial = Trial::new(AUTO, ROOM).poisson(100_000.0, 100, 4);
    let mut full = |from_players, from_all| {
        trial.pace.note(trial.now_ns, Found { has_slept: true, from_players, from_all });
        trial.pace.delay_ns() == Some(0)
    };
    assert!(!full(20, 40), "a udp link has as many answers as players have sent");
    assert!(full(32, 33) && full(10, 64));
}

#[test]
fn who_sends_in_bursts_is_soon_not_slept_for() {
    for (rate, tick_us) in [(40_000, 250), (100_000, 250), (40_000, 1000)] {
        let trial = Trial::new(AUTO, ROOM).ticks(rate, tick_us, 4000);
        let ticks = 4_000_000 / tick_us as usize;
        assert!(trial.sleeps > 64, "it tries: {}", trial.sleeps);
        assert!(trial.sleeps < ticks / 4, "and gives up: {} in {ticks} ticks", trial.sleeps);
    }
}

#[test]
fn bursts_that_a_sleep_finds_are_slept_for() {
    let trial = Trial::new(AUTO, ROOM).ticks(100_000, 50, 2000);
    assert!(trial.waits() && trial.changes() == 1, "{:?}", trial.choices);
}

#[test]
fn who_stops_sending_in_bursts_is_slept_for_again() {
    let trial = Trial::new(AUTO, ROOM).ticks(60_000, 500, 4000).poisson(60_000.0, 500, 8);
    let (sleeps, turns) = (trial.sleeps, trial.turns.len());
    let trial = trial.poisson(60_000.0, 1000, 9);
    assert!(trial.waits(), "{:?}", trial.choices);
    let share = (trial.sleeps - sleeps) as f64 / (trial.turns.len() - turns) as f64;
    assert!(share > 0.7, "{share}");
}

#[test]
fn nothing_is_computed_while_nobody_plays_and_the_rate_is_right_afterwards() {
    let trial = Trial::new(AUTO, ROOM).poisson(60_000.0, 500, 2).silence(60_000);
    assert!(!trial.waits() && trial.pace.rate == 0.0, "{:?}", trial.pace);
    let trial = trial.poisson(60_000.0, 50, 3);
    assert!((40_000.0..80_000.0).contains(&trial.pace.rate), "{:?}", trial.pace);
    assert!(trial.waits());
}

#[test]
fn answers_that_come_at_once_are_waited_for_and_a_delay_is_longer() {
    for (rate, cost_ns, at_least_us, at_most_us) in [
        (20_000, 2500, 210, 220),
        (60_000, 2500, 140, 150),
        (100_000, 2500, 120, 135),
        (20_000, 20_000, 370, 380),
        (60_000, 20_000, 370, 380),
        (100_000, 20_000, 370, 380),
    ] {
        let mut trial = Trial::new(AUTO, ROOM).answering(true);
        (0..100).for_each(|_| trial.pace.note_sleep_cost(cost_ns));
        let trial = trial.spread(rate, 200);
        assert!(trial.pace.awaits_answers());
        let us = trial.pace.chosen_ns() / 1000;
        assert!((at_least_us..=at_most_us).contains(&us), "{rate} {cost_ns}: {us}");
    }
}

#[test]
fn a_longer_delay_does_not_make_every_turn_full() {
    let mut trial = Trial::new(AUTO, ROOM).answering(true);
    (0..100).for_each(|_| trial.pace.note_sleep_cost(20_000));
    let trial = trial.poisson(100_000.0, 1000, 3);
    assert!(trial.gathered(500) > 25.0, "{}", trial.gathered(500));
}

#[test]
fn answers_that_come_late_are_not_waited_for_but_tried_again() {
    let mut trial = Trial::new(AUTO, ROOM).answering(false);
    assert!(trial.pace.awaits_answers(), "nobody knows yet");
    trial = trial.spread(60_000, 50);
    assert!(!trial.pace.awaits_answers());
    let without = Trial::new(AUTO, ROOM).spread(60_000, 50).pace.chosen_ns();
    assert_eq!(trial.pace.chosen_ns(), without);
    trial = trial.answering(true).spread(60_000, 500);
    assert!(trial.pace.awaits_answers() && trial.pace.chosen_ns() > 2 * without);
    trial = trial.answering(false).spread(60_000, 50);
    assert!(!trial.pace.awaits_answers());
    assert!(
        trial.pace.chosen_ns().abs_diff(without) < 1000,
        "{} {without}",
        trial.pace.chosen_ns()
    );
}

#[test]
fn a_fixed_delay_is_what_it_says_whoever_answers() {
    let fixed = BatchDelay::AtMost(Duration::from_micros(200));
    let trial = Trial::new(fixed, ROOM).answering(true).spread(60_000, 200);
    assert_eq!((trial.pace.awaits_answers(), trial.pace.chosen_ns()), (false, 200_000));
}

/// The delay at a rate, in microseconds, where a sleep costs so much; 0 where it does not wait.
fn chosen_us(rate: u64, sleep_cost_ns: u64) -> u64 {
    chosen_within(AUTO, rate, sleep_cost_ns)
}

fn chosen_within(limit: BatchDelay, rate: u64, sleep_cost_ns: u64) -> u64 {
    let mut trial = Trial::new(limit, ROOM);
    for _ in 0..100 {
        trial.pace.note_sleep_cost(sleep_cost_ns);
    }
    trial.spread(rate, 100).pace.chosen_ns() / 1000
}

#[test]
fn where_sleeps_are_dear_a_worker_looks_as_often_as_a_tenth_of_its_core_allows() {
    for (rate, at_least, at_most) in [(20_000, 180, 190), (60_000, 170, 180), (100_000, 150, 165)] {
        let dear = chosen_us(rate, 20_000);
        assert!((at_least..=at_most).contains(&dear), "{rate}: {dear}");
        for cost_us in [10, 13] {
            let us = chosen_us(rate, cost_us * 1000);
            assert!((cost_us * 12 - 1..=at_most).contains(&us), "{rate}, {cost_us}: {us}");
        }
    }
}

#[test]
fn auto_keeps_to_its_bound_whatever_sleeps_cost() {
    let within = |us: u64| BatchDelay::Auto(Duration::from_micros(us));
    for cost_ns in [2500, 20_000] {
        for rate in [20_000, 60_000, 100_000] {
            let most = chosen_within(within(45), rate, cost_ns);
            let begins = rate > 40_000;
            assert!(most <= 45 && (most > 0) == begins, "{rate} {cost_ns}: {most}");
            assert_eq!(chosen_within(within(0), rate, cost_ns), 0, "{rate} {cost_ns}");
            // Where answers are waited for, the way up has what both have.
            let mut trial = Trial::new(within(45), ROOM).answering(true);
            (0..100).for_each(|_| trial.pace.note_sleep_cost(cost_ns));
            let most = trial.spread(rate, 200).pace.chosen_ns() / 1000;
            assert!(most <= 90, "{rate} {cost_ns}: {most}");
        }
    }
    // A longer bound lets sleep take a twelfth of the core, and no less than that.
    assert_eq!(chosen_within(within(1000), 20_000, 30_000), 360);
    assert_eq!(chosen_within(within(1000), 60_000, 2500), chosen_us(60_000, 2500));
}

#[test]
fn workers_who_share_a_rate_wait_as_one_would_for_all_of_it() {
    let chosen_us = |rate: u64, workers| {
        let mut pace = Pace::new(AUTO, Rules::new(ROOM).among(workers), 0);
        pace.note_sleep_cost(20_000);
        for ms in 1..100 {
            let found = Found { has_slept: false, from_players: rate / 1000, from_all: 0 };
            pace.note(ms * MS, found);
        }
        pace.chosen_ns() / 1000
    };
    assert_eq!((chosen_us(20_000, 1), chosen_us(10_000, 2)), (189, 189));
    assert_eq!(chosen_us(10_000, 1), 0, "a gateway that is hardly busy answers at once");
    assert_eq!(chosen_us(50_000, 1), chosen_us(50_000, 2), "each gathers as much");
}

#[test]
fn one_of_several_workers_tries_what_a_sleep_costs_and_begins_again_by_that() {
    for (cost_ns, goes_on) in [(2500, false), (20_000, true)] {
        let mut pace = Pace::new(AUTO, Rules::new(ROOM).among(2), 0);
        let play = |pace: &mut Pace, ms: std::ops::Range<u64>| {
            for ms in ms {
                let found = Found { has_slept: true, from_players: 10, from_all: 20 };
                pace.note(ms * MS, found);
            }
        };
        play(&mut pace, 1..100);
        assert!(pace.chosen_ns() > 180_000, "it does not know: {}", pace.chosen_ns());
        pace.note_sleep_cost(cost_ns);
        play(&mut pace, 100..200);
        assert_eq!(pace.chosen_ns() > 0, goes_on, "{cost_ns}");
    }
}

#[test]
fn workers_who_share_a_rate_go_on_by_what_a_longer_delay_gathers() {
    for (rate, cost_ns) in [(10_000.0, 10_000), (10_000.0, 2500), (12_000.0, 10_000)] {
        let mut trial = Trial::new(AUTO, ROOM).answering(true);
        trial.pace = Pace::new(AUTO, Rules::new(ROOM).among(2), 0);
        (0..100).for_each(|_| trial.pace.note_sleep_cost(cost_ns));
        let trial = trial.poisson(rate, 3000, 5);
        assert!(trial.waits() && trial.changes() == 1, "{rate} {cost_ns}: {:?}", trial.choices);
        assert!(trial.gathered(500) > 2.0, "{rate} {cost_ns}: {}", trial.gathered(500));
    }
}

#[test]
fn where_sleeps_are_cheap_their_cost_changes_nothing_and_at_low_rates_it_never_does() {
    for rate in [20_000, 60_000, 100_000, 300_000] {
        assert_eq!(chosen_us(rate, 2500), chosen_us(rate, 0), "{rate}");
    }
    for rate in [1000, 5000, 9000, 12_000] {
        assert_eq!(chosen_us(rate, 20_000), chosen_us(rate, 0), "{rate}");
    }
}

#[test]
fn one_sleep_in_which_the_kernel_did_other_work_changes_little() {
    let mut pace = Pace::new(AUTO, Rules::new(ROOM), 0);
    assert_eq!(pace.sleep_cost_ns(), 0, "none was measured");
    for _ in 0..100 {
        pace.note_sleep_cost(3000);
    }
    pace.note_sleep_cost(5_000_000);
    assert!((3000..3400).contains(&pace.sleep_cost_ns()), "{}", pace.sleep_cost_ns());
    for _ in 0..200 {
        pace.note_sleep_cost(20_000);
    }
    assert!(pace.sleep_cost_ns() > 19_000, "{}", pace.sleep_cost_ns());
}
