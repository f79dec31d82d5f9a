//! Which backend a player is sent to, and in which slot.

use std::collections::HashMap;

use super::clients::{Library as _, Player, Scribe};
use super::games::{Game, Heard};
use super::rig::{Rig, bundle_backend, home, listener};
use crate::ids::BackendId;
use crate::mail::Mail;
use crate::setup::{Intake, Route, Setup};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::{ConnectToken, user_data};
use ringgate_core::proto::netcode::packet::PacketKind;

const NAMES: [&str; 3] = ["one", "two", "three"];

fn setup(route: Route, slots: [u32; 3]) -> Setup {
    let mut listener = listener("eu", &[0, 1, 2]);
    listener.route = route;
    let backends = NAMES.iter().zip(slots).map(|(name, slots)| bundle_backend(name, slots));
    Setup::new(vec![listener], backends.collect(), 1)
}

fn ready(setup: Setup) -> (Rig, [Game; 3]) {
    let mut rig = Rig::new(setup);
    let games = NAMES.map(|name| Game::join(&mut rig, name));
    (rig, games)
}

/// Lets a player in; returns the number of its backend and its slot there.
fn enter(rig: &mut Rig, games: &[Game], id: u64) -> Option<(usize, u32)> {
    enter_with(rig, games, id, b"")
}

fn enter_with(rig: &mut Rig, games: &[Game], id: u64, data: &[u8]) -> Option<(usize, u32)> {
    let token = rig.token_with(id, |spec| spec.user_data = user_data(data).expect("short"));
    let scribe = Scribe::new(&token);
    let home = home(id as u16);
    rig.deliver(home, &scribe.request());
    let answers = rig.take_for(home);
    let (kind, body) = scribe.open(&answers[0]).expect("ours");
    if kind == PacketKind::Denied {
        return None;
    }
    rig.deliver(home, &scribe.packet(PacketKind::Response, 1, &body));
    let mut chosen = games.iter().enumerate().flat_map(|(at, game)| {
        game.guests(rig).into_iter().map(move |guest| (at, guest.slot)).collect::<Vec<_>>()
    });
    let first = chosen.next();
    assert!(chosen.next().is_none(), "one backend is told");
    first
}

#[test]
fn user_data_names_the_backend() {
    let (mut rig, games) = ready(setup(Route::UserData, [4; 3]));
    for (id, name) in (1..).zip(["two", "one", "three", "two"]) {
        let (at, _) = enter_with(&mut rig, &games, id, name.as_bytes()).expect("room");
        assert_eq!(NAMES[at], name);
    }
    let exact = [b"three".as_slice(), &[0; 27], b"what follows is the game's"].concat();
    assert_eq!(enter_with(&mut rig, &games, 8, &exact).map(|(at, _)| at), Some(2));
    for (id, name) in (10..).zip(["four", "", "tw", "twos", "two\0x"]) {
        assert_eq!(enter_with(&mut rig, &games, id, name.as_bytes()), None, "{name:?}");
    }
    assert_eq!(rig.drops(DropReason::RequestBackendDown), 5);
}

/// One who asks for the backend "two".
fn asks_for_two(rig: &mut Rig, id: u64) -> ConnectToken {
    rig.token_with(id, |spec| spec.user_data = user_data(b"two").expect("short"))
}

/// What becomes of a new player who asks for "two".
fn meets(rig: &mut Rig, id: u64, reason: DropReason) -> Vec<PacketKind> {
    let scribe = Scribe::new(&asks_for_two(rig, id));
    let home = home(id as u16);
    rig.provokes(reason, |rig| rig.deliver(home, &scribe.request()));
    scribe.kinds(rig, home)
}

