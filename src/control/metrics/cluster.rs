//! The families of a gateway in a cluster; one without has none of them.

use ringgate_report::metrics::Text;
use ringgate_trunk::peers::{Shown, State};

/// All of them.
pub(super) fn render(text: &mut Text, shown: &Shown) {
    let mut up = text
        .gauge("ringgate_cluster_member_up", "Whether another member of the cluster is connected.");
    for member in &shown.members {
        up.sample(&[("member", &*member.name)], u64::from(member.state == State::Up));
    }
    let mut connections = text.counter(
        "ringgate_cluster_connections_total",
        "Times that a member has connected, or was connected to.",
    );
    for member in &shown.members {
        connections.sample(&[("member", &*member.name)], member.connections);
    }
    let mut forwards = text.gauge(
        "ringgate_cluster_member_forwards",
        "Whether another member says which players it has, and is forwarded their datagrams.",
    );
    for member in &shown.members {
        forwards.sample(&[("member", &*member.name)], u64::from(member.speaks.is_some()));
    }
    let mut players = text.gauge(
        "ringgate_cluster_players",
        "Players that another member has, as far as it has told.",
    );
    for member in &shown.members {
        players.sample(&[("member", &*member.name)], member.players as u64);
    }
    let mut forwarded = text.counter(
        "ringgate_cluster_forwarded_total",
        "Datagrams that another member has forwarded (in), or was sent (out).",
    );
    for member in &shown.members {
        for (direction, count) in ["in", "out"].into_iter().zip(member.forwarded) {
            forwarded.sample(&[("member", &*member.name), ("direction", direction)], count);
        }
    }
    let mut dropped = text.counter(
        "ringgate_cluster_dropped_total",
        "What members have forwarded or said, or were to be sent, and what went no further.",
    );
    for member in &shown.members {
        for (reason, count) in &member.dropped {
            dropped.sample(&[("member", &*member.name), ("reason", *reason)], *count);
        }
    }
    let mut gone = text.counter(
        "ringgate_cluster_not_connected_total",
        "Datagrams for members that were gone when they were to be sent.",
    );
    gone.sample(&[], shown.not_connected);
    let mut refused = text.counter(
        "ringgate_cluster_refused_total",
        "Connections to the cluster's address that became no member's, by reason.",
    );
    for (reason, count) in &shown.refused {
        refused.sample(&[("reason", *reason)], *count);
    }
}
