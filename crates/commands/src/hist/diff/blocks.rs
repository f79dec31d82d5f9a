//! Whether a percentile of two files differs by more than chance.
//!
//! Values that follow each other are alike: a busy second makes thousands of them slow. A test that
//! took each for a witness of its own would call everything significant. So a file is cut into
//! stretches of time, each long enough to have the percentile, and the stretches are the witnesses:
//! their values are compared by rank (Mann-Whitney), to which one odd stretch is no more than one.

use hdrhistogram::Histogram;

use super::super::files::{add, empty_like};
use ringgate_report::hlog::Interval;

/// What a comparison has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Chance alone does so less than once in a hundred times.
    Differs,
    MayBeChance,
    /// There are fewer stretches that have the percentile than it takes to tell.
    TooFew,
}

/// Compares a quantile of two runs of intervals.
pub(super) fn compare(one: &[&Interval], other: &[&Interval], quantile: f64) -> Verdict {
    let (one, other) = (stretches(one, quantile), stretches(other, quantile));
    if one.len().min(other.len()) < STRETCHES_MIN {
        return Verdict::TooFew;
    }
    if deviations(&one, &other).abs() > DEVIATIONS {
        Verdict::Differs
    } else {
        Verdict::MayBeChance
    }
}

/// The quantile in each stretch. There are as many stretches as have enough values beyond the
/// quantile, each of about as many intervals.
fn stretches(intervals: &[&Interval], quantile: f64) -> Vec<u64> {
    let total: u64 = intervals.iter().map(|it| it.histogram.len()).sum();
    let least = (BEYOND / (1.0 - quantile)).ceil() as u64;
    let wanted = (total / least).min(STRETCHES_MAX as u64).max(1);
    let enough = (total / wanted).max(1);
    let mut quantiles = Vec::new();
    let mut open: Option<Histogram<u64>> = None;
    for interval in intervals {
        let sum = open.get_or_insert_with(|| empty_like(&interval.histogram));
        add(sum, &interval.histogram);
        if sum.len() >= enough.max(least) {
            quantiles.push(sum.value_at_quantile(quantile));
            open = None;
        }
    }
    quantiles
}

/// How many standard deviations the ranks of two samples are from what they are on average where
/// both are alike. Values that are equal share their ranks.
fn deviations(one: &[u64], other: &[u64]) -> f64 {
    let mut all: Vec<(u64, bool)> = Vec::new();
    all.extend(one.iter().map(|value| (*value, true)));
    all.extend(other.iter().map(|value| (*value, false)));
    all.sort_unstable();
    let (mut rank_sum, mut ties, mut rank) = (0.0, 0.0, 0.0);
    for equal in all.chunk_by(|a, b| a.0 == b.0) {
        let count = equal.len() as f64;
        let mean = rank + f64::midpoint(1.0, count);
        rank_sum += mean * equal.iter().filter(|(_, is_one)| *is_one).count() as f64;
        ties += count.powi(3) - count;
        rank += count;
    }
    let (n, m) = (one.len() as f64, other.len() as f64);
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * ((n + m + 1.0) - ties / ((n + m) * (n + m - 1.0)));
    if variance > 0.0 { (u - n * m / 2.0) / variance.sqrt() } else { 0.0 }
}

/// Values beyond a quantile that a stretch needs, for its value to mean anything.
const BEYOND: f64 = 10.0;

/// Five against five can be as far apart as the bound below; fewer cannot.
const STRETCHES_MIN: usize = 5;

/// More would find differences that nobody has to care about.
const STRETCHES_MAX: usize = 40;

/// Two-sided, one in a hundred.
const DEVIATIONS: f64 = 2.576;

#[cfg(test)]
mod tests {
    use super::super::super::files::tests::interval;
    use super::*;

    /// Numbers that look random, the same each time.
    fn noise(seed: u64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 44
        })
    }

    /// Intervals in which values are slower together, as on a busy machine.
    fn run(seed: u64, longer: f64) -> Vec<Interval> {
        let mut load = noise(seed);
        let one = |at: u64| {
            let slow = 1.0 + (load.next().unwrap_or(0) % 100) as f64 / 200.0;
            let values = noise(seed * 1000 + at).take(2000);
            let values: Vec<u64> =
                values.map(|it| ((1000 + it % 100_000) as f64 * slow * longer) as u64).collect();
            interval("turn", at * 10, &values)
        };
        (0..60).map(one).collect()
    }

    fn verdict(one: &[Interval], other: &[Interval], quantile: f64) -> Verdict {
        compare(&one.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>(), quantile)
    }

    #[test]
    fn runs_of_the_same_kind_seldom_differ() {
        let differ = (1..=100).filter(|seed| {
            verdict(&run(*seed, 1.0), &run(seed + 1000, 1.0), 0.99) == Verdict::Differs
        });
        assert!(differ.count() <= 5, "one in a hundred is meant");
    }

    #[test]
    fn a_change_is_found_although_both_are_noisy() {
        for quantile in [0.5, 0.99, 0.999] {
            assert_eq!(verdict(&run(1, 1.0), &run(2, 1.3), quantile), Verdict::Differs);
        }
    }

    #[test]
    fn few_values_prove_nothing() {
        assert_eq!(verdict(&run(1, 1.0)[..4], &run(2, 3.0), 0.5), Verdict::TooFew);
        assert_eq!(verdict(&run(1, 1.0)[..20], &run(2, 3.0), 0.9999), Verdict::TooFew);
        assert_eq!(verdict(&[], &[], 0.5), Verdict::TooFew);
    }

    #[test]
    fn ranks_are_those_of_the_books() {
        // Complete separation of five and five: U is 0, its mean 12.5, its deviation 4.787.
        let apart = deviations(&[1, 2, 3, 4, 5], &[6, 7, 8, 9, 10]);
        assert!((apart + 2.611).abs() < 0.001 && apart.abs() > DEVIATIONS, "{apart}");
        assert!(deviations(&[5; 9], &[5; 9]).abs() < 1e-9);
        assert!((deviations(&[1, 2, 2], &[2, 3, 4]) + 1.623).abs() < 0.001);
    }
}
