//! The gate itself: what it was told while it runs, when it may sleep, what it notes for latencies.

use super::clients::{Player, Scribe};
use super::games::Game;
use super::rig::{
    Fleet, Rig, bundle_backend, home, listener, netcode_rules, plain_setup, udp_backend,
};
use crate::gate::Gate;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::party::Party;
use crate::setup::{Route, Setup};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;

#[test]
fn an_idle_gate_waits_for_nothing() {
    let mut rig = Rig::new(plain_setup());
    rig.turn();
    assert_eq!(rig.host.gate().poll_timeout(), None, "a backend that never came is not waited for");
    let game = Game::join(&mut rig, "arena");
    assert_eq!(rig.host.gate().poll_timeout(), None);
    let mut player = Player::connected(&mut rig, home(1), 1);
    player.leave(&mut rig);
    game.crash(&mut rig);
    rig.pass(1000);
    assert_eq!(rig.host.gate().poll_timeout(), None);
}

#[test]
fn with_players_a_gate_sleeps_until_a_keep_alive_is_due() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let _player = Player::connected(&mut rig, home(1), 1);
    let mut turns = 0;
    let start_ns = rig.now.mono_ns;
    while rig.now.mono_ns < start_ns + 1_000_000_000 {
        let due_ns = rig.host.gate().poll_timeout().expect("a player");
        rig.jump(due_ns.saturating_sub(rig.now.mono_ns).div_ceil(1_000_000).max(1));
        rig.turn();
        turns += 1;
    }
    assert!((9..=12).contains(&turns), "{turns} turns in a second");
}

#[test]
fn a_reload_adds_listeners_and_backends_and_resizes() {
    let mut setup = plain_setup();
    let mut rig = Rig::new(setup.clone());
    let game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    setup.listeners[ListenerId(0)].route = Route::LeastPlayers;
    setup.listeners[ListenerId(0)].backends = [0, 1, 2].map(BackendId).to_vec();
    setup.backends[BackendId(0)].slots = 1;
    setup.backends.push(bundle_backend("annex", 1));
    setup.backends.push(udp_backend("box", "127.0.0.1:7777", 1));
    setup.listeners.push(listener("us", &[1]));
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
    let annex = Game::join(&mut rig, "annex");
    let scribes = [2, 3, 4].map(|id| Scribe::new(&rig.token(id)));
    for (n, scribe) in (2..).zip(&scribes[..2]) {
        scribe.connect(&mut rig, home(n));
    }
    assert_eq!(rig.sessions(), 3);
    rig.provokes(DropReason::RequestBackendFull, |rig| rig.deliver(home(4), &scribes[2].request()));
    assert_eq!((game.guests(&mut rig).len(), annex.guests(&mut rig).len()), (1, 1));
    player.live(&mut rig, 500);
    assert!(player.library.is_connected());
}

#[test]
fn a_reload_does_not_open_the_windows_of_those_who_are_here() {
    let mut setup = plain_setup();
    let mut rig = Rig::new(setup.clone());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    for sequence in 2..300 {
        rig.deliver(home(1), &scribe.payload(sequence, b"x"));
    }
    netcode_rules(&mut setup).replay = Policy::new(1024, 50).expect("a power of two");
    rig.mail(Mail::Setup(setup.into()));
    game.hear(&mut rig);
    for sequence in 2..300 {
        rig.deliver(home(1), &scribe.payload(sequence, b"x"));
    }
    assert!(game.payloads(&mut rig).is_empty(), "nothing is taken a second time");
    // The gap rule is the new one.
    rig.provokes(DropReason::SequenceGap, |rig| {
        rig.deliver(home(1), &scribe.payload(350, b"x"));
    });
}

#[test]
fn moments_of_forwarded_payloads_are_noted() {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let owner = &mut fleet.rigs[0];
    let _game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(1));
    scribe.connect(owner, home(1));
    assert_eq!(owner.host.gate().stamps().handshakes_ns, [(Party::of(ListenerId(0)), 0)]);
    fleet.rigs[1].deliver(home(1).with_port(6000), &scribe.payload(2, b"x"));
    fleet.deliver_mail();
    assert_eq!(fleet.rigs[0].host.gate().stamps().uplink_kernel_ns, [0]);
    fleet.rigs[0].turn();
    assert!(fleet.rigs[0].host.gate().stamps().uplink_kernel_ns.is_empty());
}

#[test]
fn a_session_takes_three_eighths_of_a_kilobyte_at_most() {
    let bytes = Gate::session_bytes();
    println!("a session takes {bytes} bytes");
    assert!(bytes <= 384);
}

#[test]
fn places_are_used_again_when_all_have_been_used() {
    let mut setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 9)], 1);
    setup.worker_sessions_max = 2;
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let mut seen = std::collections::HashSet::new();
    for n in 0..50 {
        let mut player = Player::connected(&mut rig, home(n), n.into());
        let session = game.guests(&mut rig)[0].session;
        assert!(seen.insert(session), "session ids are never used again");
        player.leave(&mut rig);
    }
}
