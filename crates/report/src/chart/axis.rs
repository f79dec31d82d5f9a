//! Axes: where values lie, and at which values to write numbers.

use std::fmt;

/// An axis with its name and its numbers.
#[derive(Clone)]
pub struct Axis {
    /// Name and unit.
    pub name: String,
    /// Where values lie.
    pub scale: Scale,
    /// How a number is written at it.
    pub text: fn(f64) -> String,
}

impl Axis {
    /// An axis.
    pub fn new(name: &str, scale: Scale, text: fn(f64) -> String) -> Self {
        Self { name: name.to_owned(), scale, text }
    }

    /// Percentiles, to as many nines as so many samples can tell.
    pub fn percentiles(name: &str, samples: u64) -> Self {
        let nines = (samples.max(1) as f64).log10().ceil().clamp(3.0, 8.0);
        Self::new(name, Scale::Nines(nines), |percent| format!("{} %", plain(percent)))
    }
}

impl fmt::Debug for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.name, self.scale)
    }
}

/// How values become positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Evenly from the first to the second.
    Linear(f64, f64),
    /// Seconds since 1970, evenly from the first to the second.
    Time(f64, f64),
    /// Each decade as long as the next.
    Log(f64, f64),
    /// Percentiles: each further nine as long as the one before. Ends at so many nines.
    Nines(f64),
}

impl Scale {
    /// From 0 to a little more than the largest value.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        Self::Linear(0.0, if most > 0.0 { most * 1.08 } else { 1.0 })
    }

    /// Whole decades around all values above 0.
    pub fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
        let positive = values.filter(|value| *value > 0.0);
        let least = positive.clone().fold(f64::MAX, f64::min);
        let most = positive.fold(0.0, f64::max);
        if most <= 0.0 {
            return Self::Log(1.0, 10.0);
        }
        let low = 10_f64.powf(least.log10().floor());
        let high = 10_f64.powf(most.log10().ceil());
        Self::Log(low, if high > low { high } else { low * 10.0 })
    }

    /// Where a value lies, from 0 to 1.
    pub fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(low, high) | Self::Time(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value.max(low) / low).log10() / (high / low).log10(),
            Self::Nines(nines) => -((1.0 - value / 100.0).max(10_f64.powf(-nines))).log10() / nines,
        };
        place.clamp(0.0, 1.0)
    }

    /// Values to write numbers at.
    pub fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(low, high) => multiples(round_step((high - low) / 5.0), low, high),
            Self::Time(low, high) => {
                let least = (high - low) / 8.0;
                let step = TIMES.into_iter().find(|step| *step >= least);
                multiples(step.unwrap_or_else(|| round_step(least / DAY) * DAY), low, high)
            }
            Self::Log(low, high) => {
                let (first, last) = (low.log10().round() as i32, high.log10().round() as i32);
                let between: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decade = |power| between.iter().map(move |by| by * 10_f64.powi(power));
                (first..=last).flat_map(decade).take_while(|tick| *tick <= high * 1.001).collect()
            }
            Self::Nines(nines) => {
                let known = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.999_99];
                let most = [99.999_999];
                known.into_iter().chain(most).take(2 + nines as usize).collect()
            }
        }
    }
}

fn multiples(step: f64, low: f64, high: f64) -> Vec<f64> {
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

/// Steps in seconds that clocks have.
const TIMES: [f64; 18] = [
    1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0,
    10_800.0, 21_600.0, 43_200.0, DAY,
];

const DAY: f64 = 86_400.0;

/// 1, 2 or 5 times a power of ten, at least as large.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(10.0 * power)
}

/// A number without a tail of zeros.
pub fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Scale::Linear(0.0, 97.0).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        let decades = Scale::decades([30.0, 40_000.0].into_iter());
        assert_eq!(decades, Scale::Log(10.0, 100_000.0));
        assert_eq!(decades.ticks(), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(Scale::Log(10.0, 100.0).ticks(), [10.0, 20.0, 50.0, 100.0]);
        assert_eq!(Scale::decades(std::iter::empty()), Scale::Log(1.0, 10.0));
        assert_eq!(Scale::Nines(3.0).ticks(), [0.0, 50.0, 90.0, 99.0, 99.9]);
        assert_eq!(Scale::Nines(8.0).ticks().len(), 10);
        let percentiles = Axis::percentiles("", 100_000_000);
        assert_eq!((percentiles.text)(99.999_999), "99.999999 %");
    }

    #[test]
    fn times_of_day_are_round_on_the_clock() {
        for (seconds, step) in [(5.0, 1.0), (90.0, 15.0), (3600.0, 600.0), (86_400.0, 10_800.0)] {
            let start = 1_700_000_003.0;
            let ticks = Scale::Time(start, start + seconds).ticks();
            assert!((2..=9).contains(&ticks.len()), "{seconds} s: {ticks:?}");
            assert!(ticks.iter().all(|tick| tick % step == 0.0), "{seconds} s: {ticks:?}");
        }
        assert_eq!(Scale::Time(0.0, 80.0 * DAY).ticks().len(), 9);
    }

    #[test]
    fn every_nine_is_as_long_as_the_one_before() {
        let scale = Scale::Nines(4.0);
        let places = [0.0, 90.0, 99.0, 99.9, 99.99, 100.0]
            .map(|value| (scale.place(value) * 100.0).round() as i64);
        assert_eq!(places, [0, 25, 50, 75, 100, 100]);
        assert!((Scale::Log(1.0, 100.0).place(10.0) - 0.5).abs() < 1e-9);
    }
}
