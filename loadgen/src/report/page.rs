//! The page: what was run, on what, how it went, in charts and in tables.

use std::fmt::Write as _;

use crate::measure::tally::Stage;
use crate::report::record::{Interval, Record, StageRecord};
use crate::text::{count, percent, time};
use ringgate_report::chart::axis::plain;
use ringgate_report::chart::{Axis, COLOURS, Chart, Line, Scale, escape, style};

/// The whole report. Several runs are compared.
pub fn html(runs: &[Record]) -> String {
    let title = match runs {
        [one] => format!("ringgate load: {}", label(one, 0, 1)),
        many => format!("ringgate load: {} runs", many.len()),
    };
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{0}</title><style>{STYLE}{1}</style></head><body>\n<h1>{0}</h1>\n",
        escape(&title),
        style()
    );
    remarks(runs, &mut html);
    summary(runs, &mut html);
    html.push_str("<div class=\"charts\">\n");
    for chart in charts(runs) {
        html.push_str(&chart.figure());
    }
    html.push_str("</div>\n");
    percentiles(runs, &mut html);
    drops(runs, &mut html);
    checks(runs, &mut html);
    facts(runs, &mut html);
    html.push_str("</body></html>\n");
    html
}

fn label(run: &Record, index: usize, of: usize) -> String {
    let name = if run.name.is_empty() { "run" } else { &run.name };
    if of == 1 { name.to_owned() } else { format!("{}: {name}", index + 1) }
}

fn labelled(runs: &[Record]) -> impl Iterator<Item = (usize, String, &Record)> {
    runs.iter().enumerate().map(|(index, run)| (index, label(run, index, runs.len()), run))
}

