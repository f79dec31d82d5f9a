//! The page of one or more ladders: what a round trip costs, and how long it takes, at every rate
//! that was tried, with the knee marked.

use std::fmt::Write as _;

use super::{Curve, Step};
use crate::report::page::STYLE;
use crate::text::{count, percent, time};
use ringgate_report::chart::axis::plain;
use ringgate_report::chart::{Axis, COLOURS, Chart, Line, Mark, Scale, escape, style};

/// The whole page. Several ladders are compared.
pub fn html(curves: &[Curve]) -> String {
    let title = match curves {
        [one] => format!("ringgate ladder: {}", one.name),
        many => format!("ringgate ladder: {} compared", many.len()),
    };
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title><style>{STYLE}{1}</style></head><body>\n<h1>{0}</h1>\n",
        escape(&title),
        style()
    );
    for curve in curves {
        let _ = writeln!(html, "<p>{}</p>", escape(&curve.headline()));
    }
    html.push_str("<div class=\"charts\">\n");
    html.push_str(&cost(curves).figure());
    html.push_str(&latency(curves).figure());
    html.push_str("</div>\n");
    for (index, curve) in curves.iter().enumerate() {
        steps(index, curve, &mut html);
    }
    html.push_str("</body></html>\n");
    html
}

impl Curve {
    /// What was played where, and how it ended.
    fn headline(&self) -> String {
        let (min, max) = self.bytes;
        let bytes = if min == max { min.to_string() } else { format!("{min} to {max}") };
        format!(
            "{}: arrivals {}, {} sessions, payloads of {bytes} bytes; {} ({} cores), Linux {}. {}",
            self.name,
            self.arrivals.name(),
            count(self.sessions.into()),
            self.machine.cpu,
            self.machine.cores,
            self.machine.kernel,
            self.ending
        )
    }

    /// What was measured at each rate that proves anything, from the lowest on.
    fn points(&self, of: impl Fn(&Step) -> Option<f64>) -> Vec<(f64, f64)> {
        let steps = self.steps.iter().filter(|step| step.void.is_empty());
        let mut points: Vec<_> = steps.filter_map(|step| Some((step.rate, of(step)?))).collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        points
    }
}

