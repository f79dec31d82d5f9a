//! How long a busy worker waits on purpose before it looks again.
//!
//! To be woken costs a worker more than all the work on one datagram, and at the load that fleets
//! run at, datagrams come one by one. So a worker that is busy enough sleeps for a short while with
//! nothing armed, and then takes everything that has arrived: what a network card's interrupt
//! moderation does. This is the decision alone: arrivals go in, a delay comes out; who sleeps, and
//! how, is elsewhere.
//!
//! ```text
//!   rate      of players' datagrams, over the last few milliseconds. What game processes send does
//!             not count: they answer batches with batches, and the rate would follow the delay.
//!   cost      of a sleep, in processor time, as it was measured of late: 2 to 20 µs by the machine
//!   delay     from one look to the next: until GATHERED datagrams may be there, but no longer than
//!             the config allows, `auto` allows, and half of a receive buffer takes at the highest
//!             rate of late. `auto` allows what costs players little, and where sleeps are dear
//!             what keeps them below a tenth of the core
//!   waits     when the delay is expected to gather what is worth a sleep; not at low rates. Once
//!             it has begun it goes on at somewhat less, and if it ended soon, it begins later
//!   answers   of game processes, in bundles. Where they come at once they are waited for, once in
//!             a delay, in a look at links alone. Else they would wait for the whole of the next
//!             delay; so the delay is longer then, and a round trip waits no longer than without
//!   in vain   when fewer than half of its sleeps find what a player sent: players send in bursts,
//!             and the rate does not know. To be woken once for each burst is cheaper
//!   at once   after a turn that was full of players' datagrams, or of all, whatever the delay
//! ```

use std::time::Duration;

/// How long a worker that is busy may wait for more before it looks again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchDelay {
    /// As long as costs players little, and no longer than this each way: see [`auto_ns`].
    Auto(Duration),
    /// No longer than this; nothing at all with zero.
    AtMost(Duration),
}

impl BatchDelay {
    /// A worker is woken by whatever arrives.
    pub const OFF: Self = Self::AtMost(Duration::ZERO);
    /// As long as is worth it, within the bound that a config has where it says nothing.
    pub const AUTO: Self = Self::Auto(Duration::from_micros(190));

    /// How long what goes one way may wait at the most, gateway and game process together.
    pub const fn longest(self) -> Duration {
        match self {
            Self::Auto(longest) | Self::AtMost(longest) => longest,
        }
    }

    /// From one look at players' sockets to the next it is never longer. Where answers are waited
    /// for, the way up may spend what is allowed both ways.
    pub const fn longest_look(self) -> Duration {
        match self {
            Self::Auto(longest) => longest.saturating_mul(2),
            Self::AtMost(longest) => longest,
        }
    }
}

/// What a [`Pace`] decides by: spans of time in nanoseconds, rates in datagrams a second.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Arrivals are counted over so long before they become a rate.
    window_ns: u64,
    /// The rate forgets within a few of these.
    memory_ns: u64,
    /// The highest rate is forgotten within a few of these.
    peak_memory_ns: u64,
    /// How many times slower than in reality everything is.
    slowness: f64,
    /// Datagrams that the smallest receive buffer of a player's socket holds.
    room: f64,
    /// Workers that have the gateway's datagrams among them, each about as many.
    workers: f64,
}

impl Rules {
    /// A real worker's, with receive buffers that hold so many datagrams.
    pub const fn new(room: u32) -> Self {
        Self {
            window_ns: MS,
            memory_ns: 6 * MS,
            peak_memory_ns: 100 * MS,
            slowness: 1.0,
            room: room as f64,
            workers: 1.0,
        }
    }

    /// The same for one of so many workers.
    #[must_use]
    pub const fn among(mut self, workers: u16) -> Self {
        self.workers = workers as f64;
        self
    }

    /// The same for a world in which everything takes `times` as long.
    #[must_use]
    pub const fn slowed(mut self, times: u32) -> Self {
        self.window_ns *= times as u64;
        self.memory_ns *= times as u64;
        self.peak_memory_ns *= times as u64;
        self.slowness = times as f64;
        self
    }

    fn ns(&self, real_ns: u64) -> u64 {
        (real_ns as f64 * self.slowness) as u64
    }
}

