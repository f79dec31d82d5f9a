//! `GET /status`: the whole gateway as one JSON object, for people, scripts and `ringgate status`.

use std::net::SocketAddr;

use serde::{Serialize, Serializer};

use super::agents::AgentStatus;
use super::deny::Summary;
use super::health;
use super::membership::{FleetShown, FleetStatus};
use super::metrics::incarnation;
use super::view::Snapshot;
use ringgate_core::proto::unreal::front::Identity;
use ringgate_gate::{
    Counters, Ended, Front, Intake, LinkKind, PACKET_KIND_NAMES, PACKET_KINDS, Phase,
};
use ringgate_io::CardDrop;
use ringgate_process::pages::SCHEMA;
use ringgate_worker::{CardShown, Stage};

/// The page.
pub(super) fn render(snapshot: &Snapshot<'_>) -> String {
    let mut page = serde_json::to_string_pretty(&Status::of(snapshot))
        .expect("only maps with other keys than strings cannot be written");
    page.push('\n');
    page
}

#[derive(Serialize)]
struct Status<'a> {
    schema: u32,
    version: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_left_ms: Option<u64>,
    healthy: bool,
    ready: bool,
    /// Why not, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_ready_because: Option<String>,
    started_unix_s: u64,
    pid: u32,
    /// Processes that have had this gateway, this one included.
    generation: u64,
    /// Another one after each start.
    incarnation: String,
    uptime_s: u64,
    config: Config,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not_uring: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    xdp: Option<Card<'a>>,
    workers: Vec<Worker>,
    listeners: Vec<Listener<'a>>,
    backends: Vec<Backend<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    agents: Vec<AgentStatus<'a>>,
    totals: Totals,
    drops: Named,
    sessions_closed: Named,
    /// Rules about who may not play.
    denied: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<FleetStatus<'a>>,
    packets_handled: Named,
    packets_out: Named,
    stages: Vec<StageRow>,
    conservation: Conservation,
}

#[derive(Serialize)]
struct Config {
    file: String,
    read_unix_s: u64,
    reloads: u64,
    reloads_refused: u64,
}

/// The interface that players' packets come by past the kernel's sockets.
#[derive(Serialize)]
struct Card<'a> {
    interface: &'a str,
    mode: &'static str,
    /// Who writes those of what leaves in frames: `card` or `software`.
    checksums: &'static str,
    /// Whether the program is on it; otherwise players are served by sockets.
    attached: bool,
    /// Addresses that frames may be for, each with its port and VLAN.
    addresses: usize,
    frames_received: u64,
    frames_sent: u64,
    left_by_socket: u64,
    drops: Named,
}

#[derive(Serialize)]
struct Worker {
    index: usize,
    driver: &'static str,
    cipher: &'static str,
    report_age_ms: u64,
    turns: u64,
    /// From one look to the next while it waits for more; 0 while it is woken by what arrives.
    gather_delay_us: u64,
    /// What such a wait costs of its processor time; 0 until one was measured.
    sleep_cost_us: u64,
    sessions: u64,
    pending: u64,
    datagrams_in: u64,
    packets_out: u64,
    drops: u64,
    socket_drops: u64,
}

#[derive(Serialize)]
struct Listener<'a> {
    name: &'a str,
    protocol: &'static str,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    drain_left_ms: Option<u64>,
    /// Why it lets no new player in, where nothing is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_because: Option<String>,
    addresses: &'a [SocketAddr],
    public: &'a [SocketAddr],
    sessions: u32,
    sessions_max: u32,
}

#[derive(Serialize)]
struct Backend<'a> {
    name: &'a str,
    link: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
    /// Reachable from every worker.
    up: bool,
    workers_up: usize,
    players: u32,
    slots: u32,
    retired: bool,
    /// An operator sends no new players there.
    drained: bool,
    /// Whom it is for by its own word, where that is not everybody.
    #[serde(skip_serializing_if = "Option::is_none")]
    intake: Option<&'static str>,
    /// What it says about itself, where it serves an Unreal game and has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreal: Option<UnrealServer>,
}

#[derive(Serialize)]
struct UnrealServer {
    session_id: u8,
    version_min: u8,
    version: u8,
    network_version: String,
    network_features: u16,
}

/// Sums over all workers.
#[derive(Serialize)]
struct Totals {
    sessions: u64,
    handshakes_pending: u64,
    sessions_opened: u64,
    port_switches: u64,
    datagrams_in: u64,
    bytes_in: u64,
    packets_out: u64,
    bytes_out: u64,
    payloads_up: u64,
    payloads_to_links: u64,
    payloads_from_links: u64,
    payloads_down: u64,
    link_datagrams_in: u64,
    link_datagrams_out: u64,
    links_refused: u64,
    drops: u64,
    socket_drops: u64,
    /// The two causes of `socket_drops`, derived; `null` where the kernel does not tell.
    socket_overflows: Option<u64>,
    filter_refusals: Option<u64>,
    tokens_remembered: usize,
}

