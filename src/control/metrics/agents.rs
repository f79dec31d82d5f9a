//! The families of a gateway that agents connect to; one without has none of them.

use super::super::agents::is_up;
use super::seconds;
use ringgate_report::families;
use ringgate_report::metrics::Text;
use ringgate_trunk::gateway::{AgentShown, LaneShown, Refusal, Shown};

/// All of them.
pub(super) fn render(text: &mut Text, shown: &Shown) {
    if shown.doors.is_empty() && shown.agents.is_empty() {
        return;
    }
    doors(text, shown);
    agents(text, &shown.agents);
    let lanes: Vec<_> = shown.agents.iter().map(|agent| (&*agent.name, agent.lanes())).collect();
    for row in BOTH_WAYS {
        let mut family = text.row(row);
        each_lane(&lanes, |agent, worker, lane| {
            for (direction, value) in ["to_agent", "from_agent"].into_iter().zip((row.of)(lane)) {
                let labels = [("agent", agent), ("worker", worker), ("direction", direction)];
                family.sample(&labels, value);
            }
        });
    }
    for row in EACH_LANE {
        let mut family = text.row(row);
        each_lane(&lanes, |agent, worker, lane| {
            family.sample(&[("agent", agent), ("worker", worker)], (row.of)(lane));
        });
    }
    let mut round_trip = text.gauge(
        "ringgate_trunk_round_trip_seconds",
        "There and back on a lane, as the last beat has measured it.",
    );
    each_lane(&lanes, |agent, worker, lane| {
        if let Some(ns) = lane.round_trip_ns {
            round_trip.sample(&[("agent", agent), ("worker", worker)], seconds(ns));
        }
    });
    let mut drops = text.counter(
        "ringgate_trunk_drops_total",
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
    let address = |door: &ringgate_trunk::gateway::DoorShown| {
        door.address.map(|address| address.to_string()).unwrap_or_default()
    };
    text.counter(
        "ringgate_agent_refused_total",
        "Connections to an address for agents that became no trunk, by reason.",
    )
    .by_two(["address", "reason"], shown.doors.iter().map(|it| (address(it), &it.refused)));
    text.counter(
        "ringgate_agent_datagrams_dropped_total",
        "Datagrams to an address for agents that are of no trunk, by reason.",
    )
    .by_two(["address", "reason"], shown.doors.iter().map(|it| (address(it), &it.dropped)));
}

fn agents(text: &mut Text, agents: &[AgentShown]) {
    text.gauge("ringgate_agent_up", "1 while an agent is connected and each lane has been heard.")
        .by("agent", agents.iter().map(|agent| (&agent.name, u8::from(is_up(agent)))));
    text.counter("ringgate_agent_trunks_total", "Times that an agent has connected.")
        .by("agent", agents.iter().map(|agent| (&agent.name, agent.trunks)));
    text.counter("ringgate_agent_ended_total", "Trunks of an agent that have ended, by reason.")
        .by_two(["agent", "reason"], agents.iter().map(|agent| (&agent.name, &agent.ended)));
    text.counter(
        "ringgate_agent_drops_total",
        "Links of an agent that were not made, and payloads and records that its links did not take, by reason.",
    )
    .by_two(["agent", "reason"], agents.iter().map(|agent| (&agent.name, agent.links.named())));
}

type Lanes<'a> = [(&'a str, Vec<LaneShown>)];

fn each_lane(lanes: &Lanes<'_>, mut show: impl FnMut(&str, &str, &LaneShown)) {
    for (agent, lanes) in lanes {
        for (worker, lane) in lanes.iter().enumerate() {
            show(agent, &worker.to_string(), lane);
        }
    }
}

families! {
    /// Counters of each direction.
    BOTH_WAYS: LaneShown => [u64; 2] {
        Counter "ringgate_trunk_datagrams_total",
            "Datagrams of a lane that were sent, or came.", |it| it.datagrams;
        Counter "ringgate_trunk_payloads_total",
            "Payloads of a lane that were sent, or came.", |it| it.payloads;
        Counter "ringgate_trunk_gaps_total",
            "Datagrams of a lane that had not come when a later one did.", |it| it.gaps;
        Counter "ringgate_trunk_late_total",
            "Of ringgate_trunk_gaps_total, those that came after all. The difference is lost.",
            |it| it.late;
        Counter "ringgate_trunk_rekeys_total", "Changes of a lane's key.", |it| it.rekeys;
    }

    /// Numbers of a lane.
    EACH_LANE: LaneShown => u64 {
        Counter "ringgate_trunk_split_total",
            "Records that did not fit one datagram of the path, and were sent in pieces.",
            |it| it.split;
        Gauge "ringgate_trunk_path_bytes",
            "How long a datagram may be on a lane's path.", |it| it.path_bytes as u64;
        Counter "ringgate_trunk_path_narrowed_total",
            "Times that a lane's path became narrower.", |it| it.narrowed;
        Counter "ringgate_trunk_moved_total",
            "Times that a lane's datagrams came from another address.", |it| it.moved;
    }
}
