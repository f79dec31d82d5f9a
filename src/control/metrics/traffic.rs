//! What each listener and each backend has carried: a series for each of them, summed over all
//! workers, so that their number does not grow with the workers'.

use super::super::view::Snapshot;
use crate::control::latency::parties;
use ringgate_core::drops::DropCounts;
use ringgate_gate::{
    BackendMoves, BackendTraffic, DeliveryTraffic, Ledger, ListenerTraffic, Party, Phase,
};
use ringgate_report::metrics::{Kind, Text};

pub(super) fn render(text: &mut Text, snapshot: &Snapshot<'_>) {
    let listeners = &snapshot.live.setup.listeners;
    for (name, help, of) in OF_LISTENERS {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, listener) in listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving) {
            family.sample(&[("listener", &listener.name)], of(&snapshot.listener_traffic(id)));
        }
    }
    drops(text, snapshot);
    for (name, help, of) in OF_DELIVERY {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, listener) in listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving) {
            if listener.netcode().is_some_and(|rules| rules.delivers) {
                let sample = of(&snapshot.delivery_traffic(id));
                family.sample(&[("listener", &listener.name)], sample);
            }
        }
    }
    let backends = &snapshot.live.setup.backends;
    for (name, help, of) in OF_BACKENDS {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, backend) in backends.pairs().filter(|(_, backend)| !backend.retired) {
            family.sample(&[("backend", &backend.name)], of(&snapshot.backend_traffic(id)));
        }
    }
    for (name, help, of) in OF_MOVES {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, backend) in backends.pairs().filter(|(_, backend)| !backend.retired) {
            family.sample(&[("backend", &backend.name)], of(&snapshot.backend_moves(id)));
        }
    }
}

/// By listener and reason, what has come in at its sockets and went no further.
fn drops(text: &mut Text, snapshot: &Snapshot<'_>) {
    let mut family = text.family(
        "ringgate_listener_drops_total",
        Kind::Counter,
        "Datagrams from a listener's sockets that went no further, by reason.",
    );
    let setup = &snapshot.live.setup;
    for (party, name) in parties(setup) {
        let all = setup.listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving);
        let mut sum = DropCounts::new();
        for (number, _) in all.filter(|(number, _)| Party::of(*number) == party) {
            let reports = snapshot.reports.iter();
            let drops = reports.filter_map(|report| report.listener_drops.get(number.index()));
            drops.for_each(|drops| sum.merge(drops));
        }
        for (reason, count) in sum.iter().filter(|it| Ledger::of(it.0) == Ledger::Datagrams) {
            family.sample(&[("listener", &name), ("reason", reason.name())], count);
        }
    }
}

/// Players who were moved from one backend to another.
const OF_MOVES: &[Family<BackendMoves>] = &[
    (
        "ringgate_backend_moved_in_total",
        "Players who were moved to a backend from another one.",
        |it| it.moved_in,
    ),
    (
        "ringgate_backend_moved_out_total",
        "Players who were moved from a backend to another one.",
        |it| it.moved_out,
    ),
];

/// A family's name, its meaning, and where its numbers are.
type Family<T> = (&'static str, &'static str, fn(&T) -> u64);

const OF_LISTENERS: &[Family<ListenerTraffic>] = &[
    ("ringgate_listener_datagrams_in_total", "Datagrams from a listener's sockets.", |it| {
        it.datagrams_in
    }),
    ("ringgate_listener_bytes_in_total", "Bytes in datagrams from a listener's sockets.", |it| {
        it.bytes_in
    }),
    ("ringgate_listener_packets_out_total", "Packets for a listener's players.", |it| {
        it.packets_out
    }),
    ("ringgate_listener_bytes_out_total", "Bytes in packets for a listener's players.", |it| {
        it.bytes_out
    }),
    ("ringgate_listener_sessions_opened_total", "Handshakes completed at a listener.", |it| {
        it.sessions_opened
    }),
];

/// Of listeners with `delivery = "gateway"`.
const OF_DELIVERY: &[Family<DeliveryTraffic>] = &[
    ("ringgate_listener_messages_in_total", "Whole messages from a listener's players.", |it| {
        it.messages_in
    }),
    (
        "ringgate_listener_messages_out_total",
        "Whole messages queued for a listener's players.",
        |it| it.messages_out,
    ),
    (
        "ringgate_listener_delivery_packets_total",
        "Packets of the delivery layer sent to a listener's players.",
        |it| it.packets_sent,
    ),
    (
        "ringgate_listener_delivery_lost_total",
        "Packets with messages that did not reach their player, as far as is known.",
        |it| it.packets_lost,
    ),
    (
        "ringgate_listener_delivery_repeated_total",
        "Parts of reliable messages that were sent again.",
        |it| it.parts_repeated,
    ),
    (
        "ringgate_listener_messages_displaced_total",
        "Messages that are not reliable and made room for newer ones before they were sent.",
        |it| it.messages_displaced,
    ),
];

const OF_BACKENDS: &[Family<BackendTraffic>] = &[
    ("ringgate_backend_payloads_up_total", "Payloads handed to a backend.", |it| it.payloads_up),
    ("ringgate_backend_bytes_up_total", "Bytes in payloads handed to a backend.", |it| it.bytes_up),
    (
        "ringgate_backend_payloads_down_total",
        "Payloads of a backend that were sent to players.",
        |it| it.payloads_down,
    ),
    (
        "ringgate_backend_bytes_down_total",
        "Bytes in payloads of a backend that were sent to players.",
        |it| it.bytes_down,
    ),
    ("ringgate_backend_sessions_opened_total", "Sessions opened at a backend.", |it| {
        it.sessions_opened
    }),
    (
        "ringgate_backend_drops_total",
        "Payloads between a backend and its players that went no further.",
        |it| it.drops,
    ),
];
