//! What the admin address shows: everything that workers have published, put together at one
//! moment.
//!
//! The pages (`metrics`, `status`, `health`) are functions of a [`Snapshot`], so that they can be
//! tested without a gateway.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cluster::{Misfits, Seen};
use super::denying::Shown;
use super::latency::Latencies;
use super::membership::FleetShown;
use super::spent::WhyNotKept;
use crate::config::Admin;
use ringgate_core::netcode::destination::Join;
use ringgate_core::proto::unreal::front::Identity;
use ringgate_gate::{
    BackendId, BackendMoves, BackendTraffic, Claims, Counters, DeliveryTraffic, Front, ListenerId,
    ListenerTraffic, Setup,
};
use ringgate_os::clock::{self, Clock};
use ringgate_os::overflows::{Overflows, Split};
use ringgate_os::usage::{Usage, Used};
use ringgate_process::reloads::Reloads;
use ringgate_trunk::gateway::{Shown as AgentsShown, Window};
use ringgate_trunk::peers;
use ringgate_worker::handover;
use ringgate_worker::{AwakeWorkers, Fleet, FleetCard, Published, Publishers, Report};

/// Where snapshots are taken.
pub(super) struct View {
    facts: Facts,
    clock: Clock,
    published: Vec<Arc<Published>>,
    publishers: Publishers,
    claims: Arc<Claims>,
    live: Mutex<Live>,
    sockets: Mutex<Sockets>,
    usage: Mutex<Usage>,
    agents: Option<Window>,
    cluster: Option<peers::Window>,
    /// The process that has the gateway after this one; 0 while this one has it.
    successor: AtomicU32,
}

/// What tells full sockets from filters that refuse, as of the last look.
struct Sockets {
    kernel: Overflows,
    /// `None` where the kernel does not tell.
    split: Option<Split>,
}

/// What does not change while the daemon runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) driver: &'static str,
    /// Why the driver is not io_uring, where it could have been.
    pub(super) why_not_uring: Option<String>,
    /// Which kernel seals and opens.
    pub(super) cipher: &'static str,
    /// How many workers newcomers come to.
    pub(super) awake: AwakeWorkers,
    /// Why that is all, where the config would let some sleep.
    pub(super) why_all_awake: Option<String>,
    /// What players' packets come by past the kernel's sockets.
    pub(super) card: Option<Arc<FleetCard>>,
    pub(super) config_file: PathBuf,
    pub(super) started_unix_s: u64,
    /// When this process did, which an upgrade may have started.
    pub(super) process_unix_s: u64,
    /// Processes that have had this gateway, this one included.
    pub(super) generation: u64,
}

/// What the control thread changes.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) setup: Arc<Setup>,
    /// The addresses of each listener, by its number.
    pub(super) addresses: Arc<Vec<Vec<SocketAddr>>>,
    /// Until when those who are still there may stay, at listeners that drain.
    pub(super) leaving: HashMap<ListenerId, u64>,
    pub(super) drain: Option<Drain>,
    pub(super) reloads: Reloads,
    pub(super) latencies: Arc<Latencies>,
    pub(super) log_failures: u64,
    /// `[admin]`, where there is one.
    pub(super) admin: Option<Arc<Admin>>,
    pub(super) denied: Shown,
    /// Why a restart would make used tokens good again, if it would.
    pub(super) why_not_spent: WhyNotKept,
    /// How it stands with the fleet, where the gateway is in one.
    pub(super) fleet: Option<Arc<FleetShown>>,
    /// What does not fit together with other members of the cluster.
    pub(super) misfits: Misfits,
}

/// A drain that is under way, in nanoseconds of the fleet's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drain {
    pub(super) since_ns: u64,
    /// When those who are still there are disconnected.
    pub(super) until_ns: u64,
    /// Other members of the cluster go on with the sessions, and datagrams that still come are sent
    /// on to them.
    pub(super) hands_over: bool,
    /// How many were sent on when that was last looked at, and since when there were no more.
    pub(super) sent_on: (u64, u64),
}

/// Everything at one moment.
pub(super) struct Snapshot<'a> {
    pub(super) facts: &'a Facts,
    pub(super) now_ns: u64,
    pub(super) live: Live,
    /// Each worker's last report.
    pub(super) reports: Vec<Report>,
    /// Sessions of each listener, by its number.
    pub(super) sessions: Vec<u32>,
    /// Players of each backend, by its number.
    pub(super) players: Vec<u32>,
    /// Used tokens that are remembered.
    pub(super) tokens: usize,
    /// What the kernel has dropped at players' sockets, by cause, where it tells.
    pub(super) socket_drops: Option<Split>,
    /// What the process takes of the host.
    pub(super) used: Used,
    /// Agents on other hosts.
    pub(super) agents: AgentsShown,
    /// How it stands with the cluster.
    pub(super) cluster: Option<Seen>,
}

