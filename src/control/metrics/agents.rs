//! The families of a gateway that agents connect to; one without has none of them.

use super::super::agents::is_up;
use super::seconds;
use ringgate_report::metrics::{Kind, Text};
use ringgate_trunk::gateway::{AgentShown, LaneShown, Refusal, Shown};

/// All of them.
pub(super) fn render(text: &mut Text, shown: &Shown) {
    if shown.doors.is_empty() && shown.agents.is_empty() {
        return;
    }
    doors(text, shown);
    agents(text, &shown.agents);
    let lanes: Vec<_> = shown.agents.iter().map(|agent| (&*agent.name, agent.lanes())).collect();
    for (name, help, of) in BOTH_WAYS {
        let mut family = text.family(name, Kind::Counter, help);
        each_lane(&lanes, |agent, worker, lane| {
            for (direction, value) in ["to_agent", "from_agent"].into_iter().zip(of(lane)) {
                let labels = [("agent", agent), ("worker", worker), ("direction", direction)];
                family.sample(&labels, value);
            }
        });
    }
    for (name, kind, help, of) in EACH_LANE {
        let mut family = text.family(name, *kind, help);
        each_lane(&lanes, |agent, worker, lane| {
            family.sample(&[("agent", agent), ("worker", worker)], of(lane));
        });
    }
    let mut round_trip = text.family(
        "ringgate_trunk_round_trip_seconds",
        Kind::Gauge,
        "There and back on a lane, as the last beat has measured it.",
    );
    each_lane(&lanes, |agent, worker, lane| {
        if let Some(ns) = lane.round_trip_ns {
            round_trip.sample(&[("agent", agent), ("worker", worker)], seconds(ns));
        }
    });
    let mut drops = text.family(
        "ringgate_trunk_drops_total",
        Kind::Counter,
        "Datagrams and records of a lane that went no further, by reason (PROTOCOLS.md, the trunk).",
    );
    each_lane(&lanes, |agent, worker, lane| {
        let refused = Refusal::ALL.into_iter().map(Refusal::name).zip(lane.refused);
        for (reason, count) in refused.chain([("full", lane.full)]) {
            drops.sample(&[("agent", agent), ("worker", worker), ("reason", reason)], count);
        }
    });
}

fn doors(text: &mut Text, shown: &Shown) {
    let mut refused = text.family(
        "ringgate_agent_refused_total",
        Kind::Counter,
        "Connections to an address for agents that became no trunk, by reason.",
    );
    let address = |door: &ringgate_trunk::gateway::DoorShown| {
        door.address.map(|address| address.to_string()).unwrap_or_default()
    };
    for door in &shown.doors {
        for (reason, count) in &door.refused {
            refused.sample(&[("address", &address(door)), ("reason", reason)], count);
        }
    }
    let mut dropped = text.family(
        "ringgate_agent_datagrams_dropped_total",
        Kind::Counter,
        "Datagrams to an address for agents that are of no trunk, by reason.",
    );
    for door in &shown.doors {
        for (reason, count) in &door.dropped {
            dropped.sample(&[("address", &address(door)), ("reason", reason)], count);
        }
    }
}

fn agents(text: &mut Text, agents: &[AgentShown]) {
    text.family(
        "ringgate_agent_up",
        Kind::Gauge,
        "1 while an agent is connected and each lane has been heard.",
    )
    .by("agent", agents.iter().map(|agent| (&agent.name, u8::from(is_up(agent)))));
    text.family("ringgate_agent_trunks_total", Kind::Counter, "Times that an agent has connected.")
        .by("agent", agents.iter().map(|agent| (&agent.name, agent.trunks)));
    let mut ended = text.family(
        "ringgate_agent_ended_total",
        Kind::Counter,
        "Trunks of an agent that have ended, by reason.",
    );
    for agent in agents {
        for (reason, count) in &agent.ended {
            ended.sample(&[("agent", &agent.name), ("reason", reason)], count);
        }
    }
    let mut links = text.family(
        "ringgate_agent_drops_total",
        Kind::Counter,
        "Links of an agent that were not made, and payloads and records that its links did not take, by reason.",
    );
    for agent in agents {
        for (reason, count) in agent.links.named() {
            links.sample(&[("agent", &agent.name), ("reason", reason)], count);
        }
    }
}

type Lanes<'a> = [(&'a str, Vec<LaneShown>)];

fn each_lane(lanes: &Lanes<'_>, mut show: impl FnMut(&str, &str, &LaneShown)) {
    for (agent, lanes) in lanes {
        for (worker, lane) in lanes.iter().enumerate() {
            show(agent, &worker.to_string(), lane);
        }
    }
}

/// A counter of each direction.
type BothWays = (&'static str, &'static str, fn(&LaneShown) -> [u64; 2]);

const BOTH_WAYS: &[BothWays] = &[
    ("ringgate_trunk_datagrams_total", "Datagrams of a lane that were sent, or came.", |lane| {
        lane.datagrams
    }),
    ("ringgate_trunk_payloads_total", "Payloads of a lane that were sent, or came.", |lane| {
        lane.payloads
    }),
    (
        "ringgate_trunk_gaps_total",
        "Datagrams of a lane that had not come when a later one did.",
        |lane| lane.gaps,
    ),
    (
        "ringgate_trunk_late_total",
        "Of ringgate_trunk_gaps_total, those that came after all. The difference is lost.",
        |lane| lane.late,
    ),
    ("ringgate_trunk_rekeys_total", "Changes of a lane's key.", |lane| lane.rekeys),
];

/// A number of a lane.
type EachLane = (&'static str, Kind, &'static str, fn(&LaneShown) -> u64);

const EACH_LANE: &[EachLane] = &[
    (
        "ringgate_trunk_split_total",
        Kind::Counter,
        "Records that did not fit one datagram of the path, and were sent in pieces.",
        |lane| lane.split,
    ),
    (
        "ringgate_trunk_path_bytes",
        Kind::Gauge,
        "How long a datagram may be on a lane's path.",
        |lane| lane.path_bytes as u64,
    ),
    (
        "ringgate_trunk_path_narrowed_total",
        Kind::Counter,
        "Times that a lane's path became narrower.",
        |lane| lane.narrowed,
    ),
    (
        "ringgate_trunk_moved_total",
        Kind::Counter,
        "Times that a lane's datagrams came from another address.",
        |lane| lane.moved,
    ),
];