/// Chooses the delay from what has arrived.
#[derive(Debug)]
pub struct Pace {
    limit: BatchDelay,
    rules: Rules,
    /// Of the window at hand: its beginning, and what has arrived in it.
    since_ns: u64,
    arrived: u64,
    rate: f64,
    peak: f64,
    /// Since when it waits; `None` while it does not.
    waits_since_ns: Option<u64>,
    delay_ns: u64,
    /// Waiting does not begin before this, and is put off by so much when it has ended soon.
    begins_at_ns: u64,
    put_off_ns: u64,
    /// Turns in a row that found nothing.
    empty_turns: u8,
    was_full: bool,
    /// A turn over so many of players' datagrams is full.
    full: u64,
    sleeps: Sleeps,
    answers: Answers,
    /// What a sleep costs, in nanoseconds; 0 until one was measured.
    sleep_cost_ns: f64,
}

/// Whether game processes answer what they are sent at once, so that waiting for that is worth a
/// look of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    state: Hearing,
    /// What came of links lately while it was waited for, and what lay there until the next look.
    early: u32,
    late: u32,
    /// When it tries next, where it did not hear any.
    tries_at_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hearing {
    /// Tries to hear them, in delays that are as long as without.
    #[default]
    Tries,
    /// They come at once.
    Hears,
    /// They do not.
    Rests,
}

impl Answers {
    /// Judges by what came since the last time, and tries again now and then.
    fn judge(&mut self, now_ns: u64, rest_ns: u64) {
        if self.state == Hearing::Rests {
            if now_ns >= self.tries_at_ns {
                *self = Self::default();
            }
            return;
        }
        let all = self.early + self.late;
        if all < ANSWERS_TO_JUDGE {
            return;
        }
        let state = if 4 * self.early >= 3 * all { Hearing::Hears } else { Hearing::Rests };
        *self = Self { state, early: 0, late: 0, tries_at_ns: now_ns + rest_ns };
    }
}

/// The sleeps of late, and what came of them.
#[derive(Clone, Copy, Debug, Default)]
struct Sleeps {
    count: u32,
    /// How many found what a player sent.
    found: u32,
}

impl Sleeps {
    /// One more, and what it found. Those from before weigh less and less.
    const fn add(&mut self, from_players: u64) {
        self.count += 1;
        self.found += (from_players > 0) as u32;
        if self.count == 2 * SLEEPS_TO_JUDGE {
            self.count /= 2;
            self.found /= 2;
        }
    }

    const fn are_in_vain(self) -> bool {
        self.count >= SLEEPS_TO_JUDGE && self.found < self.count / 2
            || self.count >= SLEEPS_TO_SEE && self.found <= self.count / 8
    }
}

/// What a turn began with.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Whether the worker had waited on purpose.
    pub has_slept: bool,
    /// Datagrams of players.
    pub from_players: u64,
    /// Datagrams of everybody.
    pub from_all: usize,
}

impl Pace {
    /// So many workers have the gateway's datagrams among them from now on.
    pub(crate) fn share_among(&mut self, workers: u16) {
        self.rules = self.rules.among(workers);
    }

    /// A receive buffer holds no more datagrams than this.
    pub fn limit_room(&mut self, room: u32) {
        self.rules.room = self.rules.room.min(f64::from(room));
    }

    /// Knows of no arrivals.
    pub const fn new(limit: BatchDelay, rules: Rules, now_ns: u64) -> Self {
        Self {
            limit,
            rules,
            since_ns: now_ns,
            arrived: 0,
            rate: 0.0,
            peak: 0.0,
            waits_since_ns: None,
            delay_ns: 0,
            begins_at_ns: 0,
            put_off_ns: 0,
            empty_turns: 0,
            was_full: false,
            full: FULL,
            sleeps: Sleeps { count: 0, found: 0 },
            answers: Answers { state: Hearing::Tries, early: 0, late: 0, tries_at_ns: 0 },
            sleep_cost_ns: 0.0,
        }
    }

    /// A sleep has cost so much of the worker's processor time. One in which the kernel did other
    /// work on the worker's bill counts as four times what was known. What was begun without
    /// knowing begins again, if it is worth it.
    pub fn note_sleep_cost(&mut self, cost_ns: u64) {
        let cost_ns = cost_ns as f64;
        if self.sleep_cost_ns == 0.0 {
            self.waits_since_ns = None;
        }
        self.sleep_cost_ns = match self.sleep_cost_ns {
            0.0 => cost_ns,
            known => known + (cost_ns.min(4.0 * known) - known) / SLEEPS_TO_KNOW,
        };
    }

