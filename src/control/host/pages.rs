//! `GET /status` and `GET /metrics` of an agent.

use serde_json::{Value, json};

use crate::config::values::word_of;
use crate::control::metrics::{fleet, reloads as config};
use crate::hosting::{Shown, Status};
use ringgate_link::announce::Standing;
use ringgate_process::reloads::Reloads;
use ringgate_report::metrics::{Label, Text};
use ringgate_report::{families, numbers};
use ringgate_trunk::agent::counts::Drop;
use ringgate_trunk::agent::service::Agent;
use ringgate_trunk::agent::view::{DeskView, LaneView, Refusal, Seen, State, View};

/// The whole agent as JSON.
pub(super) fn status(
    agent: &Agent,
    fleet: Option<&Status>,
    uptime_s: u64,
    (drain_left_ms, reloads): (Option<u64>, Reloads),
) -> String {
    let view = agent.view();
    let mut page = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "agent": agent.options().name,
        "incarnation": format!("{:016x}", agent.options().incarnation),
        "state": if drain_left_ms.is_some() { "draining" } else { "serving" },
        "drain_left_ms": drain_left_ms,
        "uptime_s": uptime_s,
        "workers": view.workers,
        "players": view.players(),
        "clustered": {
            "sessions": view.clustered[0],
            "awaited": view.clustered[1],
            "taken_over": view.clustered[2],
        },
        "gateways": view.gateways.iter().map(gateway).collect::<Vec<_>>(),
        "backends": backends_of(&view),
        "config": {
            "read_unix_s": reloads.config_unix_s,
            "reloads": reloads.done,
            "reloads_refused": reloads.refused,
        },
        "drops": drops(&view),
    });
    if let (Some(fleet), Value::Object(fields)) = (fleet, &mut page) {
        fields.insert("fleet".to_owned(), of_fleet(fleet));
    }
    format!("{page}\n")
}

/// Those of the file, and those that are not in it any more and have players.
fn backends_of(view: &View) -> Vec<Value> {
    let row = |(name, seen): &(String, Seen), retired: bool| {
        json!({
            "name": name,
            "is_there": seen.is_there,
            "links": seen.links,
            "players": seen.players,
            "retired": retired,
        })
    };
    let backends = view.backends.iter().map(|it| row(it, false));
    backends.chain(view.retired.iter().map(|it| row(it, true))).collect()
}

fn of_fleet(status: &Status) -> Value {
    let member = &status.member;
    let doubt = member.mirror.doubt.as_ref();
    let backend = |it: &Shown| {
        json!({
            "name": it.name,
            "state": word_of(it.state),
            "why": it.why,
            "registered": it.standing == Standing::Registered,
            "standing": it.standing.text(),
        })
    };
    json!({
        "region": status.region,
        "host": status.host,
        "current": member.is_current(),
        "away_s": member.away_s().unwrap_or_default(),
        "registered": member.is_registered,
        "last_error": member.last_error(),
        "doubt": doubt.map(|(number, why)| json!({ "number": number, "why": why.to_string() })),
        "gateways_known": status.known[0],
        "gateways": status.gateways,
        "unreadable": status.known[1],
        "backends": status.backends.iter().map(backend).collect::<Vec<_>>(),
        "announced": status.announced,
    })
}

fn gateway(desk: &DeskView) -> Value {
    json!({
        "gateway": desk.gateway,
        "address": desk.address,
        "state": desk.state,
        "leaving": desk.is_leaving,
        "connected": desk.begun,
        "last_end": desk.last_end.as_ref().map(|(name, why)| json!({ "reason": name, "detail": why })),
        "lanes": desk.lanes.iter().map(lane).collect::<Vec<_>>(),
    })
}

