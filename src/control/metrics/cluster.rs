//! The families of a gateway in a cluster; one without has none of them.

use crate::control::cluster::Seen;
use ringgate_gate::{StandbyCounts, TakeoverRefusal};
use ringgate_report::families;
use ringgate_report::metrics::Text;
use ringgate_trunk::peers::{MemberShown, State};

/// All of them.
pub(super) fn render(text: &mut Text, Seen { shown, sessions, .. }: &Seen) {
    let members = || shown.members.iter().map(|it| (it.name.as_str(), it));
    for row in OF_MEMBERS {
        text.row(row).by("member", members().map(|(name, it)| (name, (row.of)(it))));
    }
    let forwarded = members().map(|(name, it)| (name, ["in", "out"].into_iter().zip(it.forwarded)));
    text.counter(
        "ringgate_cluster_forwarded_total",
        "Datagrams that another member has forwarded (in), or was sent (out).",
    )
    .by_two(["member", "direction"], forwarded);
    text.counter(
        "ringgate_cluster_dropped_total",
        "What members have forwarded or said, or were to be sent, and what went no further.",
    )
    .by_two(["member", "reason"], members().map(|(name, it)| (name, &it.dropped)));
    text.gauge(
        "ringgate_cluster_sessions",
        "Sessions of this gateway that another member could go on with (owned), and sessions of \
         others that this one could go on with (standing_by).",
    )
    .by("state", [("owned", sessions.owned), ("standing_by", sessions.standing)]);
    for row in OF_SESSIONS {
        text.row(row).sample(&[], (row.of)(sessions));
    }
    let refused = TakeoverRefusal::ALL.map(|why| (why.name(), sessions.refused[why as usize]));
    text.counter(
        "ringgate_cluster_not_taken_over_total",
        "Sessions of other members that this gateway has not gone on with, by reason.",
    )
    .by("reason", refused);
    text.counter(
        "ringgate_cluster_not_connected_total",
        "Datagrams for members that were gone when they were to be sent.",
    )
    .sample(&[], shown.not_connected);
    text.counter(
        "ringgate_cluster_refused_total",
        "Connections to the cluster's address that became no member's, by reason.",
    )
    .by("reason", &shown.refused);
}

families! {
    /// Numbers of another member.
    OF_MEMBERS: MemberShown => u64 {
        Gauge "ringgate_cluster_member_up",
            "Whether another member is connected and its lane has been heard.", |it| (it.state == State::Up).into();
        Counter "ringgate_cluster_connections_total",
            "Times that a member has connected, or was connected to.", |it| it.connections;
        Gauge "ringgate_cluster_member_forwards",
            "Whether another member says which players it has, and is forwarded their datagrams.",
            |it| it.speaks.is_some().into();
        Gauge "ringgate_cluster_players",
            "Players that another member has, as far as it has told.", |it| it.players as u64;
        Gauge "ringgate_cluster_member_can_stand_by",
            "Whether another member can go on with sessions of this gateway.",
            |it| it.can_stand_by.into();
        Gauge "ringgate_cluster_member_stands_by",
            "Sessions of this gateway for which another member stands by.",
            |it| it.stands_by as u64;
        Counter "ringgate_cluster_member_silent_total",
            "Times that another member was connected and did not answer.", |it| it.silences;
    }

    /// What has become of sessions.
    OF_SESSIONS: StandbyCounts => u64 {
        Counter "ringgate_cluster_taken_over_total",
            "Sessions of other members that this gateway has gone on with.", |it| it.taken_over;
        Counter "ringgate_cluster_moved_total",
            "Of those, the ones whose gateways lived and had given them away.", |it| it.moved;
        Counter "ringgate_cluster_fenced_total",
            "Sessions of this gateway that another member has gone on with.", |it| it.fenced;
        Counter "ringgate_cluster_second_total",
            "Plain sessions that began here though another member had one of their players.",
            |it| it.second;
        Counter "ringgate_cluster_alone_total",
            "Sessions of this gateway for which the agent had no room: they end with this gateway.",
            |it| it.alone;
        Counter "ringgate_cluster_ends_untold_total",
            "Sessions that have ended here, and whose agent is not told because too many waited for it.",
            |it| it.ends_untold;
    }
}