impl View {
    pub(super) fn new(
        fleet: &Fleet,
        setup: Arc<Setup>,
        config_file: PathBuf,
        (mut kernel, usage): (Overflows, Usage),
    ) -> Self {
        let split = kernel.count().map(Split::starting_at);
        let started_unix_s = clock::unix_seconds();
        let facts = Facts {
            driver: fleet.driver(),
            why_not_uring: fleet.why_not_uring().map(str::to_owned),
            cipher: fleet.kernel(),
            awake: fleet.awake(),
            why_all_awake: fleet.why_all_awake().map(str::to_owned),
            card: fleet.card().cloned(),
            config_file,
            started_unix_s,
            process_unix_s: started_unix_s,
            generation: 1,
        };
        let live = Live {
            setup,
            addresses: Arc::new(fleet.addresses()),
            leaving: HashMap::new(),
            drain: None,
            reloads: Reloads { config_unix_s: started_unix_s, ..Reloads::default() },
            latencies: Arc::default(),
            log_failures: 0,
            admin: None,
            denied: Shown::default(),
            why_not_spent: WhyNotKept::default(),
            fleet: None,
            misfits: Misfits::default(),
        };
        Self {
            facts,
            clock: fleet.clock(),
            published: fleet.published().to_vec(),
            publishers: fleet.publishers(),
            claims: Arc::clone(fleet.claims()),
            live: Mutex::new(live),
            sockets: Mutex::new(Sockets { kernel, split }),
            usage: Mutex::new(usage),
            agents: None,
            cluster: None,
            successor: AtomicU32::new(0),
        }
    }

    /// Shows agents, too.
    pub(super) fn show_agents(&mut self, agents: Window) {
        self.agents = Some(agents);
    }

    pub(super) fn show_cluster(&mut self, cluster: Option<peers::Window>) {
        self.cluster = cluster;
    }

    /// Goes on where the process before this one stopped.
    pub(super) const fn inherit(&mut self, facts: &handover::Facts) {
        self.facts.started_unix_s = facts.started_unix_s;
        self.facts.generation = facts.generation + 1;
    }

    /// Goes on counting where it stopped.
    pub(super) fn go_on(&self, counted: &[u64]) {
        let mut counted = counted.iter().copied();
        let mut next = || counted.next().unwrap_or_default();
        {
            let mut live = self.live();
            live.reloads.done = next();
            live.reloads.refused = next();
            live.log_failures = next();
        }
        let has_split = next() > 0;
        let numbers = [next(), next(), next(), next()];
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if has_split && sockets.split.is_some() {
            sockets.split = Some(Split::of(numbers));
        }
    }

    /// What the next process goes on with, in an order that does not change: new ones come last.
    pub(super) fn counted(&self) -> Vec<u64> {
        let live = self.live();
        let split = self.sockets.lock().unwrap_or_else(PoisonError::into_inner).split;
        let counts = [live.reloads.done, live.reloads.refused, live.log_failures];
        let numbers = split.unwrap_or_default().numbers();
        counts.into_iter().chain([u64::from(split.is_some())]).chain(numbers).collect()
    }

    /// What does not change.
    pub(super) const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Another process goes on: what watches this one has to end.
    pub(super) fn hand_over_to(&self, pid: u32) {
        self.successor.store(pid, Ordering::Relaxed);
    }

    /// The process that has the gateway now, if it is not this one.
    pub(super) fn successor(&self) -> Option<u32> {
        Some(self.successor.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Splits what the kernel has dropped since the last look.
    pub(super) fn split_drops(&self, reports: &[Report]) -> Option<Split> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let Sockets { kernel, split } = &mut *sockets;
        if let (Some(split), Some(overflows)) = (split.as_mut(), kernel.count()) {
            split.update(reports.iter().map(|report| report.socket_drops).sum(), overflows);
        }
        *split
    }

    /// Now, on the fleet's clock.
    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// The addresses of each listener, by its number.
    pub(super) fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        Vec::clone(&self.live().addresses)
    }

    /// What each worker publishes.
    pub(super) fn published(&self) -> &[Arc<Published>] {
        &self.published
    }

    /// What asks each worker to publish now.
    pub(super) const fn publishers(&self) -> &Publishers {
        &self.publishers
    }

    /// Where trunks are shown, if there is any place for them.
    pub(super) const fn agents(&self) -> Option<&Window> {
        self.agents.as_ref()
    }

