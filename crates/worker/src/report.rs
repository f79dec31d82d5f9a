//! What a worker publishes, a few times a second, for the control thread to read.

use std::sync::Mutex;

use super::stages::Recorder;
use crate::handover::Recorded;
use ringgate_core::drops::DropCounts;
use ringgate_core::sync::lock;
use ringgate_gate::body::Gathers;
use ringgate_gate::{
    BackendMoves, BackendTraffic, Counters, Credentials, DeliveryTraffic, LinkRefusal,
    ListenerTraffic, Party, ServerInfo,
};
use ringgate_io::{CardCounts, IoStats};

/// A worker's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The gate's counters.
    pub counters: Counters,
    /// The driver's counters.
    pub io: IoStats,
    /// Datagrams that the kernel dropped at the players' sockets: refused by the filter, or the
    /// receive buffer was full.
    pub socket_drops: u64,
    /// What was counted of frames past the kernel's sockets.
    pub card: CardCounts,
    /// Whether each backend can be reached from this worker.
    pub backends_up: Vec<bool>,
    /// Whether the process of each backend has told this worker that it takes nobody new.
    pub backends_closed: Vec<bool>,
    /// How often each backend has become reachable for this worker.
    pub backend_arrivals: Vec<u64>,
    /// What each listener has carried.
    pub listeners: Vec<ListenerTraffic>,
    /// The datagrams from each listener's sockets that went no further.
    pub listener_drops: Vec<DropCounts>,
    /// What was said in messages at each listener.
    pub delivery: Vec<DeliveryTraffic>,
    /// What each backend has carried.
    pub backends: Vec<BackendTraffic>,
    /// How many players were moved to each backend and away from it.
    pub moves: Vec<BackendMoves>,
    /// What each backend says about itself, where it serves an Unreal game.
    pub servers: Vec<Option<ServerInfo>>,
    /// Whose link was last closed for each reason, in the order of [`LinkRefusal::ALL`].
    pub last_refused: [Option<Credentials>; LinkRefusal::COUNT],
    /// The port of the socket that carries its players to udp backends on loopback.
    pub link_port: Option<u16>,
    /// Which setup the worker goes by.
    pub revision: u64,
    /// Turns taken.
    pub turns: u64,
    /// What was waited on purpose.
    pub gathers: Gathers,
    /// Time that it has had on a core, where somebody goes by that.
    pub busy_ns: u64,
    /// Moment of the report, in nanoseconds of the fleet's clock.
    pub at_ns: u64,
}

/// How busy a worker was up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Busy {
    pub(super) at_ns: u64,
    pub(super) on_core_ns: u64,
    pub(super) turns: u64,
    pub(super) waits: u64,
}

impl Busy {
    /// Which part of its core it was busy for since another moment. One that has hardly slept is as
    /// busy as it can be, however much of its core it was given.
    pub(super) fn since(&self, before: &Self) -> f64 {
        let ns = self.at_ns.saturating_sub(before.at_ns);
        if before.at_ns == 0 || ns == 0 {
            return 0.0;
        }
        let turns = self.turns.saturating_sub(before.turns);
        let waits = self.waits.saturating_sub(before.waits);
        if waits < turns / SLEEPLESS {
            return 1.0;
        }
        self.on_core_ns.saturating_sub(before.on_core_ns) as f64 / ns as f64
    }
}

/// Who sleeps before fewer than one in so many turns has hardly slept. Fewer turns say nothing.
const SLEEPLESS: u64 = 16;

/// The counter at which a worker leaves its report and exchanges its counts of latencies.
pub struct Published {
    report: Mutex<Report>,
    stages: Mutex<Exchange>,
}

/// Counts that change hands.
#[derive(Default)]
struct Exchange {
    /// Left by a reader who wants the worker's.
    empty: Option<Box<Recorder>>,
    /// Left by the worker.
    full: Option<Box<Recorder>>,
}

impl Published {
    pub(super) fn new() -> Self {
        Self { report: Mutex::new(Report::default()), stages: Mutex::new(Exchange::default()) }
    }

    /// The last report.
    pub fn report(&self) -> Report {
        lock(&self.report).clone()
    }

    /// How busy the worker was up to its last report.
    pub(super) fn busy(&self) -> Busy {
        let report = lock(&self.report);
        let &Report { at_ns, busy_ns, turns, .. } = &*report;
        // Whoever waits for more on purpose sleeps as well as who waits for anything.
        let waits = report.io.waits + report.gathers.count;
        Busy { at_ns, on_core_ns: busy_ns, turns, waits }
    }

