//! What happens during a run: phases, one after the other, each with so many players who do
//! something for a while.
//!
//! A scenario is a plan in time that every thread can follow alone: [`Scenario::plan`] turns it
//! into the moments at which the thread's share of the players come and go. Nothing here reacts to
//! what the gateway does; that is what makes the loop open.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::impair::Impairments;
use super::traffic::{Shape, Traffic};

/// A whole run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What it is called in reports.
    #[serde(default)]
    pub name: String,
    /// Phases in order.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
    /// The network between players and gateway.
    #[serde(default)]
    pub impair: Impairments,
}

/// How a phase gets from the players of the one before to its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Evenly over the phase.
    Ramp,
    /// At its start, then stays.
    #[default]
    Hold,
    /// At once, and back to what was before at its end.
    Spike,
    /// Evenly down to the end.
    Drain,
}

/// A part of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// What it is called in reports.
    #[serde(default)]
    pub name: String,
    /// How its players come.
    #[serde(default)]
    pub kind: Kind,
    /// How long it takes, in seconds.
    pub seconds: f64,
    /// How many players it has, or has at its end; without it as many as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// What they send.
    #[serde(default)]
    pub traffic: Traffic,
    /// Players per second who leave and are replaced.
    #[serde(default)]
    pub churn_per_second: f64,
    /// Everyone leaves and comes back at the start.
    #[serde(default)]
    pub reconnect: bool,
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let scenario: Self = toml::from_str(text).map_err(|why| why.to_string())?;
        scenario.check()?;
        Ok(scenario)
    }

    /// The scenario of a shape: players come during `ramp`, play for `hold`.
    pub fn of_shape(
        shape: Shape,
        traffic: Traffic,
        sessions: u32,
        ramp: Duration,
        hold: Duration,
    ) -> Self {
        let phase = |name: &str, kind, seconds| Phase {
            name: name.into(),
            kind,
            seconds,
            sessions: Some(sessions),
            traffic,
            churn_per_second: 0.0,
            reconnect: false,
        };
        let hold_s = hold.as_secs_f64();
        let mut phases = vec![phase("ramp", Kind::Ramp, ramp.as_secs_f64())];
        match shape {
            Shape::Churn => phases.push(Phase {
                churn_per_second: (f64::from(sessions) / CHURN_LIFE_S).max(1.0),
                ..phase("churn", Kind::Hold, hold_s)
            }),
            Shape::ReconnectStorm => {
                phases.push(phase("before", Kind::Hold, hold_s / 2.0));
                phases.push(Phase { reconnect: true, ..phase("storm", Kind::Hold, hold_s / 2.0) });
            }
            Shape::Fixed | Shape::Game | Shape::Burst | Shape::Idle => {
                phases.push(phase("hold", Kind::Hold, hold_s));
            }
        }
        let name = serde_json::to_value(shape).ok().and_then(|name| name.as_str().map(Into::into));
        Self { name: name.unwrap_or_default(), phases, impair: Impairments::default() }
    }

    /// What is wrong with it, in one sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.phases.is_empty() {
            return Err("a scenario needs at least one [[phase]]".into());
        }
        for (index, phase) in self.phases.iter().enumerate() {
            let fail = |why: &str| Err(format!("phase {}: {why}", index + 1));
            if !(0.0..=1e6).contains(&phase.seconds) {
                return fail("`seconds` lies between 0 and 1000000");
            }
            if !(0.0..=1e6).contains(&phase.churn_per_second) {
                return fail("`churn_per_second` lies between 0 and 1000000");
            }
            if phase.sessions.is_some_and(|sessions| sessions > SESSIONS_MAX) {
                return fail("at most 4000000 sessions are possible");
            }
            phase.traffic.check().map_err(|why| format!("phase {}: {why}", index + 1))?;
        }
        self.impair.check()
    }

    /// What players send in each phase.
    pub fn traffics(&self) -> impl Iterator<Item = &Traffic> {
        self.phases.iter().map(|phase| &phase.traffic)
    }

    /// How long it takes.
    pub fn seconds(&self) -> f64 {
        self.phases.iter().map(|phase| phase.seconds).sum()
    }

    /// The most players at a time.
    pub fn sessions_max(&self) -> u32 {
        self.phases.iter().filter_map(|phase| phase.sessions).max().unwrap_or(0)
    }

    /// The phase that runs at a moment, and how much of it is done.
    pub fn phase_at(&self, elapsed_s: f64) -> Option<(usize, f64)> {
        let mut start = 0.0;
        for (index, phase) in self.phases.iter().enumerate() {
            if elapsed_s < start + phase.seconds {
                return Some((index, ((elapsed_s - start) / phase.seconds).clamp(0.0, 1.0)));
            }
            start += phase.seconds;
        }
        None
    }

    /// The part of one thread among several.
    pub fn plan(&self, thread: u32, threads: u32) -> Plan {
        let share = |all: u32| all / threads + u32::from(thread < all % threads);
        let mut steps = Vec::new();
        let (mut at_ns, mut level) = (0, 0);
        for phase in &self.phases {
            let length_ns = (phase.seconds * 1e9) as u64;
            let target = share(phase.sessions.unwrap_or(0));
            let target = match phase.kind {
                Kind::Drain => phase.sessions.map_or(0, |_| target),
                _ => phase.sessions.map_or(level, |_| target),
            };
            let spread_ns = match phase.kind {
                Kind::Ramp | Kind::Drain => length_ns,
                Kind::Hold | Kind::Spike => 0,
            };
            let churn_ns = (phase.churn_per_second > 0.0)
                .then(|| (1e9 * f64::from(threads) / phase.churn_per_second) as u64);
            steps.push(Step {
                start_ns: at_ns,
                end_ns: at_ns + length_ns,
                from: level,
                to: target,
                spread_ns,
                churn_ns,
                reconnect: phase.reconnect,
                traffic: phase.traffic,
            });
            if phase.kind != Kind::Spike {
                level = target;
            }
            at_ns += length_ns;
        }
        Plan { steps }
    }
}

