//! The ladder: the rate goes up step by step until the gateway does not keep its promise any more;
//! the knee is the last step on which it did. Between the last good and the first bad step the
//! search goes on by halves.

use crate::measure::tally::Stage;
use crate::report::record::Record;
use crate::report::require::What;

/// When a step counts as bad.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Share of payloads lost.
    pub loss: f64,
    /// 99th percentile of the round trip.
    pub p99_ns: u64,
}

/// What one step was like.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Payloads per second that were to be sent.
    pub rate: f64,
    /// Share that did not come back.
    pub loss: f64,
    /// Share that left late: the generator's own trouble.
    pub late: f64,
    /// Median and 99th percentile of the round trip.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// Cores that the gateway used, and the generator.
    pub gateway_cores: f64,
    /// See `gateway_cores`.
    pub own_cores: f64,
    /// Why this step proves nothing about the rate, where it does not: players were outside,
    /// nothing came back,
    /// the gateway or the game server was restarted.
    pub void: Vec<String>,
}

impl Step {
    /// What a run at a rate has shown, and how many cores gateway and generator had in use while
    /// everyone played.
    pub fn of(rate: f64, record: &Record, (gateway_cores, own_cores): (f64, f64)) -> Self {
        Self {
            rate,
            loss: record.summary().payloads.loss,
            late: record.measured(What::Late).unwrap_or_default(),
            p50_ns: record.measured(What::Percentile(50.0)).unwrap_or_default() as u64,
            p99_ns: record.measured(What::Percentile(99.0)).unwrap_or_default() as u64,
            gateway_cores,
            own_cores,
            void: Self::void(record),
        }
    }

    fn void(record: &Record) -> Vec<String> {
        let mut void = record.unproven();
        if record.stage(Stage::RoundTrip).is_none() && void.is_empty() {
            void.push("no round trip was measured".into());
        }
        void.extend(record.remarks());
        void
    }

    /// Whether the gateway kept its promise, as far as was measured.
    pub fn is_good(&self, bounds: &Bounds) -> bool {
        self.void.is_empty() && self.loss <= bounds.loss && self.p99_ns <= bounds.p99_ns
    }

    /// Whether the generator could not keep its own schedule, so that the step says little of the
    /// gateway.
    pub fn is_ours(&self) -> bool {
        self.late > LATE_SHARE_MAX
    }
}

/// The search for the knee.
#[derive(Clone, Debug)]
pub struct Search {
    bounds: Bounds,
    factor: f64,
    next: Option<f64>,
    good: Option<f64>,
    bad: Option<f64>,
    /// Why the lowest bad rate was none that was measured.
    void: Vec<String>,
    halvings_left: u32,
    /// No rate above this is tried.
    to: f64,
}

impl Search {
    /// Begins at a rate and multiplies it by a factor until it is too much.
    pub fn new(from: f64, factor: f64, halvings: u32, bounds: Bounds) -> Self {
        let (next, halvings_left) = (Some(from), halvings);
        let (to, void) = (f64::INFINITY, Vec::new());
        Self { bounds, factor, next, good: None, bad: None, void, halvings_left, to }
    }

    /// With an end to the climb.
    #[must_use]
    pub fn up_to(self, rate: f64) -> Self {
        Self { to: rate, ..self }
    }

    /// Whether the climb ended because it was told to, not because a step was bad.
    pub const fn is_open(&self) -> bool {
        self.bad.is_none()
    }

    /// The rate to try next; `None` when the knee is found.
    pub const fn next_rate(&self) -> Option<f64> {
        self.next
    }

    /// The highest good rate, if the one above it was measured as well.
    pub fn knee(&self) -> Option<f64> {
        self.good.filter(|_| self.void.is_empty())
    }

    /// The highest good rate, knee or not.
    pub const fn good(&self) -> Option<f64> {
        self.good
    }

