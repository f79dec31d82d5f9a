//! `ringgate hist merge`: one file out of many, such as those of all gateways of a fleet.
//!
//! What was recorded at the same time under the same tag is added up. Gateways do not start their
//! intervals in step, so time is cut into slots as long as the usual interval, and an interval
//! belongs to the slot that its middle lies in.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::Failure;
use super::super::exit::print;
use super::{Files, Loaded, add, empty_like};
use ringgate_report::hlog::{self, Interval};

/// Add the intervals of several files up into one file
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let logs = args.files.load()?;
    let merged = merge(&logs).map_err(Failure::failed)?;
    let name = args.out.display();
    std::fs::write(&args.out, merged)
        .map_err(|why| Failure::failed(format_args!("cannot write {name}: {why}")))?;
    print(&format!("{name}: {} files\n", logs.len()))
}

/// The merged log, as text.
fn merge(logs: &[Loaded]) -> std::io::Result<String> {
    let intervals = || logs.iter().flat_map(|loaded| &loaded.log.intervals);
    let begin = intervals().map(|interval| interval.start).min().unwrap_or_default();
    let slot_length = usual_length(intervals());
    let mut slots: BTreeMap<(u128, &str), Histogram<u64>> = BTreeMap::new();
    for interval in intervals() {
        let middle = interval.start.abs_diff(begin).saturating_add(interval.length / 2);
        let slot = middle.as_nanos() / slot_length.as_nanos();
        let sum =
            slots.entry((slot, &interval.tag)).or_insert_with(|| empty_like(&interval.histogram));
        add(sum, &interval.histogram);
    }
    let writer =
        format!("ringgate {}, hist merge of {} files", env!("CARGO_PKG_VERSION"), logs.len());
    let mut text = hlog::head(begin, &writer);
    for ((slot, tag), sum) in &slots {
        let start = Duration::from_nanos((slot * slot_length.as_nanos()) as u64);
        hlog::write_line(&mut text, tag, start, slot_length, sum)?;
    }
    Ok(text)
}

/// The median: a gateway's first and last intervals may be short, and one on a busy machine long.
fn usual_length<'i>(intervals: impl Iterator<Item = &'i Interval>) -> Duration {
    let mut lengths: Vec<Duration> = intervals.map(|interval| interval.length).collect();
    lengths.sort_unstable();
    lengths.get(lengths.len() / 2).copied().unwrap_or_default().max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    fn loaded(intervals: Vec<Interval>) -> Loaded {
        Loaded { path: "a.hlog".into(), log: Log { intervals, ..Log::default() } }
    }

    #[test]
    fn intervals_of_the_same_time_are_added_up_though_out_of_step() {
        let one = loaded(vec![interval("turn", 100, &[1]), interval("turn", 110, &[2, 2])]);
        let other = loaded(vec![
            interval("turn", 103, &[3]),
            interval("queue", 103, &[4]),
            interval("turn", 123, &[5]),
        ]);
        let text = merge(&[one, other]).expect("merged");
        let merged: Vec<_> = hlog::read(text.as_bytes())
            .expect("ours")
            .intervals
            .into_iter()
            .map(|it| (it.start.as_secs(), it.tag, it.histogram.len(), it.histogram.max()))
            .collect();
        let row = |start, tag: &str, count, max| (start, tag.to_owned(), count, max);
        assert_eq!(
            merged,
            [
                row(100, "queue", 1, 4),
                row(100, "turn", 2, 3),
                row(110, "turn", 2, 2),
                row(120, "turn", 1, 5),
            ]
        );
    }

    #[test]
    fn nothing_is_lost_whatever_the_lengths() {
        let mut short = interval("turn", 7, &[9; 5]);
        short.length = Duration::ZERO;
        let logs = [loaded(vec![short]), loaded(vec![interval("turn", 0, &[8; 4])])];
        let text = merge(&logs).expect("merged");
        let read = hlog::read(text.as_bytes()).expect("ours");
        assert_eq!(read.intervals.iter().map(|it| it.histogram.len()).sum::<u64>(), 9);
    }
}
