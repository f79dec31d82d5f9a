//! A gateway that was never there, for the tests of the pages that show one.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use super::denying::Shown;
use super::membership::FleetShown;
use super::spent::WhyNotKept;
use super::view::{Facts, Live, Snapshot};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::{
    Allowed, Backend, BackendId, BackendTraffic, Limits, LinkKind, Listener, ListenerTraffic,
    Netcode, Phase, Protocol, Route, Setup, TokenReuse,
};
use ringgate_os::overflows::Split;
use ringgate_os::usage::Used;
use ringgate_process::reloads::Reloads;
use ringgate_worker::Report;

pub(super) fn facts() -> Facts {
    Facts {
        driver: "mmsg",
        cipher: "portable",
        config_file: "gate.toml".into(),
        started_unix_s: 1_700_000_000,
        process_unix_s: 1_700_000_030,
        ..Facts::default()
    }
}

/// Two workers a minute after their start, one listener, one backend, and an earlier one of the
/// same name that was retired. The second worker cannot reach the backend.
pub(super) fn snapshot(facts: &Facts) -> Snapshot<'_> {
    let setup = Setup::new(vec![listener()], vec![backend(true), backend(false)], 1);
    Snapshot {
        facts,
        now_ns: NOW_NS,
        live: Live {
            setup: Arc::new(setup),
            addresses: Arc::new(vec![vec![SocketAddr::from(([192, 0, 2, 1], 40_000))]]),
            leaving: HashMap::new(),
            drain: None,
            reloads: Reloads { config_unix_s: facts.started_unix_s, ..Reloads::default() },
            latencies: Arc::default(),
            log_failures: 0,
            admin: None,
            denied: Shown::default(),
            why_not_spent: WhyNotKept::default(),
            fleet: Some(Arc::new(fleet())),
            misfits: BTreeMap::new(),
        },
        reports: vec![report(true), report(false)],
        sessions: vec![7],
        players: vec![2, 5],
        tokens: 9,
        socket_drops: Some(split()),
        used: used(),
        agents: agents(),
        cluster: Some(cluster()),
    }
}

/// A cluster with one other member, which is connected.
fn cluster() -> super::cluster::Seen {
    let peer = SocketAddr::from(([192, 0, 2, 8], 4700));
    let member = ringgate_trunk::peers::MemberShown {
        name: "gate-2".to_owned(),
        state: ringgate_trunk::peers::State::Up,
        is_known: true,
        peer: Some(peer),
        since_ns: NOW_NS / 2,
        round_trip_ns: Some(120_000),
        speaks: Some(1),
        has_told_all: true,
        players: 3,
        can_stand_by: true,
        stands_by: 2,
        silences: 1,
        forwarded: [20, 10],
        dropped: [("stray", 2)].into(),
        connections: 1,
        last_end: None,
    };
    let refused = [("foreign_name", 1)].into();
    let (address, members) = (Some(peer), vec![member]);
    let shown = ringgate_trunk::peers::Shown { address, members, refused, not_connected: 1 };
    let mut sessions = ringgate_gate::StandbyCounts {
        owned: 4,
        standing: 5,
        taken_over: 6,
        fenced: 7,
        second: 12,
        alone: 10,
        ends_untold: 11,
        ..Default::default()
    };
    sessions.refused[ringgate_gate::TakeoverRefusal::NoRoom as usize] = 8;
    let incarnation = Some(9);
    super::cluster::Seen { name: "fra".to_owned(), shown, incarnation, sessions }
}

/// One agent, connected, whose only lane has split two records.
fn agents() -> ringgate_trunk::gateway::Shown {
    let lane = ringgate_trunk::gateway::LaneShown {
        is_up: true,
        round_trip_ns: Some(150_000),
        path_bytes: 1472,
        payloads: [40, 30],
        gaps: [3, 2],
        late: [1, 0],
        split: 2,
        ..Default::default()
    };
    let trunk = ringgate_trunk::gateway::TrunkShown {
        number: 5,
        peer: SocketAddr::from(([192, 0, 2, 7], 50_000)),
        since_ns: NOW_NS / 2,
        lanes: vec![lane],
        lent: vec![true],
        backends: [("arena-1".to_owned(), 1)].into(),
    };
    let agent = ringgate_trunk::gateway::AgentShown {
        name: "host-7".to_owned(),
        allowed: vec!["arena-1".to_owned()],
        trunk: Some(trunk),
        trunks: 2,
        ended: [("silence", 1)].into(),
        ..Default::default()
    };
    let door = ringgate_trunk::gateway::DoorShown {
        address: Some(SocketAddr::from(([192, 0, 2, 1], 7400))),
        refused: [("certificate_unknown", 3)].into(),
        dropped: [("foreign", 4)].into(),
    };
    ringgate_trunk::gateway::Shown { doors: vec![door], agents: vec![agent] }
}

fn fleet() -> FleetShown {
    FleetShown { confirmed: vec![("eu-west".to_owned(), vec![1, 2])], ..FleetShown::default() }
}

fn used() -> Used {
    Used {
        cpu_seconds: Some(1.5),
        resident_bytes: Some(1 << 20),
        virtual_bytes: Some(1 << 30),
        open_files: Some(20),
        open_files_max: Some(1024),
    }
}

/// Nine datagrams were dropped, of which four had found a socket full.
fn split() -> Split {
    let mut split = Split::starting_at(10);
    split.update(9, 14);
    split
}

/// The moment of [`snapshot`].
pub(super) const NOW_NS: u64 = 60_000_000_000;

pub(super) fn listener() -> Listener {
    Listener {
        name: "eu-west".to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: 1,
            keys: vec![Key::from_bytes([7; 32]).into()],
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: TokenReuse::Deny,
            delivers: false,
            unique_in: None,
            moves: Vec::new(),
            replace_after_ns: 2_000_000_000,
        }),
        public: Vec::new(),
        backends: vec![BackendId(1)],
        route: Route::Single,
        sessions_max: 100,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    }
}

pub(super) fn backend(retired: bool) -> Backend {
    Backend {
        name: "arena-1".to_owned(),
        link: LinkKind::Bundle { allow: Allowed::default() },
        slots: 64,
        grace_ns: 0,
        retired,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    }
}

fn report(is_first: bool) -> Report {
    let mut report = Report {
        backends_up: vec![false, is_first],
        backend_arrivals: vec![1, 3],
        turns: 1000,
        at_ns: NOW_NS - 20_000_000,
        ..Report::default()
    };
    if is_first {
        report.counters.datagrams_in = 3;
        report.counters.sessions = 7;
        report.listeners =
            vec![ListenerTraffic { datagrams_in: 3, drops: 3, ..Default::default() }];
        let traffic = BackendTraffic { payloads_up: 4, bytes_up: 400, ..Default::default() };
        report.backends = vec![BackendTraffic::default(), traffic];
        report.counters.drops.add(DropReason::UnknownSource, 3);
    }
    report
}
