//! What a simulated world's listeners, game processes and tokens are called, and where they are.

use crate::plan::{GameLink, Plan};
use ringgate_batch::Endpoint;
use ringgate_core::secret::Key;
use ringgate_gate::{BindId, Credentials, ListenerId};

/// What all tokens and packets of a simulated world are bound to.
pub(super) const PROTOCOL: u64 = 0x7369_6d75_6c61_7465;

/// Who game processes run as.
pub(super) const GAME_USER: Credentials = Credentials { uid: 7, gid: 7, pid: 0 };

pub(super) fn listener_keys() -> [Key; 2] {
    [Key::from_bytes([1; 32]), Key::from_bytes([2; 32])]
}

pub(super) fn game_name(number: u16) -> String {
    format!("game-{number}")
}

pub(super) fn listener_name(number: ListenerId) -> String {
    format!("listener-{}", number.0)
}

/// A listener has an IPv4 address and an IPv6 one.
pub(super) fn public_address(listener: ListenerId, bind: BindId) -> Endpoint {
    let port = FIRST_PUBLIC_PORT + listener.0;
    if bind == BindId(0) {
        return Endpoint::v4([203, 0, 113, 9], port);
    }
    Endpoint::v6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], 0, port)
}

/// The listener at a public address.
pub(super) fn listener_at(public: Endpoint) -> ListenerId {
    ListenerId(public.port() - FIRST_PUBLIC_PORT)
}

/// Listener and bind of every socket for players.
pub(super) fn player_sockets(plan: &Plan) -> impl Iterator<Item = (ListenerId, BindId)> + use<> {
    let others = [plan.unreal_players, plan.plain_players].map(|players| u16::from(players > 0));
    let listeners = plan.listeners as u16 + others.iter().sum::<u16>();
    (0..listeners).map(ListenerId).flat_map(|it| [(it, BindId(0)), (it, BindId(1))])
}

/// Where a game process on a udp link listens.
pub(super) fn game_address(number: u16, link: GameLink) -> Endpoint {
    let ip = if link == GameLink::Udp { [127, 0, 0, 1] } else { [10, 200, 0, 1] };
    Endpoint::v4(ip, FIRST_GAME_PORT + number)
}

const FIRST_PUBLIC_PORT: u16 = 40_000;

/// Where the first game process on a udp link listens.
pub(super) const FIRST_GAME_PORT: u16 = 7000;

/// The peer of a datagram on a link, which has only one.
pub(super) const NOBODY: Endpoint = Endpoint::v4([0; 4], 0);
