//! Players of every protocol, at moments when something is half done.

use super::super::clients::{Player, Scribe};
use super::super::games::Game;
use super::super::plain::{SERVERS, arrived, numbered, plain_rig, play_with, unet};
use super::super::rig::{Rig, endpoint, home, plain_setup, udp_backend};
use super::super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_setup};
use crate::counters::Ended;
use crate::setup::Setup;
use ringgate_core::drops::DropReason;

#[test]
fn an_unreal_player_plays_on_after_each_step_of_its_handshake_and_of_a_move() {
    for workers in [1, 3] {
        let mut arena = Arena::new(unreal_setup(1), workers);
        let mut player = UnrealPlayer::new(&arena, 1);
        while player.peer.is_none() {
            player.step(&mut arena);
            arena.fleet.hand_over();
            arena.pass(50);
        }
        assert!(player.plays(&mut arena));
        arena.fleet.hand_over();
        assert!(player.plays(&mut arena));
        player.change_port(&mut arena, usize::from(workers) - 1);
        arena.fleet.hand_over();
        player.restart(&mut arena);
        arena.fleet.hand_over();
        assert!(player.plays(&mut arena));
        let counters = arena.counters();
        assert_eq!(
            (counters.sessions, counters.sessions_opened, counters.port_switches),
            (1, 1, 1)
        );
        let tally = arena.servers[0].tally();
        assert_eq!((tally.connections, tally.duplicates), (1, 0));
    }
}

#[test]
fn a_response_that_was_used_cannot_be_used_again() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = UnrealPlayer::new(&arena, 1);
    player.connect(&mut arena);
    let response = player.sent[1].clone();
    let elsewhere = player.home.with_port(9);
    arena.fleet.hand_over();
    arena.deliver(0, elsewhere, &response);
    assert_eq!(arena.drops(DropReason::CookieForged), 1, "it is for another address");
    arena.pass(31_000);
    assert_eq!(arena.counters().sessions, 0);
    arena.deliver(0, player.home, &response);
    assert_eq!(arena.counters().sessions, 0);
}

#[test]
fn a_plain_player_keeps_its_address_its_window_and_its_slot() {
    let mut rig = plain_rig(|rules| rules.sequence = Some(unet(false)));
    let (local, server) = play_with(&mut rig, home(1), [&numbered(353), &numbered(354)]);
    rig.deliver(home(2), &numbered(7));
    let (half_open, other, _) = arrived(&mut rig).pop().expect("it goes on at once");
    rig.hand_over();
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &numbered(354)));
    rig.deliver(home(1), &numbered(355));
    assert_eq!(arrived(&mut rig), [(local, server, numbered(355))]);
    rig.answer_udp(endpoint(SERVERS[other]), half_open, b"a");
    rig.deliver(home(2), &numbered(8));
    assert_eq!(arrived(&mut rig), [(half_open, other, numbered(8))]);
    assert_eq!((rig.counters().sessions, rig.counters().pending), (2, 0));
    rig.provokes(DropReason::SequenceGap, |rig| rig.deliver(home(1), &numbered(355 + 513)));
    rig.hand_over();
    rig.provokes(DropReason::AfterGap, |rig| rig.deliver(home(1), &numbered(1)));
}

#[test]
fn a_netcode_player_keeps_its_loopback_address_and_its_place_rests_after_it() {
    let backend = udp_backend("arena", "127.0.0.1:7000", 4);
    let mut rig = Rig::new(Setup { backends: vec![backend].into(), ..plain_setup() });
    let mut player = Player::connected(&mut rig, home(1), 1);
    rig.take_udp();
    player.send(&mut rig, b"one");
    let before = rig.take_udp();
    rig.hand_over();
    player.send(&mut rig, b"one");
    assert_eq!(rig.take_udp(), before);
    player.leave(&mut rig);
    rig.hand_over();
    let mut next = Player::connected(&mut rig, home(2), 2);
    rig.take_udp();
    next.send(&mut rig, b"one");
    assert_ne!(rig.take_udp()[0].0, before[0].0, "the address rests");
}

#[test]
fn a_used_token_is_not_forgotten() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.hand_over();
    rig.deliver(home(1), &scribe.disconnect(2));
    assert_eq!(rig.counters().sessions_closed[Ended::ByPlayer as usize], 1);
    rig.hand_over();
    rig.provokes(DropReason::TokenSpent, |rig| rig.deliver(home(1), &scribe.request()));
    rig.provokes(DropReason::TokenUsedElsewhere, |rig| rig.deliver(home(2), &scribe.request()));
}

#[test]
fn who_goes_on_after_all_uses_no_number_twice() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    let session = game.guests(&mut rig)[0].session;
    rig.deliver(home(1), &scribe.payload(2, b"x"));
    let setup = std::sync::Arc::clone(&rig.host.gate().common.setup);
    let succession = super::succession(&[rig.host.gate()], &setup, rig.now);
    let [heir] = succession.gates.try_into().ok().expect("one worker");
    // The successor says something before it gives up; the rig's judge sees all nonces.
    let predecessor = std::mem::replace(rig.host.gate_mut(), heir);
    game.say(&mut rig, |writer| writer.payload(session, b"from the successor"));
    let token = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &token.request());
    *rig.host.gate_mut() = predecessor;
    rig.host.gate_mut().resume_after_failed_hand_over();
    game.say(&mut rig, |writer| writer.payload(session, b"from the predecessor"));
    rig.deliver(home(2), &token.request());
    assert_eq!(rig.take_for(home(1)).len(), 3, "the welcome and both");
}