/// Latencies of the last interval.
#[derive(Serialize)]
struct StageRow {
    name: &'static str,
    count: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    p9999_ns: u64,
    max_ns: u64,
}

#[derive(Serialize)]
struct Conservation {
    holds: bool,
    imbalances: Vec<ImbalanceRow>,
}

#[derive(Serialize)]
struct ImbalanceRow {
    worker: usize,
    balance: &'static str,
    came_in: u64,
    accounted: u64,
}

/// Numbers by name, in the order in which they were declared.
struct Named(Vec<(&'static str, u64)>);

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl<'a> Status<'a> {
    fn of(snapshot: &'a Snapshot<'_>) -> Self {
        let totals = snapshot.totals();
        let live = &snapshot.live;
        let not_ready_because = health::is_ready(snapshot).err();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            state: if live.drain.is_some() { "draining" } else { "serving" },
            drain_left_ms: live
                .drain
                .map(|drain| drain.until_ns.saturating_sub(snapshot.now_ns) / NS_PER_MS),
            healthy: health::is_healthy(snapshot).is_ok(),
            ready: not_ready_because.is_none(),
            not_ready_because,
            started_unix_s: snapshot.facts.started_unix_s,
            pid: std::process::id(),
            generation: snapshot.facts.generation,
            incarnation: incarnation(snapshot),
            uptime_s: snapshot.now_ns / NS_PER_S,
            config: Config {
                file: snapshot.facts.config_file.display().to_string(),
                read_unix_s: live.reloads.config_unix_s,
                reloads: live.reloads.done,
                reloads_refused: live.reloads.refused,
            },
            why_not_uring: snapshot.facts.why_not_uring.as_deref(),
            workers: workers(snapshot),
            xdp: snapshot.facts.card.as_ref().map(|card| xdp(snapshot, card.shown())),
            listeners: listeners(snapshot),
            backends: backends(snapshot),
            agents: AgentStatus::all(snapshot),
            drops: Named(totals.drops.iter().map(|(why, n)| (why.name(), n)).collect()),
            sessions_closed: Named(
                Ended::ALL.map(|why| (why.name(), totals.sessions_closed[why as usize])).to_vec(),
            ),
            denied: Summary::of(&live.denied),
            fleet: live.fleet.as_deref().map(FleetShown::on_status),
            packets_handled: by_kind(&totals.handled),
            packets_out: by_kind(&totals.packets_out),
            stages: stages(snapshot),
            conservation: conservation(snapshot),
            totals: sum(snapshot, &totals),
        }
    }
}

fn xdp<'a>(snapshot: &Snapshot<'_>, shown: CardShown<'a>) -> Card<'a> {
    let CardShown { interface, mode, sums, is_attached, addresses } = shown;
    let all = snapshot.reports.iter().map(|report| report.card);
    let sum = all.reduce(|sum, card| sum.and(&card)).unwrap_or_default();
    Card {
        interface,
        mode,
        checksums: sums,
        attached: is_attached,
        addresses,
        frames_received: sum.received,
        frames_sent: sum.sent,
        left_by_socket: sum.left_by_socket,
        drops: Named(CardDrop::ALL.iter().map(|why| (why.name(), sum.dropped(*why))).collect()),
    }
}

fn workers(snapshot: &Snapshot<'_>) -> Vec<Worker> {
    let reports = snapshot.reports.iter().enumerate();
    reports
        .map(|(index, report)| Worker {
            index,
            driver: snapshot.facts.driver,
            cipher: snapshot.facts.cipher,
            report_age_ms: snapshot.now_ns.saturating_sub(report.at_ns) / NS_PER_MS,
            turns: report.turns,
            gather_delay_us: report.gathers.delay_ns / 1000,
            sleep_cost_us: report.gathers.sleep_cost_ns / 1000,
            sessions: report.counters.sessions,
            pending: report.counters.pending,
            datagrams_in: report.counters.datagrams_in,
            packets_out: report.counters.packets_out.iter().sum(),
            drops: report.counters.drops.total(),
            socket_drops: report.socket_drops,
        })
        .collect()
}

/// Those that a reload has removed are shown while they drain.
fn listeners<'a>(snapshot: &'a Snapshot<'_>) -> Vec<Listener<'a>> {
    let live = &snapshot.live;
    let left_ms = |until_ns: u64| until_ns.saturating_sub(snapshot.now_ns) / NS_PER_MS;
    let there = live.setup.listeners.pairs().filter(|(_, it)| it.phase != Phase::Closed);
    there
        .map(|(number, listener)| {
            let addresses = live.addresses.get(number.index()).map_or(&[][..], Vec::as_slice);
            Listener {
                name: &listener.name,
                protocol: Front::of(&listener.protocol).word(),
                state: if listener.phase == Phase::Serving { "serving" } else { "draining" },
                drain_left_ms: live.leaving.get(&number).copied().map(left_ms),
                closed_because: match listener.phase {
                    Phase::Serving => health::why_closed(snapshot, listener),
                    _ => None,
                },
                addresses,
                public: if listener.public.is_empty() { addresses } else { &listener.public },
                sessions: snapshot.sessions.get(number.index()).copied().unwrap_or_default(),
                sessions_max: listener.sessions_max,
            }
        })
        .collect()
}

/// Retired backends are shown until their last player has left.
fn backends<'a>(snapshot: &'a Snapshot<'_>) -> Vec<Backend<'a>> {
    let backends = snapshot.live.setup.backends.pairs().zip(&snapshot.players);
    backends
        .filter(|((_, backend), players)| !backend.retired || **players > 0)
        .map(|((id, backend), &players)| {
            let (link, address) = match &backend.link {
                LinkKind::Bundle { .. } => ("bundle", None),
                LinkKind::Udp { address } => ("udp", Some(*address)),
            };
            let workers_up = snapshot.workers_up(id);
            Backend {
                name: &backend.name,
                link,
                address,
                up: workers_up == snapshot.reports.len(),
                workers_up,
                players,
                slots: backend.slots,
                retired: backend.retired,
                drained: backend.drained,
                intake: match backend.intake {
                    _ if snapshot.is_closed(id) => Some("nobody"),
                    Intake::Anybody => None,
                    Intake::Sent => Some("sent"),
                    Intake::NobodyYet | Intake::Nobody => Some("nobody"),
                },
                unreal: snapshot.server(id).map(unreal_server),
            }
        })
        .collect()
}

fn unreal_server(identity: Identity) -> UnrealServer {
    UnrealServer {
        session_id: identity.session,
        version_min: identity.base.version_min,
        version: identity.base.version,
        network_version: format!("0x{:08x}", identity.base.network_version),
        network_features: identity.base.network_features,
    }
}

fn sum(snapshot: &Snapshot<'_>, totals: &Counters) -> Totals {
    Totals {
        sessions: totals.sessions,
        handshakes_pending: totals.pending,
        sessions_opened: totals.sessions_opened,
        port_switches: totals.port_switches,
        datagrams_in: totals.datagrams_in,
        bytes_in: totals.bytes_in,
        packets_out: totals.packets_out.iter().sum(),
        bytes_out: totals.bytes_out,
        payloads_up: totals.payloads_up,
        payloads_to_links: totals.payloads_to_links,
        payloads_from_links: totals.payloads_from_links,
        payloads_down: totals.payloads_down,
        link_datagrams_in: totals.link_datagrams_in,
        link_datagrams_out: totals.link_datagrams_out,
        links_refused: totals.links_refused,
        drops: totals.drops.total(),
        socket_drops: snapshot.reports.iter().map(|report| report.socket_drops).sum(),
        socket_overflows: snapshot.socket_drops.map(|split| split.overflows()),
        filter_refusals: snapshot.socket_drops.map(|split| split.refusals()),
        tokens_remembered: snapshot.tokens,
    }
}

fn by_kind(counts: &[u64; PACKET_KINDS]) -> Named {
    Named(PACKET_KIND_NAMES.into_iter().zip(counts.iter().copied()).collect())
}

fn stages(snapshot: &Snapshot<'_>) -> Vec<StageRow> {
    let row = |stage: Stage| {
        let interval = &snapshot.live.latencies.interval[stage as usize];
        let [p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns] = interval.quantiles_ns;
        let (count, max_ns) = (interval.count, interval.max_ns);
        StageRow { name: stage.name(), count, p50_ns, p90_ns, p99_ns, p999_ns, p9999_ns, max_ns }
    };
    Stage::ALL.map(row).into()
}

fn conservation(snapshot: &Snapshot<'_>) -> Conservation {
    let reports = snapshot.reports.iter().enumerate();
    let imbalances: Vec<_> = reports
        .filter_map(|(worker, report)| Some((worker, report.counters.check_conservation().err()?)))
        .map(|(worker, found)| ImbalanceRow {
            worker,
            balance: found.balance,
            came_in: found.came_in,
            accounted: found.accounted,
        })
        .collect();
    Conservation { holds: imbalances.is_empty(), imbalances }
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
