//! From the config's words to what workers are told. Names become numbers here, and nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use crate::config::{self, Config};
use ringgate_core::limits::{BACKENDS_MAX, LISTENERS_MAX, WORKERS_MAX};
use ringgate_core::proto::plain::{Field, Width};
use ringgate_core::proto::replay::Policy;
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};
use ringgate_fleet::keyspace::Name;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{
    Allowed, Backend, BackendId, Credit, Duplicates, Echo, FleetPlayers, FleetTokens, Front,
    Limits, LinkKind, Listener, Netcode, Phase, Plain, Protocol, Sequence, Setup, Token, Unreal,
};
use ringgate_io::CardChoice;
use ringgate_os::process;
use ringgate_process::confine;
use ringgate_worker::{CardPlan, Plan};

/// What the workers of a configured gateway are told, or one sentence on why they cannot be.
pub fn plan(config: &Config) -> Result<Plan, String> {
    for (what, count, max) in [
        ("listeners", config.listeners.len(), LISTENERS_MAX),
        ("backends", config.backends.len(), BACKENDS_MAX),
    ] {
        if count > max {
            return Err(format!("the config has {count} {what}, and {max} are the most"));
        }
    }
    let incarnation =
        getrandom::u64().map_err(|why| format!("cannot draw random numbers: {why}"))?;
    let links = links(config);
    let listeners = config.listeners.iter().map(listener_of_a_start).collect();
    let own = confine::becomes(config.gateway.user.as_deref())?;
    let own = own.map_or_else(process::effective_uid, |user| user.uid);
    let backends = config.backends.iter().map(|it| backend(it, own)).collect();
    let batch_delay = batch_delay(&config.gateway);
    let mut setup = Setup { batch_delay, ..Setup::new(listeners, backends, incarnation) };
    setup.reserve_sessions(config.gateway.reserve_sessions);
    setup.fleet_tokens = config.fleet.as_ref().map(|fleet| fleet_tokens(fleet, &setup));
    let players = || Arc::new(FleetPlayers::new(setup.claim_limits().sessions_max));
    setup.fleet_players = config.fleet.as_ref().map(|_| players());
    setup.cluster = config.cluster.as_ref().map(|it| it.name.clone());
    Ok(Plan {
        setup: Arc::new(setup),
        binds: config.listeners.iter().map(|listener| listener.bind.clone()).collect(),
        filter: config.listeners.iter().map(|listener| listener.filter).collect(),
        run_dir: links.bundles.then(|| config.gateway.run_dir.clone()),
        expects_udp: links.udp,
        workers: worker_count(config.gateway.workers),
        pin: config.gateway.pin,
        io: config.gateway.io,
        spin: config.gateway.spin,
        narrows: config.gateway.workers_awake == config::WorkersAwake::Auto,
        card: card(config),
        spent: Vec::new(),
    })
}

/// Which listeners are served past the kernel's sockets: the config has seen to it that they all
/// say the same.
fn card(config: &Config) -> Option<CardPlan> {
    let xdp = config.listeners.iter().find_map(|listener| listener.xdp.as_ref())?;
    let listeners = config.listeners.iter().map(|listener| listener.xdp.is_some()).collect();
    Some(CardPlan { choice: card_choice(xdp), fallback: xdp.fallback, listeners })
}

/// Which interface a listener asks for.
pub(super) fn card_choice(xdp: &config::Xdp) -> CardChoice {
    CardChoice { interface: xdp.interface.clone(), queues: xdp.queues, mode: xdp.mode }
}

/// What workers agree on about tokens that name other gateways as well.
fn fleet_tokens(fleet: &config::Fleet, setup: &Setup) -> Arc<FleetTokens> {
    let tokens = FleetTokens::new(setup.claim_limits().tokens_max.min(FLEET_TOKENS_MAX));
    tokens.accept_when_away(fleet.when_away == config::WhenAway::Accept);
    Arc::new(tokens)
}

/// Tokens that are remembered take 100 bytes each at the most.
const FLEET_TOKENS_MAX: usize = 1 << 20;

/// Which sockets a gateway has toward game processes. They are made at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// For bundles.
    pub bundles: bool,
    /// For plain UDP.
    pub udp: bool,
}

impl Links {
    /// Players of the process before keep theirs, whatever the config needs.
    pub(super) fn inherit(&mut self, has_bundles: bool, setup: &Setup) {
        let is_udp = |it: &Backend| matches!(it.link, LinkKind::Udp { .. });
        self.bundles |= has_bundles;
        self.udp |= setup.backends.iter().any(is_udp);
    }
}

