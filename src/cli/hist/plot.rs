//! `ringgate hist plot`: percentile curves as one SVG file that needs nothing else.
//!
//! Latency is read in orders of magnitude and percentiles in nines, so both axes are logarithmic:
//! each step to the right has ten times fewer values beyond it, and curves that part there are told
//! apart where it matters. The file follows the reader's light or dark theme, and its text is text.

mod axes;

use std::path::PathBuf;

use hdrhistogram::Histogram;

use super::super::Failure;
use super::super::exit::print;
use super::{Files, Loaded, by_tag, named};
use axes::Axes;
use ringgate_report::text::{put, time};

/// Draw the percentile curve of each tag, over all intervals, as an SVG
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    files: Files,
    /// The file to write, instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let svg = draw(&args.files.load()?);
    let Some(out) = &args.out else { return print(&svg) };
    std::fs::write(out, svg)
        .map_err(|why| Failure::failed(format_args!("cannot write {}: {why}", out.display())))
}

/// One curve.
struct Series {
    name: String,
    /// Colours tell tags apart, dashes files.
    colour: usize,
    dash: usize,
    sum: Histogram<u64>,
}

fn draw(logs: &[Loaded]) -> String {
    let series = series(logs);
    let axes = Axes::of(series.iter().map(|series| &series.sum));
    let mut svg = String::new();
    head(&mut svg, &series);
    axes.draw(&mut svg);
    for one in &series {
        curve(&mut svg, &axes, one);
    }
    labels(&mut svg, &axes, &series);
    svg.push_str("</svg>\n");
    svg
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
            series.push(Series {
                name,
                colour: colour % COLOURS.len(),
                dash: dash % DASHES.len(),
                sum,
            });
        }
    }
    series
}

fn head(svg: &mut String, series: &[Series]) {
    put(
        svg,
        format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
             <title>Latency by percentile</title>\n<desc>"
        ),
    );
    for Series { name, sum, .. } in series {
        let (p50, p99, max) = (sum.value_at_quantile(0.5), sum.value_at_quantile(0.99), sum.max());
        let (p50, p99, max) = (time(p50), time(p99), time(max));
        put(svg, format_args!("{}: p50 {p50}, p99 {p99}, max {max}. ", escaped(name)));
    }
    svg.push_str("</desc>\n<style>\n:root { --paper: #ffffff; --ink: #1f2328; --soft: #59636e; --grid: #e4e8ec;");
    variables(svg, |(light, _)| light);
    svg.push_str(" }\n@media (prefers-color-scheme: dark) {\n:root { --paper: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #262c36;");
    variables(svg, |(_, dark)| dark);
    svg.push_str(
        " }\n}\n\
         .paper { fill: var(--paper); } .ink { fill: var(--ink); } .soft { fill: var(--soft); }\n\
         .grid { stroke: var(--grid); stroke-width: 1; }\n\
         .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }\n</style>\n",
    );
    put(svg, format_args!("<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n"));
}

fn variables(svg: &mut String, theme: fn((&'static str, &'static str)) -> &'static str) {
    for (at, colours) in COLOURS.into_iter().enumerate() {
        put(svg, format_args!(" --c{at}: {};", theme(colours)));
    }
}

/// From the shortest value to the longest, a point for every few pixels.
fn curve(svg: &mut String, axes: &Axes, series: &Series) {
    let Series { colour, dash, sum, .. } = series;
    let end = axes.nines_of(sum);
    let dashes = DASHES[*dash];
    put(
        svg,
        format_args!(
            "<polyline class=\"curve\" style=\"stroke: var(--c{colour})\" stroke-dasharray=\"{dashes}\" points=\""
        ),
    );
    for step in 0..=CURVE_STEPS {
        let nines = end * f64::from(step) / f64::from(CURVE_STEPS);
        let value = sum.value_at_quantile(1.0 - 10_f64.powf(-nines));
        let gap = if step == 0 { "" } else { " " };
        put(svg, format_args!("{gap}{:.1},{:.1}", axes.x(nines), axes.y(value)));
    }
    let (x, y) = (axes.x(end), axes.y(sum.max()));
    put(svg, format_args!(" {x:.1},{y:.1}\"/>\n"));
}

