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
    let mut refused = text.counter(
        "ringgate_cluster_refused_total",
        "Connections to the cluster's address that became no member's, by reason.",
    );
    for (reason, count) in &shown.refused {
        refused.sample(&[("reason", *reason)], *count);
    }
}
