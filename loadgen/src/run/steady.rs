//! The steady part of a run: CPU between two moments of it, and what players felt from one on. What
//! connecting and saying goodbye cost stays out of it.

use ringgate_os::clock::Clock;

use super::Progress;
use crate::measure::procfs::{self, cpu_s};
use crate::measure::tally::{Count, Stage, Tally};
use crate::report::curve::Cost;
use crate::report::record::Record;

/// Whose CPU time is watched.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// A process, all threads together.
    Process(u32),
    /// A core, with all that runs there: what is done in the kernel's name belongs to no process.
    Core(usize),
}

/// Watches a process or a core while a run goes on, between two moments of the run.
#[derive(Clone, Debug)]
pub struct Steady {
    who: Option<Who>,
    clock: Clock,
    from_s: f64,
    to_s: f64,
    first: Option<Sample>,
    last: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: f64,
    cpu_s: f64,
    echoed: u64,
}

impl Steady {
    /// Watches from one moment to another, in seconds of the run.
    pub fn new(who: Option<Who>, from_s: f64, to_s: f64) -> Self {
        Self { who, clock: Clock::start(), from_s, to_s, first: None, last: None }
    }

    /// To be told of every interval.
    pub fn watch(&mut self, progress: &Progress<'_>) {
        if progress.elapsed_s + 1e-6 < self.from_s || progress.elapsed_s > self.to_s + 1e-6 {
            return;
        }
        let Some(cpu_s) = self.cpu_s() else { return };
        let sample = Sample {
            at_s: progress.elapsed_s,
            cpu_s,
            echoed: progress.total.counters.of(Count::Echoed),
        };
        self.first.get_or_insert(sample);
        self.last = Some(sample);
    }

    /// CPU time so far; `None` where nothing is watched, or a process has ended, and its books with
    /// it.
    fn cpu_s(&self) -> Option<f64> {
        match self.who? {
            Who::Process(pid) => {
                let threads = procfs::threads(pid);
                (!threads.is_empty()).then(|| cpu_s(&threads))
            }
            Who::Core(core) => Some(self.clock.now_ns() as f64 / 1e9 - procfs::idle_s(core)?),
        }
    }

    /// What was seen.
    pub fn cost(&self) -> Cost {
        Cost { cores: self.cores(), us_per_trip: self.cpu_us_per_trip() }
    }

    /// Cores in use; 0 where there was nothing to see.
    pub fn cores(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.at_s > first.at_s => {
                first.cpu_s_until(&last).unwrap_or(0.0) / (last.at_s - first.at_s)
            }
            _ => 0.0,
        }
    }

    /// Microseconds of CPU per round trip; `None` where there was nothing to see.
    pub fn cpu_us_per_trip(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let trips = last.echoed.saturating_sub(first.echoed);
        let cpu_s = first.cpu_s_until(&last).filter(|_| trips > 0)?;
        Some(cpu_s * 1e6 / trips as f64)
    }
}

impl Sample {
    /// CPU time between two samples. A process whose books have shrunk was about to end: threads of
    /// it were gone, with what they had taken.
    fn cpu_s_until(&self, later: &Self) -> Option<f64> {
        (later.cpu_s >= self.cpu_s).then_some(later.cpu_s - self.cpu_s)
    }
}

/// What players felt from a moment of the run on.
#[derive(Debug)]
pub struct Hold {
    from_s: f64,
    tally: Tally,
}

impl Hold {
    /// From a moment on, in seconds of the run.
    pub fn new(from_s: f64) -> Self {
        Self { from_s, tally: Tally::new() }
    }

    /// To be told of every interval.
    pub fn watch(&mut self, progress: &Progress<'_>) {
        if progress.elapsed_s - progress.interval_s + 1e-6 >= self.from_s {
            self.tally.merge(progress.interval);
        }
    }

    /// Median and 99th percentile of the round trip, and the loss; of the whole run where no
    /// interval has begun so late.
    pub fn figures(&self, record: &Record) -> (u64, u64, f64) {
        let whole =
            record.stage(Stage::RoundTrip).filter(|_| self.tally.of(Stage::RoundTrip).is_empty());
        let at = |percentile| match whole {
            Some(whole) => whole.at(percentile),
            None => self.tally.percentile_ns(Stage::RoundTrip, percentile),
        };
        let loss = record.loss_within(self.from_s, f64::INFINITY);
        (at(50.0), at(99.0), loss.unwrap_or_else(|| record.summary().payloads.loss))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::players::Gauges;
    use crate::players::scenario::Scenario;
    use crate::report::record::Interval;

    /// In two seconds of ramp nothing is lost and all is quick; in the hold it is not.
    #[test]
    fn what_players_felt_is_of_the_hold_where_an_interval_lies_in_it() {
        let (mut hold, mut late) = (Hold::new(2.0), Hold::new(9.0));
        let (mut total, mut record) = (Tally::new(), Record::default());
        for (second, ns, lost) in [(0.0, 1_000, 0), (1.0, 1_000, 0), (2.0, 9_000, 2)] {
            let mut interval = Tally::new();
            (0..10).for_each(|_| interval.record(Stage::RoundTrip, ns));
            interval.counters.add(Count::PayloadsDue, 10);
            interval.counters.add(Count::Echoed, 10 - lost);
            total.merge(&interval);
            let row = Interval::of(second, 1.0, 1, &interval);
            record.intervals.push(Interval { lost, ..row });
            let progress = Progress {
                elapsed_s: second + 1.0,
                gauges: Gauges::default(),
                interval: &interval,
                interval_s: 1.0,
                total: &total,
                scenario: &Scenario::default(),
            };
            hold.watch(&progress);
            late.watch(&progress);
        }
        record.set_tally(&total);
        let (p50_ns, p99_ns, loss) = hold.figures(&record);
        assert!(p50_ns >= 9_000 && p99_ns >= 9_000, "{p50_ns} {p99_ns}");
        assert!((loss - 0.2).abs() < 1e-9, "{loss}");
        let (p50_ns, _, loss) = late.figures(&record);
        assert!(p50_ns < 2_000 && (loss - 2.0 / 30.0).abs() < 1e-9, "{p50_ns} {loss}");
    }

    #[test]
    fn a_process_that_was_about_to_end_cost_nothing_that_is_known() {
        let sample = |at_s, cpu_s, echoed| Some(Sample { at_s, cpu_s, echoed });
        let idle = Steady::new(None, 0.0, 10.0);
        let seen = Steady { first: sample(1.0, 2.0, 10), last: sample(3.0, 3.0, 110), ..idle };
        assert_eq!((seen.cores(), seen.cpu_us_per_trip()), (0.5, Some(10_000.0)));
        let seen = Steady { last: sample(3.0, 1.5, 110), ..seen };
        assert_eq!((seen.cores(), seen.cpu_us_per_trip()), (0.0, None));
    }
}
