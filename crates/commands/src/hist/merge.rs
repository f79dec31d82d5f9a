//! `ringgate hist merge`: one file out of many, such as those of all gateways of a fleet.
//!
//! What was recorded at the same time under the same tag is added up.

use std::path::PathBuf;
use std::time::Duration;

use super::super::Failure;
use super::super::exit::print;
use super::files::{Files, Loaded};
use super::slots::Slots;
use ringgate_report::hlog;

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
    let Slots { begin, length, sums } = Slots::of(logs, SLOTS_MAX);
    let writer =
        format!("ringgate {}, hist merge of {} files", env!("CARGO_PKG_VERSION"), logs.len());
    let mut text = hlog::head(begin, &writer);
    for ((slot, tag), sum) in &sums {
        let start = Duration::from_nanos((slot * length.as_nanos()) as u64);
        hlog::write_line(&mut text, tag, start, length, sum)?;
    }
    Ok(text)
}

/// As many as there are intervals.
const SLOTS_MAX: u128 = u128::MAX;

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;
    use ringgate_report::hlog::{Interval, Log};

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
