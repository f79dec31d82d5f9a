//! Drains, of the gateway and of one backend, and how they are taken back.
//!
//! A gateway that drains ends when it is empty or its time is over. A backend that drains takes no
//! new players; those who are there stay until they leave, or until its deadline.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::listeners::TELL_EVERY_NS;
use super::view::Drain;
use super::{ControlLoop, NS_PER_MS};
use ringgate_gate::{BackendId, Ended, Mail, Setup, Survey, Wanted};
use ringgate_process::pages::asked::{AskedDrain, Draining};
use ringgate_worker::{Fleet, Published};

/// When the players of backends that drain have to leave.
pub(super) type Deadlines = HashMap<BackendId, Deadline>;

/// Of one backend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) until_ns: u64,
    /// When those who were there behind it were last told to leave.
    told_ns: Option<u64>,
}

impl Deadline {
    /// One that is over at this moment was carried out by the process before this one.
    pub(super) fn new(until_ns: u64, now_ns: u64) -> Self {
        Self { until_ns, told_ns: (until_ns < now_ns).then_some(until_ns) }
    }
}

impl ControlLoop {
    /// Begins a drain of the gateway, or gives one that is under way another deadline.
    pub(super) fn drain(&mut self, fleet: &Fleet, asked: AskedDrain) -> Draining {
        let AskedDrain { deadline, hands_over } = asked;
        let now_ns = self.view.now_ns();
        let under_way = self.view.live().drain;
        let until_ns = match (under_way, deadline) {
            (Some(drain), None) => drain.until_ns,
            _ => {
                let timeout = deadline.unwrap_or(self.config.gateway.drain_timeout);
                self.begin_drain(fleet, now_ns, timeout)
            }
        };
        self.leave_cluster(fleet, hands_over);
        self.recall_successor();
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        self.notifier.draining(left, self.terms > 0);
        let left_ms = left.as_millis() as u64;
        Draining { sessions: self.view.snapshot().totals().sessions, left_ms }
    }

    fn begin_drain(&mut self, fleet: &Fleet, now_ns: u64, timeout: Duration) -> u64 {
        let until_ns = now_ns + timeout.as_nanos() as u64;
        let left_ms = timeout.as_millis().min(u128::from(u32::MAX)) as u32;
        let sessions = self.view.snapshot().totals().sessions;
        tracing::info!(
            event = "drain_begin",
            sessions,
            left_ms,
            "draining: no new players are taken in"
        );
        fleet.tell_all(|| Mail::Drain { left_ms });
        let (hands_over, sent_on) = (false, (0, now_ns));
        let under_way = Drain { since_ns: now_ns, until_ns, hands_over, sent_on };
        self.view.live().drain = Some(under_way);
        until_ns
    }

    /// Goes on with nothing of other members of a cluster, and has them go on with what is here, if
    /// that was asked for now or before.
    fn leave_cluster(&self, fleet: &Fleet, hands_over: bool) {
        let Some(standbys) = fleet.claims().standbys() else { return };
        let hands_over = hands_over || standbys.hands_over();
        if let Some(drain) = &mut self.view.live().drain {
            drain.hands_over = hands_over;
        }
        standbys.set_leaving(true, hands_over);
    }

