//! CPU in the steady part of a run, between two moments of it: what connecting and saying goodbye
//! cost stays out of it.

use ringgate_os::clock::Clock;

use super::Progress;
use crate::measure::procfs::{self, cpu_s};
use crate::measure::tally::Count;
use crate::report::curve::Cost;

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

#[cfg(test)]
mod tests {
    use super::*;

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
