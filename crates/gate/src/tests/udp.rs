//! Backends on udp links: their loopback addresses, refusals, probes, and sockets of their own off
//! loopback.

use super::clients::{Library, Player, Scribe};
use super::rig::{Asked, Rig, UDP_LINK, endpoint, home, listener, udp_backend};
use crate::counters::Ended;
use crate::ids::BackendId;
use crate::mail::{Listening, Mail};
use crate::setup::Setup;
use ringgate_batch::{Endpoint, IoEvent, LocalIp, SendFailure, SocketId};
use ringgate_core::drops::DropReason;

const GAME: &str = "127.0.0.1:7777";
const REMOTE: &str = "10.1.1.1:7777";

fn ready(address: &str) -> Rig {
    Rig::new(Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", address, 4)], 1))
}

fn refusal() -> IoEvent {
    IoEvent::Unreachable { socket: SocketId(20), peer: endpoint(GAME) }
}

/// Whether a new player would be let in.
fn has_room(rig: &mut Rig, n: u16) -> bool {
    let before = rig.drops(DropReason::RequestBackendDown);
    let scribe = Scribe::new(&rig.token(n.into()));
    rig.deliver(home(n), &scribe.request());
    rig.drops(DropReason::RequestBackendDown) == before
}

fn is_probe(sent: &(LocalIp, Vec<u8>)) -> bool {
    sent.1.is_empty()
}

#[test]
fn a_backend_that_refuses_gets_no_new_players_and_keeps_the_others_for_a_while() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"x");
    rig.event(refusal());
    assert!(!has_room(&mut rig, 2));
    rig.take_udp();
    // It is looked for, and refuses each time.
    for _ in 0..3 {
        player.live(&mut rig, 490);
        assert!(rig.take_udp().is_empty(), "not too often");
        player.live(&mut rig, 10);
        let probes = rig.take_udp();
        assert!(probes.iter().all(is_probe) && probes.len() == 1, "{probes:?}");
        rig.event(refusal());
        assert!(!has_room(&mut rig, 2));
    }
    assert!(player.library.is_connected());
    player.live(&mut rig, 520);
    assert!(player.library.is_over(), "told when the grace time was over");
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
}

#[test]
fn a_backend_that_is_back_is_found_by_a_probe_that_nobody_refuses() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.event(refusal());
    player.live(&mut rig, 500);
    assert!(rig.take_udp().iter().any(is_probe));
    assert!(!has_room(&mut rig, 2), "not yet");
    player.live(&mut rig, 300);
    assert!(has_room(&mut rig, 2));
    assert!(player.library.is_connected());
}

#[test]
fn a_payload_that_was_cut_short_goes_to_no_player_and_counts_at_its_backend() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"x");
    let local = rig.take_udp().remove(0).0;
    let passed = rig.counters().payloads_down;
    let meta = rig.host.receive(UDP_LINK, endpoint(GAME), b"a part of i").expect("room");
    (meta.local, meta.truncated) = (local, true);
    rig.turn();
    assert_eq!((rig.drops(DropReason::PayloadLength), rig.counters().payloads_down), (1, passed));
    let mut traffic = rig.host.gate().backend_traffic();
    assert_eq!(traffic.next().map(|traffic| traffic.drops), Some(1));
}

#[test]
fn a_backend_that_answers_is_back_at_once() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"x");
    let (address, _) = rig.take_udp().remove(0);
    rig.event(refusal());
    assert!(!has_room(&mut rig, 2));
    rig.answer_udp(endpoint(GAME), address, b"here");
    player.receive(&mut rig);
    assert_eq!(player.got, [b"here"]);
    assert!(has_room(&mut rig, 2));
}

fn listening(address: &str, is_there: bool) -> Mail {
    Mail::Listening(Listening {
        backend: BackendId(0),
        address: address.parse().expect("literal"),
        is_there,
    })
}