    /// What a sleep costs, as it was of late; 0 until one was measured.
    pub const fn sleep_cost_ns(&self) -> u64 {
        self.sleep_cost_ns as u64
    }

    /// Goes by another limit from now on.
    pub fn limit(&mut self, limit: BatchDelay) {
        if self.limit != limit {
            self.limit = limit;
            self.waits_since_ns = None;
            self.delay_ns = 0;
            self.begins_at_ns = 0;
            self.put_off_ns = 0;
        }
    }

    /// Takes note of what a look at links alone has found: datagrams of game processes.
    pub const fn note_answers(&mut self, count: usize) {
        self.answers.early += count as u32;
    }

    /// Whether answers of game processes are waited for before the delay is over.
    pub const fn awaits_answers(&self) -> bool {
        matches!(self.limit, BatchDelay::Auto(_)) && !matches!(self.answers.state, Hearing::Rests)
    }

    /// Takes note of what a turn that began at `now_ns` has found.
    pub fn note(&mut self, now_ns: u64, found: Found) {
        self.was_full = found.from_players >= self.full || found.from_all >= FULL_OF_ALL;
        self.empty_turns = if found.from_all == 0 { self.empty_turns.saturating_add(1) } else { 0 };
        self.arrived += found.from_players;
        if found.has_slept {
            self.sleeps.add(found.from_players);
            self.answers.late += (found.from_all as u32).saturating_sub(found.from_players as u32);
            self.answers.judge(now_ns, self.rules.ns(DEAF_NS));
        }
        let passed_ns = now_ns.saturating_sub(self.since_ns);
        if passed_ns < self.rules.window_ns {
            return;
        }
        if self.arrived == 0 && self.rate == 0.0 {
            self.since_ns = now_ns;
        } else {
            self.end_window(now_ns, passed_ns);
        }
    }

    /// How long after a turn's beginning the next one shall begin. `None` where it shall wait for
    /// nothing but an arrival.
    pub const fn delay_ns(&self) -> Option<u64> {
        match self.delay_ns {
            0 => None,
            _ if self.empty_turns > EMPTY_MAX => None,
            _ if self.was_full => Some(0),
            ns => Some(ns),
        }
    }

    /// The delay that it has chosen; 0 while it does not wait.
    pub const fn chosen_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The shortest wait that is worth a sleep.
    pub fn sleep_min_ns(&self) -> u64 {
        self.rules.ns(SLEEP_MIN_NS)
    }

    fn end_window(&mut self, now_ns: u64, passed_ns: u64) {
        let passed = passed_ns as f64;
        let rate = self.arrived as f64 * NS_PER_S / passed;
        let share = |memory_ns: u64| passed / (passed + memory_ns as f64);
        self.rate += (rate - self.rate) * share(self.rules.memory_ns);
        if self.rate < RATE_MIN {
            self.rate = 0.0;
        }
        self.peak = rate.max(self.peak * (1.0 - share(self.rules.peak_memory_ns)));
        (self.since_ns, self.arrived) = (now_ns, 0);
        self.choose(now_ns);
    }

    fn choose(&mut self, now_ns: u64) {
        let unheard_ns = self.bounded_ns(self.allowed_ns(DEAR_NS_BEYOND), GATHERED);
        let gathers = self.rate * unheard_ns * self.longer_times() / NS_PER_S;
        // As a real worker would see it.
        let rate = self.rate * self.rules.slowness;
        match self.waits_since_ns {
            None if gathers >= WORTH_BEGINNING
                && rate >= RATE_TO_BEGIN
                && now_ns >= self.begins_at_ns =>
            {
                self.waits_since_ns = Some(now_ns);
                self.sleeps = Sleeps::default();
            }
            Some(since_ns) if gathers < WORTH_GOING_ON || rate < RATE_TO_GO_ON => {
                self.waits_since_ns = None;
                self.put_off(now_ns, now_ns.saturating_sub(since_ns));
            }
            Some(_) if self.sleeps.are_in_vain() => {
                self.waits_since_ns = None;
                self.put_off(now_ns, 0);
            }
            _ => {}
        }
        let delay_ns = match self.waits_since_ns {
            None => 0.0,
            Some(_) if self.hears_answers() => {
                let longest_ns = self.rules.ns(self.limit.longest_look().as_nanos() as u64);
                let delay_ns = (self.allowed_ns(0.0) / UNHEARD_SHARE).min(longest_ns as f64);
                self.bounded_ns(delay_ns, GATHERED_HEARD)
            }
            Some(_) => unheard_ns,
        };
        self.delay_ns = delay_ns as u64;
        self.full = FULL.max((self.rate * delay_ns / NS_PER_S * FULL_TIMES) as u64);
    }