/// A kind of line: what its name ends with, whether it is dashed, and what it shows of a step.
type Kind = (&'static str, bool, fn(&Step) -> Option<f64>);

fn lines(curves: &[Curve], kinds: &[Kind]) -> Vec<Line> {
    let all = curves.iter().enumerate().flat_map(|(colour, curve)| {
        kinds.iter().map(move |(suffix, is_dashed, of)| Line {
            name: format!("{} {suffix}", curve.name),
            colour,
            dash: usize::from(*is_dashed),
            points: curve.points(of),
        })
    });
    all.filter(|line| !line.points.is_empty()).collect()
}

/// Cost over load.
fn cost(curves: &[Curve]) -> Chart {
    let lines = lines(
        curves,
        &[
            ("gateway", false, |step| step.costs.gateway.us_per_trip),
            ("game process", true, |step| step.costs.game.us_per_trip),
            ("whole core", true, |step| step.costs.core.us_per_trip),
        ],
    );
    let scale = Scale::from_zero(Chart::values(&lines));
    Chart {
        title: "CPU per round trip over load".into(),
        x: rates(curves),
        y: Axis::new("CPU per round trip, µs", scale, |us| format!("{us:.1}")),
        heat: Vec::new(),
        marks: knees(curves),
        lines,
    }
}

fn latency(curves: &[Curve]) -> Chart {
    let lines = lines(
        curves,
        &[
            ("p99", false, |step| (step.p99_ns > 0).then_some(step.p99_ns as f64)),
            ("median", true, |step| (step.p50_ns > 0).then_some(step.p50_ns as f64)),
        ],
    );
    let scale = Scale::decades(Chart::values(&lines));
    Chart {
        title: "Round trip over load".into(),
        x: rates(curves),
        y: Axis::new("round trip", scale, |ns| time(ns as u64)),
        heat: Vec::new(),
        marks: knees(curves),
        lines,
    }
}

fn rates(curves: &[Curve]) -> Axis {
    let rates = curves.iter().flat_map(|curve| curve.steps.iter().map(|step| step.rate));
    Axis::new("payloads per second", Scale::from_zero(rates), plain)
}

fn knees(curves: &[Curve]) -> Vec<Mark> {
    let marks = curves.iter().enumerate().filter_map(|(colour, curve)| {
        let x = curve.knee?;
        let name = match curves {
            [_] => format!("knee {}/s", count(x as u64)),
            _ => format!("{}: knee {}/s", curve.name, count(x as u64)),
        };
        Some(Mark { name, colour, x })
    });
    marks.collect()
}

fn steps(index: usize, curve: &Curve, html: &mut String) {
    let _ = write!(
        html,
        "<h2><span class=\"key k{}\"></span>{}</h2>\n<div class=\"scroll\"><table><thead><tr>",
        index % COLOURS,
        escape(&curve.name)
    );
    for head in HEADS {
        let _ = write!(html, "<th>{head}</th>");
    }
    html.push_str("</tr></thead><tbody>\n");
    for step in &curve.steps {
        let us = |us: Option<f64>| us.map_or_else(|| "–".into(), |us| format!("{us:.2} µs"));
        let verdict = match (&step.void[..], step.is_good(&curve.bounds), step.is_ours()) {
            ([why, ..], ..) => why.clone(),
            (_, true, false) => "good".into(),
            (_, true, true) => "good, and the generator was late".into(),
            (_, false, false) => "too much".into(),
            (_, false, true) => "too much, and the generator was late".into(),
        };
        let costs = &step.costs;
        let cells = [
            us(costs.gateway.us_per_trip),
            us(costs.game.us_per_trip),
            us(costs.core.us_per_trip),
            time(step.p50_ns),
            time(step.p99_ns),
            percent(step.loss),
            time(step.late_p99_ns),
            verdict,
        ];
        let _ = write!(html, "<tr><th>{}</th>", count(step.rate as u64));
        for cell in cells {
            let _ = write!(html, "<td>{}</td>", escape(&cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
}

const HEADS: [&str; 9] = [
    "payloads/s",
    "gateway's CPU per round trip",
    "game process's",
    "the core's",
    "p50",
    "p99",
    "loss",
    "99 % left within",
    "",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::curve::{Cost, Costs};

    fn curve(name: &str, knee: Option<f64>) -> Curve {
        let step = |rate: f64, us: f64, void: &[&str]| {
            let cost = |us| Cost { cores: rate * us / 1e6, us_per_trip: Some(us) };
            Step {
                rate,
                p50_ns: 20_000,
                p99_ns: 150_000,
                costs: Costs { gateway: cost(us), game: cost(us / 2.0), ..Costs::default() },
                void: void.iter().map(|why| (*why).into()).collect(),
                ..Step::default()
            }
        };
        Curve {
            name: name.into(),
            knee,
            ending: "that was all".into(),
            steps: vec![
                step(60e3, 4.25, &[]),
                step(20e3, 6.5, &[]),
                step(90e3, 1.0, &["in <vain>"]),
            ],
            ..Curve::default()
        }
    }

    #[test]
    fn the_curve_is_drawn_from_its_lowest_rate_on_and_the_knee_is_marked() {
        let page = html(&[curve("a<b>", Some(60e3))]);
        assert!(
            page.ends_with("</html>\n") && page.contains("a&lt;b&gt;") && !page.contains("<b>")
        );
        for text in ["CPU per round trip over load", "knee 60,000/s", "6.50 µs", "arrivals spread"]
        {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<figure>").count(), 2);
        assert_eq!(page.matches("text-anchor=\"start\">knee").count(), 2);
        assert!(page.contains("in &lt;vain&gt;") && !page.contains("NaN"));
        let points = curve("", None).points(|step| step.costs.gateway.us_per_trip);
        assert_eq!(points, [(20e3, 6.5), (60e3, 4.25)]);
    }

    #[test]
    fn ladders_are_compared_and_one_that_was_not_climbed_has_a_page_too() {
        let page = html(&[curve("one", None), curve("two", Some(20e3)), Curve::default()]);
        assert!(page.contains("two: knee 20,000/s") && page.contains("one game process"));
        assert!(!page.contains("one: knee") && !page.contains("NaN") && !page.contains("inf"));
    }
}
