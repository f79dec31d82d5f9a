//! Listeners that go while others play on, and numbers that become another listener's.

use super::clients::{Player, Scribe};
use super::games::Game;
use super::plain::{SERVERS, plain_setup_with};
use super::rig::{Asked, Fleet, Rig, bundle_backend, endpoint, home, listener};
use crate::counters::Ended;
use crate::ids::{BindId, ListenerId};
use crate::mail::Mail;
use crate::party::Party;
use crate::setup::{Listener, Phase, Setup};
use ringgate_batch::SocketId;
use ringgate_core::drops::{DropCounts, DropReason};

const FIRST: ListenerId = ListenerId(0);

/// Two listeners in front of one game.
fn two_listeners() -> Setup {
    let listeners = vec![listener("eu", &[0]), listener("us", &[0])];
    Setup::new(listeners, vec![bundle_backend("arena", 8)], 7)
}

fn with_phase(setup: &Setup, phase: Phase) -> Setup {
    let mut setup = setup.clone();
    setup.listeners[FIRST].phase = phase;
    setup
}

fn without(setup: &Setup) -> Setup {
    let mut setup = setup.clone();
    setup.listeners[FIRST] = setup.listeners[FIRST].closed();
    setup
}

fn adopt(rig: &mut Rig, setup: &Setup) {
    let setup = Setup { revision: rig.host.gate().revision() + 1, ..setup.clone() };
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
}

#[test]
fn a_listener_that_drains_keeps_its_players_and_takes_no_others() {
    let setup = two_listeners();
    let mut rig = Rig::new(setup.clone());
    let _game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    adopt(&mut rig, &with_phase(&setup, Phase::Draining));
    let late = Scribe::new(&rig.token(2));
    rig.provokes(DropReason::Draining, |rig| rig.deliver(home(2), &late.request()));
    let other = Scribe::new(&rig.token(3));
    rig.deliver_at(ListenerId(1), home(3), &other.request());
    assert_eq!(rig.take_for(home(3)).len(), 1, "the other listener takes players");
    player.live(&mut rig, 3000);
    assert!(player.library.is_connected());

    adopt(&mut rig, &with_phase(&setup, Phase::Serving));
    Player::connected(&mut rig, home(4), 4);
}

#[test]
fn a_listener_that_closes_takes_its_sockets_along_and_its_number_is_free() {
    let setup = two_listeners();
    let mut rig = Rig::new(setup.clone());
    let game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    let pending = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &pending.request());
    let elsewhere = Scribe::new(&rig.token(3));
    rig.deliver_at(ListenerId(1), home(3), &elsewhere.request());
    assert_eq!(rig.counters().pending, 2);
    rig.requests.clear();

    adopt(&mut rig, &without(&setup));
    assert_eq!(rig.requests, [Asked::Close(SocketId(1))]);
    assert_eq!((rig.sessions(), rig.counters().pending), (0, 1), "the other one's handshake stays");
    assert_eq!(rig.counters().sessions_closed[Ended::ByOperator as usize], 1);
    player.receive(&mut rig);
    assert!(!player.library.is_connected(), "the player was told");
    rig.provokes(DropReason::LinkStranger, |rig| rig.deliver(home(2), &pending.request()));

    let again = SocketId(5);
    adopt(&mut rig, &setup);
    rig.host.gate_mut().bind_player_socket(again, FIRST, BindId(0));
    let newcomer = Scribe::new(&rig.token(5));
    rig.push_at(again, home(5), &newcomer.request());
    rig.turn();
    assert_eq!(rig.take_for(home(5)).len(), 1, "it is challenged");
    assert_eq!(rig.host.gate().listener_traffic().next().map(|it| it.datagrams_in), Some(1));
    game.crash(&mut rig);
}

#[test]
fn what_several_listeners_are_counted_together_does_not_fall_when_one_goes() {
    let mut setup = two_listeners();
    let mut rig = Rig::new(setup.clone());
    while setup.listeners.len() <= Party::APART {
        setup.listeners.push(listener("more", &[0]));
    }
    adopt(&mut rig, &setup);
    let both = [0, Party::APART].map(ListenerId::at);
    let mut closed = setup.clone();
    // The rig has bound the first one's.
    let sockets = [1, 5].map(SocketId);
    rig.host.gate_mut().bind_player_socket(sockets[1], both[1], BindId(0));
    for (number, socket) in both.into_iter().zip(sockets) {
        rig.push_at(socket, home(1), b"junk");
        rig.turn();
        closed.listeners[number] = closed.listeners[number].closed();
    }
    let dropped = |rig: &Rig| {
        both.map(|it| rig.host.gate().listener_drops().nth(it.index()).map(DropCounts::total))
    };
    assert_eq!(dropped(&rig), [Some(1); 2]);
    adopt(&mut rig, &closed);
    adopt(&mut rig, &setup);
    assert_eq!(dropped(&rig), [Some(0), Some(1)]);
}

#[test]
fn a_number_may_become_a_listener_of_another_protocol() {
    let plain = plain_setup_with(8, |_| {});
    let mut setup = plain.clone();
    setup.listeners.push(listener("eu", &[0]));
    let mut rig = Rig::new(setup.clone());
    rig.deliver(home(1), b"hello");
    assert_eq!((rig.counters().pending, rig.take_for_servers().len()), (1, 1));
    adopt(&mut rig, &without(&setup));
    assert_eq!(rig.counters().pending, 0, "who is half open has no listener any more");

    setup.listeners[FIRST] = Listener { name: "other".to_owned(), ..listener("x", &[0]) };
    adopt(&mut rig, &setup);
    rig.host.gate_mut().bind_player_socket(SocketId(5), FIRST, BindId(0));
    rig.push_at(SocketId(5), home(1), b"hello");
    rig.turn();
    assert!(rig.take_for_servers().is_empty(), "it speaks netcode now");
    let scribe = Scribe::new(&rig.token(1));
    rig.push_at(SocketId(5), home(1), &scribe.request());
    rig.turn();
    // The backends are plain servers, and one of them takes the player.
    assert_eq!(rig.counters().pending, 1);

    adopt(&mut rig, &without(&setup));
    adopt(&mut rig, &plain_with(&setup, &plain));
    rig.host.gate_mut().bind_player_socket(SocketId(6), FIRST, BindId(0));
    rig.push_at(SocketId(6), home(1), b"hello");
    rig.turn();
    let (server, ..) = rig.take_for_servers().pop().expect("a server hears of it");
    assert!(SERVERS.iter().any(|address| endpoint(address) == server));
}

/// The first listener is the plain one again.
fn plain_with(setup: &Setup, plain: &Setup) -> Setup {
    let mut setup = setup.clone();
    setup.listeners[FIRST] = plain.listeners[FIRST].clone();
    setup
}

#[test]
fn what_other_workers_forward_to_a_listener_that_has_closed_goes_no_further() {
    let setup = two_listeners();
    let mut fleet = Fleet::new(setup.clone(), 2);
    let _game = Game::join(&mut fleet.rigs[0], "arena");
    let scribe = Scribe::new(&fleet.rigs[0].token(1));
    scribe.connect(&mut fleet.rigs[0], home(1));
    fleet.rigs[1].deliver(home(1).with_port(6000), &scribe.payload(2, b"x"));
    adopt(&mut fleet.rigs[0], &without(&setup));
    fleet.deliver_mail();
    assert_eq!(fleet.rigs[0].drops(DropReason::UnknownSource), 1);
    adopt(&mut fleet.rigs[1], &without(&setup));
    fleet.deliver_mail();
}