/// What one thread does, phase by phase, in nanoseconds since the run began.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In order, without gaps.
    pub steps: Vec<Step>,
}

/// One phase of one thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// Players before. A spike's have gone again by then.
    pub from: u32,
    /// Players after.
    pub to: u32,
    /// Over how much time they change.
    pub spread_ns: u64,
    /// Between two players who are replaced.
    pub churn_ns: Option<u64>,
    /// Everyone leaves and comes back at the start.
    pub reconnect: bool,
    /// What they send.
    pub traffic: Traffic,
}

impl Step {
    /// When the `nth` change (from 1) of so many players is due.
    pub fn change_at_ns(&self, nth: u32) -> u64 {
        let changes = self.to.abs_diff(self.from).max(1);
        self.start_ns + (u128::from(self.spread_ns) * u128::from(nth) / u128::from(changes)) as u64
    }

    /// Whether nobody is to come or go.
    pub fn is_hold(&self) -> bool {
        self.from == self.to && self.churn_ns.is_none() && !self.reconnect
    }
}

impl Plan {
    /// The most players there are at a time, those who are on their way out aside.
    pub fn players_max(&self) -> u32 {
        self.steps.iter().map(|step| step.from.max(step.to)).max().unwrap_or(0)
    }
}

/// How long a player of the churn shape stays, on average.
const CHURN_LIFE_S: f64 = 30.0;

/// Fifteen threads have a million addresses each on loopback.
const SESSIONS_MAX: u32 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        name = "launch night"
        [[phase]]
        name = "doors"
        kind = "ramp"
        seconds = 10
        sessions = 1000
        traffic = { hz = 30, bytes_min = 40, bytes_max = 120 }
        [[phase]]
        kind = "spike"
        seconds = 5
        sessions = 3000
        [[phase]]
        seconds = 5
        churn_per_second = 10
        [[phase]]
        kind = "drain"
        seconds = 4
        [impair]
        pktlag = 50
        PktLoss = 2.5
    "#;

    #[test]
    fn a_file_becomes_the_moments_of_each_thread() {
        let scenario = Scenario::parse(FILE).expect("valid");
        assert!((scenario.seconds() - 24.0).abs() < 1e-9);
        let plan = scenario.plan(0, 2);
        let levels: Vec<_> = plan.steps.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!(levels, [(0, 500), (500, 1500), (500, 500), (500, 0)]);
        assert_eq!(plan.steps[0].change_at_ns(250), 5_000_000_000);
        assert_eq!(plan.steps[2].churn_ns, Some(200_000_000));
        assert_eq!(plan.steps[3].change_at_ns(250), 22_000_000_000);
        assert_eq!(plan.steps[3].end_ns, 24_000_000_000);
        assert_eq!(scenario.phase_at(12.5), Some((1, 0.5)));
        assert_eq!(scenario.phase_at(24.0), None);
        assert_eq!((scenario.impair.pkt_lag, scenario.impair.pkt_loss), (50.0, 2.5), "in any case");
    }

    #[test]
    fn threads_share_every_player_between_them() {
        let scenario = Scenario::parse("[[phase]]\nseconds = 1\nsessions = 1001").expect("valid");
        let sum: u32 = (0..4).map(|thread| scenario.plan(thread, 4).steps[0].to).sum();
        assert_eq!(sum, 1001);
    }

    #[test]
    fn changes_are_spread_evenly_and_the_last_is_at_the_end() {
        let step = Scenario::parse(FILE).expect("valid").plan(0, 1).steps[0].clone();
        assert_eq!(step.change_at_ns(1), 10_000_000);
        assert_eq!(step.change_at_ns(1000), 10_000_000_000);
        assert_eq!(step.change_at_ns(500), 5_000_000_000);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("", "phase"),
            ("phase = []", "at least one"),
            ("[[phase]]\nseconds = -1", "phase 1: `seconds`"),
            ("[[phase]]\nseconds = 1\nplayers = 2", "players"),
            ("[[phase]]\nseconds = 1\ntraffic = { bytes_min = 5 }", "28"),
            ("[[phase]]\nseconds = 1\n[impair]\nPktLoss = 101", "PktLoss"),
        ] {
            let why = Scenario::parse(text).expect_err(text);
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
