//! `ringgate hist plot`: percentile curves, or latency over time, as one SVG file that needs
//! nothing else.
//!
//! Latency is read in orders of magnitude and percentiles in nines, so both axes are logarithmic:
//! each step to the right has ten times fewer values beyond it, and curves that part there are told
//! apart where it matters.

mod over_time;

use std::path::PathBuf;

use super::super::Failure;
use super::super::exit::print;
use super::files::{Files, Loaded, by_tag, named, notes};
use hdrhistogram::Histogram;
use ringgate_report::chart::{Axis, Chart, Head, Line, Scale, file};
use ringgate_report::text::{round_time, time};

/// Draw the percentile curve of each tag, or latency over time, as an SVG
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,
    /// Draw p50, p99 and p99.9 over time, in front of how often each latency was
    #[arg(long)]
    over_time: bool,
    /// Only this tag; may be given several times
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// The SVG to write, instead of stdout
    #[arg(long, value_name = "FILE", value_parser = svg)]
    out: Option<PathBuf>,
}

/// A name that does not promise another format.
fn svg(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let other = path.extension().filter(|it| !it.eq_ignore_ascii_case("svg"));
    match other.map(|it| it.to_string_lossy().to_ascii_uppercase()) {
        Some(format) => Err(format!("this writes SVG and no {format}: name it ….svg")),
        None => Ok(path),
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut logs = args.files.load()?;
    if !args.tag.is_empty() {
        for loaded in &mut logs {
            loaded.log.intervals.retain(|it| args.tag.contains(&it.tag));
        }
        logs.retain(|loaded| !loaded.log.intervals.is_empty());
    }
    if logs.is_empty() {
        return Err(Failure::bad_input("no file has an interval with such a tag"));
    }
    let svg = if args.over_time { over_time::draw(&logs) } else { draw(&logs) };
    let Some(out) = &args.out else { return print(&svg) };
    std::fs::write(out, svg)
        .map_err(|why| Failure::failed(format_args!("cannot write {}: {why}", out.display())))
}

fn draw(logs: &[Loaded]) -> String {
    let series = series(logs);
    let samples = series.iter().map(|series| series.sum.len()).max().unwrap_or(0);
    let lines: Vec<Line> = series.iter().map(line).collect();
    let chart = Chart {
        title: TITLE.into(),
        x: Axis::percentiles("share of values that were not longer", samples),
        y: Axis::new("latency", Scale::decades(Chart::values(&lines)), |ns| round_time(ns as u64)),
        heat: Vec::new(),
        lines,
        marks: Vec::new(),
    };
    file(&Head { title: TITLE.into(), notes: notes(logs) }, &[chart])
}

/// One curve: colours tell tags apart, dashes files.
struct Series {
    name: String,
    colour: usize,
    dash: usize,
    sum: Histogram<u64>,
}

/// A curve for each tag of each file; tags that recorded nothing have none.
fn series(logs: &[Loaded]) -> Vec<Series> {
    let mut tags: Vec<&str> = Vec::new();
    let mut series = Vec::new();
    for (dash, Loaded { path, log }) in logs.iter().enumerate() {
        let file = path.file_stem().unwrap_or_default().to_string_lossy();
        for (tag, sum) in by_tag(&log.intervals) {
            if sum.is_empty() {
                continue;
            }
            let colour = tags.iter().position(|known| *known == tag).unwrap_or_else(|| {
                tags.push(tag);
                tags.len() - 1
            });
            let name = match logs.len() {
                1 => named(tag).to_owned(),
                _ => format!("{} {file}", named(tag)),
            };
            series.push(Series { name, colour, dash, sum });
        }
    }
    series
}

/// From the shortest value to the longest, a point for every few pixels. Beyond one in as many
/// values as there are, there is nothing.
fn line(Series { name, colour, dash, sum }: &Series) -> Line {
    let end = (sum.len().max(1) as f64).log10();
    let percents = (0..=CURVE_STEPS).map(|step| {
        let nines = end * f64::from(step) / f64::from(CURVE_STEPS);
        100.0 * (1.0 - 10_f64.powf(-nines))
    });
    let value = |percent: f64| sum.value_at_quantile(percent / 100.0).max(1) as f64;
    Line {
        name: format!("{name}, max {}", time(sum.max())),
        colour: *colour,
        dash: *dash,
        points: percents.map(|percent| (percent, value(percent))).collect(),
    }
}

const TITLE: &str = "Latency by percentile";

const CURVE_STEPS: u32 = 300;

#[cfg(test)]
mod tests {
    use super::super::files::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    pub(super) fn loaded(name: &str, tags: &[&str]) -> Loaded {
        let values: Vec<u64> = (1..=5000).map(|step| step * 1000).collect();
        let both = |tag: &&str| [interval(tag, 0, &values), interval(tag, 10, &values)];
        let mut intervals: Vec<_> = tags.iter().flat_map(both).collect();
        intervals.push(interval("silent", 0, &[]));
        let writer = "ringgate on gate-1".to_owned();
        Loaded { path: name.into(), log: Log { intervals, writer, ..Log::default() } }
    }

    #[test]
    fn every_tag_that_recorded_something_has_a_curve_and_a_name() {
        let svg = draw(&[loaded("a.hlog", &["turn", "up&down"])]);
        assert!(svg.contains(">turn, max 5.00 ms<") && svg.contains(">up&amp;down, max"), "{svg}");
        assert!(!svg.contains("silent"));
        for label in [">90 %<", ">99 %<", ">99.9 %<", ">1 µs<", ">10 ms<"] {
            assert!(svg.contains(label), "{label} is missing");
        }
    }

    #[test]
    fn the_picture_says_where_and_when_it_is_from() {
        let svg = draw(&[loaded("a.hlog", &["turn"])]);
        let from = "a.hlog: by ringgate on gate-1, 1970-01-01 00:00:00 UTC to 1970-01-01 00:00:20 UTC (20 s)";
        assert!(svg.contains(&format!(">{from}</text>")), "{svg}");
        let many: Vec<_> = (0..9).map(|n| loaded(&format!("{n}.hlog"), &["turn"])).collect();
        assert!(draw(&many).contains("and 3 more files"));
    }

    #[test]
    fn files_share_a_tags_colour_and_differ_in_dashes() {
        let logs = [loaded("a.hlog", &["turn"]), loaded("b.hlog", &["turn"])];
        let lines: Vec<_> = series(&logs).iter().map(line).collect();
        assert_eq!(
            lines.iter().map(|it| (it.colour, it.dash)).collect::<Vec<_>>(),
            [(0, 0), (0, 1)]
        );
        assert!(lines[0].name.starts_with("turn a,") && lines[1].name.starts_with("turn b,"));
    }

    #[test]
    fn curves_never_fall() {
        let [series] = &series(&[loaded("a.hlog", &["turn"])])[..] else { panic!("one curve") };
        assert!(line(series).points.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1));
    }
}
