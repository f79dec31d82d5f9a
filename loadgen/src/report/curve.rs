//! What remains of a ladder: its steps, what each cost, and where the knee is; the curve of cost
//! over load.

mod page;

use serde::{Deserialize, Serialize};

pub use self::page::html;

use crate::measure::procfs::Machine;
use crate::measure::tally::Stage;
use crate::players::arrivals::Arrivals;
use crate::report::record::Record;
use crate::report::require::What;

/// A ladder, recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// What it is called.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// When payloads left.
    pub arrivals: Arrivals,
    /// Players.
    pub sessions: u32,
    /// Shortest and longest payload.
    pub bytes: (u16, u16),
    /// Where.
    pub machine: Machine,
    /// What a good step is.
    pub bounds: Bounds,
    /// In the order in which they were played.
    pub steps: Vec<Step>,
    /// The highest rate that went well, where the one above it did not.
    pub knee: Option<f64>,
    /// How it ended, as a sentence.
    pub ending: String,
}

/// When a step counts as bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Share of payloads lost.
    pub loss: f64,
    /// 99th percentile of the round trip.
    pub p99_ns: u64,
}

/// CPU while everyone played, in cores and for each round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Cores in use.
    pub cores: f64,
    /// Microseconds for each payload that came back; `None` where it was not watched, or nothing
    /// came.
    pub us_per_trip: Option<f64>,
}

/// What a step cost whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Costs {
    /// The gateway's process.
    pub gateway: Cost,
    /// The game server's process.
    pub game: Cost,
    /// A core, with all that ran there.
    pub core: Cost,
    /// The generator.
    pub own: Cost,
}

/// What one step was like.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Payloads per second that were to be sent.
    pub rate: f64,
    /// Share that did not come back of those that were due while everyone played.
    pub loss: f64,
    /// Share that left more than a millisecond late: the generator's own trouble.
    pub late: f64,
    /// 99th percentile of how late payloads left.
    pub late_p99_ns: u64,
    /// The generator promised to send one by one, and did not.
    pub lost_its_pace: bool,
    /// Median and 99th percentile of the round trip, while everyone played.
    pub p50_ns: u64,
    /// See `p50_ns`.
    pub p99_ns: u64,
    /// What it cost.
    pub costs: Costs,
    /// Why this step proves nothing about the rate, where it does not: players were outside,
    /// nothing came back, the gateway or the game server was restarted.
    pub void: Vec<String>,
}

impl Step {
    /// What a whole run at a rate has shown, and what it cost while everyone played.
    pub fn of(rate: f64, record: &Record, costs: Costs) -> Self {
        let summary = record.summary();
        Self {
            rate,
            loss: summary.payloads.loss,
            late: record.measured(What::Late).unwrap_or_default(),
            late_p99_ns: summary.pace.late_p99_ns,
            lost_its_pace: !summary.pace.is_kept,
            p50_ns: record.measured(What::Percentile(50.0)).unwrap_or_default() as u64,
            p99_ns: record.measured(What::Percentile(99.0)).unwrap_or_default() as u64,
            costs,
            void: Self::void(record),
        }
    }

    fn void(record: &Record) -> Vec<String> {
        let mut void = record.unproven();
        if record.stage(Stage::RoundTrip).is_none() && void.is_empty() {
            void.push("no round trip was measured".into());
        }
        void.extend(record.remarks());
        void
    }

    /// Whether the gateway kept its promise, as far as was measured.
    pub fn is_good(&self, bounds: &Bounds) -> bool {
        self.void.is_empty() && self.loss <= bounds.loss && self.p99_ns <= bounds.p99_ns
    }

    /// Whether the generator could not keep its own schedule, so that the step says little of the
    /// gateway.
    pub fn is_ours(&self) -> bool {
        self.late > LATE_SHARE_MAX || self.lost_its_pace
    }
}

/// More late payloads than this, and the generator is what is being measured.
const LATE_SHARE_MAX: f64 = 0.01;
