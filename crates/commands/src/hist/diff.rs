//! `ringgate hist diff`: the percentiles of two files side by side, and which of them differ by
//! more than chance explains.

mod blocks;

use std::path::PathBuf;

use hdrhistogram::Histogram;

use super::super::Failure;
use super::super::exit::print;
use super::files::{Loaded, by_tag, load, named};
use blocks::{Verdict, compare};
use ringgate_report::hlog::Interval;
use ringgate_report::text::{Append as _, Table, count, time};

/// Compare two files: percentiles side by side, and which differ by more than chance
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The earlier file, or what the other is held against
    #[arg(value_name = "A")]
    one: PathBuf,
    /// The other file
    #[arg(value_name = "B")]
    other: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    print(&render(&load(&args.one)?, &load(&args.other)?))
}

fn render(one: &Loaded, other: &Loaded) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", one.origin(), other.origin());
    let mut table = Table::new("tag, , A:, B:, change:, ");
    for tag in tags(one, other) {
        rows(&mut table, tag, &of(one, tag), &of(other, tag));
    }
    write!(text, "{table}\n{LEGEND}");
    text
}

/// In the order in which they come first.
fn tags<'l>(one: &'l Loaded, other: &'l Loaded) -> Vec<&'l str> {
    by_tag(one.log.intervals.iter().chain(&other.log.intervals))
        .into_iter()
        .filter(|(_, sum)| !sum.is_empty())
        .map(|(tag, _)| tag)
        .collect()
}

/// The intervals of a tag, and their sum.
struct Part<'l> {
    intervals: Vec<&'l Interval>,
    sum: Option<Histogram<u64>>,
}

fn of<'l>(loaded: &'l Loaded, tag: &str) -> Part<'l> {
    let intervals: Vec<_> = loaded.log.intervals.iter().filter(|it| it.tag == tag).collect();
    let sum = by_tag(intervals.iter().copied()).into_iter().next().map(|(_, sum)| sum);
    Part { intervals, sum: sum.filter(|sum| !sum.is_empty()) }
}

fn rows(table: &mut Table, tag: &str, one: &Part<'_>, other: &Part<'_>) {
    let both = [one, other];
    let [a, b] = both.map(|part| count(part.sum.as_ref().map_or(0, Histogram::len)));
    table.row([named(tag).to_owned(), "count".into(), a, b, String::new(), String::new()]);
    for (name, quantile) in QUANTILES {
        let values = both.map(|part| Some(part.sum.as_ref()?.value_at_quantile(quantile)));
        let [a, b] = values.map(|value| value.map_or_else(|| "–".to_owned(), time));
        let (change, verdict) = match values {
            [Some(a), Some(b)] => {
                let verdict = compare(&one.intervals, &other.intervals, quantile);
                (change(a, b), verdict.word())
            }
            _ => Default::default(),
        };
        table.row([String::new(), name.into(), a, b, change, verdict.into()]);
    }
    let [a, b] = both.map(|part| part.sum.as_ref().map_or_else(|| "–".into(), |it| time(it.max())));
    table.row([String::new(), "max".into(), a, b, String::new(), String::new()]);
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Differs => "significant",
            Self::MayBeChance => "may be chance",
            Self::TooFew => "too few values",
        }
    }
}

fn change(a: u64, b: u64) -> String {
    format!("{:+.1} %", 100.0 * (b as f64 / a.max(1) as f64 - 1.0))
}

const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

const LEGEND: &str = "significant: each file is cut into stretches of time, and the percentile's values in the stretches of A\n\
    and B differ by more than chance would have them do once in a hundred times (Mann-Whitney). Load that has\n\
    changed differs, too: compare files of the same load.\n";

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    fn loaded(name: &str, longer_ns: u64) -> Loaded {
        let values: Vec<u64> =
            (1..=1000).map(|n| n * 1000 + if n > 950 { longer_ns } else { 0 }).collect();
        let mut intervals: Vec<_> = (0..10).map(|at| interval("turn", at * 10, &values)).collect();
        intervals.push(interval(name, 100, &[7]));
        Loaded { path: name.into(), log: Log { intervals, ..Log::default() } }
    }

    #[test]
    fn what_differs_is_marked_and_what_does_not_is_not() {
        let text = render(&loaded("a", 0), &loaded("b", 500_000));
        let row = |name: &str| {
            let rows = text.lines().skip_while(|line| !line.starts_with("turn"));
            let row = rows.take(7).find(|line| line.split_whitespace().any(|it| it == name));
            row.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
        };
        assert!(row("p50").ends_with("+0.0 %  may be chance"), "{text}");
        assert!(row("p99").ends_with("+50.6 %  significant"), "{text}");
        assert!(row("p99.9").ends_with("too few values"), "{text}");
        assert!(text.starts_with("A: a: 1970-01-01 00:00:00 UTC to"), "{text}");
    }

    #[test]
    fn tags_that_only_one_file_has_are_shown_with_what_there_is() {
        let text = render(&loaded("a", 0), &loaded("b", 0));
        let row =
            text.lines().skip_while(|line| !line.starts_with("a ")).nth(1).unwrap_or_default();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["p50", "7", "ns", "–"], "{text}");
        assert!(text.lines().any(|line| line.starts_with("b  ")), "{text}");
    }
}
