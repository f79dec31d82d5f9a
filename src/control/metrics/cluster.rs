//! The families of a gateway in a cluster; one without has none of them.

use crate::control::cluster::Seen;
use ringgate_gate::TakeoverRefusal;
use ringgate_report::metrics::Text;
use ringgate_trunk::peers::State;

/// All of them.
pub(super) fn render(text: &mut Text, Seen { shown, sessions, .. }: &Seen) {
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
    let mut able = text.gauge(
        "ringgate_cluster_member_can_stand_by",
        "Whether another member can go on with sessions of this gateway.",
    );
    for member in &shown.members {
        able.sample(&[("member", &*member.name)], u64::from(member.can_stand_by));
    }
    let mut stands = text.gauge(
        "ringgate_cluster_member_stands_by",
        "Sessions of this gateway for which another member stands by.",
    );
    for member in &shown.members {
        stands.sample(&[("member", &*member.name)], member.stands_by as u64);
    }
    let mut silences = text.counter(
        "ringgate_cluster_member_silent_total",
        "Times that another member was connected and did not answer.",
    );
    for member in &shown.members {
        silences.sample(&[("member", &*member.name)], member.silences);
    }
    let mut kept = text.gauge(
        "ringgate_cluster_sessions",
        "Sessions of this gateway that another member could go on with (owned), and sessions of \
         others that this one could go on with (standing_by).",
    );
    kept.sample(&[("state", "owned")], sessions.owned);
    kept.sample(&[("state", "standing_by")], sessions.standing);
    let mut taken = text.counter(
        "ringgate_cluster_taken_over_total",
        "Sessions of other members that this gateway has gone on with.",
    );
    taken.sample(&[], sessions.taken_over);
    let mut moved = text.counter(
        "ringgate_cluster_moved_total",
        "Of those, the ones whose gateways lived and had given them away.",
    );
    moved.sample(&[], sessions.moved);
    let mut fenced = text.counter(
        "ringgate_cluster_fenced_total",
        "Sessions of this gateway that another member has gone on with.",
    );
    fenced.sample(&[], sessions.fenced);
    let mut alone = text.counter(
        "ringgate_cluster_alone_total",
        "Sessions of this gateway for which the agent had no room: they end with this gateway.",
    );
    alone.sample(&[], sessions.alone);
    let mut untold = text.counter(
        "ringgate_cluster_ends_untold_total",
        "Sessions that have ended here, and whose agent is not told because too many waited for it.",
    );
    untold.sample(&[], sessions.ends_untold);
    let mut refused = text.counter(
        "ringgate_cluster_not_taken_over_total",
        "Sessions of other members that this gateway has not gone on with, by reason.",
    );
    for why in TakeoverRefusal::ALL {
        refused.sample(&[("reason", why.name())], sessions.refused[why as usize]);
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