/// The name and the longest value, at the right of each curve's end, pushed apart where they would
/// overlap.
fn labels(svg: &mut String, axes: &Axes, series: &[Series]) {
    let mut order: Vec<&Series> = series.iter().collect();
    order.sort_by(|one, other| axes.y(one.sum.max()).total_cmp(&axes.y(other.sum.max())));
    let mut y = f64::MIN;
    for Series { name, colour, dash, sum } in order {
        y = (axes.y(sum.max()) + 4.0).max(y + LABEL_HEIGHT);
        let (x, dashes) = (axes::RIGHT + 12.0, DASHES[*dash]);
        put(
            svg,
            format_args!(
                "<line x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"3\" \
                 style=\"stroke: var(--c{colour})\" stroke-dasharray=\"{dashes}\"/>\
                 <text class=\"ink\" x=\"{:.1}\" y=\"{y:.1}\">{} <tspan class=\"soft\">max {}</tspan></text>\n",
                x + 18.0,
                y - 4.0,
                y - 4.0,
                x + 24.0,
                escaped(name),
                time(sum.max())
            ),
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 560.0;

const LABEL_HEIGHT: f64 = 18.0;

const CURVE_STEPS: u32 = 300;

/// For light paper and for dark: hues that stay apart for most kinds of colour blindness.
const COLOURS: [(&str, &str); 7] = [
    ("#0063b8", "#58a6ff"),
    ("#c2410c", "#ff9a5c"),
    ("#00795c", "#3fcf9f"),
    ("#8a3ffc", "#c297ff"),
    ("#a8123e", "#ff7b93"),
    ("#7a5c00", "#e3b341"),
    ("#3d4852", "#b1bac4"),
];

const DASHES: [&str; 4] = ["none", "7 4", "2 4", "10 4 2 4"];

#[cfg(test)]
mod tests {
    use super::super::tests::interval;
    use super::*;
    use ringgate_report::hlog::Log;

    fn loaded(name: &str, tags: &[&str]) -> Loaded {
        let values: Vec<u64> = (1..=5000).map(|step| step * 1000).collect();
        let mut intervals: Vec<_> = tags.iter().map(|tag| interval(tag, 0, &values)).collect();
        intervals.push(interval("silent", 0, &[]));
        Loaded { path: name.into(), log: Log { intervals, ..Log::default() } }
    }

    /// Every element is closed by itself or by its end, in order.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for element in svg.split('<').skip(1) {
            let (element, text) = element.split_once('>').expect("every `<` has its `>`");
            assert!(!text.contains('>'), "{text}");
            let name = element.split([' ', '/']).next().unwrap_or_default();
            if let Some(name) = element.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !element.ends_with('/') {
                open.push(name);
            }
            assert_eq!(element.matches('"').count() % 2, 0, "{element}");
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn every_tag_that_recorded_something_has_a_curve_and_a_name() {
        let svg = draw(&[loaded("a.hlog", &["turn", "up&down"])]);
        assert_well_formed(&svg);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(svg.contains(">turn <tspan") && svg.contains(">up&amp;down <tspan"), "{svg}");
        assert!(!svg.contains("silent"));
        assert!(svg.contains("prefers-color-scheme: dark"));
        for label in [">90 %<", ">99 %<", ">99.9 %<", ">1 µs<", ">10 ms<"] {
            assert!(svg.contains(label), "{label} is missing");
        }
    }

    #[test]
    fn files_share_a_tags_colour_and_differ_in_dashes() {
        let svg = draw(&[loaded("a.hlog", &["turn"]), loaded("b.hlog", &["turn"])]);
        assert_well_formed(&svg);
        assert_eq!(svg.matches("stroke: var(--c0)").count(), 4);
        assert_eq!(svg.matches("stroke-dasharray=\"7 4\"").count(), 2);
        assert!(svg.contains(">turn a <tspan") && svg.contains(">turn b <tspan"));
    }

    #[test]
    fn curves_stay_on_the_paper_and_never_fall() {
        let svg = draw(&[loaded("a.hlog", &["turn"])]);
        let points = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next());
        let points: Vec<(f64, f64)> = points
            .expect("a curve")
            .split(' ')
            .map(|point| {
                let (x, y) = point.split_once(',').expect("two numbers");
                (x.parse().expect("a number"), y.parse().expect("a number"))
            })
            .collect();
        assert!(points.is_sorted_by(|one, next| one.0 <= next.0 && one.1 >= next.1));
        assert!(points.iter().all(|(x, y)| (0.0..WIDTH).contains(x) && (0.0..HEIGHT).contains(y)));
    }
}