    /// How many times as much a delay of one of several workers gathers as it would without a look
    /// for answers. One alone begins by what it gathers without.
    fn longer_times(&self) -> f64 {
        if self.awaits_answers() { self.rules.workers.min(1.0 / UNHEARD_SHARE) } else { 1.0 }
    }

    /// Waiting has ended after so long, or was in vain from its beginning. Players who send only
    /// when they are answered slow down when they wait, and would be waited for in vain again and
    /// again.
    fn put_off(&mut self, now_ns: u64, waited_ns: u64) {
        let (least_ns, most_ns) = (self.rules.ns(PUT_OFF_MIN_NS), self.rules.ns(PUT_OFF_MAX_NS));
        let was_settled = waited_ns >= self.rules.ns(SETTLED_NS);
        self.put_off_ns =
            if was_settled { least_ns } else { (2 * self.put_off_ns).clamp(least_ns, most_ns) };
        self.begins_at_ns = now_ns + self.put_off_ns;
    }

    /// The delay that the config and `auto` allow at the rate at hand, without a look for answers.
    fn allowed_ns(&self, beyond_ns: f64) -> f64 {
        let Rules { slowness, workers, .. } = self.rules;
        match self.limit {
            BatchDelay::Auto(longest) => {
                // One of several workers may find too little to begin by what it costs where sleeps
                // are cheap, and would never know what one costs.
                let is_unknown = self.sleep_cost_ns == 0.0 && workers > 1.0;
                let cost_ns = if is_unknown { NS_PER_S } else { self.sleep_cost_ns / slowness };
                let longest_ns = longest.as_nanos() as f64;
                let bounds = Bounds { cost_ns, longest_ns, beyond_ns, workers };
                auto_ns(self.gap_ns() / slowness, bounds) * slowness
            }
            BatchDelay::AtMost(delay) => delay.as_nanos() as f64 * slowness,
        }
    }

    /// No longer than it takes to gather so many, or to fill half of a receive buffer.
    fn bounded_ns(&self, delay_ns: f64, gathered: f64) -> f64 {
        let Rules { room, slowness, .. } = self.rules;
        let gap_at_peak_ns = NS_PER_S / self.peak.max(RATE_MIN / slowness);
        delay_ns.min(gathered * self.gap_ns()).min(room / 2.0 * gap_at_peak_ns)
    }

    /// Between two datagrams of players, at the rate at hand.
    fn gap_ns(&self) -> f64 {
        NS_PER_S / self.rate.max(RATE_MIN / self.rules.slowness)
    }

    const fn hears_answers(&self) -> bool {
        matches!(self.limit, BatchDelay::Auto(_)) && matches!(self.answers.state, Hearing::Hears)
    }
}

/// What `auto` allows for datagrams that are so far apart, where a sleep costs so much and answers
/// are not waited for.
///
/// A round trip waits about one and a half times then: half a delay on its way up, where it comes
/// at any moment, and nearly a whole one on its way down, because the game process answers right
/// after a look. Where datagrams are far apart, a longer delay is needed to gather any, and players
/// of a gateway that has little to do are charged for it: up to 90 µs, from some 15,000 datagrams a
/// second on. At 60,000 it is 54 µs.
///
/// Where a sleep is dear, looks so close to each other spend a fifth of the core on sleeping. There
/// it allows as much as keeps sleep below a tenth, up to `longest_ns`; at higher rates less,
/// because the same delay gathers more, and at lower ones less, because players of a gateway that
/// is hardly busy are charged as ever: by all that its workers find, because two of them sleep
/// twice as often for as much. With 190 µs, a sleep of 20 has it look each 190 µs at 20,000
/// datagrams a second and each 160 at 100,000; one of 2.5 µs changes nothing.
fn auto_ns(gap_ns: f64, bounds: Bounds) -> f64 {
    let Bounds { cost_ns, longest_ns, beyond_ns, workers } = bounds;
    let cheap_ns = (AUTO_BASE_NS + AUTO_GAPS * gap_ns).min(AUTO_MAX_NS);
    let rate = NS_PER_S / gap_ns;
    let (beyond, below) = (rate - DEAR_RATE, DEAR_RATE - rate * workers);
    let less_ns = (beyond * beyond_ns).max(below * DEAR_NS_BELOW).max(0.0);
    cheap_ns.max((SLEEP_SHARE * cost_ns).min(longest_ns - less_ns)).min(longest_ns)
}

