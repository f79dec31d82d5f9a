//! Plain listeners: any game over UDP.

mod bundles;
mod credit;
mod denied;
mod drops;
mod guards;
mod players;
mod proofs;
mod strangers;

use super::rig::{Rig, endpoint, listener, udp_backend};
use crate::ids::{BackendId, ListenerId};
use crate::setup::{
    Limits, Listener, Plain, Protocol, Route, Sequence, Setup, Token, TokenPlace, Tokens,
};
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::proto::plain::{Field, Order, Width};
use ringgate_core::proto::replay::Policy;
use std::sync::Arc;

pub(super) const SERVERS: [&str; 2] = ["127.0.0.1:7001", "127.0.0.1:7002"];

/// One plain listener in front of two servers with so many slots each.
pub(super) fn plain_setup_with(slots: u32, change: impl FnOnce(&mut Plain)) -> Setup {
    let mut rules = Plain { starts_per_block: 0, starts_total: 0, ..Plain::default() };
    change(&mut rules);
    let listener = Listener {
        route: if rules.token.is_some() { Route::Token } else { Route::LeastPlayers },
        protocol: Protocol::Plain(rules),
        limits: Limits::NONE,
        sessions_max: 100,
        ..listener("any", &[0, 1])
    };
    let servers = SERVERS.map(|address| udp_backend(address, address, slots));
    Setup::new(vec![listener], servers.to_vec(), 1)
}

fn rules_of(setup: &mut Setup) -> &mut Plain {
    let Protocol::Plain(rules) = &mut setup.listeners[ListenerId(0)].protocol else {
        panic!("plain")
    };
    rules
}

pub(super) fn plain_rig(change: impl FnOnce(&mut Plain)) -> Rig {
    Rig::new(plain_setup_with(8, change))
}

/// `aa` is the first server's, `bb` and `cc` the second's.
fn tokens(at: TokenPlace, strip: bool) -> Token {
    let known: Tokens =
        [(b"aa", BackendId(0)), (b"bb", BackendId(1)), (b"cc", BackendId(1))].into_iter().collect();
    Token { at, bytes: 2, strip, backends: Arc::new(known) }
}

/// UNet's: 16 bits in the fourth and fifth byte, a window of 512, and a limit of 512.
pub(super) fn unet(both: bool) -> Sequence {
    let field = Field { offset: 3, width: Width::Sixteen, order: Order::Big };
    Sequence { field, policy: Policy::UNET, both }
}

pub(super) fn numbered(number: u16) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    vec![0, 0, 0, high, low, b'x']
}

/// What has left for servers: from which address, for which server, and the bytes.
pub(super) fn arrived(rig: &mut Rig) -> Vec<(LocalIp, usize, Vec<u8>)> {
    let which = |peer: Endpoint| SERVERS.iter().position(|address| endpoint(address) == peer);
    let sent = rig.take_for_servers().into_iter();
    sent.map(|(peer, local, bytes)| (local, which(peer).expect("a server"), bytes)).collect()
}

/// Has a source play: it sends, is answered and sends again. Returns its address at the server, and
/// which that is.
pub(super) fn play(rig: &mut Rig, from: Endpoint, bytes: &[u8]) -> (LocalIp, usize) {
    play_with(rig, from, [bytes, bytes])
}

pub(super) fn play_with(rig: &mut Rig, from: Endpoint, bytes: [&[u8]; 2]) -> (LocalIp, usize) {
    rig.deliver(from, bytes[0]);
    let (local, server, _) = arrived(rig).pop().expect("the first datagram");
    rig.answer_udp(endpoint(SERVERS[server]), local, b"a");
    assert_eq!(rig.take_for(from), [b"a"]);
    rig.deliver(from, bytes[1]);
    let (again, same, _) = arrived(rig).pop().expect("the second one");
    assert_eq!((again, same), (local, server), "a server sees one player");
    (local, server)
}