    /// Takes the gateway's drain back. Not one that a signal has begun: who sends it waits for the
    /// daemon's end.
    pub(super) fn undrain(&mut self, fleet: &Fleet) -> Result<bool, &'static str> {
        if self.terms > 0 {
            return Err("a signal has begun this drain, and whoever sent it waits for the end");
        }
        if self.view.live().drain.take().is_none() {
            return Ok(false);
        }
        if let Some(standbys) = fleet.claims().standbys() {
            standbys.set_leaving(false, false);
        }
        fleet.tell_all(|| Mail::Undrain);
        self.notifier.ready();
        tracing::info!(event = "undrain", "players are taken in again");
        Ok(true)
    }

    /// Whether a drain is over: its time is, or every worker has said since it began that nobody is
    /// left. One that hands over goes on as long as routers send it players' datagrams.
    pub(super) fn has_drained(&self) -> bool {
        let now_ns = self.view.now_ns();
        let Some(mut drain) = self.view.live().drain else { return false };
        let published = self.view.published();
        let sent_on = published.iter().map(|it| it.report().counters.members_out).sum();
        if drain.hands_over && drain.sent_on.0 != sent_on {
            drain.sent_on = (sent_on, now_ns);
            self.view.live().drain = Some(drain);
        }
        let is_quiet = !drain.hands_over || now_ns >= drain.sent_on.1 + QUIET_NS;
        let has_emptied = |worker: &Arc<Published>| {
            let report = worker.report();
            report.at_ns > drain.since_ns && report.counters.sessions == 0
        };
        now_ns >= drain.until_ns || (is_quiet && published.iter().all(has_emptied))
    }

    /// Sends no new players to a backend, or some again. Returns how many it has.
    pub(super) fn drain_backend(
        &mut self,
        fleet: &Fleet,
        backend: BackendId,
        drained: bool,
        deadline: Option<Duration>,
    ) -> u32 {
        let players = self.view.players(backend);
        let now_ns = self.view.now_ns();
        self.deadlines.remove(&backend);
        if let Some(deadline) = deadline.filter(|_| drained) {
            let until_ns = now_ns + deadline.as_nanos() as u64;
            self.deadlines.insert(backend, Deadline::new(until_ns, now_ns));
        }
        let mut setup = Setup::clone(&self.setup);
        let name = setup.backends[backend].name.clone();
        setup.backends[backend].drained = drained;
        self.revise(fleet, setup);
        if drained {
            let left_ms = deadline.map(|deadline| deadline.as_millis() as u64);
            tracing::info!(
                event = "backend_drain",
                backend = name,
                players,
                left_ms,
                "backend {name} takes no new players"
            );
        } else {
            tracing::info!(
                event = "backend_undrain",
                backend = name,
                players,
                "backend {name} takes players again"
            );
        }
        players
    }

    /// Forgets the deadlines of backends that do not drain any more, or are gone.
    pub(super) fn forget_deadlines(&mut self) {
        let backends = &self.setup.backends;
        self.deadlines.retain(|id, _| backends.get(*id).is_some_and(|it| it.drained));
    }

    /// Ends the sessions of backends whose time to drain is over, again and again: who was being
    /// let in at that moment, or has come from another gateway of a cluster since, leaves as well.
    pub(super) fn end_overdue(&mut self, fleet: &Fleet) {
        let now_ns = self.view.now_ns();
        for (&backend, it) in self.deadlines.iter_mut().filter(|(_, it)| now_ns >= it.until_ns) {
            let players = self.view.players(backend);
            if it.told_ns.is_some_and(|it| players == 0 || now_ns < it + TELL_EVERY_NS) {
                continue;
            }
            if it.told_ns.replace(now_ns).is_none() {
                let name = &self.setup.backends[backend].name;
                tracing::info!(
                    event = "backend_drain_end",
                    backend = name,
                    players,
                    "the drain of backend {name} is over: {players} players are told to leave"
                );
            }
            let wanted = Wanted { backend: Some(backend), ..Wanted::default() };
            survey(fleet, wanted, Some(Ended::ByOperator), 0);
        }
    }

    /// Gives all workers another setup that no config has changed.
    pub(super) fn revise(&mut self, fleet: &Fleet, mut setup: Setup) {
        setup.revision += 1;
        self.setup = fleet.adopt(&setup, Vec::new());
        self.note_retired();
        self.view.live().setup = Arc::clone(&self.setup);
    }
}

/// Asks all workers about their sessions.
pub(super) fn survey(
    fleet: &Fleet,
    wanted: Wanted,
    ends: Option<Ended>,
    limit: usize,
) -> Arc<Survey> {
    let workers = fleet.worker_count() as u32;
    let survey = Arc::new(Survey::new(wanted, ends, limit, workers));
    fleet.tell_all(|| Mail::Survey(Arc::clone(&survey)));
    survey
}

/// A player says something each second, as a rule.
const QUIET_NS: u64 = 3000 * NS_PER_MS;
