//! What remains of a run: everything that tables, reports and pipelines are made from, as one JSON document.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gateway::Metrics;
use crate::procfs::{Machine, ThreadCpu};
use crate::require::What;
use crate::scenario::Scenario;
use crate::tally::{Count, Counters, Stage, Tally};

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
    /// What should hold at the end, and whether it did.
    pub checks: Vec<Check>,
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
    /// Payloads that were due in it.
    pub due: u64,
    /// Echoes that came in it.
    pub echoed: u64,
    /// Payloads that left late.
    pub late: u64,
    /// Payloads of this interval whose echo never came.
    pub lost: u64,
    /// Datagrams out.
    pub datagrams_out: u64,
    /// Datagrams in.
    pub datagrams_in: u64,
    /// Round trip: median, 99th and 99.9th percentile, largest, in nanoseconds; 0 where nothing came.
    pub round_trip_ns: [u64; 4],
}

/// Something that should hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What it is about.
    pub name: String,
    /// Whether it does.
    pub holds: bool,
    /// The figures.
    pub text: String,
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
            due: c(Count::PayloadsDue),
            echoed: c(Count::Echoed),
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

    /// Share of payloads whose echo did not come.
    pub fn loss(&self) -> f64 {
        let due = self.count(Count::PayloadsDue);
        let back = self.count(Count::Echoed) + self.count(Count::Stale);
        if due == 0 { 0.0 } else { due.saturating_sub(back) as f64 / due as f64 }
    }

    /// What conditions are held against.
    pub fn measured(&self, what: What) -> f64 {
        let round_trip = |percentile| {
            self.stage(Stage::RoundTrip).map_or(0, |stage| stage.at(percentile)) as f64
        };
        match what {
            What::Percentile(percentile) => round_trip(percentile),
            What::Max => round_trip(100.0),
            What::Loss => self.loss(),
            What::Late => {
                self.count(Count::PayloadsLate) as f64
                    / self.count(Count::PayloadsDue).max(1) as f64
            }
            What::Failed => {
                (self.count(Count::ConnectFailed) + self.count(Count::SessionsLost)) as f64
            }
            What::Missing => self.counters.get("missing").copied().unwrap_or_default() as f64,
        }
    }
}

/// Seconds on a core, of all threads together.
pub fn cpu_s(threads: &[ThreadCpu]) -> f64 {
    threads.iter().map(|thread| thread.total_s).sum()
}

/// What should hold at the end of a run, as far as it can be seen.
pub fn checks(counters: &Counters, metrics: &Metrics) -> Vec<Check> {
    let c = |count| counters.of(count);
    let mut checks = vec![Check {
        name: "every payload is where it should be".into(),
        holds: c(Count::Corrupt) + c(Count::Misdelivered) == 0,
        text: format!(
            "{} corrupt, {} for somebody else",
            c(Count::Corrupt),
            c(Count::Misdelivered)
        ),
    }];
    let (joins, connected) = (c(Count::Joins), c(Count::Connected));
    checks.push(Check {
        name: "everyone who came was let in, and stayed".into(),
        holds: joins > 0 && joins == connected && c(Count::SessionsLost) == 0,
        text: format!(
            "{joins} came, {connected} were let in, {} lost their session",
            c(Count::SessionsLost)
        ),
    });
    let Some(datagrams_in) = metrics.get("ringgate_datagrams_in_total") else {
        checks.push(Check {
            name: "nothing is missing".into(),
            holds: counters.missing() == 0,
            text: format!(
                "{} payloads unaccounted for (without --admin nobody can say where)",
                counters.missing()
            ),
        });
        return checks;
    };
    let m = |name: &str| metrics.get(name).copied().unwrap_or_default() as i64;
    let sent =
        c(Count::DatagramsOut) as i64 - (c(Count::PayloadsUnsent) + c(Count::ControlUnsent)) as i64;
    let (taken, dropped) = (*datagrams_in as i64, m("ringgate_socket_drops_total"));
    checks.push(Check {
        name: "datagrams up: sent = taken in + dropped by the kernel there".into(),
        holds: sent == taken + dropped,
        text: format!("{sent} = {taken} + {dropped}, difference {}", sent - taken - dropped),
    });
    let unsent =
        m("ringgate_drops_total{send_buffer_full}") + m("ringgate_drops_total{send_refused}");
    let sealed = m("ringgate_packets_out_total") - unsent;
    let (received, own) = (c(Count::DatagramsIn) as i64, c(Count::OwnKernelDrops) as i64);
    checks.push(Check {
        name: "datagrams down: sent = received + dropped by the kernel here".into(),
        holds: sealed == received + own,
        text: format!("{sealed} = {received} + {own}, difference {}", sealed - received - own),
    });
    let to_links = m("ringgate_payloads_to_links_total");
    let from_links = m("ringgate_payloads_from_links_total");
    let way = [
        c(Count::PayloadsDue) as i64
            - (c(Count::PayloadsUnsent) + c(Count::PayloadsImpairedUp)) as i64,
        m("ringgate_payloads_up_total"),
        to_links,
        from_links,
        m("ringgate_payloads_down_total"),
        (c(Count::Echoed) + c(Count::Stale) + c(Count::Duplicates)) as i64,
    ];
    checks.push(Check {
        name: "payloads: sent, opened, to game processes, from them, sealed, received".into(),
        holds: way.windows(2).all(|pair| pair[0] == pair[1]),
        text: way.map(|count| count.to_string()).join(" → "),
    });
    let imbalances = metrics.get("ringgate_conserved").copied();
    let explained = dropped + m("ringgate_drops_total") + own + (to_links - from_links).max(0);
    let missing = counters.missing() as i64;
    checks.push(Check {
        name: "nothing is missing without a reason".into(),
        holds: missing <= explained,
        text: format!(
            "{missing} payloads missing; {dropped} dropped by the kernel at the gateway, {} by the gateway for a named reason, \
             {} between it and game processes, {own} by the kernel here{}",
            m("ringgate_drops_total"),
            (to_links - from_links).max(0),
            if imbalances.is_some_and(|held| held < 0.0) { "; the gateway's own books do not balance" } else { "" },
        ),
    });
    checks
}

/// The points of a percentile curve: denser toward the tail, where it matters.
const PERCENTILES: &[f64] = &[
    0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 96.25,
    97.5, 98.0, 98.75, 99.0, 99.375, 99.5, 99.75, 99.9, 99.95, 99.975, 99.99, 99.995, 99.999,
    99.9999, 100.0,
];
