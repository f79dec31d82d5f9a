//! What each listener and each backend has carried: a series for each of them, summed over all
//! workers, so that their number does not grow with the workers'.

use super::super::view::Snapshot;
use crate::control::latency::parties;
use ringgate_core::drops::DropCounts;
use ringgate_gate::{
    BackendMoves, BackendTraffic, DeliveryTraffic, Ledger, ListenerTraffic, Party, Phase,
};
use ringgate_report::families;
use ringgate_report::metrics::Text;

pub(super) fn render(text: &mut Text, snapshot: &Snapshot<'_>) {
    let listeners = &snapshot.live.setup.listeners;
    let serving = || listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving);
    for row in OF_LISTENERS {
        let of = |id| (row.of)(&snapshot.listener_traffic(id));
        text.row(row).by("listener", serving().map(|(id, it)| (&it.name, of(id))));
    }
    drops(text, snapshot);
    for row in OF_DELIVERY {
        let of = |id| (row.of)(&snapshot.delivery_traffic(id));
        let delivers = serving().filter(|(_, it)| it.netcode().is_some_and(|it| it.delivers));
        text.row(row).by("listener", delivers.map(|(id, it)| (&it.name, of(id))));
    }
    let backends = &snapshot.live.setup.backends;
    let active = || backends.pairs().filter(|(_, it)| !it.retired);
    for row in OF_BACKENDS {
        let of = |id| (row.of)(&snapshot.backend_traffic(id));
        text.row(row).by("backend", active().map(|(id, it)| (&it.name, of(id))));
    }
    for row in OF_MOVES {
        let of = |id| (row.of)(&snapshot.backend_moves(id));
        text.row(row).by("backend", active().map(|(id, it)| (&it.name, of(id))));
    }
}

/// By listener and reason, what has come in at its sockets and went no further.
fn drops(text: &mut Text, snapshot: &Snapshot<'_>) {
    let mut family = text.counter(
        "ringgate_listener_drops_total",
        "Datagrams from a listener's sockets that went no further, by reason.",
    );
    let setup = &snapshot.live.setup;
    for (party, name) in parties(setup) {
        let mut sum = DropCounts::new();
        // Of several together also those that have gone: what is counted never falls.
        for number in setup.listeners.ids().filter(|number| Party::of(*number) == party) {
            let reports = snapshot.reports.iter();
            let drops = reports.filter_map(|report| report.listener_drops.get(number.index()));
            drops.for_each(|drops| sum.merge(drops));
        }
        for (reason, count) in sum.iter().filter(|it| Ledger::of(it.0) == Ledger::Datagrams) {
            family.sample(&[("listener", &name), ("reason", reason.name())], count);
        }
    }
}

families! {
    /// Players who were moved from one backend to another.
    OF_MOVES: BackendMoves => u64 {
        Counter "ringgate_backend_moved_in_total",
            "Players who were moved to a backend from another one.", |it| it.moved_in;
        Counter "ringgate_backend_moved_out_total",
            "Players who were moved from a backend to another one.", |it| it.moved_out;
    }

    OF_LISTENERS: ListenerTraffic => u64 {
        Counter "ringgate_listener_datagrams_in_total",
            "Datagrams from a listener's sockets.", |it| it.datagrams_in;
        Counter "ringgate_listener_bytes_in_total",
            "Bytes in datagrams from a listener's sockets.", |it| it.bytes_in;
        Counter "ringgate_listener_packets_out_total",
            "Packets for a listener's players.", |it| it.packets_out;
        Counter "ringgate_listener_bytes_out_total",
            "Bytes in packets for a listener's players.", |it| it.bytes_out;
        Counter "ringgate_listener_sessions_opened_total",
            "Handshakes completed at a listener.", |it| it.sessions_opened;
    }

    /// Of listeners with `delivery = "gateway"`.
    OF_DELIVERY: DeliveryTraffic => u64 {
        Counter "ringgate_listener_messages_in_total",
            "Whole messages from a listener's players.", |it| it.messages_in;
        Counter "ringgate_listener_messages_out_total",
            "Whole messages queued for a listener's players.", |it| it.messages_out;
        Counter "ringgate_listener_delivery_packets_total",
            "Packets of the delivery layer sent to a listener's players.", |it| it.packets_sent;
        Counter "ringgate_listener_delivery_lost_total",
            "Packets with messages that did not reach their player, as far as is known.",
            |it| it.packets_lost;
        Counter "ringgate_listener_delivery_repeated_total",
            "Parts of reliable messages that were sent again.", |it| it.parts_repeated;
        Counter "ringgate_listener_messages_displaced_total",
            "Messages that are not reliable and made room for newer ones before they were sent.",
            |it| it.messages_displaced;
    }

    OF_BACKENDS: BackendTraffic => u64 {
        Counter "ringgate_backend_payloads_up_total",
            "Payloads handed to a backend.", |it| it.payloads_up;
        Counter "ringgate_backend_bytes_up_total",
            "Bytes in payloads handed to a backend.", |it| it.bytes_up;
        Counter "ringgate_backend_payloads_down_total",
            "Payloads of a backend that were sent to players.", |it| it.payloads_down;
        Counter "ringgate_backend_bytes_down_total",
            "Bytes in payloads of a backend that were sent to players.", |it| it.bytes_down;
        Counter "ringgate_backend_sessions_opened_total",
            "Sessions opened at a backend.", |it| it.sessions_opened;
        Counter "ringgate_backend_drops_total",
            "Payloads between a backend and its players that went no further.", |it| it.drops;
    }
}
