//! The two axes: nines to the right, orders of magnitude up.

use hdrhistogram::Histogram;

use super::HEIGHT;
use ringgate_report::text::{put, time};

/// Where values stand on the paper.
pub(super) struct Axes {
    /// How many nines the axis goes to: 3 is 99.9 %.
    nines: f64,
    /// Powers of ten, in nanoseconds.
    low: i32,
    high: i32,
}

const LEFT: f64 = 76.0;
pub(super) const RIGHT: f64 = 780.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = HEIGHT - 56.0;

impl Axes {
    /// Axes that hold all of these.
    pub(super) fn of<'h>(sums: impl Iterator<Item = &'h Histogram<u64>> + Clone) -> Self {
        let most = sums.clone().map(Histogram::len).max().unwrap_or(1);
        let shortest = sums.clone().map(Histogram::min).min().unwrap_or(1).max(1);
        let longest = sums.map(Histogram::max).max().unwrap_or(1).max(1);
        let low = (shortest as f64).log10().floor() as i32;
        let high = (longest as f64).log10().ceil() as i32;
        Self {
            nines: (most as f64).log10().ceil().clamp(1.0, NINES_MAX),
            low,
            high: high.max(low + 1),
        }
    }

    /// Where the curve of a histogram ends: beyond one in as many as it has, there is nothing.
    pub(super) fn nines_of(&self, sum: &Histogram<u64>) -> f64 {
        (sum.len().max(1) as f64).log10().min(self.nines)
    }

    pub(super) fn x(&self, nines: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * nines / self.nines
    }

    pub(super) fn y(&self, ns: u64) -> f64 {
        let share =
            ((ns.max(1) as f64).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * share.max(0.0)
    }

    /// Lines, numbers and names.
    pub(super) fn draw(&self, svg: &mut String) {
        put(
            svg,
            format_args!(
                "<text class=\"ink\" x=\"{LEFT}\" y=\"26\" font-size=\"16\">Latency by percentile</text>\n"
            ),
        );
        for power in self.low..=self.high {
            self.magnitude(svg, power);
        }
        self.percentile(svg, 0.0, "0 %");
        self.percentile(svg, 2_f64.log10(), "50 %");
        for nines in 1..=self.nines as usize {
            self.percentile(svg, nines as f64, &percentage(nines));
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        let y = HEIGHT - 14.0;
        put(
            svg,
            format_args!(
                "<text class=\"soft\" x=\"{middle:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">share of values that were not longer</text>\n"
            ),
        );
    }

    fn magnitude(&self, svg: &mut String, power: i32) {
        let ns = 10_u64.saturating_pow(power.unsigned_abs());
        let y = self.y(ns);
        line(svg, (LEFT, y), (RIGHT, y));
        put(
            svg,
            format_args!(
                "<text class=\"soft\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
                LEFT - 8.0,
                y + 4.0,
                round(ns)
            ),
        );
    }

    fn percentile(&self, svg: &mut String, nines: f64, name: &str) {
        let x = self.x(nines);
        line(svg, (x, TOP), (x, BOTTOM));
        put(
            svg,
            format_args!(
                "<text class=\"soft\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>\n",
                BOTTOM + 20.0
            ),
        );
    }
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    put(
        svg,
        format_args!(
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ),
    );
}

/// `1 ms`, without the digits that a power of ten does not need.
fn round(ns: u64) -> String {
    time(ns).replace(".00", "").replace(".0", "")
}

/// `90 %`, `99 %`, `99.9 %` and so on.
fn percentage(nines: usize) -> String {
    match nines {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

/// One in a hundred million: more than an interval log of a day can tell.
const NINES_MAX: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_have_names() {
        assert_eq!([1, 2, 3, 5].map(percentage), ["90 %", "99 %", "99.9 %", "99.999 %"]);
    }

    #[test]
    fn axes_hold_a_single_value_and_none() {
        let mut one = Histogram::new(3).expect("digits");
        one.record(1000).expect("grows");
        let axes = Axes::of([&one].into_iter());
        assert_eq!((axes.low, axes.high), (3, 4));
        assert!((axes.y(1000) - BOTTOM).abs() < 1e-9 && axes.nines_of(&one).abs() < 1e-9);
        let none = Axes::of(std::iter::empty());
        assert_eq!((none.low, none.high), (0, 1));
    }
}