    /// Asks the worker for its counts of latencies and takes those that it has left since the last
    /// time. Leave `empty` and call again a moment later; it costs the worker a swap.
    pub fn exchange(&self, empty: Option<Box<Recorder>>) -> Option<Box<Recorder>> {
        let mut exchange = lock(&self.stages);
        if exchange.empty.is_none() {
            exchange.empty = empty;
        }
        exchange.full.take()
    }

    /// Worker's side: leaves a report. Skipped while it is being read, which is said; the next one
    /// is not far.
    pub(super) fn leave_report(&self, fill: impl FnOnce(&mut Report)) -> bool {
        let report = self.report.try_lock();
        report.map(|mut report| fill(&mut report)).is_ok()
    }

    /// Worker's side: the last report, which must not be skipped.
    pub(super) fn leave_last_report(&self, fill: impl FnOnce(&mut Report)) {
        fill(&mut lock(&self.report));
    }

    /// Worker's side: swaps counts with a reader who has asked.
    pub(super) fn pass_by(&self, stages: &mut Box<Recorder>) {
        if let Ok(mut exchange) = self.stages.try_lock() {
            exchange.swap(stages);
        }
    }

    /// Adds what the process before this one has recorded, whether asked or not.
    /// `names` has what the parties are called.
    pub fn go_on(&self, recorded: &Recorded, names: &[(Party, String)]) {
        let mut stages = Box::new(Recorder::new());
        stages.go_on(recorded, names);
        self.leave_last_stages(stages);
    }

    /// Worker's side, at its end: leaves the counts whether asked or not.
    pub(super) fn leave_last_stages(&self, mut stages: Box<Recorder>) {
        let mut exchange = lock(&self.stages);
        if let Some(earlier) = exchange.full.take() {
            stages.merge(&earlier);
        }
        exchange.full = Some(stages);
    }
}

impl Exchange {
    fn swap(&mut self, stages: &mut Box<Recorder>) {
        if self.full.is_none()
            && let Some(empty) = self.empty.take()
        {
            self.full = Some(std::mem::replace(stages, empty));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stages::Stages;
    use super::*;
    use ringgate_gate::body::Stage;

    fn turns(recorder: &Recorder) -> u64 {
        let mut sum = Stages::new();
        sum.add(recorder);
        sum.of(Stage::Turn).len()
    }

    #[test]
    fn who_hardly_sleeps_is_as_busy_as_can_be() {
        let at = |at_ns, on_core_ns, turns, waits| Busy { at_ns, on_core_ns, turns, waits };
        let before = at(1000, 500, 100, 90);
        assert!((at(2000, 800, 300, 280).since(&before) - 0.3).abs() < 1e-9);
        assert!((at(2000, 800, 300, 90).since(&before) - 1.0).abs() < 1e-9, "others have its core");
        assert!((at(2000, 510, 115, 90).since(&before) - 0.01).abs() < 1e-9, "too few to tell");
        assert!((at(2000, 510, 116, 90).since(&before) - 1.0).abs() < 1e-9, "few and long");
        assert!(at(2000, 800, 300, 280).since(&Busy::default()).abs() < 1e-9, "not looked at yet");
    }

    #[test]
    fn who_waits_for_more_is_as_busy_as_its_core_says() {
        let published = Published::new();
        let busy = |turns, gathers| {
            published.leave_last_report(|report| {
                (report.at_ns, report.busy_ns) = (report.at_ns + 1000, report.busy_ns + 150);
                report.turns += turns;
                report.gathers.count += gathers;
            });
            published.busy()
        };
        let [begin, waited, rushed] = [busy(0, 0), busy(600, 500), busy(600, 0)];
        assert!((waited.since(&begin) - 0.15).abs() < 1e-9);
        assert!((rushed.since(&waited) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_that_was_recorded_is_lost_in_the_exchange() {
        let published = Published::new();
        let mut mine = Box::new(Recorder::new());
        mine.record((Party::NONE, Stage::Turn), std::iter::once((5, 1)));
        published.pass_by(&mut mine);
        assert!(published.exchange(Some(Box::new(Recorder::new()))).is_none(), "nobody had asked");

        mine.record((Party::NONE, Stage::Turn), std::iter::once((6, 1)));
        published.pass_by(&mut mine);
        assert_eq!(turns(&mine), 0);
        mine.record((Party::NONE, Stage::Turn), std::iter::once((7, 1)));
        published.leave_last_stages(mine);
        let full = published.exchange(None).expect("left by the worker");
        assert_eq!(turns(&full), 3);
    }
}
