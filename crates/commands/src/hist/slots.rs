//! The intervals of several files, put in step.
//!
//! Gateways do not start their intervals together, so time is cut into slots as long as the usual
//! interval, or some of them, and an interval belongs to the slot that its middle lies in.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::files::{Loaded, add, empty_like};
use ringgate_report::hlog::Interval;

/// What was recorded, by time and tag.
pub(super) struct Slots<'l> {
    /// When the first slot begins.
    pub(super) begin: Duration,
    /// How long each is.
    pub(super) length: Duration,
    /// What each tag has in the slots in which it has anything.
    pub(super) sums: BTreeMap<(u128, &'l str), Histogram<u64>>,
}

impl<'l> Slots<'l> {
    /// No more than `most` of them.
    pub(super) fn of(logs: &'l [Loaded], most: u128) -> Self {
        let intervals = || logs.iter().flat_map(|loaded| &loaded.log.intervals);
        let begin = intervals().map(|interval| interval.start).min().unwrap_or_default();
        let middle = |it: &Interval| it.start.abs_diff(begin).saturating_add(it.length / 2);
        let last = intervals().map(middle).max().unwrap_or_default();
        let usual = usual_length(intervals().map(|interval| interval.length).collect());
        let together = last.as_nanos() / usual.as_nanos() / most + 1;
        let length = usual.saturating_mul(u32::try_from(together).unwrap_or(u32::MAX));
        let mut sums = BTreeMap::new();
        for interval in intervals() {
            let slot = middle(interval).as_nanos() / length.as_nanos();
            let key = (slot, interval.tag.as_str());
            add(
                sums.entry(key).or_insert_with(|| empty_like(&interval.histogram)),
                &interval.histogram,
            );
        }
        Self { begin, length, sums }
    }
}

/// The median: a gateway's first and last intervals may be short, and one on a busy machine long.
fn usual_length(mut lengths: Vec<Duration>) -> Duration {
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default().max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    #[test]
    fn there_are_never_more_slots_than_asked_for_and_nothing_is_lost() {
        for count in [1_u64, 7, 8, 9, 100] {
            let intervals: Vec<_> =
                (0..count).map(|n| interval("turn", n * 10, &[n + 1])).collect();
            let logs = [Loaded { path: "a".into(), log: Log { intervals, ..Log::default() } }];
            let slots = Slots::of(&logs, 8);
            assert!(slots.sums.keys().all(|(slot, _)| *slot < 8), "{count}");
            assert_eq!(slots.sums.values().map(Histogram::len).sum::<u64>(), count);
        }
    }
}
