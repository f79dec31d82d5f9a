//! Latencies by stage, recorded on the worker at a nanosecond or two each.
//!
//! A worker records into counts that are its own ([`Recorder`]). A reader who wants them leaves an
//! empty set at the counter ([`Exchange`](super::report::Published)); the worker swaps it for the
//! full one when it passes by. So nobody waits, nothing is copied on the packet path, and the
//! reader turns counts into histograms and resets at leisure.
//!
//! The counts have the histograms' own buckets. Recording is a shift and an addition: totals,
//! extremes and everything else that a histogram keeps up to date with each value can wait until
//! somebody looks.

use crate::handover::Recorded;
use hdrhistogram::Histogram;
use ringgate_gate::body::Stage;

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

    /// Adds what a worker has recorded.
    pub fn add(&mut self, recorder: &Recorder) {
        for (mine, theirs) in self.0.iter_mut().zip(&recorder.0) {
            let recorded = theirs.iter().enumerate().filter(|(_, count)| **count > 0);
            for (cell, count) in recorded {
                mine.saturating_record_n(value_of(cell), *count);
            }
        }
    }

    /// Empties all histograms.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }
}

/// What a worker records: for each stage, how many durations fell into each bucket.
#[derive(Clone, Debug)]
pub struct Recorder([Box<[u64]>; Stage::ALL.len()]);

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Nothing recorded.
    pub fn new() -> Self {
        Self(Stage::ALL.map(|_| vec![0; CELLS].into_boxed_slice()))
    }

    /// Records one duration.
    #[inline]
    pub fn record(&mut self, stage: Stage, ns: u64) {
        self.record_many(stage, ns, 1);
    }

    /// Records the same duration several times.
    #[inline]
    pub fn record_many(&mut self, stage: Stage, ns: u64, count: u64) {
        self.0[stage as usize][cell_of(ns)] += count;
    }

    /// Adds another worker's, or an earlier one's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// What there is, for the process after this one, whose buckets may be others.
    pub fn recorded(&self) -> Recorded {
        let of = |stage: Stage| {
            let counts = self.0[stage as usize].iter().enumerate();
            let counts = counts.filter(|(_, count)| **count > 0);
            (
                stage.name().to_owned(),
                counts.map(|(cell, count)| (value_of(cell), *count)).collect(),
            )
        };
        Stage::ALL.map(of).into_iter().collect()
    }

    /// Adds what the process before this one has left. Stages that are not known here are left out.
    pub fn go_on(&mut self, recorded: &Recorded) {
        for (name, counts) in recorded {
            let known = Stage::ALL.into_iter().find(|stage| stage.name() == name);
            let Some(stage) = known else { continue };
            for (ns, count) in counts {
                let cell = &mut self.0[stage as usize][cell_of(*ns)];
                *cell = cell.saturating_add(*count);
            }
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(|counts| counts.fill(0));
    }
}

/// The bucket of a duration. A value keeps its [`PRECISION_BITS`] leading bits; how many are cut
/// off chooses the row.
#[inline]
fn cell_of(ns: u64) -> usize {
    let ns = ns.min(LATENCY_NS_MAX);
    let cut = (ns | LAST_EXACT).ilog2() + 1 - PRECISION_BITS;
    (cut << (PRECISION_BITS - 1)) as usize + (ns >> cut) as usize
}

/// The shortest duration of a bucket.
const fn value_of(cell: usize) -> u64 {
    let half = 1 << (PRECISION_BITS - 1);
    let cut = (cell / half).saturating_sub(1);
    ((cell - cut * half) as u64) << cut
}

/// Longest latency told apart; a longer one counts as this.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Three digits: 100 µs are told from 100.1 µs, and what a worker records takes about 1 MiB.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Bits of a value that are kept: as many as three digits need, to one part in a thousand.
const PRECISION_BITS: u32 = 11;

/// Up to here every value has a bucket of its own.
const LAST_EXACT: u64 = (1 << PRECISION_BITS) - 1;

/// Buckets up to the longest latency.
const CELLS: usize =
    ((LATENCY_NS_MAX.ilog2() + 3 - PRECISION_BITS) as usize) << (PRECISION_BITS - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_apart_and_merge() {
        let mut recorder = Recorder::new();
        recorder.record(Stage::Turn, 1000);
        recorder.record_many(Stage::Downlink, 2000, 3);
        recorder.record(Stage::Queue, u64::MAX);
        let mut twice = recorder.clone();
        twice.merge(&recorder);
        let mut sum = Stages::new();
        sum.add(&twice);
        sum.add(&recorder);
        assert_eq!(sum.of(Stage::Turn).len(), 3);
        assert_eq!(sum.of(Stage::Downlink).len(), 9);
        assert_eq!(sum.of(Stage::Queue).len(), 3, "what is off the scale is not lost");
        assert_eq!(sum.of(Stage::Uplink).len(), 0);
        sum.reset();
        recorder.reset();
        sum.add(&recorder);
        assert_eq!(sum.of(Stage::Turn).len(), 0);
    }

    #[test]
    fn the_next_process_goes_on_with_what_nobody_has_asked_for() {
        let mut recorder = Recorder::new();
        recorder.record_many(Stage::Turn, 123_456, 7);
        recorder.record(Stage::Queue, u64::MAX);
        let mut recorded = recorder.recorded();
        recorded.push(("later".to_owned(), vec![(5, 5)]));
        let mut next = Recorder::new();
        next.go_on(&recorded);
        next.go_on(&recorded);
        assert!((0..Stage::ALL.len()).all(|at| {
            next.0[at].iter().zip(&recorder.0[at]).all(|(next, before)| *next == 2 * before)
        }));
    }

    #[test]
    fn a_bucket_is_the_histogram_s_own() {
        let around = |value: u64| [value.saturating_sub(1), value, value + 1];
        let powers = (0..36).map(|bit| 1_u64 << bit).flat_map(around);
        let odd = (0..200).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (28 + n % 36));
        let values = powers.chain(odd).filter(|value| *value <= LATENCY_NS_MAX);
        for value in values.chain([LATENCY_NS_MAX]) {
            let mut sum = Stages::new();
            let mut recorder = Recorder::new();
            recorder.record(Stage::Turn, value);
            sum.add(&recorder);
            let [_, _, _, mut direct, ..] = Stages::new().0;
            direct.saturating_record(value);
            assert!(*sum.of(Stage::Turn) == direct, "{value}");
            assert_eq!(sum.of(Stage::Turn).max(), direct.max(), "{value}");
            assert_eq!(cell_of(value_of(cell_of(value))), cell_of(value));
        }
        assert_eq!(cell_of(u64::MAX), cell_of(LATENCY_NS_MAX));
        assert!(cell_of(LATENCY_NS_MAX) < CELLS);
    }
}
