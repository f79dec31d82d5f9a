//! Latencies by stage, recorded on the worker at a few nanoseconds each.
//!
//! A worker records into histograms that are its own. A reader who wants them leaves an empty set at the counter
//! ([`Exchange`](super::report::Published)); the worker swaps it for the full one when it passes by. So nobody waits, nothing is copied on the
//! packet path, and the reader resets at leisure.

use hdrhistogram::Histogram;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stage {
    /// From the first request we took to the session.
    Handshake,
    /// From the kernel's receive to the payload's handing over to a link.
    Uplink,
    /// From the kernel's receive to the reap: time in the socket's queue.
    Queue,
    /// From the reap to the end of the submit.
    Turn,
    /// From the receive on a link to the end of the submit.
    Downlink,
}

impl Stage {
    /// Every stage, in declaration order.
    pub const ALL: [Self; 5] =
        [Self::Handshake, Self::Uplink, Self::Queue, Self::Turn, Self::Downlink];

    /// The name used as tag in logs and as label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Uplink => "uplink",
            Self::Queue => "queue",
            Self::Turn => "turn",
            Self::Downlink => "downlink",
        }
    }
}

/// One histogram for each stage, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Stages([Histogram<u64>; Stage::ALL.len()]);

impl Default for Stages {
    fn default() -> Self {
        Self::new()
    }
}

impl Stages {
    /// Empty histograms.
    pub fn new() -> Self {
        Self(Stage::ALL.map(|_| {
            let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, SIGNIFICANT_DIGITS);
            histogram.expect("the bounds are valid")
        }))
    }

    /// The histogram of a stage.
    pub fn of(&self, stage: Stage) -> &Histogram<u64> {
        &self.0[stage as usize]
    }

    /// Records one duration.
    #[inline]
    pub fn record(&mut self, stage: Stage, ns: u64) {
        self.0[stage as usize].saturating_record(ns);
    }

    /// Records the same duration several times.
    #[inline]
    pub fn record_many(&mut self, stage: Stage, ns: u64, count: u64) {
        self.0[stage as usize].saturating_record_n(ns, count);
    }

    /// Adds another set, such as another worker's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.add(theirs).expect("all sets have the same bounds");
        }
    }

    /// Empties all histograms.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }
}

/// Longest latency told apart; a longer one counts as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Three digits: 100 µs are told from 100.1 µs, and the five histograms of a worker take about 1 MiB.
const SIGNIFICANT_DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_apart_and_merge() {
        let mut stages = Stages::new();
        stages.record(Stage::Turn, 1000);
        stages.record_many(Stage::Downlink, 2000, 3);
        stages.record(Stage::Queue, u64::MAX);
        let mut sum = Stages::new();
        sum.merge(&stages);
        sum.merge(&stages);
        assert_eq!(sum.of(Stage::Turn).len(), 2);
        assert_eq!(sum.of(Stage::Downlink).len(), 6);
        assert_eq!(sum.of(Stage::Queue).len(), 2, "what is off the scale is not lost");
        assert_eq!(sum.of(Stage::Uplink).len(), 0);
        sum.reset();
        assert_eq!(sum.of(Stage::Turn).len(), 0);
    }
}