/// What the delay of [`auto_ns`] is bounded by where a sleep is dear.
#[derive(Clone, Copy)]
struct Bounds {
    /// Of a sleep.
    cost_ns: f64,
    longest_ns: f64,
    /// How much less for each datagram a second beyond [`DEAR_RATE`].
    beyond_ns: f64,
    workers: f64,
}

const AUTO_BASE_NS: f64 = 40_000.0;
const AUTO_GAPS: f64 = 0.84;
const AUTO_MAX_NS: f64 = 90_000.0;

/// Sleeping is to take less than a tenth of the core, one part in so many: what wakes the game
/// process afterwards is paid as often.
const SLEEP_SHARE: f64 = 12.0;

/// The rate at which the longest delay is allowed where sleeps are dear; and how much less it is
/// for each datagram a second beyond that (where answers are not waited for), and below it.
const DEAR_RATE: f64 = 20_000.0;
const DEAR_NS_BEYOND: f64 = 0.375;
const DEAR_NS_BELOW: f64 = 12.5;

/// Over so many sleeps that were measured their cost is known anew.
const SLEEPS_TO_KNOW: f64 = 32.0;

/// Datagrams that are gathered where the delay may be as long as that takes: a turn is hardly
/// cheaper by the datagram with more, and a driver's receive memory holds more than twice as many.
const GATHERED: f64 = 24.0;

/// The same where answers are waited for: a delay costs two looks then. A driver's receive memory
/// holds half as many again.
const GATHERED_HEARD: f64 = 44.0;

/// What a delay is without a look for answers, where it could be 1 with it: a round trip waits for
/// half a delay then, and as long as an answer takes, instead of for one and a half.
const UNHEARD_SHARE: f64 = 0.375;

/// A turn over so many was full, or over so many times what the delay gathers: there may be more,
/// and nothing is gained by waiting for it. With
/// what game processes send it takes as many as a driver's receive memory holds, because over a udp
/// link they answer one by one, to a rate that was gathered as it should be.
const FULL: u64 = 32;
const FULL_TIMES: f64 = 1.5;
const FULL_OF_ALL: usize = 64;

/// Datagrams that a sleep has to gather, by expectation: it costs about as much as to be woken by
/// one, and those of game processes come along. Going on takes less, so that a rate near the border
/// does not have the worker change its mind all the time.
const WORTH_BEGINNING: f64 = 1.4;
const WORTH_GOING_ON: f64 = 0.8;

/// Below this rate nobody waits, however long the delay may be: a quiet gateway answers at once.
const RATE_TO_BEGIN: f64 = 8000.0;
const RATE_TO_GO_ON: f64 = 6000.0;

/// So that nothing is divided by zero.
const RATE_MIN: f64 = 1.0;

/// Sleeps in a row that may find nothing. Then the worker arms its sockets, as it would have
/// without waiting: the players have stopped, or send in bursts, and the rate does not know.
const EMPTY_MAX: u8 = 1;

/// What is left of a delay after a long turn may be too little to sleep for.
const SLEEP_MIN_NS: u64 = 10_000;

/// Waiting that has lasted this long was no mistake.
const SETTLED_NS: u64 = 500 * MS;

/// Sleeps that say whether half of them are worth it: enough that chance seldom says otherwise at
/// the rates where nearly half find nothing, and over within milliseconds.
const SLEEPS_TO_JUDGE: u32 = 64;
/// Sleeps after which it is plain to see when hardly any finds something.
const SLEEPS_TO_SEE: u32 = 16;

/// Datagrams of game processes that say whether most of them come at once.
const ANSWERS_TO_JUDGE: u32 = 64;
/// How long game processes that do not answer at once are taken for such.
const DEAF_NS: u64 = 250 * MS;

const PUT_OFF_MIN_NS: u64 = 8 * MS;
const PUT_OFF_MAX_NS: u64 = 256 * MS;

const NS_PER_S: f64 = 1e9;
const MS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
