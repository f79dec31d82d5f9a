//! Numbers that are others in the process that takes over.

use super::super::clients::{Player, Scribe};
use super::super::games::{Game, Heard};
use super::super::rig::{Asked, Rig, bundle_backend, home, listener};
use super::super::unreal::rig::{Arena, Player as UnrealPlayer, unreal_listener, unreal_setup};
use super::STREAM_BYTES;
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::rehearsal::Rehearsal;
use crate::setup::{Backend, Intake, Listener, Setup};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{Goodbye, GoodbyeReason};
use std::sync::Arc;

fn setup(names: &[&str], backends: &[Backend]) -> Setup {
    let all: Vec<_> = (0..backends.len() as u16).collect();
    let listeners = names.iter().map(|name| listener(name, &all)).collect();
    Setup::new(listeners, backends.to_vec(), 77)
}

/// One player at the listener "eu", whose backend is "arena".
fn playing() -> (Rig, Game, Player<ringgate_core::netcode::Client>) {
    let mut rig = Rig::new(setup(&["eu"], &[bundle_backend("arena", 4)]));
    let game = Game::join(&mut rig, "arena");
    let player = Player::connected(&mut rig, home(1), 1);
    (rig, game, player)
}

pub(in crate::tests) fn hand_over_to(rig: &mut Rig, setup: Setup) -> u64 {
    let rehearsal = Rehearsal::new(1, STREAM_BYTES);
    let succession = rehearsal.finish(&[rig.host.gate()], &Arc::new(setup), rig.now);
    let succession = succession.expect("it can be read");
    let [gate] = succession.gates.try_into().ok().expect("one worker");
    *rig.host.gate_mut() = gate;
    succession.arrived.not_carried
}

#[test]
fn listeners_and_backends_may_have_other_numbers() {
    let (mut rig, game, mut player) = playing();
    let session = game.guests(&mut rig)[0].session;
    let backends = [bundle_backend("other", 4), bundle_backend("arena", 9)];
    assert_eq!(hand_over_to(&mut rig, setup(&["us", "eu"], &backends)), 0);
    game.hear(&mut rig);
    player.send(&mut rig, b"here");
    assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"here".to_vec())]);
    let info = rig.host.gate().sessions().next().expect("one session");
    assert_eq!((info.listener, info.backend), (ListenerId(1), BackendId(1)));
    let claims = &rig.host.gate().common.claims;
    assert_eq!((claims.players(BackendId(1)), claims.sessions(ListenerId(1))), (1, 1));
}

#[test]
fn who_has_no_listener_or_no_backend_any_more_is_ended_and_counted() {
    for (names, backend) in [(&["us"], "arena"), (&["eu"], "other")] {
        let (mut rig, _game, _player) = playing();
        assert_eq!(hand_over_to(&mut rig, setup(names, &[bundle_backend(backend, 4)])), 1);
        assert_eq!(rig.counters().sessions_closed[Ended::NotCarried as usize], 1);
        assert_eq!(rig.sessions(), 0);
        let claims = &rig.host.gate().common.claims;
        assert_eq!((claims.players(BackendId(0)), claims.sessions(ListenerId(0))), (0, 0));
        rig.turn();
    }
}

/// It may be the backend again one day, and would not say hello on a link that it takes for one.
#[test]
fn a_process_whose_backend_is_not_there_any_more_is_told_so() {
    let mut rig = Rig::new(setup(&["eu"], &[bundle_backend("arena", 4)]));
    let game = Game::join(&mut rig, "arena");
    game.hear(&mut rig);
    hand_over_to(&mut rig, setup(&["eu"], &[bundle_backend("other", 4)]));
    rig.turn();
    let goodbye = Goodbye { reason: GoodbyeReason::NameUnknown, error: None };
    assert_eq!(game.hear(&mut rig), [Heard::Goodbye(goodbye)]);
    assert_eq!(rig.requests, [Asked::Close(game.link)]);
}

