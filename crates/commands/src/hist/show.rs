//! `ringgate hist show`: a table of percentiles.

use super::super::Failure;
use super::super::exit::print;
use super::files::{Files, Loaded, by_tag, named};
use ringgate_report::text::{Append as _, Table, count, time};

/// Print the percentiles of each tag over all files
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    print(&render(&args.files.load()?))
}

pub(super) fn render(logs: &[Loaded]) -> String {
    let mut text = String::new();
    for loaded in logs {
        writeln!(text, "{}", loaded.origin());
    }
    let quantiles = QUANTILES.map(|(name, _)| name).join(":, ");
    let mut table = Table::new(&format!("tag, count:, min:, {quantiles}:, max:, mean:"));
    for (tag, sum) in by_tag(logs.iter().flat_map(|loaded| &loaded.log.intervals)) {
        let cells = [named(tag).to_owned(), count(sum.len()), time(sum.min())].into_iter();
        let quantiles = QUANTILES.map(|(_, quantile)| time(sum.value_at_quantile(quantile)));
        let tail = [time(sum.max()), time(sum.mean().round() as u64)];
        table.row(cells.chain(quantiles).chain(tail));
    }
    write!(text, "\n{table}");
    text
}

const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("p99.999", 0.99999),
];

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    #[test]
    fn tags_are_rows_and_files_are_lines() {
        let log = |from_s: u64| {
            let values: Vec<u64> = (1..=1000).map(|us| us * 1000).collect();
            let intervals =
                vec![interval("turn", from_s, &values), interval("", from_s + 10, &[5])];
            Loaded { path: "a.hlog".into(), log: Log { intervals, ..Log::default() } }
        };
        assert_eq!(
            render(&[log(0), log(1_700_000_000)]),
            "a.hlog: 1970-01-01 00:00:00 UTC to 1970-01-01 00:00:20 UTC (20 s)\n\
             a.hlog: 2023-11-14 22:13:20 UTC to 2023-11-14 22:13:40 UTC (20 s)\n\
             \n\
             tag       count      min     p50     p90     p99   p99.9   p99.99  p99.999      max    mean\n\
             turn      2,000  1.00 µs  500 µs  900 µs  990 µs  999 µs  1.00 ms  1.00 ms  1.00 ms  501 µs\n\
             (no tag)      2     5 ns    5 ns    5 ns    5 ns    5 ns     5 ns     5 ns     5 ns    5 ns\n"
        );
    }
}