/// Those that a config needs: for its backends, and for those that a fleet may bring.
pub fn links(config: &Config) -> Links {
    let is_bundle = |backend: &config::Backend| matches!(backend.link, config::Link::Bundle(_));
    let grouped = || config.listeners.iter().filter(|listener| listener.group.is_some());
    // Unreal servers are on bundle links behind agents alone.
    let may_bundle = |listener: &config::Listener| {
        listener.protocol.front() != Front::Unreal || !config.agents.is_empty()
    };
    Links {
        bundles: config.backends.iter().any(is_bundle)
            || grouped().any(may_bundle)
            || config.fleet.is_some() && config.listeners.iter().any(moves_players),
        udp: config.backends.iter().any(|it| !is_bundle(it)) || grouped().next().is_some(),
    }
}

fn moves_players(listener: &config::Listener) -> bool {
    matches!(&listener.protocol, config::Protocol::Netcode(rules) if !rules.moves.is_empty())
}

/// How long a worker may wait for more, which one that spins does not.
pub(super) const fn batch_delay(gateway: &config::Gateway) -> BatchDelay {
    match gateway.batch_delay {
        _ if !gateway.spin.is_zero() => BatchDelay::OFF,
        config::BatchDelay::Auto => BatchDelay::Auto(gateway.batch_delay_max),
        config::BatchDelay::AtMost(delay) => BatchDelay::AtMost(delay),
    }
}

/// A listener, where backends have these numbers.
pub(super) fn listener(
    listener: &config::Listener,
    number: impl Fn(usize) -> BackendId,
) -> Listener {
    let numbered = |all: &[usize]| all.iter().map(|at| number(*at)).collect::<Vec<_>>();
    let backends = numbered(&listener.backends);
    let protocol = match &listener.protocol {
        config::Protocol::Netcode(rules) => {
            let moves = numbered(&rules.moves_to);
            Protocol::Netcode(netcode(rules, listener.group.as_ref(), moves))
        }
        config::Protocol::Unreal(rules) => Protocol::Unreal(unreal(rules)),
        config::Protocol::Plain(rules) => {
            let numbers = listener.backends.iter().copied().zip(backends.iter().copied());
            Protocol::Plain(plain(rules, &listener.limits, &numbers.collect()))
        }
    };
    Listener {
        name: listener.name.clone(),
        protocol,
        public: listener.public.clone(),
        backends,
        route: listener.route,
        sessions_max: listener.max_sessions as u32,
        follow_port_switch: listener.port_switch == config::PortSwitch::Follow,
        limits: limits(&listener.limits),
        phase: Phase::Serving,
    }
}

fn limits(limits: &config::Limits) -> Limits {
    Limits {
        requests_per_block: limits.requests_per_block,
        handshakes_per_block: limits.handshakes_per_block,
        port_switches_per_block: limits.port_switches_per_block,
        restarts_per_block: limits.restarts_per_block,
        sessions_per_address: limits.sessions_per_address,
        sessions_per_site: limits.sessions_per_site,
        sessions_per_block: limits.sessions_per_block,
    }
}

fn netcode(rules: &config::Netcode, group: Option<&Name>, moves: Vec<BackendId>) -> Netcode {
    let (unique, after) = (rules.unique_clients, rules.replace_after.as_nanos() as u64);
    let shared = group.filter(|_| unique == config::UniqueClients::Fleet);
    let gap_limit = rules.gap_limit.map_or(0, std::num::NonZeroU64::get);
    Netcode {
        protocol_id: rules.protocol_id,
        keys: rules.keys.clone(),
        replay: Policy::new(u32::from(rules.replay_window), gap_limit)
            .expect("the config has checked the window's size"),
        keep_alive_ns: rules.keep_alive.as_nanos() as u64,
        token_reuse: rules.token_reuse,
        delivers: rules.delivery == config::Delivery::Gateway,
        unique_in: shared.map(|group| Arc::from(group.as_str())),
        moves,
        replace_after_ns: if unique == config::UniqueClients::Newest { 0 } else { after },
    }
}