#[test]
fn an_unreal_newcomer_goes_on_whatever_number_its_listener_has_by_then() {
    let behind = |others: usize| {
        let mut setup = unreal_setup(1);
        let own = std::mem::take(&mut setup.listeners);
        let other = |n| Listener { name: format!("other-{n}"), ..unreal_listener(&[0]) };
        setup.listeners =
            (0..others).map(other).chain(own.iter().cloned()).collect::<Vec<_>>().into();
        setup
    };
    for hand_overs in [&[1][..], &[2, 1], &[1, 0], &[2, 2, 1]] {
        let mut arena = Arena::new(behind(0), 1);
        let mut newcomer = UnrealPlayer::new(&arena, 1);
        newcomer.step(&mut arena);
        for &others in hand_overs {
            assert_eq!(hand_over_to(arena.rig(), behind(others)), 0);
        }
        newcomer.step(&mut arena);
        assert!(newcomer.peer.is_some(), "{hand_overs:?}");
        assert!(newcomer.plays(&mut arena));
    }
}

/// Why a new player is not let in, whose backend is not there.
fn meets(rig: &mut Rig, id: u16, reason: DropReason) {
    let scribe = Scribe::new(&rig.token(id.into()));
    rig.provokes(reason, |rig| rig.deliver(home(id), &scribe.request()));
}

#[test]
fn a_backend_that_is_waited_for_is_waited_for_as_long_as_without_a_successor() {
    use DropReason::{BackendStarting, RequestBackendDown};
    let same = || setup(&["eu"], &[bundle_backend("arena", 4)]);
    let mut rig = Rig::new(same());
    rig.pass(4_000);
    assert_eq!(hand_over_to(&mut rig, same()), 0);
    meets(&mut rig, 1, BackendStarting);
    rig.pass(1_000);
    meets(&mut rig, 2, RequestBackendDown);
}

#[test]
fn a_successor_waits_for_backends_that_its_own_setup_names_anew() {
    use DropReason::{BackendStarting, RequestBackendDown};
    let with = |retired, intake| {
        setup(&["eu"], &[Backend { retired, intake, ..bundle_backend("arena", 4) }])
    };
    for (before, after, is_anew) in [
        (with(true, Intake::Anybody), with(false, Intake::Anybody), true),
        (with(false, Intake::Nobody), with(false, Intake::Anybody), true),
        (with(false, Intake::NobodyYet), with(false, Intake::Anybody), true),
        (with(false, Intake::Anybody), with(false, Intake::Nobody), false),
    ] {
        let mut rig = Rig::new(before);
        rig.pass(10_000);
        meets(&mut rig, 1, RequestBackendDown);
        hand_over_to(&mut rig, after);
        meets(&mut rig, 2, if is_anew { BackendStarting } else { RequestBackendDown });
        rig.pass(5_000);
        meets(&mut rig, 3, RequestBackendDown);
    }
}

#[test]
fn a_player_is_not_denied_while_a_successor_has_not_heard_of_its_fleet_yet() {
    use DropReason::{BackendStarting, RequestBackendDown};
    let (mut rig, game, _player) = playing();
    rig.pass(10_000);
    let arena = Backend { retired: true, ..bundle_backend("arena", 4) };
    let mut unheard = Setup { awaits_fleet: true, ..setup(&["eu"], &[arena]) };
    unheard.listeners[ListenerId(0)].backends.clear();
    let heard = Setup { awaits_fleet: false, ..unheard.clone() };
    assert_eq!(hand_over_to(&mut rig, unheard), 0);
    meets(&mut rig, 2, BackendStarting);
    rig.pass(4_900);
    meets(&mut rig, 3, BackendStarting);
    // Where hand-overs are rehearsed, each process waits anew.
    if std::env::var_os("REHEARSE_HAND_OVER").is_none() {
        rig.pass(200);
        meets(&mut rig, 4, RequestBackendDown);
    }
    assert_eq!(hand_over_to(&mut rig, heard), 0);
    meets(&mut rig, 5, RequestBackendDown);
    drop(game);
}
