//! `hist plot --over-time`: one chart for each tag, with p50, p99 and p99.9 as lines and how often
//! each latency was behind them.
//!
//! A percentile alone hides two groups of values that are far apart; shading shows them. It grows
//! with the logarithm of the share, so that one value in ten thousand can still be seen.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::files::{Loaded, named, notes};
use super::super::slots::Slots;
use ringgate_os::utc;
use ringgate_report::chart::{Axis, Cell, Chart, Head, Line, Scale, file};
use ringgate_report::text::round_time;

pub(super) fn draw(logs: &[Loaded]) -> String {
    let slots = Slots::of(logs, SLOTS_MAX);
    let mut tags: Vec<&str> = Vec::new();
    for tag in logs.iter().flat_map(|loaded| &loaded.log.intervals).map(|it| it.tag.as_str()) {
        if !tags.contains(&tag) {
            tags.push(tag);
        }
    }
    let charts: Vec<Chart> = tags.iter().filter_map(|tag| chart(&slots, tag)).collect();
    let mut notes = notes(logs);
    notes.push(format!(
        "each column is {}; the darker, the more of its values, from 1 in 10,000 to all of them",
        length(slots.length)
    ));
    file(&Head { title: "Latency over time".into(), notes }, &charts)
}

fn length(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{} ms", length.as_millis()),
        seconds => utc::span(seconds),
    }
}

/// A tag's chart, if it has recorded anything.
fn chart(slots: &Slots<'_>, tag: &str) -> Option<Chart> {
    let column = |slot: u128| {
        let start = slots.begin.as_secs_f64() + slot as f64 * slots.length.as_secs_f64();
        (start, start + slots.length.as_secs_f64())
    };
    let sums = slots.sums.iter().filter(|((_, it), sum)| *it == tag && !sum.is_empty());
    let columns: Vec<_> = sums.map(|((slot, _), sum)| (column(*slot), sum)).collect();
    let heat: Vec<Cell> = columns.iter().flat_map(|(x, sum)| cells(*x, sum)).collect();
    let ends = slots.sums.keys().map(|(slot, _)| column(*slot).1);
    let line = |(at, (name, quantile)): (usize, &(&str, f64))| Line {
        name: (*name).to_owned(),
        colour: COLOURS[at],
        dash: 0,
        points: columns
            .iter()
            .map(|((from, to), sum)| {
                (f64::midpoint(*from, *to), sum.value_at_quantile(*quantile).max(1) as f64)
            })
            .collect(),
    };
    let bounds = heat.iter().flat_map(|cell| [cell.y.0 * 1.001, cell.y.1 * 0.999]);
    let latencies = Scale::decades(bounds);
    (!columns.is_empty()).then(|| Chart {
        title: named(tag).to_owned(),
        x: Axis::new(
            "time of day, UTC",
            Scale::Time(slots.begin.as_secs_f64(), ends.fold(0.0, f64::max)),
            time_of_day,
        ),
        y: Axis::new("latency", latencies, |ns| round_time(ns as u64)),
        lines: QUANTILES.iter().enumerate().map(line).collect(),
        heat,
        marks: Vec::new(),
    })
}

/// `22:13:20`; where a day begins, the day.
fn time_of_day(unix_s: f64) -> String {
    let date = utc::date(unix_s as u64);
    match &date[11..19] {
        "00:00:00" => date[..10].to_owned(),
        time => time.strip_suffix(":00").unwrap_or(time).to_owned(),
    }
}

/// How often each latency was in one slot.
fn cells(x: (f64, f64), sum: &Histogram<u64>) -> Vec<Cell> {
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    for value in sum.iter_recorded() {
        let ns = value.value_iterated_to().max(1) as f64;
        *counts.entry((ns.log10() * CELLS_PER_DECADE).floor() as i32).or_default() +=
            value.count_at_value();
    }
    let edge = |cell: i32| 10_f64.powf(f64::from(cell) / CELLS_PER_DECADE);
    let cell = |(cell, count): (i32, u64)| {
        let share = count as f64 / sum.len() as f64;
        let strength = (1.0 + share.log10() / FAINTEST_NINES).clamp(FAINTEST, 1.0);
        Cell { x, y: (edge(cell), edge(cell + 1)), strength }
    };
    counts.into_iter().map(cell).collect()
}

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Which colours they have: those that stand out from the shading.
const COLOURS: [usize; 3] = [2, 1, 4];

const SLOTS_MAX: u128 = 160;

const CELLS_PER_DECADE: f64 = 10.0;

/// One in ten thousand is as faint as it gets.
const FAINTEST_NINES: f64 = 4.0;
const FAINTEST: f64 = 0.06;

#[cfg(test)]
mod tests {
    use super::super::super::files::tests::interval;
    use super::super::tests::loaded;
    use super::*;

    #[test]
    fn every_tag_that_recorded_something_has_a_chart() {
        let svg = draw(&[loaded("a.hlog", &["turn", "queue"])]);
        for text in [">turn</text>", ">queue</text>", ">p99.9</text>", "each column is 10 s"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("silent") && !svg.contains("NaN"));
        assert!(svg.contains("class=\"heat\""));
    }

    #[test]
    fn shading_adds_up_and_rare_values_are_faint() {
        let values: Vec<u64> = (0..10_000).map(|n| if n == 0 { 5_000_000 } else { 1500 }).collect();
        let cells = cells((0.0, 1.0), &interval("turn", 0, &values).histogram);
        let [often, seldom] = &cells[..] else { panic!("two places: {cells:?}") };
        assert!(often.strength > 0.99 && seldom.strength < 0.1, "{cells:?}");
        assert!(often.y.0 <= 1500.0 && 1500.0 <= often.y.1, "{often:?}");
    }

    #[test]
    fn times_of_day_are_short() {
        let texts = [1_700_000_000.0, 1_699_999_980.0, 1_699_920_000.0].map(time_of_day);
        assert_eq!(texts, ["22:13:20", "22:13", "2023-11-14"]);
        assert_eq!([500, 10_000].map(|ms| length(Duration::from_millis(ms))), ["500 ms", "10 s"]);
    }
}