#[test]
fn where_nobody_listens_nobody_is_sent_and_silence_is_no_sign_of_life() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.mail(listening(GAME, true));
    rig.mail(listening("127.0.0.1:7778", false));
    assert!(has_room(&mut rig, 2), "another address is another backend");
    rig.mail(listening(GAME, false));
    assert!(!has_room(&mut rig, 3));
    player.live(&mut rig, 900);
    assert!(!rig.take_udp().iter().any(is_probe), "it is looked at from outside");
    assert!(!has_room(&mut rig, 4), "nothing was refused, and still nobody is there");
    rig.mail(listening(GAME, true));
    assert!(has_room(&mut rig, 5));
    assert!(player.library.is_connected(), "within its grace time");
}

#[test]
fn a_backend_that_was_never_there_is_waited_for_after_the_start_only() {
    let mut rig = ready(GAME);
    rig.mail(listening(GAME, false));
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(DropReason::BackendStarting, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(scribe.kinds(&mut rig, home(1)).is_empty());
    rig.mail(listening(GAME, true));
    Player::connected(&mut rig, home(1), 1);
    rig.mail(listening(GAME, false));
    assert!(!has_room(&mut rig, 2), "it was there, and is gone");

    let mut rig = ready(GAME);
    rig.mail(listening(GAME, false));
    rig.pass(5000);
    assert!(!has_room(&mut rig, 1));
}

#[test]
fn a_probe_that_did_not_leave_proves_nothing() {
    let mut rig = ready(GAME);
    rig.event(refusal());
    rig.obstacles.push((SocketId(20), SendFailure::Full));
    rig.pass(3000);
    assert!(!has_room(&mut rig, 2));
    rig.obstacles.clear();
    rig.pass(1000);
    assert!(has_room(&mut rig, 2));
}

#[test]
fn a_retired_backend_is_looked_for_as_long_as_it_has_players() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.event(refusal());
    let mut without = Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", GAME, 4)], 1);
    without.backends[BackendId(0)].retired = true;
    without.backends[BackendId(0)].grace_ns = 1_000_000_000;
    rig.mail(Mail::Setup(without.into()));
    player.live(&mut rig, 500);
    assert!(rig.take_udp().iter().any(is_probe), "its player waits for it");
    rig.event(refusal());
    // The player is told that it is gone; then there is nobody left to look for it.
    player.live(&mut rig, 1500);
    rig.event(refusal());
    rig.take_udp();
    rig.pass(5000);
    assert!(rig.take_udp().is_empty());
    assert_eq!(rig.host.gate().poll_timeout(), None);
}

#[test]
fn an_idle_worker_sleeps_until_the_next_probe() {
    let mut rig = ready(GAME);
    rig.event(refusal());
    let mut turns = 0;
    while let Some(due_ns) = rig.host.gate().poll_timeout() {
        assert!(due_ns > rig.now.mono_ns, "a deadline that has passed is a busy worker");
        rig.jump((due_ns - rig.now.mono_ns).div_ceil(1_000_000));
        rig.turn();
        turns += 1;
        assert!(turns < 10);
    }
    assert!(has_room(&mut rig, 2), "back, and nothing left to wait for");
}

#[test]
fn each_backend_that_is_gone_is_probed_at_its_own_time() {
    let games = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"];
    let backends = games.iter().map(|address| udp_backend(address, address, 4)).collect();
    let mut rig = Rig::new(Setup::new(vec![listener("eu", &[0, 1, 2])], backends, 1));
    let lose = |rig: &mut Rig, game: &str| {
        rig.event(IoEvent::Unreachable { socket: SocketId(20), peer: endpoint(game) });
    };
    let probed_within = |rig: &mut Rig, ms| -> Vec<Endpoint> {
        rig.pass(ms);
        let sent = std::mem::take(&mut rig.sent).into_iter();
        sent.filter(|sent| sent.bytes.is_empty()).filter_map(|sent| sent.target.peer).collect()
    };
    lose(&mut rig, games[2]);
    assert_eq!(probed_within(&mut rig, 100), []);
    lose(&mut rig, games[0]);
    assert_eq!(probed_within(&mut rig, 380), []);
    assert_eq!(probed_within(&mut rig, 40), [endpoint(games[2])]);
    assert_eq!(probed_within(&mut rig, 60), []);
    assert_eq!(probed_within(&mut rig, 40), [endpoint(games[0])]);
    // Nobody refuses, so both are back.
    assert_eq!(probed_within(&mut rig, 1000), []);
    assert!(rig.host.gate().backends_up().all(|is_up| is_up));
    assert_eq!(rig.host.gate().backend_arrivals().collect::<Vec<_>>(), [2, 1, 2]);
    assert_eq!(rig.host.gate().poll_timeout(), None);
}

