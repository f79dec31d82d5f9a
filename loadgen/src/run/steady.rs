//! CPU in the steady part of a run, between two moments of it: what connecting and saying goodbye
//! cost stays out of it.

use super::Progress;
use crate::measure::gateway::Gateway;
use crate::measure::procfs::{self, cpu_s};
use crate::measure::tally::Count;

/// Watches a process while a run goes on, between two moments of the run.
#[derive(Clone, Debug)]
pub struct Steady {
    gateway: Gateway,
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
    pub const fn new(gateway: Gateway, from_s: f64, to_s: f64) -> Self {
        Self { gateway, from_s, to_s, first: None, last: None }
    }

    /// To be told of every interval.
    pub fn watch(&mut self, progress: &Progress<'_>) {
        let Some(pid) = self.gateway.pid else { return };
        if progress.elapsed_s + 1e-6 < self.from_s || progress.elapsed_s > self.to_s + 1e-6 {
            return;
        }
        let threads = procfs::threads(pid);
        if threads.is_empty() {
            // It has ended, and its books with it.
            return;
        }
        let sample = Sample {
            at_s: progress.elapsed_s,
            cpu_s: cpu_s(&threads),
            echoed: progress.total.counters.of(Count::Echoed),
        };
        self.first.get_or_insert(sample);
        self.last = Some(sample);
    }

    /// Cores in use; 0 where there was nothing to see.
    pub fn cores(&self) -> f64 {
        match (self.first, self.last) {
            (Some(first), Some(last)) if last.at_s > first.at_s => {
                (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
            }
            _ => 0.0,
        }
    }

    /// Microseconds of CPU per round trip; `None` where there was nothing to see.
    pub fn cpu_us_per_trip(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        let trips = last.echoed.saturating_sub(first.echoed);
        (trips > 0).then(|| (last.cpu_s - first.cpu_s) * 1e6 / trips as f64)
    }
}
