//! Conditions that a run must meet, for pipelines: `p99<2ms,loss<0.1%,failed<1`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
    /// The longest time in which nothing came, in nanoseconds.
    Pause,
}

/// How many players may stay outside, or fall out: a number, or a share of those who came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allowance {
    /// So many.
    Players(u64),
    /// This share, from 0 to 1.
    Share(f64),
}

impl Default for Allowance {
    fn default() -> Self {
        Self::Players(0)
    }
}

impl Allowance {
    /// Whether so many of all are allowed.
    pub fn covers(self, outside: u64, of: u64) -> bool {
        match self {
            Self::Players(players) => outside <= players,
            Self::Share(share) => outside as f64 <= share * of as f64 + 1e-9,
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Players(players) => write!(f, "{players}"),
            Self::Share(share) => write!(f, "{} %", share * 100.0),
        }
    }
}

impl FromStr for Allowance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = || {
            let percent: f64 = text.strip_suffix('%')?.trim().parse().ok()?;
            (0.0..=100.0).contains(&percent).then_some(Self::Share(percent / 100.0))
        };
        let players = || text.parse().ok().map(Self::Players);
        share().or_else(players).ok_or_else(|| "a number of players, or a share like 2%".into())
    }
}

impl Requirements {
    /// Those that are missed, each as a sentence. `measured` tells what a thing came out as; what
    /// was not measured at all meets no condition.
    pub fn missed(&self, measured: impl Fn(What) -> Option<f64>) -> Vec<String> {
        let verdict = |requirement: &Requirement| {
            let came_out = match measured(requirement.what) {
                Some(value) if value < requirement.bound => return None,
                Some(value) => format!("it was {}", requirement.what.show(value)),
                None => "nothing was measured".into(),
            };
            Some(format!("{} is missed: {came_out}", requirement.text))
        };
        self.0.iter().filter_map(verdict).collect()
    }
}

impl What {
    fn show(self, value: f64) -> String {
        match self {
            Self::Percentile(_) | Self::Max | Self::Pause => crate::text::time(value as u64),
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
                "`{text}` is not a condition like p99<2ms, max<50ms, loss<0.1%, late<1%, failed<1, missing<1, pause<100ms"
            )
        };
        let (what, bound) = text.split_once('<').ok_or_else(usage)?;
        let what = what.trim().parse().map_err(|()| usage())?;
        let bound = bound.trim();
        let bound = match what {
            What::Percentile(_) | What::Max | What::Pause => nanoseconds(bound),
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
            "pause" => Self::Pause,
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
                Some(2_100_000.0)
            }
            What::Loss => Some(0.002),
            _ => Some(0.0),
        };
        let missed = all.missed(measured);
        assert_eq!(
            missed,
            ["p99<2ms is missed: it was 2.10 ms", "loss<0.1% is missed: it was 0.2000 %"]
        );
        assert_eq!(all.missed(|_| Some(0.0)), [""; 0]);
        let missed = all.missed(|_| None);
        assert_eq!(missed.len(), 4);
        assert!(missed.iter().all(|why| why.ends_with("is missed: nothing was measured")));
    }

    #[test]
    fn an_allowance_is_a_number_or_a_share() {
        let allowance = |text: &str| text.parse::<Allowance>();
        assert_eq!(allowance("3"), Ok(Allowance::Players(3)));
        let share = allowance("2.5%").expect("valid");
        assert!(share.covers(25, 1000) && !share.covers(26, 1000) && share.covers(0, 0));
        assert!(!Allowance::default().covers(1, 1000));
        for text in ["", "-1", "101%", "x%", "2.5"] {
            assert!(allowance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_condition_is_refused_with_examples() {
        for text in ["", "p99", "p99<2", "p101<1s", "loss<1", "q<1", "p99<-1ms", "failed<x"] {
            assert!(text.parse::<Requirements>().expect_err(text).contains("p99<2ms"), "{text}");
        }
        assert_eq!(nanoseconds("1.5s"), Some(1.5e9));
    }
}
