//! The ladder: the rate goes up step by step until the gateway does not keep its promise any more;
//! the knee is the last step on which it did. Between the last good and the first bad step the
//! search goes on by halves.

use crate::report::curve::{Bounds, Step};

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