#[test]
fn a_backend_that_is_named_anew_is_waited_for_and_one_that_was_there_and_is_gone_is_not() {
    use DropReason::{BackendStarting, RequestBackendDown};
    let with = setup(Route::UserData, [4; 3]);
    let mut without = with.clone();
    without.backends[BackendId(1)].retired = true;
    let mut rig = Rig::new(without.clone());
    rig.pass(10_000);
    assert_eq!(meets(&mut rig, 1, RequestBackendDown), [PacketKind::Denied]);
    rig.mail(Mail::Setup(with.clone().into()));
    assert!(meets(&mut rig, 2, BackendStarting).is_empty(), "its client asks again");

    // A client does, and is in as soon as the process has connected.
    let token = asks_for_two(&mut rig, 3);
    let mut player = Player::new(&rig, home(3), &token);
    player.live(&mut rig, 1_000);
    assert!(rig.drops(BackendStarting) > 5 && !player.library.is_over());
    let two = Game::join(&mut rig, "two");
    player.live(&mut rig, 200);
    assert!(player.library.is_connected());

    two.crash(&mut rig);
    assert_eq!(meets(&mut rig, 4, RequestBackendDown), [PacketKind::Denied]);
    // It registers itself again: a moment later it is back.
    rig.mail(Mail::Setup(without.into()));
    rig.mail(Mail::Setup(with.into()));
    assert!(meets(&mut rig, 5, BackendStarting).is_empty());
    rig.pass(5_000);
    assert_eq!(meets(&mut rig, 6, RequestBackendDown), [PacketKind::Denied], "not for ever");
}

#[test]
fn a_backend_that_says_that_it_is_starting_is_waited_for_and_one_that_ends_is_not() {
    use DropReason::{BackendDrained, BackendStarting, RequestBackendDown};
    let with = |intake, is_drained| {
        let mut setup = setup(Route::UserData, [4; 3]);
        setup.backends[BackendId(1)].intake = intake;
        setup.backends[BackendId(1)].drained = is_drained;
        Mail::Setup(setup.into())
    };
    let (mut rig, games) = ready(setup(Route::UserData, [4; 3]));
    rig.pass(10_000);
    rig.mail(with(Intake::NobodyYet, false));
    assert!(meets(&mut rig, 1, BackendStarting).is_empty());
    rig.mail(with(Intake::Nobody, false));
    assert_eq!(meets(&mut rig, 2, RequestBackendDown), [PacketKind::Denied]);
    rig.mail(with(Intake::NobodyYet, true));
    assert_eq!(meets(&mut rig, 3, BackendDrained), [PacketKind::Denied]);
    rig.mail(with(Intake::NobodyYet, false));
    rig.pass(5_000);
    assert_eq!(meets(&mut rig, 4, RequestBackendDown), [PacketKind::Denied], "not for ever");
    rig.mail(with(Intake::Sent, false));
    assert_eq!(enter_with(&mut rig, &games, 5, b"two").map(|(at, _)| at), Some(1));
}

#[test]
fn a_process_that_closes_its_intake_keeps_its_players_and_gets_no_more() {
    let (mut rig, games) = ready(setup(Route::UserData, [4; 3]));
    let there = Scribe::new(&asks_for_two(&mut rig, 1));
    there.connect(&mut rig, home(1));
    let session = games[1].guests(&mut rig)[0].session;
    let says = |rig: &mut Rig, is_open| games[1].say(rig, |writer| writer.intake(is_open));
    says(&mut rig, false);
    let denied = [PacketKind::Denied];
    assert_eq!(meets(&mut rig, 2, DropReason::RequestBackendDown), denied);
    assert!(rig.host.gate().backends_closed().eq([false, true, false]));
    assert!(rig.host.gate().backends_up().all(|is_up| is_up));
    rig.deliver(home(1), &there.payload(2, b"still here"));
    let heard = Heard::Payload(session, b"still here".to_vec());
    assert_eq!(games[1].hear(&mut rig), [heard]);

    // It is the process's word: it holds at the gateway's next process, not on the next link.
    rig.hand_over();
    assert_eq!(meets(&mut rig, 3, DropReason::RequestBackendDown), denied);
    games[1].hear(&mut rig);
    says(&mut rig, true);
    assert_eq!(enter_with(&mut rig, &games, 4, b"two").map(|(at, _)| at), Some(1));
    says(&mut rig, false);
    let [one, two, three] = games;
    two.crash(&mut rig);
    let two = Game::join(&mut rig, "two");
    two.hear(&mut rig);
    let games = [one, two, three];
    assert_eq!(enter_with(&mut rig, &games, 5, b"two").map(|(at, _)| at), Some(1));
}

