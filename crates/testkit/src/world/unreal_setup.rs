//! The Unreal game of a simulated world: its listener, its servers and its players, as the plan has
//! them.

use super::addresses::game_address;
use super::state::S;
use crate::plan::{GameLink, Plan};
use crate::random::Random;
use crate::unreal_player::UnrealPlayer;
use crate::unreal_server::UnrealServer;
use ringgate_batch::Endpoint;
use ringgate_core::proto::unreal::client::Profile;
use ringgate_core::proto::unreal::handshake::Base;
use ringgate_core::proto::unreal::prefix::{Framing, Magic};
use ringgate_gate::{
    Backend, BackendId, Duplicates, Limits, LinkKind, Listener, ListenerId, Phase, Protocol, Route,
    Unreal,
};

/// The number of the Unreal listener, where there is one: the last.
pub(super) fn unreal_listener(plan: &Plan) -> Option<ListenerId> {
    (plan.unreal_players > 0).then_some(ListenerId::at(plan.listeners))
}

/// The listener and its backends, which come after all others.
pub(super) fn listener(plan: &Plan) -> Option<Listener> {
    let number = unreal_listener(plan)?;
    let first = plan.games.len() as u16;
    Some(Listener {
        name: format!("listener-{}", number.0),
        protocol: Protocol::Unreal(Unreal {
            framing: framing(plan),
            learns_base: true,
            versions: 3..=4,
            network_versions: None,
            duplicates: Duplicates::Notify,
            gap_limit: 0,
            idle_timeout_ns: plan.timeout_s as u64 * S,
        }),
        public: Vec::new(),
        backends: (first..first + plan.servers_started() as u16).map(BackendId).collect(),
        route: if plan.servers > 1 { Route::LeastPlayers } else { Route::Single },
        sessions_max: SESSIONS_MAX,
        follow_port_switch: true,
        limits: Limits::UNREAL,
        phase: Phase::Serving,
    })
}

/// The servers as the gateway is told of them.
pub(super) fn backends(plan: &Plan) -> impl Iterator<Item = Backend> + '_ {
    let first = plan.games.len() as u16;
    (first..first + plan.servers_started() as u16).map(|number| Backend {
        name: format!("server-{number}"),
        link: LinkKind::Udp { address: game_address(number, GameLink::Udp).into() },
        slots: SESSIONS_MAX,
        grace_ns: S,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    })
}

/// The servers themselves.
pub(super) fn servers(plan: &Plan, random: &mut Random) -> Vec<UnrealServer> {
    let timeout_ns = plan.timeout_s as u64 * S;
    (0..plan.servers_started())
        .map(|_| UnrealServer::new(profile(plan, 0), timeout_ns, 0, random))
        .collect()
}

/// The players, who are all away yet.
pub(super) fn unreal_players(plan: &Plan, random: &mut Random) -> Vec<UnrealPlayer> {
    let player = |number: usize| {
        let [_, .., high, low] = number.to_be_bytes();
        let ip = if random.chance(plan.habits.v6_per_mille) {
            Endpoint::v6([0x20, 1, high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 0, 0)
        } else {
            Endpoint::v4([10, 200 + high, low, 9], 0)
        };
        let begins_ns = random.within(0..plan.habits.away_ns.end);
        UnrealPlayer { ip, path: plan.path.clone(), game: Err(begins_ns), matches: 0, home: ip }
    };
    (0..plan.unreal_players).map(player).collect()
}

/// How much longer than others sessions of a server that has died can stay: until the gateway gives
/// up asking it.
pub(super) const fn patience_ns(plan: &Plan) -> u64 {
    if plan.unreal_players > 0 && plan.crashes { 10 * S } else { 0 }
}

pub(super) fn framing(plan: &Plan) -> Framing {
    let magic = if plan.seed.is_multiple_of(2) { "" } else { "1101" };
    Framing { magic: Magic::from_text(magic).unwrap_or_default(), ..Framing::default() }
}

pub(super) fn profile(plan: &Plan, client_id: u8) -> Profile {
    let base = Base { version_min: 3, version: 4, network_version: 7, ..Base::default() };
    Profile { framing: framing(plan), client_id, base }
}

/// Room for everybody, and for those whose silence was not noticed yet.
const SESSIONS_MAX: u32 = 1000;
