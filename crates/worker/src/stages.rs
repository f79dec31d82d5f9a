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

use std::ops::Range;

use crate::handover::Recorded;
use hdrhistogram::Histogram;
use ringgate_gate::Party;
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
        for (mine, stage) in self.0.iter_mut().zip(Stage::ALL) {
            for party in Party::all() {
                for (cell, count) in recorder.counts(party, stage) {
                    mine.saturating_record_n(value_of(cell), count);
                }
            }
        }
    }

    /// Empties all histograms.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(Histogram::reset);
    }
}

/// What a worker records: for each party and stage, how many durations fell into each bucket.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// The buckets of each party, stage and row, from the row's first duration on: durations of
    /// one kind fall into a few rows, and a listener that comes takes no more memory than those.
    rows: Box<[Option<Box<Row>>]>,
}

/// Buckets whose durations have as many bits.
type Row = [u64; ROW_CELLS];

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// Nothing recorded.
    pub fn new() -> Self {
        Self { rows: vec![None; Party::COUNT * Stage::ALL.len() * ROWS].into_boxed_slice() }
    }

    /// Records durations, and how often there was each.
    #[inline]
    pub fn record(&mut self, of: (Party, Stage), durations: impl Iterator<Item = (u64, u64)>) {
        let rows = &mut self.rows[rows_of(of)];
        for (ns, count) in durations {
            *cell(rows, ns) += count;
        }
    }

    /// How long a party's stages took, without a bucket that is empty: the longest duration of
    /// each bucket, and how many there were.
    pub fn of(&self, party: Party, stage: Stage) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts(party, stage).map(|(cell, count)| (value_of(cell + 1) - 1, count))
    }

    /// Adds another worker's, or an earlier one's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.rows.iter_mut().zip(&other.rows) {
            let Some(theirs) = theirs else { continue };
            let mine = mine.get_or_insert_with(empty).iter_mut();
            mine.zip(&**theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
    }

    /// What there is, for the process after this one, whose buckets may be others: of all parties
    /// together, as releases read it that do not tell them apart, and behind it of each.
    /// `names` has what the parties are called that have a name there.
    pub fn recorded(&self, names: &[(Party, String)]) -> Recorded {
        let shortest =
            |party, stage| self.counts(party, stage).map(|(cell, count)| (value_of(cell), count));
        let of_all = |stage: Stage| {
            let all = Party::all().flat_map(|party| shortest(party, stage));
            (stage.name().to_owned(), all.collect())
        };
        let of_each = names.iter().flat_map(|(party, name)| {
            Stage::ALL.map(|stage| (of_party(stage, name), shortest(*party, stage).collect()))
        });
        Stage::ALL.map(of_all).into_iter().chain(of_each).collect()
    }

    /// Adds what the process before this one has left. Stages that are not known here are left out,
    /// and what is of no party that has its name is nobody's.
    pub fn go_on(&mut self, recorded: &Recorded, names: &[(Party, String)]) {
        let mut whole = Self::new();
        for stage in Stage::ALL {
            let named = |wanted: &str| recorded.iter().find(|(name, _)| name == wanted);
            if let Some((_, counts)) = named(stage.name()) {
                whole.record((Party::NONE, stage), counts.iter().copied());
            }
            for (party, name) in names {
                let Some((_, counts)) = named(&of_party(stage, name)) else { continue };
                for (ns, count) in counts {
                    let cell = cell(&mut whole.rows[rows_of((Party::NONE, stage))], *ns);
                    let count = (*count).min(*cell);
                    *cell -= count;
                    self.record((*party, stage), std::iter::once((*ns, count)));
                }
            }
        }
        self.merge(&whole);
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.rows.iter_mut().flatten().for_each(|row| row.fill(0));
    }

    /// The buckets that are not empty.
    fn counts(&self, party: Party, stage: Stage) -> impl Iterator<Item = (usize, u64)> + '_ {
        let rows = self.rows[rows_of((party, stage))].iter().enumerate();
        let cells = rows.filter_map(|(number, row)| Some((number * ROW_CELLS, row.as_ref()?)));
        let counts = cells.flat_map(|(first, row)| (first..).zip(row.iter().copied()));
        counts.filter(|(_, count)| *count > 0)
    }
}

/// What a party's stage is called for the process after this one.
fn of_party(stage: Stage, party: &str) -> String {
    format!("{} of {party}", stage.name())
}

/// Where the rows of a party's stage are.
#[inline]
const fn rows_of((party, stage): (Party, Stage)) -> Range<usize> {
    let start = (party.index() * Stage::ALL.len() + stage as usize) * ROWS;
    start..start + ROWS
}