#[test]
fn nobody_waits_for_a_backend_that_is_for_others() {
    let mut setup = setup(Route::LeastPlayers, [4; 3]);
    for at in 0..3 {
        setup.backends[BackendId(at)].intake = Intake::Sent;
    }
    let mut rig = Rig::new(setup);
    let denied = meets(&mut rig, 1, DropReason::RequestBackendDown);
    assert_eq!(denied, [PacketKind::Denied]);
}

#[test]
fn a_hash_sends_a_player_to_the_same_backend_while_that_is_up() {
    let (mut rig, games) = ready(setup(Route::Hash, [100; 3]));
    let mut homes = HashMap::new();
    let mut counts = [0; 3];
    for id in 0..60 {
        let (at, _) = enter(&mut rig, &games, id).expect("room");
        homes.insert(id, at);
        counts[at] += 1;
    }
    assert!(counts.iter().all(|count| *count > 5), "all are used: {counts:?}");
    rig.pass(10_000);
    assert_eq!(rig.sessions(), 0, "timed out");
    rig.sent.clear();

    let [one, two, three] = games;
    two.crash(&mut rig);
    let games = [one, three];
    for id in 0..60 {
        let (at, _) = enter(&mut rig, &games, id).expect("room");
        let at = [0, 2][at];
        let before = homes[&id];
        assert!(at == before || before == 1, "only players of the lost backend move");
    }
}

#[test]
fn the_least_players_are_kept_level() {
    let (mut rig, games) = ready(setup(Route::LeastPlayers, [100, 100, 100]));
    let mut counts = [0; 3];
    for id in 0..30 {
        let (at, _) = enter(&mut rig, &games, id).expect("room");
        counts[at] += 1;
    }
    assert_eq!(counts, [10; 3]);
}

#[test]
fn a_small_backend_that_is_full_does_not_stop_players_whom_others_have_room_for() {
    let (mut rig, games) = ready(setup(Route::LeastPlayers, [1, 2, 4]));
    let chosen: Vec<_> = (0..8).map(|id| enter(&mut rig, &games, id)).collect();
    assert_eq!(chosen.iter().flatten().count(), 7, "{chosen:?}");
    assert_eq!(chosen[7], None);
    assert_eq!(rig.drops(DropReason::RequestBackendFull), 1);
}

#[test]
fn a_single_route_takes_the_first_that_is_up() {
    let (mut rig, games) = ready(setup(Route::Single, [4; 3]));
    assert_eq!(enter(&mut rig, &games, 1), Some((0, 0)));
    let [one, two, three] = games;
    one.crash(&mut rig);
    assert_eq!(enter(&mut rig, &[two, three], 2), Some((0, 0)));
}

#[test]
fn slots_are_the_lowest_free_ones_and_never_shared() {
    let (mut rig, games) = ready(setup(Route::Single, [3; 3]));
    for slot in 0..3 {
        assert_eq!(enter(&mut rig, &games, slot.into()), Some((0, slot)));
    }
    // The player in slot 1 leaves.
    let token = rig.token(9);
    rig.deliver(home(9), &Scribe::new(&token).request());
    let session = rig.session_at(home(1));
    games[0].say(&mut rig, |w| w.close(session, ringgate_link::bundle::CloseReason::Kicked));
    assert_eq!(enter(&mut rig, &games, 5), Some((0, 1)));
}

#[test]
fn a_retired_backend_keeps_its_players_and_gets_no_more() {
    let before = setup(Route::LeastPlayers, [4; 3]);
    let (mut rig, games) = ready(before.clone());
    assert_eq!(enter(&mut rig, &games, 1), Some((0, 0)));
    let mut after = before;
    after.backends[BackendId(0)].retired = true;
    after.backends[BackendId(1)].retired = true;
    rig.mail(Mail::Setup(after.into()));
    for id in 2..6 {
        assert_eq!(enter(&mut rig, &games, id).map(|(at, _)| at), Some(2));
    }
    assert_eq!(enter(&mut rig, &games, 6), None);
    let session = rig.session_at(home(1));
    games[0].say(&mut rig, |w| w.payload(session, b"still yours"));
    assert_eq!(rig.drops(DropReason::SessionUnknown), 0);
}
