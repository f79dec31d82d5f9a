//! What a capture says about each packet, in words.

use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_gate::{Captured, Elsewhere, Front};
use ringgate_report::text::Append as _;

/// What has become of a datagram, and what is known of it.
pub(super) fn comment(text: &mut String, captured: &Captured, front: Option<Front>) {
    text.clear();
    match captured.seen.dropped {
        Some(why) => write!(text, "dropped: {}", why.name()),
        None if captured.seen.is_outbound => text.push_str("sent"),
        None => text.push_str("handled"),
    }
    if captured.is_clear {
        text.push_str("; payload in clear");
    } else if let Some(kind) = kind(captured, front) {
        write!(text, "; {kind}");
    }
    if let Some(client_id) = captured.seen.client_id {
        write!(text, "; client {client_id}");
    }
    write!(text, "; worker {}", captured.worker.0);
    match captured.seen.received_by {
        Some(Elsewhere::Worker(worker)) => {
            write!(text, ", received by worker {}", worker.0);
        }
        Some(Elsewhere::Member(_)) => text.push_str(", received by another member of the cluster"),
        None => {}
    }
    if captured.seen.is_cut {
        text.push_str("; longer than what is received, the rest is missing");
    }
}

/// What a packet says that it is, where its protocol has packets of several kinds that can be told
/// by one byte.
fn kind(captured: &Captured, front: Option<Front>) -> Option<&'static str> {
    let front = front.filter(|front| *front == Front::Netcode)?;
    let kind = PacketKind::of_prefix(*captured.bytes.first()?)?;
    front.kind_names().get(kind as usize).copied()
}