    /// Why there is no knee although there may be a good rate: what the rate above it was like.
    pub fn void(&self) -> &[String] {
        &self.void
    }

    /// Learns how the rate that was asked for went.
    pub fn note(&mut self, step: &Step) {
        if step.is_good(&self.bounds) {
            self.good = Some(step.rate);
        } else {
            self.bad = Some(step.rate);
            self.void.clone_from(&step.void);
        }
        self.next = match (self.good, self.bad) {
            (Some(good), None) if good < self.to => Some((good * self.factor).min(self.to)),
            (Some(good), Some(bad)) if self.halvings_left > 0 => {
                self.halvings_left -= 1;
                Some(f64::midpoint(good, bad))
            }
            _ => None,
        };
    }
}

/// More late payloads than this, and the generator is what is being measured.
const LATE_SHARE_MAX: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { loss: 0.001, p99_ns: 1000 };

    fn step(rate: f64, loss: f64, p99_ns: u64) -> Step {
        Step { rate, loss, p99_ns, ..Step::default() }
    }

    #[test]
    fn the_knee_is_closed_in_from_both_sides() {
        let mut search = Search::new(1000.0, 2.0, 6, BOUNDS);
        let mut asked = Vec::new();
        while let Some(rate) = search.next_rate() {
            asked.push(rate as u64);
            search.note(&step(rate, if rate > 5100.0 { 0.01 } else { 0.0 }, 10));
        }
        assert_eq!(asked[..5], [1000, 2000, 4000, 8000, 6000]);
        let knee = search.knee().expect("a good step");
        assert!((5000.0..=5100.0).contains(&knee), "{knee}");
    }

    #[test]
    fn a_climb_that_was_given_an_end_stops_there() {
        let mut search = Search::new(1000.0, 2.0, 6, BOUNDS).up_to(3000.0);
        let mut asked = Vec::new();
        while let Some(rate) = search.next_rate() {
            asked.push(rate as u64);
            search.note(&step(rate, 0.0, 10));
        }
        assert_eq!(asked, [1000, 2000, 3000]);
        assert!(search.is_open() && search.knee() == Some(3000.0));
    }

    #[test]
    fn latency_alone_ends_the_climb_and_a_bad_start_has_no_knee() {
        let mut search = Search::new(1000.0, 2.0, 0, BOUNDS);
        search.note(&step(1000.0, 0.0, 1000));
        search.note(&step(2000.0, 0.0, 1001));
        assert_eq!((search.next_rate(), search.knee()), (None, Some(1000.0)));
        let mut search = Search::new(1000.0, 2.0, 3, BOUNDS);
        search.note(&step(1000.0, 1.0, 1));
        assert_eq!((search.next_rate(), search.knee()), (None, None));
    }

    fn void(rate: f64) -> Step {
        Step { void: vec!["2 came, 1 was let in".into()], ..step(rate, 0.0, 1) }
    }

    #[test]
    fn a_step_that_was_not_measured_is_not_good_and_bounds_no_knee() {
        let mut search = Search::new(1000.0, 2.0, 1, BOUNDS);
        search.note(&void(1000.0));
        assert_eq!((search.next_rate(), search.knee(), search.good()), (None, None, None));
        assert_eq!(search.void().len(), 1);

        let mut search = Search::new(1000.0, 2.0, 1, BOUNDS);
        search.note(&step(1000.0, 0.0, 1));
        search.note(&void(2000.0));
        search.note(&void(1500.0));
        assert_eq!((search.knee(), search.good()), (None, Some(1000.0)));

        // Where the search closes in on a rate that was measured and too much, what lies beyond
        // does not matter.
        let mut search = Search::new(1000.0, 2.0, 1, BOUNDS);
        search.note(&step(1000.0, 0.0, 1));
        search.note(&void(2000.0));
        search.note(&step(1500.0, 0.5, 1));
        assert_eq!(search.knee(), Some(1000.0));
    }
}
