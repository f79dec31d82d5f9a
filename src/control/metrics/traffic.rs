//! What each listener and each backend has carried: a series for each of them, summed over all
//! workers, so that their number does not grow with the workers'.

use super::super::view::Snapshot;
use super::text::{Kind, Text};
use ringgate_gate::{BackendTraffic, ListenerTraffic, Phase};

pub(super) fn render(text: &mut Text, snapshot: &Snapshot<'_>) {
    let listeners = &snapshot.live.setup.listeners;
    for (name, help, of) in OF_LISTENERS {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, listener) in listeners.pairs().filter(|(_, it)| it.phase == Phase::Serving) {
            family.sample(&[("listener", &listener.name)], of(&snapshot.listener_traffic(id)));
        }
    }
    let backends = &snapshot.live.setup.backends;
    for (name, help, of) in OF_BACKENDS {
        let mut family = text.family(name, Kind::Counter, help);
        for (id, backend) in backends.pairs().filter(|(_, backend)| !backend.retired) {
            family.sample(&[("backend", &backend.name)], of(&snapshot.backend_traffic(id)));
        }
    }
}

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
    (
        "ringgate_listener_drops_total",
        "Datagrams from a listener's sockets that went no further (by reason: ringgate_drops_total).",
        |it| it.drops,
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