    /// Whether every worker goes by this setup or a later one.
    pub(super) fn has_adopted(&self, revision: u64) -> bool {
        self.published.iter().all(|worker| worker.report().revision >= revision)
    }

    /// Whose players have come since the last time.
    pub(super) fn take_joins(&self) -> Vec<(BackendId, Join)> {
        self.claims.take_joins()
    }

    /// Players of a backend.
    pub(super) fn players(&self, backend: BackendId) -> u32 {
        self.claims.players(backend)
    }

    /// What the players of a backend speak; `None` where it has none.
    pub(super) fn spoken(&self, backend: BackendId) -> Option<Front> {
        Front::of_players(&self.claims, backend)
    }

    /// Sessions of a listener.
    pub(super) fn sessions(&self, listener: ListenerId) -> u32 {
        self.claims.sessions(listener)
    }

    /// What may change, to read or to change it.
    pub(super) fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything at this moment.
    pub(super) fn snapshot(&self) -> Snapshot<'_> {
        let live = self.live().clone();
        let reports: Vec<Report> = self.published.iter().map(|worker| worker.report()).collect();
        let socket_drops = self.split_drops(&reports);
        let listeners = live.setup.listeners.ids();
        let backends = live.setup.backends.ids();
        Snapshot {
            facts: &self.facts,
            // After the reports, so that none is from the future.
            now_ns: self.now_ns(),
            reports,
            sessions: listeners.map(|listener| self.claims.sessions(listener)).collect(),
            players: backends.map(|backend| self.claims.players(backend)).collect(),
            tokens: self.claims.tokens_remembered(),
            socket_drops,
            used: self.usage.lock().unwrap_or_else(PoisonError::into_inner).used(),
            agents: self.agents.as_ref().map(Window::shown).unwrap_or_default(),
            cluster: self.cluster.as_ref().map(|it| Seen::of(it, &self.claims)),
            live,
        }
    }
}

impl Snapshot<'_> {
    /// The sum over all workers.
    pub(super) fn totals(&self) -> Counters {
        self.sum(|report| Some(&report.counters), Counters::merge)
    }

    fn sum<T: Default>(&self, of: impl Fn(&Report) -> Option<&T>, merge: fn(&mut T, &T)) -> T {
        let mut sum = T::default();
        self.reports.iter().filter_map(of).for_each(|it| merge(&mut sum, it));
        sum
    }

    /// What a backend that serves an Unreal game has said about itself.
    pub(super) fn server(&self, backend: BackendId) -> Option<Identity> {
        self.reports.iter().find_map(|report| identity(report, backend))
    }

    /// What a listener has carried, over all workers.
    pub(super) fn listener_traffic(&self, listener: ListenerId) -> ListenerTraffic {
        self.sum(|report| report.listeners.get(listener.index()), ListenerTraffic::merge)
    }

    /// What was said in messages at a listener, over all workers.
    pub(super) fn delivery_traffic(&self, listener: ListenerId) -> DeliveryTraffic {
        self.sum(|report| report.delivery.get(listener.index()), DeliveryTraffic::merge)
    }

    /// What a backend has carried, over all workers.
    pub(super) fn backend_traffic(&self, backend: BackendId) -> BackendTraffic {
        self.sum(|report| report.backends.get(backend.index()), BackendTraffic::merge)
    }

    /// How many players were moved to a backend and away from it, over all workers.
    pub(super) fn backend_moves(&self, backend: BackendId) -> BackendMoves {
        self.sum(|report| report.moves.get(backend.index()), BackendMoves::merge)
    }

    /// Whether a backend's process has told a worker that it takes nobody new.
    pub(super) fn is_closed(&self, backend: BackendId) -> bool {
        self.reports.iter().any(|report| is_closed(report, backend))
    }

    /// How many workers reach a backend.
    pub(super) fn workers_up(&self, backend: BackendId) -> usize {
        self.reports.iter().filter(|report| is_up(report, backend)).count()
    }
}

/// What a server says is the same to every worker that it has answered.
fn identity(report: &Report, backend: BackendId) -> Option<Identity> {
    report.servers.get(backend.index()).copied().flatten()?.identity
}

/// Whether a backend's process has told this worker that it takes nobody new.
pub(super) fn is_closed(report: &Report, backend: BackendId) -> bool {
    report.backends_closed.get(backend.index()).copied().unwrap_or(false)
}

/// Whether a worker reaches a backend. One that it has not heard of yet is not up.
pub(super) fn is_up(report: &Report, backend: BackendId) -> bool {
    report.backends_up.get(backend.index()).copied().unwrap_or(false)
}
