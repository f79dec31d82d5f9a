//! What remains of a run: everything that tables, reports and pipelines are made from, as one JSON
//! document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::measure::gateway::Metrics;
use crate::measure::pause::Pause;
use crate::measure::procfs::{Machine, ThreadCpu, cpu_s};
use crate::measure::silence::Silence;
use crate::measure::tally::{Count, Counters, Stage, Tally};
use crate::measure::watch::{Restart, THE_GATEWAY};
use crate::players::arrivals::Arrivals;
use crate::players::scenario::Scenario;
use crate::report::check::{Check, Closing};
use crate::report::require::Allowance;
use crate::report::summary::Summary;

/// A run, recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What it is called.
    pub name: String,
    /// When it began, in seconds since 1970.
    pub started_unix_s: u64,
    /// How long it took, goodbyes included.
    pub seconds: f64,
    /// What was to happen.
    pub scenario: Scenario,
    /// When payloads left.
    #[serde(default = "Arrivals::of_old")]
    pub arrivals: Arrivals,
    /// Where.
    pub machine: Machine,
    /// Threads of the generator.
    pub threads: u32,
    /// Its driver.
    pub driver: String,
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Why players refused datagrams.
    pub refused: BTreeMap<String, u64>,
    /// What was measured.
    pub stages: Vec<StageRecord>,
    /// Second by second.
    pub intervals: Vec<Interval>,
    /// CPU of the generator's threads.
    pub own_cpu: Vec<ThreadCpu>,
    /// Resident memory of the generator at its fullest.
    pub own_resident_bytes: u64,
    /// CPU of the gateway's threads; empty where it was not told which process that is.
    pub gateway_cpu: Vec<ThreadCpu>,
    /// How the gateway's metrics grew; empty where its admin address was not told.
    pub gateway_metrics: Metrics,
    /// What ended the run before its plan did.
    #[serde(default)]
    pub interrupted: Option<Interruption>,
    /// Why the histogram log is not whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
    /// Why players had no connect token, where a token service gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_refusal: Option<String>,
    /// Who was started anew during the run.
    #[serde(default)]
    pub restarts: Vec<Restart>,
    /// When the gateway was seen to be another process's, in seconds of the run.
    #[serde(default)]
    pub hand_overs_s: Vec<f64>,
    /// The longest time in which nothing came, while players played and nobody was to come or go.
    #[serde(default)]
    pub pause: Pause,
    /// How long players heard no payload, phase by phase.
    #[serde(default)]
    pub silences: Vec<Silence>,
    /// How many players may stay outside before that is a failure.
    #[serde(default)]
    pub allowed_outside: Allowance,
    /// How things stood when the last player had gone.
    #[serde(default)]
    pub closing: Closing,
    /// The figures that every output shows; [`summary`](Self::summary) makes them.
    #[serde(default)]
    pub summary: Summary,
    /// What should hold at the end, and whether it did.
    pub checks: Vec<Check>,
}

/// A signal that ended a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interruption {
    /// Its name.
    pub signal: String,
    /// Its number.
    pub number: i32,
    /// When it came, in seconds of the run.
    pub after_s: f64,
}

impl Interruption {
    /// The sentence for tables and pages.
    pub fn sentence(&self) -> String {
        format!(
            "interrupted by {} after {:.1} s: these are the figures up to then",
            self.signal, self.after_s
        )
    }
}

/// A stage's distribution.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Its name.
    pub stage: String,
    /// How much was measured.
    pub count: u64,
    /// Mean in nanoseconds.
    pub mean_ns: f64,
    /// Percentile and value in nanoseconds, from 0 to 100.
    pub curve: Vec<(f64, u64)>,
}

/// One interval of all threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// When it began, in seconds of the run.
    pub start_s: f64,
    /// How long it was.
    pub seconds: f64,
    /// Players in at its end.
    pub playing: u32,
    /// Payloads that were due in it, of both directions where the game server pushes.
    pub due: u64,
    /// Payloads that came in it, whenever they were due.
    #[serde(alias = "echoed")]
    pub arrived: u64,
    /// Payloads that left late.
    pub late: u64,
    /// Payloads of this interval that never arrived.
    pub lost: u64,
    /// Datagrams out.
    pub datagrams_out: u64,
    /// Datagrams in.
    pub datagrams_in: u64,
    /// Round trip: median, 99th and 99.9th percentile, largest, in nanoseconds; 0 where nothing
    /// came.
    pub round_trip_ns: [u64; 4],
}

impl StageRecord {
    /// The distribution of a stage.
    pub fn of(stage: Stage, tally: &Tally) -> Self {
        let histogram = tally.of(stage);
        let curve = if histogram.is_empty() {
            Vec::new()
        } else {
            PERCENTILES.iter().map(|p| (*p, histogram.value_at_percentile(*p))).collect()
        };
        Self {
            stage: stage.name().into(),
            count: histogram.len(),
            mean_ns: histogram.mean(),
            curve,
        }
    }

    /// A percentile that the curve has, or the next one above.
    pub fn at(&self, percentile: f64) -> u64 {
        let point = self.curve.iter().find(|(p, _)| *p >= percentile - 1e-9);
        point.or_else(|| self.curve.last()).map_or(0, |(_, ns)| *ns)
    }
}

impl Interval {
    /// What all threads gathered in an interval.
    pub fn of(start_s: f64, seconds: f64, playing: u32, tally: &Tally) -> Self {
        let c = |count| tally.counters.of(count);
        let p = |percentile| tally.percentile_ns(Stage::RoundTrip, percentile);
        Self {
            start_s,
            seconds,
            playing,
            due: tally.counters.due(),
            arrived: tally.counters.came(),
            late: c(Count::PayloadsLate),
            lost: 0,
            datagrams_out: c(Count::DatagramsOut),
            datagrams_in: c(Count::DatagramsIn),
            round_trip_ns: [p(50.0), p(99.0), p(99.9), p(100.0)],
        }
    }
}