pub(crate) fn unreal(rules: &config::Unreal) -> Unreal {
    let (long, versions) = match &rules.versions {
        config::HandshakeVersions::Original => (Layout::Original, 0..=0),
        config::HandshakeVersions::Early(versions) => (Layout::Early, versions.clone()),
        config::HandshakeVersions::Versioned(versions) => (Layout::Versioned, versions.clone()),
    };
    let is_short = rules.handshake_base == config::HandshakeBase::Short;
    let layout = if is_short { long.short() } else { long };
    // Versions 0 and 1 have no such field in either case.
    let has_bases = *versions.end() >= 2;
    Unreal {
        framing: Framing {
            magic: Magic::from_bits(&rules.magic).expect("the config has counted the bits"),
            layout,
        },
        learns_base: has_bases && rules.handshake_base == config::HandshakeBase::Auto,
        versions,
        network_versions: match &rules.network_versions {
            config::NetworkVersions::Any => None,
            config::NetworkVersions::Only(list) => Some(list.clone()),
        },
        duplicates: match (rules.window, rules.mode) {
            (false, _) => Duplicates::Pass,
            (true, config::UnrealMode::Notify) => Duplicates::Notify,
            (true, config::UnrealMode::Opaque) => Duplicates::Opaque,
        },
        gap_limit: rules.gap_limit.map_or(0, std::num::NonZeroU16::get),
        idle_timeout_ns: rules.idle_timeout.as_nanos() as u64,
    }
}

/// `numbers` are those of the listener's backends.
fn plain(
    rules: &config::Plain,
    limits: &config::Limits,
    numbers: &HashMap<usize, BackendId>,
) -> Plain {
    let with_number = |(token, backend): &(Box<[u8]>, usize)| (token.clone(), numbers[backend]);
    let tokens = || rules.tokens.0.iter().map(with_number).collect();
    let gap_limit = rules.gap_limit.map_or(0, std::num::NonZeroU64::get);
    let policy = Policy::new(u32::from(rules.replay_window), gap_limit)
        .expect("the config has checked the window's size");
    Plain {
        token: rules.token.map(|token| Token {
            at: token.at,
            bytes: token.bytes,
            strip: token.strip,
            backends: Arc::new(tokens()),
        }),
        sequence: rules.sequence.map(|sequence| Sequence {
            field: field(sequence),
            policy,
            both: rules.guard == config::GuardedWays::Both,
        }),
        begins_with: rules.begins_with.clone(),
        idle_ns: rules.idle_timeout.as_nanos() as u64,
        half_open_ns: rules.half_open_timeout.as_nanos() as u64,
        rest_ns: rules.gap_rest.as_nanos() as u64,
        half_open_max: rules.half_open_max,
        answer_times: rules.answer_limit,
        credit: Credit {
            ratio: rules.credit_ratio,
            burst: rules.credit_burst,
            pause_ns: rules.pause_after.as_nanos() as u64,
        },
        echo: rules.echo.map(|echo| Echo { sent: echo.sent, heard: echo.heard }),
        unproven_percent: rules.unproven_slots,
        starts_per_block: limits.starts_per_block,
        starts_total: limits.starts,
    }
}

fn field(sequence: config::Sequence) -> Field {
    Field {
        offset: sequence.offset,
        width: Width::of_bits(sequence.bits.into()).expect("the config has checked the bits"),
        order: sequence.order,
    }
}

/// A backend that takes players, for a gateway with this user id.
pub(super) fn backend(backend: &config::Backend, own: u32) -> Backend {
    Backend {
        name: backend.name.clone(),
        link: match &backend.link {
            config::Link::Bundle(allowed) => LinkKind::Bundle { allow: allow(allowed, own) },
            config::Link::Udp(address) => LinkKind::Udp { address: *address },
        },
        slots: backend.slots,
        grace_ns: backend.grace.as_nanos() as u64,
        retired: false,
        drained: false,
        intake: backend.intake,
    }
}

/// A listener as a starting gateway has it, which numbers its backends in the order of the file.
pub(super) fn listener_of_a_start(listener: &config::Listener) -> Listener {
    self::listener(listener, BackendId::at)
}

/// With nobody named: the gateway's own user.
pub(super) fn allow(allowed: &config::Allowed, own: u32) -> Allowed {
    let mut uids = allowed.uids.clone();
    if uids.is_empty() && allowed.gids.is_empty() {
        uids.push(own);
    }
    Allowed { uids, gids: allowed.gids.clone() }
}

fn worker_count(workers: config::Workers) -> u16 {
    let count = match workers {
        config::Workers::Auto => thread::available_parallelism().map_or(1, usize::from),
        config::Workers::Count(count) => count.get(),
    };
    count.min(WORKERS_MAX) as u16
}