#[test]
fn what_a_players_port_refuses_is_no_backends_fault() {
    let mut rig = ready(GAME);
    rig.event(IoEvent::Unreachable { socket: SocketId(1), peer: endpoint(GAME) });
    assert!(has_room(&mut rig, 1));
}

#[test]
fn payloads_that_the_link_does_not_take_are_counted() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    for (why, reason) in [
        (SendFailure::Full, DropReason::LinkFull),
        (SendFailure::Refused, DropReason::LinkDown),
        (SendFailure::Gone, DropReason::LinkDown),
    ] {
        rig.obstacles = vec![(SocketId(20), why)];
        rig.provokes(reason, |rig| player.send(rig, b"x"));
    }
    assert_eq!(rig.counters().link_datagrams_out, 0);
}

#[test]
fn an_answer_for_nobody_is_counted() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"x");
    let (address, _) = rig.take_udp().remove(0);
    for nobody in [LocalIp::v4([127, 9, 9, 9], 0), LocalIp::v4([127, 0, 0, 1], 0)] {
        rig.provokes(DropReason::SessionUnknown, |rig| {
            rig.answer_udp(endpoint(GAME), nobody, b"x");
        });
    }
    player.leave(&mut rig);
    rig.provokes(DropReason::SessionUnknown, |rig| rig.answer_udp(endpoint(GAME), address, b"x"));
    let mut traffic = rig.host.gate().backend_traffic();
    assert_eq!(traffic.next().map(|traffic| traffic.drops), Some(3), "at its backend, too");
}

#[test]
fn the_next_player_does_not_get_the_last_ones_address() {
    let mut rig = ready(GAME);
    let mut addresses = Vec::new();
    for n in 0..10 {
        let mut player = Player::connected(&mut rig, home(n), n.into());
        player.send(&mut rig, b"x");
        addresses.push(rig.take_udp().remove(0).0);
        player.leave(&mut rig);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 10, "a game server must not take a new player for the last");
}

/// A player at a backend off loopback, with the socket that the worker has made.
fn remote() -> (Rig, Player<ringgate_core::netcode::Client>, SocketId) {
    let mut rig = ready(REMOTE);
    let player = Player::connected(&mut rig, home(1), 1);
    let [Asked::Open(_)] = rig.requests[..] else { panic!("{:?}", rig.requests) };
    let [socket] = rig.session_sockets[..] else { panic!("{:?}", rig.session_sockets) };
    (rig, player, socket)
}

fn answer(rig: &mut Rig, socket: SocketId, bytes: &[u8]) {
    rig.push_at(socket, Endpoint::v4([0; 4], 0), bytes);
    rig.turn();
}

#[test]
fn off_loopback_every_session_has_a_socket_of_its_own() {
    let (mut rig, mut player, socket) = remote();
    player.send(&mut rig, b"up");
    assert_eq!(rig.take_on(socket), [b"up"]);
    answer(&mut rig, socket, b"down");
    player.receive(&mut rig);
    assert_eq!(player.got, [b"down"]);
    player.leave(&mut rig);
    assert!(rig.requests.contains(&Asked::Close(socket)));
    rig.provokes(DropReason::LinkStranger, |rig| answer(rig, socket, b"late"));
}

#[test]
fn a_player_is_welcomed_when_its_socket_is_there() {
    let mut rig = ready(REMOTE);
    rig.descriptors = 0;
    let token = rig.token(1);
    let mut player = Player::new(&rig, home(1), &token);
    player.live(&mut rig, 1000);
    assert!(!player.library.is_connected() && !player.library.is_over());
    let asked = rig.requests.len();
    assert!((3..=5).contains(&asked), "asked again now and then: {asked} times");
    rig.descriptors = 1;
    player.live(&mut rig, 400);
    assert!(player.library.is_connected());
    player.send(&mut rig, b"up");
    assert_eq!(rig.take_on(rig.session_sockets[0]), [b"up"]);
    assert_eq!(rig.drops(DropReason::LinkDown), 0);
    player.live(&mut rig, 5000);
    assert!(player.library.is_connected(), "nobody lacks anything any more");
}