/// A table with a column for each run.
fn table(runs: &[Record], caption: &str, rows: &[(String, Vec<String>)], html: &mut String) {
    let _ = write!(html, "<h2>{caption}</h2>\n<div class=\"scroll\"><table><thead><tr><th></th>");
    for (index, name, _) in labelled(runs) {
        let _ = write!(
            html,
            "<th><span class=\"key k{}\"></span>{}</th>",
            index % COLOURS,
            escape(&name)
        );
    }
    html.push_str("</tr></thead><tbody>\n");
    for (name, values) in rows {
        let _ = write!(html, "<tr><th>{}</th>", escape(name));
        for value in values {
            let _ = write!(html, "<td>{}</td>", escape(value));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
}

fn row(name: &str, runs: &[Record], of: impl Fn(&Record) -> String) -> (String, Vec<String>) {
    (name.to_owned(), runs.iter().map(of).collect())
}

/// What has happened to a run stands before its figures.
fn remarks(runs: &[Record], html: &mut String) {
    for (_, name, run) in labelled(runs) {
        let pace = run.summary().pace;
        let late = (!pace.is_kept).then(|| format!("arrivals {}", pace.sentence()));
        for remark in run.remarks().into_iter().chain(late) {
            let (name, remark) = (escape(&name), escape(&remark));
            let _ = writeln!(html, "<p><b class=\"no\">{name}</b>: {remark}</p>");
        }
    }
}

fn summary(runs: &[Record], html: &mut String) {
    let at = |percentile| {
        move |run: &Record| {
            run.stage(Stage::RoundTrip).map_or_else(|| "–".into(), |s| time(s.at(percentile)))
        }
    };
    let cpu = |us: Option<f64>| us.map_or_else(|| "not watched".into(), |us| format!("{us:.2} µs"));
    let rows = [
        row("Sessions let in", runs, |run| {
            let players = run.summary().players;
            format!("{} of {}", count(players.connected), count(players.came))
        }),
        row("Let in by another gateway of their token", runs, |run| {
            count(run.summary().players.elsewhere)
        }),
        row("Players outside in the end", runs, |run| count(run.summary().players.outside)),
        row("Sessions lost", runs, |run| count(run.summary().players.lost)),
        row("Payloads due", runs, |run| count(run.summary().payloads.due)),
        row("Payloads that arrived", runs, |run| count(run.summary().payloads.arrived)),
        row("Loss", runs, |run| percent(run.summary().payloads.loss)),
        row("Arrivals", runs, |run| run.arrivals.name().into()),
        row("99 % left within", runs, |run| time(run.summary().pace.late_p99_ns)),
        row("Left late by more than 1 ms", runs, |run| count(run.summary().payloads.late)),
        row("Round trip, median", runs, at(50.0)),
        row("Round trip, 99 %", runs, at(99.0)),
        row("Round trip, 99.9 %", runs, at(99.9)),
        row("Round trip, largest", runs, at(100.0)),
        row("Longest pause", runs, |run| match run.summary().pause.ns {
            0 => "–".into(),
            ns => time(ns),
        }),
        row("Generator's CPU per datagram", runs, |run| cpu(run.cpu_us_per_datagram().0)),
        row("Gateway's CPU per datagram", runs, |run| cpu(run.cpu_us_per_datagram().1)),
    ];
    table(runs, "At a glance", &rows, html);
}

fn charts(runs: &[Record]) -> Vec<Chart> {
    let over_time = |of: fn(&Interval) -> f64| {
        move |run: &Record| -> Vec<(f64, f64)> {
            run.intervals.iter().map(|i| (i.start_s + i.seconds, of(i))).collect()
        }
    };
    let lines = |suffix: &str, is_dashed, of: &dyn Fn(&Record) -> Vec<(f64, f64)>| -> Vec<Line> {
        labelled(runs)
            .map(|(colour, name, run)| Line {
                name: format!("{name}{suffix}"),
                colour,
                dash: usize::from(is_dashed),
                points: of(run),
            })
            .collect()
    };
    let ends = runs.iter().filter_map(|run| run.intervals.last()).map(|i| i.start_s + i.seconds);
    let seconds = Scale::Linear(0.0, ends.fold(1.0, f64::max));
    let seconds = Axis::new("time, s", seconds, plain);
    let timed = |title: &str, y_name, lines: Vec<Line>, text| Chart {
        title: title.into(),
        x: seconds.clone(),
        y: Axis::new(y_name, Scale::from_zero(Chart::values(&lines)), text),
        heat: Vec::new(),
        lines,
        marks: Vec::new(),
    };
    let round_trip = |title: &str, x: Axis, lines: Vec<Line>| Chart {
        title: title.into(),
        x,
        y: Axis::new("round trip", Scale::decades(Chart::values(&lines)), |ns| time(ns as u64)),
        heat: Vec::new(),
        lines,
        marks: Vec::new(),
    };

    let curve = |stage: Stage| {
        move |run: &Record| {
            run.stage(stage)
                .map_or_else(Vec::new, |s| s.curve.iter().map(|(p, ns)| (*p, *ns as f64)).collect())
        }
    };
    let mut curves = lines(" (from intended time)", false, &curve(Stage::RoundTrip));
    curves.extend(lines(" (from actual send)", true, &curve(Stage::Service)));
    let latency = |index: usize| {
        move |run: &Record| -> Vec<(f64, f64)> {
            let seen = run.intervals.iter().filter(|i| i.round_trip_ns[3] > 0);
            seen.map(|i| (i.start_s + i.seconds, i.round_trip_ns[index] as f64)).collect()
        }
    };
    let mut latencies = lines(" p99", false, &latency(1));
    latencies.extend(lines(" median", true, &latency(0)));
    let mut rates = lines(" due", false, &over_time(|i| i.due as f64 / i.seconds));
    rates.extend(lines(" arrived", true, &over_time(|i| i.arrived as f64 / i.seconds)));
    let mut losses = lines(" lost", false, &over_time(|i| i.lost as f64 / i.seconds));
    losses.extend(lines(" left late", true, &over_time(|i| i.late as f64 / i.seconds)));
    let sessions = lines("", false, &over_time(|i| f64::from(i.playing)));
    let amount = |value: f64| count(value as u64);
    let percentiles = Axis::percentiles("percentile", samples(runs));
    vec![
        round_trip("Round trip by percentile", percentiles, curves),
        round_trip("Round trip over time", seconds.clone(), latencies),
        timed("Payloads over time", "payloads per second", rates, amount),
        timed("Loss and lateness over time", "payloads per second", losses, amount),
        timed("Sessions over time", "sessions", sessions, amount),
    ]
}

/// Of the run that has most.
fn samples(runs: &[Record]) -> u64 {
    let stages = runs.iter().filter_map(|run| run.stage(Stage::RoundTrip));
    stages.map(|stage| stage.count).max().unwrap_or(0)
}

fn percentiles(runs: &[Record], html: &mut String) {
    let at = |stage: Option<&StageRecord>, p| stage.map_or_else(|| "–".into(), |s| time(s.at(p)));
    for stage in Stage::ALL {
        if runs.iter().all(|run| run.stage(*stage).is_none()) {
            continue;
        }
        let mut rows = vec![row("count", runs, |run| {
            run.stage(*stage).map_or_else(|| "–".into(), |s| count(s.count))
        })];
        rows.extend([50.0, 90.0, 99.0, 99.9, 99.99, 100.0].map(|p| {
            let name = if p >= 100.0 { "largest".into() } else { format!("{p} %") };
            (name, runs.iter().map(|run| at(run.stage(*stage), p)).collect())
        }));
        table(runs, title(*stage), &rows, html);
    }
}

const fn title(stage: Stage) -> &'static str {
    match stage {
        Stage::RoundTrip => "Round trip, from the moment a payload was to leave",
        Stage::Service => "Round trip, from the moment it did leave",
        Stage::Handshake => "Handshake, from the moment a player was to connect",
        Stage::SendLate => "How late payloads left the generator",
        Stage::OwnQueue => "Time in the generator's own receive queue",
        Stage::PushDown => "game server to player (by the time of day)",
        Stage::Gap => "From one echo of a player's message to its next",
    }
}

fn checks(runs: &[Record], html: &mut String) {
    html.push_str("<h2>What should hold</h2>\n<ul class=\"checks\">\n");
    for (_, name, run) in labelled(runs) {
        for check in &run.checks {
            let (class, verdict) =
                if check.holds { ("ok", "holds") } else { ("no", "does not hold") };
            let _ = writeln!(
                html,
                "<li><b class=\"{class}\">{verdict}</b> {}: {} <i>({})</i></li>",
                escape(&check.name),
                escape(&check.text),
                escape(&name)
            );
        }
    }
    html.push_str("</ul>\n");
}

/// What was dropped, by whom and why. Nothing where nothing was.
fn drops(runs: &[Record], html: &mut String) {
    let all: Vec<_> = runs.iter().map(Record::drops).collect();
    let names: std::collections::BTreeSet<_> = all.iter().flat_map(|drops| drops.keys()).collect();
    let values = |name: &String| -> Vec<String> {
        all.iter().map(|drops| count(drops.get(name).copied().unwrap_or(0))).collect()
    };
    let rows: Vec<_> = names.iter().map(|name| ((*name).clone(), values(name))).collect();
    if !rows.is_empty() {
        table(runs, "Dropped and refused", &rows, html);
    }
}

fn facts(runs: &[Record], html: &mut String) {
    let rows = [
        row("Machine", runs, |run| run.machine.cpu.clone()),
        row("Cores", runs, |run| run.machine.cores.to_string()),
        row("Memory", runs, |run| format!("{} MiB", count(run.machine.memory_mib))),
        row("Kernel", runs, |run| run.machine.kernel.clone()),
        row("Generator", runs, |run| {
            format!(
                "{} threads, {}, {} MB",
                run.threads,
                run.driver,
                run.own_resident_bytes / 1_000_000
            )
        }),
        row("Took", runs, |run| format!("{:.1} s", run.seconds)),
    ];
    table(runs, "Machine", &rows, html);
    html.push_str("<h2>Scenario</h2>\n");
    for (_, name, run) in labelled(runs) {
        let text = toml::to_string(&run.scenario).unwrap_or_default();
        let _ = writeln!(
            html,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape(&name),
            escape(&text)
        );
    }
    html.push_str("<h2>All counters</h2>\n");
    let names: std::collections::BTreeSet<_> =
        runs.iter().flat_map(|run| run.counters.keys()).collect();
    let rows: Vec<_> = names
        .into_iter()
        .map(|name| {
            row(name, runs, |run| count(run.counters.get(name).copied().unwrap_or_default()))
        })
        .collect();
    html.push_str("<details><summary>show</summary>\n");
    table(runs, "Counters", &rows, html);
    html.push_str("</details>\n");
}

pub(super) const STYLE: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::tally::{Count, Tally};

    fn run(name: &str, loss: u64) -> Record {
        let mut tally = Tally::new();
        for n in 1..2000_u64 {
            tally.record(Stage::RoundTrip, n * 1000);
            tally.counters.bump(Count::PayloadsDue);
        }
        tally.counters.add(Count::Echoed, 1999 - loss);
        let mut record = Record { name: name.into(), seconds: 2.0, ..Record::default() };
        record.intervals.push(Interval::of(0.0, 1.0, 10, &tally));
        record.intervals.push(Interval::of(1.0, 1.0, 10, &tally));
        record.set_tally(&tally);
        record
    }

    #[test]
    fn the_page_is_whole_and_needs_nothing_from_elsewhere() {
        let page = html(&[run("a<b>", 0), run("second", 5)]);
        assert!(
            page.ends_with("</html>\n") && page.contains("1: a&lt;b&gt;") && !page.contains("a<b>")
        );
        for outside in ["http://", "https://", "<script", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<figure>").count(), 5);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(!page.contains("NaN") && !page.contains("inf"));
        assert!(page.contains("0.250 %"), "the second run's loss");
    }

    #[test]
    fn drops_are_shown_with_their_reasons_and_the_table_is_left_out_where_there_are_none() {
        let mut lossy = run("lossy", 3);
        assert!(!html(&[run("one", 0), lossy.clone()]).contains("Dropped and refused"));
        lossy.gateway_metrics.insert("ringgate_drops_total{link_full}".into(), 3.0);
        lossy.closing.kernel.ours = 1234;
        let page = html(&[run("one", 0), lossy]);
        for text in ["Dropped and refused", "gateway: link_full", "<td>3</td>", "1,234"] {
            assert!(page.contains(text), "{text}");
        }
    }

    #[test]
    fn a_run_without_a_single_answer_still_has_a_page() {
        let page = html(&[Record::default()]);
        assert!(page.contains("<figure>") && !page.contains("NaN"));
    }
}
