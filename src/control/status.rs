//! `GET /status`: the whole gateway as one JSON object, for people, scripts and `ringgate status`.

use serde::{Serialize, Serializer};

use super::agents;
use super::cluster;
use super::deny::summary;
use super::health;
use super::membership::FleetShown;
use super::metrics::{drops, incarnation};
use super::view::Snapshot;
use ringgate_core::proto::unreal::front::Identity;
use ringgate_gate::{
    Counters, Ended, Front, Imbalance, Intake, LinkKind, PACKET_KIND_NAMES, PACKET_KINDS, Phase,
};
use ringgate_io::CardDrop;
use ringgate_process::object;
use ringgate_process::pages::{Maybe, SCHEMA};
use ringgate_worker::{CardShown, Stage};

/// The page.
pub(super) fn render(snapshot: &Snapshot<'_>) -> String {
    let mut page = serde_json::to_string_pretty(&status(snapshot))
        .expect("only maps with other keys than strings cannot be written");
    page.push('\n');
    page
}

/// Numbers by name, in the order in which they were declared.
struct Named(Vec<(&'static str, u64)>);

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// The whole gateway.
fn status<'a>(snapshot: &'a Snapshot<'_>) -> impl Serialize + use<'a> {
    let (totals, live) = (snapshot.totals(), &snapshot.live);
    let not_ready_because = health::is_ready(snapshot).err();
    let left_ms = |until_ns: u64| until_ns.saturating_sub(snapshot.now_ns) / NS_PER_MS;
    let agents = agents::on_status(snapshot);
    let frames = |why| snapshot.reports.iter().map(|report| report.card.dropped(why)).sum();
    let drops: Vec<_> = drops(&totals, frames).collect();
    object! {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        state: if live.drain.is_some() { "draining" } else { "serving" },
        drain_left_ms: Maybe(live.drain.map(|drain| left_ms(drain.until_ns))),
        healthy: health::is_healthy(snapshot).is_ok(),
        ready: not_ready_because.is_none(),
        // Why not, where it is not.
        not_ready_because: Maybe(not_ready_because),
        started_unix_s: snapshot.facts.started_unix_s,
        pid: std::process::id(),
        // Processes that have had this gateway, this one included.
        generation: snapshot.facts.generation,
        // Another one after each start.
        incarnation: incarnation(snapshot),
        uptime_s: snapshot.now_ns / NS_PER_S,
        config: object! {
            file: snapshot.facts.config_file.display().to_string(),
            read_unix_s: live.reloads.config_unix_s,
            reloads: live.reloads.done,
            reloads_refused: live.reloads.refused,
        },
        why_not_uring: Maybe(snapshot.facts.why_not_uring.as_deref()),
        // Those that newcomers come to.
        workers_awake: snapshot.facts.awake.count(),
        why_all_awake: Maybe(snapshot.facts.why_all_awake.as_deref()),
        xdp: Maybe(snapshot.facts.card.as_ref().map(|card| xdp(snapshot, card.shown()))),
        workers: workers(snapshot),
        listeners: listeners(snapshot),
        backends: backends(snapshot),
        agents: Maybe((!agents.is_empty()).then_some(agents)),
        cluster: Maybe(cluster::on_status(snapshot)),
        totals: sum(snapshot, &totals, drops.iter().map(|it| it.1).sum()),
        drops: Named(drops),
        sessions_closed: Named(
            Ended::ALL.map(|why| (why.name(), totals.sessions_closed[why as usize])).to_vec(),
        ),
        // Rules about who may not play.
        denied: summary(&live.denied),
        fleet: Maybe(live.fleet.as_deref().map(FleetShown::on_status)),
        packets_handled: by_kind(&totals.handled),
        packets_out: by_kind(&totals.packets_out),
        stages: stages(snapshot),
        conservation: conservation(snapshot),
    }
}

/// The interface that players' packets come by past the kernel's sockets.
fn xdp<'a>(snapshot: &Snapshot<'_>, shown: CardShown<'a>) -> impl Serialize + use<'a> {
    let CardShown { interface, mode, sums, is_attached, addresses } = shown;
    let all = snapshot.reports.iter().map(|report| report.card);
    let sum = all.reduce(|sum, card| sum.and(&card)).unwrap_or_default();
    object! {
        interface,
        mode,
        // What writes those of datagrams that leave in frames: `card` or `software`.
        checksums: sums,
        // Whether the program is on it; otherwise players are served by sockets.
        attached: is_attached,
        // Addresses that frames may be for, each with its port and VLAN.
        addresses,
        frames_received: sum.received,
        frames_sent: sum.sent,
        left_by_socket: sum.left_by_socket,
        drops: Named(CardDrop::ALL.iter().map(|why| (why.name(), sum.dropped(*why))).collect()),
    }
}

fn workers(snapshot: &Snapshot<'_>) -> Vec<impl Serialize + use<>> {
    let (driver, cipher) = (snapshot.facts.driver, snapshot.facts.cipher);
    let reports = snapshot.reports.iter().enumerate();
    reports
        .map(|(index, report)| {
            object! {
                index,
                driver,
                cipher,
                report_age_ms: snapshot.now_ns.saturating_sub(report.at_ns) / NS_PER_MS,
                turns: report.turns,
                // From one look to the next while it waits for more; 0 while it is woken by what
                // arrives.
                gather_delay_us: report.gathers.delay_ns / 1000,
                // What such a wait costs of its processor time; 0 until one was measured.
                sleep_cost_us: report.gathers.sleep_cost_ns / 1000,
                sessions: report.counters.sessions,
                pending: report.counters.pending,
                datagrams_in: report.counters.datagrams_in,
                packets_out: report.counters.packets_out.iter().sum::<u64>(),
                drops: drops(&report.counters, |why| report.card.dropped(why)).map(|it| it.1).sum::<u64>(),
                socket_drops: report.socket_drops,
            }
        })
        .collect()
}

/// Those that a reload has removed are shown while they drain.
fn listeners<'a>(snapshot: &'a Snapshot<'_>) -> Vec<impl Serialize + use<'a>> {
    let live = &snapshot.live;
    let left_ms = |until_ns: u64| until_ns.saturating_sub(snapshot.now_ns) / NS_PER_MS;
    let there = live.setup.listeners.pairs().filter(|(_, it)| it.phase != Phase::Closed);
    there
        .map(|(number, listener)| {
            let addresses = live.addresses.get(number.index()).map_or(&[][..], Vec::as_slice);
            let is_serving = listener.phase == Phase::Serving;
            let why_closed = is_serving.then(|| health::why_closed(snapshot, listener)).flatten();
            object! {
                name: &listener.name,
                protocol: Front::of(&listener.protocol).word(),
                state: if is_serving { "serving" } else { "draining" },
                drain_left_ms: Maybe(live.leaving.get(&number).copied().map(left_ms)),
                // Why it lets no new player in, where nothing is wrong with it.
                closed_because: Maybe(why_closed),
                addresses,
                public: if listener.public.is_empty() { addresses } else { &listener.public },
                sessions: snapshot.sessions.get(number.index()).copied().unwrap_or_default(),
                sessions_max: listener.sessions_max,
            }
        })
        .collect()
}

/// Retired backends are shown until their last player has left.
fn backends<'a>(snapshot: &'a Snapshot<'_>) -> Vec<impl Serialize + use<'a>> {
    let backends = snapshot.live.setup.backends.pairs().zip(&snapshot.players);
    backends
        .filter(|((_, backend), players)| !backend.retired || **players > 0)
        .map(|((id, backend), players)| {
            let (link, address) = match &backend.link {
                LinkKind::Bundle { .. } => ("bundle", None),
                LinkKind::Udp { address } => ("udp", Some(address)),
            };
            let intake = match backend.intake {
                _ if snapshot.is_closed(id) => Some("nobody"),
                Intake::Anybody => None,
                Intake::Sent => Some("sent"),
                Intake::NobodyYet | Intake::Nobody => Some("nobody"),
            };
            let workers_up = snapshot.workers_up(id);
            object! {
                name: &backend.name,
                link,
                address: Maybe(address),
                // Reachable from every worker.
                up: workers_up == snapshot.reports.len(),
                workers_up,
                players,
                slots: backend.slots,
                retired: backend.retired,
                // An operator sends no new players there.
                drained: backend.drained,
                // Whom it is for by its own word, where that is not everybody.
                intake: Maybe(intake),
                // What it says about itself, where it serves an Unreal game and has answered.
                unreal: Maybe(snapshot.server(id).map(unreal_server)),
            }
        })
        .collect()
}

fn unreal_server(identity: Identity) -> impl Serialize {
    object! {
        session_id: identity.session,
        version_min: identity.base.version_min,
        version: identity.base.version,
        network_version: format!("0x{:08x}", identity.base.network_version),
        network_features: identity.base.network_features,
    }
}

/// Sums over all workers.
fn sum(snapshot: &Snapshot<'_>, totals: &Counters, drops: u64) -> impl Serialize + use<> {
    object! {
        sessions: totals.sessions,
        handshakes_pending: totals.pending,
        sessions_opened: totals.sessions_opened,
        port_switches: totals.port_switches,
        datagrams_in: totals.datagrams_in,
        bytes_in: totals.bytes_in,
        packets_out: totals.packets_out.iter().sum::<u64>(),
        bytes_out: totals.bytes_out,
        payloads_up: totals.payloads_up,
        payloads_to_links: totals.payloads_to_links,
        payloads_from_links: totals.payloads_from_links,
        payloads_down: totals.payloads_down,
        link_datagrams_in: totals.link_datagrams_in,
        link_datagrams_out: totals.link_datagrams_out,
        links_refused: totals.links_refused,
        drops,
        socket_drops: snapshot.reports.iter().map(|report| report.socket_drops).sum::<u64>(),
        // The two causes of `socket_drops`, derived; `null` where the kernel does not tell.
        socket_overflows: snapshot.socket_drops.map(|split| split.overflows()),
        filter_refusals: snapshot.socket_drops.map(|split| split.refusals()),
        tokens_remembered: snapshot.tokens,
    }
}

fn by_kind(counts: &[u64; PACKET_KINDS]) -> Named {
    Named(PACKET_KIND_NAMES.into_iter().zip(counts.iter().copied()).collect())
}

/// Latencies of the last interval.
fn stages(snapshot: &Snapshot<'_>) -> Vec<impl Serialize + use<>> {
    let row = |stage: Stage| {
        let interval = &snapshot.live.latencies.interval[stage as usize];
        let [p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns] = interval.quantiles_ns;
        let (name, count, max_ns) = (stage.name(), interval.count, interval.max_ns);
        object! { name, count, p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns, max_ns }
    };
    Stage::ALL.map(row).into()
}

fn conservation(snapshot: &Snapshot<'_>) -> impl Serialize + use<> {
    let reports = snapshot.reports.iter().enumerate();
    let imbalances: Vec<_> = reports
        .filter_map(|(worker, report)| Some((worker, report.counters.check_conservation().err()?)))
        .map(|(worker, Imbalance { balance, came_in, accounted })| {
            object! { worker, balance, came_in, accounted }
        })
        .collect();
    object! { holds: imbalances.is_empty(), imbalances }
}

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests as sample;
    use super::*;
    use ringgate_core::proto::unreal::handshake::Base;
    use ringgate_gate::{ListenerId, ServerInfo};

    fn page(change: impl FnOnce(&mut Snapshot<'_>)) -> Value {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        change(&mut snapshot);
        serde_json::from_str(&render(&snapshot)).expect("JSON")
    }

    #[test]
    fn sums_are_over_all_workers() {
        let page = page(|snapshot| {
            snapshot.reports[1].counters.sessions = 4;
            snapshot.reports[1].socket_drops = 6;
            snapshot.reports[1].card.receive_full = 2;
        });
        assert_eq!((&page["schema"], &page["uptime_s"]), (&1.into(), &60.into()));
        assert_eq!(page["pid"], std::process::id());
        assert_eq!(page["incarnation"].as_str().map(str::len), Some(16));
        assert_eq!(page["totals"]["sessions"], 11);
        assert_eq!(page["totals"]["socket_drops"], 6);
        assert_eq!(page["totals"]["socket_overflows"], 4);
        assert_eq!(page["totals"]["filter_refusals"], 5);
        assert_eq!(page["drops"]["unknown_source"], 3);
        assert_eq!(page["drops"]["packet_forged"], 0);
        // Frames, too.
        assert_eq!(
            (&page["drops"]["frame_ring_full"], &page["totals"]["drops"]),
            (&2.into(), &5.into())
        );
        assert_eq!(page["workers"][1]["drops"], 2);
        assert_eq!(page["listeners"][0]["public"][0], "192.0.2.1:40000");
        assert_eq!(page["workers"][1]["report_age_ms"], 20);
    }

    #[test]
    fn a_retired_backend_is_shown_while_it_has_players() {
        let shown = page(|_| {});
        assert_eq!(shown["backends"].as_array().map(Vec::len), Some(2));
        assert_eq!(shown["backends"][0]["retired"], true);
        assert_eq!(shown["backends"][1]["workers_up"], 1);
        assert_eq!(shown["backends"][1]["up"], false);
        let shown = page(|snapshot| snapshot.players[0] = 0);
        assert_eq!(shown["backends"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_listener_is_shown_while_it_drains() {
        let with = |phase: Phase| {
            page(|snapshot| {
                let mut setup = ringgate_gate::Setup::clone(&snapshot.live.setup);
                setup.listeners[ListenerId(0)].phase = phase;
                snapshot.live.setup = setup.into();
                snapshot.live.leaving = [(ListenerId(0), sample::NOW_NS + 2 * NS_PER_S)].into();
            })
        };
        let shown = &with(Phase::Draining)["listeners"][0];
        assert_eq!((&shown["state"], &shown["drain_left_ms"]), (&"draining".into(), &2000.into()));
        assert_eq!(page(|_| {})["listeners"][0]["state"], "serving");
        assert_eq!(with(Phase::Closed)["listeners"].as_array().map(Vec::len), Some(0));
    }

    #[test]
    fn an_unreal_server_shows_what_it_has_said() {
        let page = page(|snapshot| {
            let base =
                Base { version_min: 3, version: 4, network_version: 0xab, ..Base::default() };
            let identity = Some(Identity { session: 2, base });
            let server = ServerInfo { is_answering: true, identity };
            snapshot.reports[1].servers = vec![None, Some(server)];
        });
        assert!(page["backends"][0].get("unreal").is_none());
        assert_eq!(page["backends"][1]["unreal"]["session_id"], 2);
        assert_eq!(page["backends"][1]["unreal"]["network_version"], "0x000000ab");
    }

    #[test]
    fn what_is_not_accounted_for_is_named() {
        assert_eq!(page(|_| {})["conservation"]["holds"], true);
        let page = page(|snapshot| snapshot.reports[1].counters.datagrams_in = 1);
        assert_eq!(page["conservation"]["holds"], false);
        assert_eq!(page["conservation"]["imbalances"][0]["worker"], 1);
        assert_eq!(page["conservation"]["imbalances"][0]["balance"], "datagrams");
    }
}