#[test]
fn a_player_whose_socket_cannot_be_made_is_denied() {
    let mut rig = ready(REMOTE);
    rig.descriptors = 0;
    let token = rig.token(1);
    let mut player = Player::new(&rig, home(1), &token);
    player.live(&mut rig, 2900);
    assert!(!player.library.is_connected() && !player.library.is_over());
    player.live(&mut rig, 600);
    assert_eq!(player.library.state(), ringgate_core::netcode::State::Denied);
    assert_eq!((rig.sessions(), rig.requests.len() < 20), (0, true));
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
}

#[test]
fn a_session_socket_that_fails_is_replaced() {
    let (mut rig, mut player, socket) = remote();
    rig.requests.clear();
    rig.event(IoEvent::Closed { socket });
    player.live(&mut rig, 200);
    let [Asked::Close(closed), Asked::Open(_)] = rig.requests[..] else {
        panic!("{:?}", rig.requests)
    };
    assert_eq!(closed, socket);
    player.send(&mut rig, b"up");
    assert_eq!(rig.take_on(rig.session_sockets[1]), [b"up"]);
}

#[test]
fn a_player_whose_socket_is_not_replaced_is_told_goodbye() {
    let (mut rig, mut player, socket) = remote();
    rig.descriptors = 0;
    rig.event(IoEvent::Closed { socket });
    rig.provokes(DropReason::LinkDown, |rig| player.send(rig, b"x"));
    player.live(&mut rig, 2900);
    assert!(player.library.is_connected());
    player.live(&mut rig, 600);
    assert!(player.library.is_over());
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
}

#[test]
fn a_socket_for_a_session_that_is_over_is_closed() {
    let (mut rig, mut player, socket) = remote();
    let session = rig.session_at(home(1));
    rig.requests.clear();
    player.leave(&mut rig);
    assert_eq!(rig.requests, [Asked::Close(socket)]);
    let late = rig.new_socket();
    rig.host.gate_mut().bind_session_socket(session, late);
    rig.host.gate_mut().session_socket_failed(rig.now, session);
    rig.turn();
    assert_eq!(rig.requests[1..], [Asked::Close(late)]);
    rig.pass(5000);
    assert_eq!(rig.requests.len(), 2);
}

#[test]
fn payloads_for_a_backend_that_is_known_to_be_gone_are_not_handed_over() {
    let mut rig = ready(GAME);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"x");
    rig.event(refusal());
    rig.provokes(DropReason::LinkDown, |rig| player.send(rig, b"y"));
    assert_eq!(rig.counters().payloads_to_links, 1);
    let (address, _) = rig.take_udp().remove(0);
    rig.answer_udp(endpoint(GAME), address, b"here");
    player.send(&mut rig, b"z");
    assert_eq!((rig.counters().payloads_to_links, rig.drops(DropReason::LinkDown)), (2, 1));

    let (mut rig, mut player, socket) = remote();
    rig.event(IoEvent::Unreachable { socket, peer: endpoint(REMOTE) });
    rig.provokes(DropReason::LinkDown, |rig| player.send(rig, b"y"));
    assert_eq!(rig.take_on(socket), [b""; 0]);
}

#[test]
fn a_remote_backend_that_refuses_is_gone_until_it_answers() {
    let (mut rig, mut player, socket) = remote();
    rig.event(IoEvent::Unreachable { socket, peer: endpoint(REMOTE) });
    assert!(!has_room(&mut rig, 2));
    answer(&mut rig, socket, b"here");
    assert!(has_room(&mut rig, 2));
    // One that says nothing is tried again with the next player.
    rig.event(IoEvent::Unreachable { socket, peer: endpoint(REMOTE) });
    player.live(&mut rig, 490);
    assert!(!has_room(&mut rig, 3));
    player.live(&mut rig, 100);
    assert!(has_room(&mut rig, 3));
}