/// A duration's bucket among the rows of its party's stage.
#[inline]
fn cell(rows: &mut [Option<Box<Row>>], ns: u64) -> &mut u64 {
    let cell = cell_of(ns);
    &mut rows[cell / ROW_CELLS].get_or_insert_with(empty)[cell % ROW_CELLS]
}

#[cold]
fn empty() -> Box<Row> {
    Box::new([0; ROW_CELLS])
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

/// Three digits: 100 µs are told from 100.1 µs.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Bits of a value that are kept: as many as three digits need, to one part in a thousand.
const PRECISION_BITS: u32 = 11;

/// Up to here every value has a bucket of its own.
const LAST_EXACT: u64 = (1 << PRECISION_BITS) - 1;

/// Buckets of a row.
const ROW_CELLS: usize = 1 << (PRECISION_BITS - 1);

/// Rows up to the longest latency.
const ROWS: usize = (LATENCY_NS_MAX.ilog2() + 3 - PRECISION_BITS) as usize;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_gate::ListenerId;
    use std::iter::once;

    const ALONE: Party = Party::NONE;

    #[test]
    fn stages_are_apart_and_merge() {
        let mut recorder = Recorder::new();
        recorder.record((ALONE, Stage::Turn), once((1000, 1)));
        recorder.record((Party::OTHERS, Stage::Downlink), once((2000, 3)));
        recorder.record((ALONE, Stage::Queue), once((u64::MAX, 1)));
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
        let [first, second, third] = [0, 1, 2].map(|number| Party::of(ListenerId(number)));
        recorder.record((first, Stage::Turn), once((123_456, 7)));
        recorder.record((second, Stage::Turn), once((123_456, 1)));
        recorder.record((third, Stage::Turn), once((5, 1)));
        recorder.record((ALONE, Stage::Queue), once((u64::MAX, 1)));
        let names = |all: &[(Party, &str)]| {
            let name = |(party, name): &(Party, &str)| (*party, (*name).to_owned());
            all.iter().map(name).collect::<Vec<_>>()
        };
        let mut recorded = recorder.recorded(&names(&[(first, "eu"), (second, "us"), (third, "")]));
        recorded.push(("later".to_owned(), vec![(5, 5)]));
        // The listeners have other numbers there, and one of them is not there.
        let theirs = names(&[(third, "eu"), (first, "us")]);
        let mut next = Recorder::new();
        next.go_on(&recorded, &theirs);
        next.go_on(&recorded, &theirs);
        let of = |party| next.of(party, Stage::Turn).map(|it| it.1).collect::<Vec<_>>();
        assert_eq!((of(third), of(first), of(ALONE)), (vec![14], vec![2], vec![2]));
        let mut twice = recorder.clone();
        twice.merge(&recorder);
        let whole = |recorder: &Recorder| {
            let mut sum = Stages::new();
            sum.add(recorder);
            Stage::ALL.map(|stage| sum.of(stage).clone())
        };
        assert!(whole(&next) == whole(&twice));
    }

    #[test]
    fn what_an_earlier_release_has_left_is_of_no_listener() {
        let mut next = Recorder::new();
        let names = [(Party::of(ListenerId(0)), "eu".to_owned())];
        next.go_on(&vec![("uplink".to_owned(), vec![(700, 3)])], &names);
        assert_eq!(next.of(ALONE, Stage::Uplink).collect::<Vec<_>>(), [(700, 3)]);
    }

    #[test]
    fn buckets_of_parties_end_where_histograms_end_theirs() {
        let mut recorder = Recorder::new();
        let values = (0..200).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (28 + n % 36));
        recorder.record((ALONE, Stage::Queue), values.map(|ns| (ns, 1)));
        let mut sum = Stages::new();
        sum.add(&recorder);
        let recorded = sum.of(Stage::Queue).iter_recorded();
        let theirs = recorded.map(|it| (it.value_iterated_to(), it.count_since_last_iteration()));
        assert!(theirs.eq(recorder.of(ALONE, Stage::Queue)));
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
            recorder.record((ALONE, Stage::Turn), once((value, 1)));
            sum.add(&recorder);
            let [_, _, _, mut direct, ..] = Stages::new().0;
            direct.saturating_record(value);
            assert!(*sum.of(Stage::Turn) == direct, "{value}");
            assert_eq!(sum.of(Stage::Turn).max(), direct.max(), "{value}");
            assert_eq!(cell_of(value_of(cell_of(value))), cell_of(value));
        }
        assert_eq!(cell_of(u64::MAX), cell_of(LATENCY_NS_MAX));
        assert!(cell_of(LATENCY_NS_MAX) < ROWS * ROW_CELLS);
    }
}
