//! Axes: where values lie, and at which values to write numbers.

/// How values become positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scale {
    /// Evenly from the first to the second.
    Linear(f64, f64),
    /// Each decade as long as the next.
    Log(f64, f64),
    /// Percentiles: each further nine as long as the one before. Ends at so many nines.
    Nines(f64),
}

impl Scale {
    /// From 0 to a little more than the largest value.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        Self::Linear(0.0, if most > 0.0 { most * 1.08 } else { 1.0 })
    }

    /// Whole decades around all values above 0.
    pub(super) fn decades(values: impl Iterator<Item = f64> + Clone) -> Self {
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
    pub(super) fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear(low, high) => (value - low) / (high - low),
            Self::Log(low, high) => (value.max(low) / low).log10() / (high / low).log10(),
            Self::Nines(nines) => -((1.0 - value / 100.0).max(10_f64.powf(-nines))).log10() / nines,
        };
        place.clamp(0.0, 1.0)
    }

    /// Values to write numbers at.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear(low, high) => {
                let step = round_step((high - low) / 5.0);
                let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
                (first..=last).map(|n| n as f64 * step).collect()
            }
            Self::Log(low, high) => {
                let (first, last) = (low.log10().round() as i32, high.log10().round() as i32);
                (first..=last).map(|power| 10_f64.powi(power)).collect()
            }
            Self::Nines(nines) => {
                let known = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];
                known.into_iter().take(2 + nines as usize).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least as large.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Scale::Linear(0.0, 97.0).ticks(), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(Scale::decades([30.0, 4000.0].into_iter()), Scale::Log(10.0, 10_000.0));
        assert_eq!(
            Scale::decades([30.0, 4000.0].into_iter()).ticks(),
            [10.0, 100.0, 1000.0, 10_000.0]
        );
        assert_eq!(Scale::decades(std::iter::empty()), Scale::Log(1.0, 10.0));
        assert_eq!(Scale::Nines(3.0).ticks(), [0.0, 50.0, 90.0, 99.0, 99.9]);
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
