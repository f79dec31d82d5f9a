//! Conditions that a run must meet, for pipelines: `p99<2ms,loss<0.1%,failed<1`.

use std::fmt;
use std::str::FromStr;

/// A list of conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requirements(Vec<Requirement>);

/// One condition: something measured must stay below a bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    what: What,
    bound: f64,
    text: String,
}

/// What can be required.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A percentile of the round trip, in nanoseconds.
    Percentile(f64),
    /// The largest round trip, in nanoseconds.
    Max,
    /// Share of payloads that did not come back.
    Loss,
    /// Share of payloads that left late.
    Late,
    /// Players who were not let in, or lost their session.
    Failed,
    /// Payloads that are gone without a reason.
    Missing,
}

impl Requirements {
    /// Those that are missed, each as a sentence. `measured` tells what a thing came out as.
    pub fn missed(&self, measured: impl Fn(What) -> f64) -> Vec<String> {
        let verdict = |requirement: &Requirement| {
            let value = measured(requirement.what);
            let is_met = value < requirement.bound;
            (!is_met).then(|| {
                format!("{} is missed: it was {}", requirement.text, requirement.what.show(value))
            })
        };
        self.0.iter().filter_map(verdict).collect()
    }
}

impl What {
    fn show(self, value: f64) -> String {
        match self {
            Self::Percentile(_) | Self::Max => crate::text::time(value as u64),
            Self::Loss | Self::Late => format!("{:.4} %", value * 100.0),
            Self::Failed | Self::Missing => format!("{value}"),
        }
    }
}

impl FromStr for Requirements {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Requirement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usage = || {
            format!(
                "`{text}` is not a condition like p99<2ms, max<50ms, loss<0.1%, late<1%, failed<1, missing<1"
            )
        };
        let (what, bound) = text.split_once('<').ok_or_else(usage)?;
        let what = what.trim().parse().map_err(|()| usage())?;
        let bound = bound.trim();
        let bound = match what {
            What::Percentile(_) | What::Max => nanoseconds(bound),
            What::Loss | What::Late => bound
                .strip_suffix('%')
                .and_then(|p| p.trim().parse::<f64>().ok())
                .map(|p| p / 100.0),
            What::Failed | What::Missing => bound.parse().ok(),
        };
        let bound = bound.filter(|bound: &f64| bound.is_finite()).ok_or_else(usage)?;
        Ok(Self { what, bound, text: text.to_owned() })
    }
}

impl FromStr for What {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "max" => Self::Max,
            "loss" => Self::Loss,
            "late" => Self::Late,
            "failed" => Self::Failed,
            "missing" => Self::Missing,
            _ => {
                let digits = text.strip_prefix('p').ok_or(())?;
                let percentile: f64 = digits.parse().map_err(|_| ())?;
                if !(0.0..=100.0).contains(&percentile) {
                    return Err(());
                }
                Self::Percentile(percentile)
            }
        })
    }
}

impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(|requirement| requirement.text.as_str()).collect();
        f.write_str(&texts.join(","))
    }
}

/// A time like `2ms` or `1.5s`.
pub fn nanoseconds(text: &str) -> Option<f64> {
    let units = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let (number, unit) =
        units.iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, *ns)))?;
    number.trim().parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_condition_says_what_was_measured() {
        let all: Requirements = "p99<2ms, loss<0.1%,failed<1,max<1s".parse().expect("valid");
        let measured = |what| match what {
            What::Percentile(p) => {
                assert!((p - 99.0).abs() < 1e-9);
                2_100_000.0
            }
            What::Loss => 0.002,
            _ => 0.0,
        };
        let missed = all.missed(measured);
        assert_eq!(
            missed,
            ["p99<2ms is missed: it was 2.10 ms", "loss<0.1% is missed: it was 0.2000 %"]
        );
        assert_eq!(all.missed(|_| 0.0), [""; 0]);
    }

    #[test]
    fn what_is_not_a_condition_is_refused_with_examples() {
        for text in ["", "p99", "p99<2", "p101<1s", "loss<1", "q<1", "p99<-1ms", "failed<x"] {
            assert!(text.parse::<Requirements>().expect_err(text).contains("p99<2ms"), "{text}");
        }
        assert_eq!(nanoseconds("1.5s"), Some(1.5e9));
    }
}
