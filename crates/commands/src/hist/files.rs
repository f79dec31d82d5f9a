//! The histogram files that commands read, and sums of what is in them.

use std::io::Write;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use super::moment::Span;
use crate::Failure;
use ringgate_os::utc;
use ringgate_report::hlog::{self, Interval};

/// The files that a command reads.
#[derive(Debug, clap::Args)]
pub(super) struct Files {
    /// Histogram files (.hlog)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    span: Span,
}

/// A file that was read.
pub(super) struct Loaded {
    pub(super) path: PathBuf,
    pub(super) log: hlog::Log,
}

impl Files {
    /// Reads them all. Among several, one without a single interval is left out: its writer was
    /// killed, or has just begun.
    pub(super) fn load(&self) -> Result<Vec<Loaded>, Failure> {
        let read: fn(&Path) -> _ = if self.files.len() == 1 { load } else { read };
        let mut logs =
            self.files.iter().map(|path| read(path)).collect::<Result<Vec<Loaded>, _>>()?;
        for loaded in &mut logs {
            self.span.cut(&mut loaded.log.intervals);
        }
        logs.retain(|loaded| !loaded.log.intervals.is_empty());
        if logs.is_empty() {
            return Err(Failure::bad_input(
                "no file has an interval in the time that is asked for",
            ));
        }
        Ok(logs)
    }
}

impl Loaded {
    /// What it is, who wrote it where, and from when to when it goes.
    pub(super) fn origin(&self) -> String {
        self.origin_of(&self.path)
    }

    pub(super) fn origin_of(&self, path: &Path) -> String {
        let (path, span) = (path.display(), span(&self.log.intervals));
        match &self.log.writer[..] {
            "" => format!("{path}: {span}"),
            writer => format!("{path}: by {writer}, {span}"),
        }
    }
}

/// From when to when intervals go.
fn span(intervals: &[Interval]) -> String {
    let begin = intervals.iter().map(|interval| interval.start).min().unwrap_or_default();
    let ends = intervals.iter().map(|interval| interval.start.saturating_add(interval.length));
    let end = ends.max().unwrap_or_default();
    let length = utc::span(end.abs_diff(begin).as_secs());
    format!("{} to {} ({length})", utc::date(begin.as_secs()), utc::date(end.as_secs()))
}

/// Reads a file that stands alone: without a single interval nothing can be shown of it.
pub(super) fn load(path: &Path) -> Result<Loaded, Failure> {
    let loaded = read(path)?;
    if loaded.log.intervals.is_empty() {
        return Err(Failure::bad_input(format_args!("{} has no interval", path.display())));
    }
    Ok(loaded)
}

fn read(path: &Path) -> Result<Loaded, Failure> {
    let name = path.display();
    let bytes = std::fs::read(path)
        .map_err(|why| Failure::bad_input(format_args!("cannot read {name}: {why}")))?;
    let log =
        hlog::read(&bytes).map_err(|why| Failure::bad_input(format_args!("{name}: {why}")))?;
    if let Some(first) = &log.broken {
        let count = log.broken_count;
        let lines =
            if count == 1 { "1 broken line is" } else { &format!("{count} broken lines are") };
        warn(&format!("{name}: {lines} left out, first {first}\n"));
    }
    if log.is_cut_off {
        warn(&format!("{name}: its last line has no end and is left out\n"));
    }
    Ok(Loaded { path: path.to_owned(), log })
}

/// Says something about a file beside the command's result.
fn warn(sentence: &str) {
    // Nothing is left to be done when stderr is gone.
    let _ = std::io::stderr().write_all(format!("ringgate: {sentence}").as_bytes());
}

/// The sum of each tag's intervals, in the order in which the tags come first.
pub(super) fn by_tag<'i>(
    intervals: impl IntoIterator<Item = &'i Interval>,
) -> Vec<(&'i str, Histogram<u64>)> {
    let mut sums: Vec<(&str, Histogram<u64>)> = Vec::new();
    for Interval { tag, histogram, .. } in intervals {
        let at = sums.iter().position(|(known, _)| known == tag).unwrap_or_else(|| {
            sums.push((tag, empty_like(histogram)));
            sums.len() - 1
        });
        add(&mut sums[at].1, histogram);
    }
    sums
}

/// One with the same range and precision, which grows as far as it has to. Memory for values that
/// never come is not touched.
pub(super) fn empty_like(histogram: &Histogram<u64>) -> Histogram<u64> {
    let mut empty = Histogram::new_from(histogram);
    empty.auto(true);
    empty
}

pub(super) fn add(sum: &mut Histogram<u64>, histogram: &Histogram<u64>) {
    sum.add(histogram).expect("a histogram that grows takes every value");
}

/// A tag as people read it.
pub(super) fn named(tag: &str) -> &str {
    if tag.is_empty() { "(no tag)" } else { tag }
}

/// Which files a picture is of.
pub(super) fn notes(logs: &[Loaded]) -> Vec<String> {
    let name = |it: &Loaded| it.origin_of(it.path.file_name().unwrap_or_default().as_ref());
    let mut notes: Vec<String> = logs.iter().take(FILES_NAMED).map(name).collect();
    if let Some(more) = logs.len().checked_sub(FILES_NAMED).filter(|more| *more > 0) {
        notes.push(format!("and {more} more files"));
    }
    notes
}

/// More would fill the page.
const FILES_NAMED: usize = 6;

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;

    /// An interval with these values in it.
    pub(in crate::hist) fn interval(tag: &str, start_s: u64, values_ns: &[u64]) -> Interval {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
        for ns in values_ns {
            histogram.record(*ns).expect("in range");
        }
        let (start, length) = (Duration::from_secs(start_s), Duration::from_secs(10));
        Interval { tag: tag.to_owned(), start, length, histogram }
    }

    #[test]
    fn tags_are_summed_apart_in_the_order_of_the_file() {
        let intervals =
            [interval("turn", 0, &[1]), interval("queue", 0, &[2]), interval("turn", 10, &[3, 4])];
        let sums: Vec<_> =
            by_tag(&intervals).into_iter().map(|(tag, sum)| (tag, sum.len(), sum.max())).collect();
        assert_eq!(sums, [("turn", 3, 4), ("queue", 1, 2)]);
    }
}