fn lane(lane: &LaneView) -> Value {
    let [datagrams, bytes, payloads, split] = lane.sent;
    let ([received_there, lost_there], [received_here, lost_here]) =
        (lane.received_there, lane.received_here);
    json!({
        "lane": lane.lane,
        "worker": lane.worker,
        "is_up": lane.is_up,
        "path_bytes": lane.path_bytes,
        "path_narrowed": lane.path_narrowed,
        "round_trip_us": lane.round_trip_us,
        "to_gateway": {
            "datagrams": datagrams, "bytes": bytes, "payloads": payloads, "split": split, "full": lane.full,
            "received": received_there, "lost": lost_there, "key": lane.epochs[0],
        },
        "from_gateway": {
            "payloads": lane.payloads_received, "received": received_here, "lost": lost_here, "key": lane.epochs[1],
        },
    })
}

fn drops(view: &View) -> Value {
    Drop::ALL
        .iter()
        .map(|why| (why.name().to_owned(), view.counts.dropped[*why as usize].into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The agent in Prometheus's text format.
pub(super) fn metrics(
    agent: &Agent,
    fleet: Option<&Status>,
    uptime_s: u64,
    (drain_left_ms, reloads): (Option<u64>, Reloads),
) -> String {
    let view = agent.view();
    let mut text = Text::default();
    let name = agent.options().name.as_str();
    text.gauge("ringgate_agent_info", "The agent and its version.")
        .sample(&[("agent", name), ("version", env!("CARGO_PKG_VERSION"))], 1);
    let counts = &view.counts;
    numbers! { text, "ringgate_agent_";
        Gauge "uptime_seconds", "Since it was started.", uptime_s;
        Gauge "draining", "1 while it waits for its end.", u8::from(drain_left_ms.is_some());
        Gauge "workers", "Local workers, its own included.", view.workers;
        Gauge "clustered_sessions",
            "Sessions that gateways of a cluster have.", view.clustered[0];
        Gauge "clustered_awaited",
            "Those of them that no gateway has at the moment.", view.clustered[1];
        Counter "taken_over_total",
            "Times that one gateway of a cluster went on with another's session.",
            view.clustered[2];
        Counter "links_total", "Local links that were let in.", counts.passed.links;
        Counter "bundles_total", "Bundles of game processes.", counts.passed.bundles_in;
        Counter "payloads_to_games_total",
            "Payloads that local links were handed.", counts.passed.payloads_to_games;
        Counter "datagrams_to_servers_total",
            "Datagrams to servers that speak plain UDP.", counts.passed.datagrams_to_servers;
        Counter "datagrams_from_servers_total",
            "Datagrams of such servers for players.", counts.passed.datagrams_from_servers;
    }
    let said = &counts.delivered.traffic;
    numbers! { text, "ringgate_agent_";
        Counter "messages_in_total", "Whole messages from players.", said.messages_in;
        Counter "messages_out_total", "Whole messages queued for players.", said.messages_out;
        Counter "delivery_packets_total",
            "Packets of messages and acknowledgements for players.", said.packets_sent;
        Counter "delivery_lost_total",
            "Packets with messages that did not reach their player.", said.packets_lost;
        Counter "delivery_repeated_total",
            "Parts of reliable messages that left again.", said.parts_repeated;
        Counter "messages_displaced_total",
            "Messages that made room for newer ones before they left.", said.messages_displaced;
    }
    text.counter(
        "ringgate_agent_delivery_ended_total",
        "Sessions that this agent has ended for what was said in messages, by reason.",
    )
    .by("reason", counts.delivered.ended());
    config(&mut text, reloads);
    text.counter("ringgate_agent_dropped_total", "What went no further at this agent, by reason.")
        .by("reason", Drop::ALL.map(|why| (why.name(), counts.dropped[why as usize])));
    backends(&mut text, &view);
    gateways(&mut text, &view);
    lanes(&mut text, &view);
    if let Some(fleet) = fleet {
        metrics_of_fleet(&mut text, fleet);
    }
    text.into_string()
}

fn metrics_of_fleet(text: &mut Text, status: &Status) {
    fleet::member(text, &status.member);
    numbers! { text, fleet::FLEET;
        Gauge "gateways", "Gateways that are known.", status.known[0];
        Gauge "unreadable", "Keys that cannot be read.", status.known[1];
        Gauge "announced", "Processes that came themselves.", status.announced;
    }
    fleet::refused_and_copied(text, &status.announcements_refused, status.member.copies);
    let mut states = text.gauge(
        "ringgate_agent_backend_state",
        "1 for the state that the fleet is told of a game process.",
    );
    for backend in &status.backends {
        states.sample(&[("backend", &backend.name), ("state", word_of(backend.state))], 1);
    }
}

fn backends(text: &mut Text, view: &View) {
    let all = view.backends.iter().chain(&view.retired);
    text.gauge("ringgate_agent_backend_up", "1 while the game process is there.")
        .by("backend", view.backends.iter().map(|(name, seen)| (name, u8::from(seen.is_there))));
    text.gauge("ringgate_agent_players", "Players of a game process.")
        .by("backend", all.map(|(name, seen)| (name, seen.players)));
}

fn gateways(text: &mut Text, view: &View) {
    let is_up = |desk: &DeskView| u8::from(desk.state == State::Up);
    text.gauge("ringgate_agent_trunk_up", "1 while the gateway is connected.")
        .by("gateway", view.gateways.iter().map(|desk| (&desk.gateway, is_up(desk))));
    text.counter("ringgate_agent_trunk_begun_total", "Times the gateway has let it in.")
        .by("gateway", view.gateways.iter().map(|desk| (&desk.gateway, desk.begun)));
}

fn lanes(text: &mut Text, view: &View) {
    for row in OF_LANES {
        let mut family = text.row(row);
        each_lane(view, |labels, lane| family.sample(&labels, (row.of)(lane)));
    }
    round_trips(text, view);
    refusals(text, view);
}

fn round_trips(text: &mut Text, view: &View) {
    let mut family = text.gauge("ringgate_agent_lane_round_trip_seconds", "There and back.");
    each_lane(view, |labels, lane| {
        let us = lane.round_trip_us;
        family.sample(&labels, format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000));
    });
}

fn refusals(text: &mut Text, view: &View) {
    let mut family = text.counter(
        "ringgate_agent_lane_refused_total",
        "Datagrams and records of the gateway that were refused, by reason.",
    );
    each_lane(view, |[gateway, number], lane| {
        for why in Refusal::ALL {
            family.sample(&[gateway, number, ("reason", why.name())], lane.refusals.of(why));
        }
    });
}

/// Each lane, with the labels that tell it from others.
fn each_lane(view: &View, mut show: impl FnMut([Label<'_>; 2], &LaneView)) {
    for desk in &view.gateways {
        for lane in &desk.lanes {
            show([("gateway", &desk.gateway), ("lane", &lane.lane.to_string())], lane);
        }
    }
}

families! {
    /// Numbers of a lane.
    OF_LANES: LaneView => u64 {
        Gauge "ringgate_agent_lane_up", "1 while datagrams come.", |it| it.is_up.into();
        Gauge "ringgate_agent_lane_path_bytes",
            "The longest datagram that passes.", |it| it.path_bytes as u64;
        Counter "ringgate_agent_lane_datagrams_sent_total",
            "Datagrams to the gateway.", |it| it.sent[0];
        Counter "ringgate_agent_lane_datagrams_received_total",
            "Datagrams of the gateway.", |it| it.received_here[0];
        Gauge "ringgate_agent_lane_lost_there",
            "Datagrams that did not reach the gateway, as far as it has said.",
            |it| it.received_there[1];
        Gauge "ringgate_agent_lane_lost_here",
            "Datagrams of the gateway that did not come.", |it| it.received_here[1];
        Counter "ringgate_agent_lane_payloads_sent_total",
            "Payloads to the gateway.", |it| it.sent[2];
        Counter "ringgate_agent_lane_payloads_received_total",
            "Payloads of the gateway.", |it| it.payloads_received;
        Counter "ringgate_agent_lane_split_total",
            "Records that took several datagrams.", |it| it.sent[3];
        Counter "ringgate_agent_lane_full_total",
            "Payloads for which there was no room.", |it| it.full;
        Counter "ringgate_agent_lane_keys_total",
            "Times the own key has changed.", |it| it.epochs[0];
    }
}