impl Record {
    /// One of the generator's counters.
    pub fn count(&self, count: Count) -> u64 {
        self.counters.get(count.name()).copied().unwrap_or_default()
    }

    /// A stage's distribution.
    pub fn stage(&self, stage: Stage) -> Option<&StageRecord> {
        self.stages.iter().find(|record| record.stage == stage.name() && record.count > 0)
    }

    /// Puts the sum of all threads in.
    pub fn set_tally(&mut self, tally: &Tally) {
        self.counters = tally.counters.iter().map(|(c, value)| (c.name().into(), value)).collect();
        self.counters.insert("missing".into(), tally.counters.missing());
        let refused = tally.drops.iter().filter(|(_, count)| *count > 0);
        self.refused = refused.map(|(reason, count)| (reason.name().into(), count)).collect();
        self.stages = Stage::ALL.iter().map(|stage| StageRecord::of(*stage, tally)).collect();
    }

    /// What this run does not prove though it should, each as a sentence.
    pub fn unproven(&self) -> Vec<String> {
        self.failed(|check| check.is_proof)
    }

    /// What has happened to the run that its reader must know before any figure.
    pub fn remarks(&self) -> Vec<String> {
        let interrupted = self.interrupted.iter().map(Interruption::sentence);
        let restarts = self.restarts.iter().map(Restart::sentence);
        let unwritten = self.unwritten.iter().cloned();
        interrupted.chain(restarts).chain(self.hand_overs()).chain(unwritten).collect()
    }

    /// The sentence about hand-overs, if any was seen.
    fn hand_overs(&self) -> Option<String> {
        let (first, last) = (self.hand_overs_s.first()?, self.hand_overs_s.last()?);
        Some(match self.hand_overs_s.len() {
            1 => format!(
                "the gateway was handed over to another process, noticed after {first:.1} s"
            ),
            count => format!(
                "the gateway was handed over to another process, noticed {count} times from {first:.1} s to {last:.1} s"
            ),
        })
    }

    /// What was lost of the payloads that were due within a time, as a share, by the intervals that
    /// lie in it; `None` where nothing was due.
    pub fn loss_within(&self, from_s: f64, to_s: f64) -> Option<f64> {
        let is_within =
            |it: &&Interval| it.start_s + 1e-6 >= from_s && it.start_s + it.seconds <= to_s + 1e-6;
        let intervals = self.intervals.iter().filter(is_within);
        let (due, lost) = intervals.fold((0, 0), |(due, lost), it| (due + it.due, lost + it.lost));
        (due > 0).then(|| lost as f64 / due as f64)
    }

    /// Whether the gateway that was there at the end had been there at the start.
    pub fn is_one_gateway(&self) -> bool {
        self.closing.is_there && self.restarts.iter().all(|restart| restart.who != THE_GATEWAY)
    }

    /// Books that do not balance, each as a sentence.
    pub fn imbalances(&self) -> Vec<String> {
        self.failed(|check| check.is_book)
    }

    fn failed(&self, is_meant: fn(&Check) -> bool) -> Vec<String> {
        let failed = self.checks.iter().filter(|check| is_meant(check) && !check.holds);
        failed.map(|check| format!("{}: {}", check.name, check.text)).collect()
    }

    /// The generator's counters.
    pub fn tally_counters(&self) -> Counters {
        let mut counters = Counters::default();
        for count in Count::ALL {
            counters.add(*count, self.count(*count));
        }
        counters
    }

    /// Everything that was dropped or refused, by place and reason.
    pub fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = BTreeMap::new();
        let kernel = &self.closing.kernel;
        drops.insert("kernel: at the generator's sockets".into(), kernel.ours);
        drops.insert("kernel: at the gateway's sockets".into(), kernel.gateways);
        drops.insert("kernel: before any socket".into(), kernel.backlog);
        for (name, value) in &self.gateway_metrics {
            let reason =
                name.strip_prefix("ringgate_drops_total{").and_then(|name| name.strip_suffix('}'));
            if let Some(reason) = reason {
                drops.insert(format!("gateway: {reason}"), *value as u64);
            }
        }
        for (reason, refused) in &self.refused {
            drops.insert(format!("players: {reason}"), *refused);
        }
        drops.retain(|_, count| *count > 0);
        drops
    }

    /// CPU for each datagram in or out, in microseconds: the generator's, and the gateway's for the
    /// players' side. The one that needs more of it reaches its limit first.
    pub fn cpu_us_per_datagram(&self) -> (Option<f64>, Option<f64>) {
        let per = |cpu: &[ThreadCpu], datagrams: f64| {
            (datagrams > 0.0 && !cpu.is_empty()).then(|| cpu_s(cpu) * 1e6 / datagrams)
        };
        let metric = |name: &str| self.gateway_metrics.get(name).copied().unwrap_or_default();
        let own = self.count(Count::DatagramsIn) + self.count(Count::DatagramsOut);
        let gateway = metric("ringgate_datagrams_in_total") + metric("ringgate_packets_out_total");
        (per(&self.own_cpu, own as f64), per(&self.gateway_cpu, gateway))
    }
}

/// The points of a percentile curve: denser toward the tail, where it matters.
const PERCENTILES: &[f64] = &[
    0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 96.25,
    97.5, 98.0, 98.75, 99.0, 99.375, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999,
    99.9999, 100.0,
];
