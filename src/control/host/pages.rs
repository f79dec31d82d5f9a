//! `GET /status` and `GET /metrics` of an agent.

use serde_json::{Value, json};

use crate::config::values::word_of;
use crate::control::metrics::{fleet, reloads as config};
use crate::hosting::{Shown, Status};
use ringgate_link::announce::Standing;
use ringgate_process::reloads::Reloads;
use ringgate_report::metrics::{Kind, Text, counter, gauge};
use ringgate_trunk::agent::counts::Drop;
use ringgate_trunk::agent::service::Agent;
use ringgate_trunk::agent::view::{DeskView, LaneView, Refusal, Seen, State, View};

/// The whole agent as JSON.
pub(super) fn status(
    agent: &Agent,
    fleet: Option<&Status>,
    uptime_s: u64,
    (is_draining, reloads): (bool, Reloads),
) -> String {
    let view = agent.view();
    let mut page = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "agent": agent.options().name,
        "incarnation": format!("{:016x}", agent.options().incarnation),
        "state": if is_draining { "draining" } else { "serving" },
        "uptime_s": uptime_s,
        "workers": view.workers,
        "players": view.players(),
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
    (is_draining, reloads): (bool, Reloads),
) -> String {
    let view = agent.view();
    let mut text = Text::default();
    let name = agent.options().name.as_str();
    text.family("ringgate_agent_info", Kind::Gauge, "The agent and its version.")
        .sample(&[("agent", name), ("version", env!("CARGO_PKG_VERSION"))], 1);
    let counts = &view.counts;
    let numbers = [
        gauge("uptime_seconds", "Since it was started.", uptime_s),
        gauge("draining", "1 while it waits for its end.", is_draining.into()),
        gauge("workers", "Local workers, its own included.", view.workers as u64),
        counter("links_total", "Local links that were let in.", counts.links),
        counter("bundles_total", "Bundles of game processes.", counts.bundles_in),
        counter(
            "payloads_to_games_total",
            "Payloads that local links were handed.",
            counts.payloads_to_games,
        ),
        counter(
            "datagrams_to_servers_total",
            "Datagrams to servers that speak plain UDP.",
            counts.datagrams_to_servers,
        ),
        counter(
            "datagrams_from_servers_total",
            "Datagrams of such servers for players.",
            counts.datagrams_from_servers,
        ),
    ];
    text.numbers("ringgate_agent_", &numbers);
    config(&mut text, reloads);
    text.family(
        "ringgate_agent_dropped_total",
        Kind::Counter,
        "What went no further at this agent, by reason.",
    )
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
    let numbers = [
        gauge("gateways", "Gateways that are known.", status.known[0] as u64),
        gauge("unreadable", "Keys that cannot be read.", status.known[1] as u64),
        gauge("announced", "Processes that came themselves.", status.announced as u64),
    ];
    text.numbers(fleet::FLEET, &numbers);
    fleet::refused_and_copied(text, &status.announcements_refused, status.member.copies);
    let mut states = text.family(
        "ringgate_agent_backend_state",
        Kind::Gauge,
        "1 for the state that the fleet is told of a game process.",
    );
    for backend in &status.backends {
        states.sample(&[("backend", &backend.name), ("state", word_of(backend.state))], 1);
    }
}

fn backends(text: &mut Text, view: &View) {
    let all = view.backends.iter().chain(&view.retired);
    text.family("ringgate_agent_backend_up", Kind::Gauge, "1 while the game process is there.")
        .by("backend", view.backends.iter().map(|(name, seen)| (name, u8::from(seen.is_there))));
    text.family("ringgate_agent_players", Kind::Gauge, "Players of a game process.")
        .by("backend", all.map(|(name, seen)| (name, seen.players)));
}

fn gateways(text: &mut Text, view: &View) {
    let is_up = |desk: &DeskView| u8::from(desk.state == State::Up);
    text.family("ringgate_agent_trunk_up", Kind::Gauge, "1 while the gateway is connected.")
        .by("gateway", view.gateways.iter().map(|desk| (&desk.gateway, is_up(desk))));
    text.family(
        "ringgate_agent_trunk_begun_total",
        Kind::Counter,
        "Times the gateway has let it in.",
    )
    .by("gateway", view.gateways.iter().map(|desk| (&desk.gateway, desk.begun)));
}

fn lanes(text: &mut Text, view: &View) {
    let mut each = |name: &str, kind, help, value: &dyn Fn(&LaneView) -> u64| {
        let name = format!("ringgate_agent_lane_{name}");
        let mut family = text.family(&name, kind, help);
        for desk in &view.gateways {
            for lane in &desk.lanes {
                let number = lane.lane.to_string();
                family.sample(&[("gateway", &desk.gateway), ("lane", &number)], value(lane));
            }
        }
    };
    let (counter, gauge) = (Kind::Counter, Kind::Gauge);
    each("up", gauge, "1 while datagrams come.", &|lane| lane.is_up.into());
    each("path_bytes", gauge, "The longest datagram that passes.", &|lane| lane.path_bytes as u64);
    each("datagrams_sent_total", counter, "Datagrams to the gateway.", &|lane| lane.sent[0]);
    each("datagrams_received_total", counter, "Datagrams of the gateway.", &|lane| {
        lane.received_here[0]
    });
    each(
        "lost_there",
        gauge,
        "Datagrams that did not reach the gateway, as far as it has said.",
        &|lane| lane.received_there[1],
    );
    each("lost_here", gauge, "Datagrams of the gateway that did not come.", &|lane| {
        lane.received_here[1]
    });
    each("payloads_sent_total", counter, "Payloads to the gateway.", &|lane| lane.sent[2]);
    each("payloads_received_total", counter, "Payloads of the gateway.", &|lane| {
        lane.payloads_received
    });
    each("split_total", counter, "Records that took several datagrams.", &|lane| lane.sent[3]);
    each("full_total", counter, "Payloads for which there was no room.", &|lane| lane.full);
    each("keys_total", counter, "Times the own key has changed.", &|lane| lane.epochs[0]);
    round_trips(text, view);
    refusals(text, view);
}

fn round_trips(text: &mut Text, view: &View) {
    let mut family =
        text.family("ringgate_agent_lane_round_trip_seconds", Kind::Gauge, "There and back.");
    for desk in &view.gateways {
        for lane in &desk.lanes {
            let (number, us) = (lane.lane.to_string(), lane.round_trip_us);
            let labels = [("gateway", desk.gateway.as_str()), ("lane", &number)];
            let seconds = format_args!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            family.sample(&labels, seconds);
        }
    }
}

fn refusals(text: &mut Text, view: &View) {
    let mut family = text.family(
        "ringgate_agent_lane_refused_total",
        Kind::Counter,
        "Datagrams and records of the gateway that were refused, by reason.",
    );
    for desk in &view.gateways {
        for lane in &desk.lanes {
            let number = lane.lane.to_string();
            for why in Refusal::ALL {
                let labels =
                    [("gateway", desk.gateway.as_str()), ("lane", &number), ("reason", why.name())];
                family.sample(&labels, lane.refusals.of(why));
            }
        }
    }
}
