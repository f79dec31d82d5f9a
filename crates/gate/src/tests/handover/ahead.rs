//! What is written while the gate still serves, and what has changed by the end.

use super::super::clients::{Player, Scribe};
use super::super::games::{Game, Heard};
use super::super::rig::{Rig, home, plain_setup};
use super::STREAM_BYTES;
use crate::rehearsal::Rehearsal;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::user_data;
use ringgate_link::bundle::CloseReason;
use std::sync::Arc;

impl Rig {
    /// Goes on with a gate that is made of what was written ahead and of the rest.
    pub(super) fn succeed(&mut self, rehearsal: Rehearsal) {
        let setup = Arc::clone(&self.host.gate().common.setup);
        let gates = [self.host.gate()];
        let succession = rehearsal.finish(&gates, &setup, self.now).expect("it can be read");
        assert_eq!(succession.arrived.not_carried, 0);
        assert_eq!(succession.arrived.sessions, self.sessions());
        let [gate] = succession.gates.try_into().ok().expect("one worker");
        *self.host.gate_mut() = gate;
    }
}

pub(super) fn copy(rehearsal: &mut Rehearsal, rig: &Rig) {
    while !rehearsal.ahead(&[rig.host.gate()], 3).expect("room") {}
}

#[test]
fn what_changes_after_it_was_written_is_carried_as_it_is_in_the_end() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let mut stays = Player::connected(&mut rig, home(1), 1);
    let mut leaves = Player::connected(&mut rig, home(2), 2);
    let mut moves = Player::connected(&mut rig, home(3), 3);
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    copy(&mut rehearsal, &rig);
    stays.send(&mut rig, b"one more");
    leaves.leave(&mut rig);
    // The same client id and the same slot, at the same address and at another place.
    let mut comes = Player::connected(&mut rig, home(2), 2);
    let mut other = Player::connected(&mut rig, home(4), 4);
    copy(&mut rehearsal, &rig);
    other.leave(&mut rig);
    rig.pass(400);
    moves.home = moves.home.with_port(6000);
    moves.send(&mut rig, b"from elsewhere");
    assert_eq!(rig.counters().port_switches, 1);
    rig.succeed(rehearsal);
    game.hear(&mut rig);
    for player in [&mut stays, &mut comes, &mut moves] {
        player.send(&mut rig, b"here");
    }
    assert_eq!(game.payloads(&mut rig), [b"here"; 3]);
    assert_eq!(rig.sessions(), 3);
    // All slots are what they were: one is free, and no more.
    let _fourth = Player::connected(&mut rig, home(5), 5);
    let scribe = Scribe::new(&rig.token(6));
    rig.provokes(DropReason::RequestBackendFull, |rig| rig.deliver(home(6), &scribe.request()));
}

#[test]
fn two_players_who_have_exchanged_their_addresses_are_not_taken_for_each_other() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let mut players = [1, 2].map(|n| Player::connected(&mut rig, home(1).with_port(n), n.into()));
    let sessions: Vec<_> = game.guests(&mut rig).iter().map(|guest| guest.session).collect();
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    copy(&mut rehearsal, &rig);
    for (player, port) in [(0, 3), (1, 1), (0, 2)] {
        rig.pass(300);
        players[player].home = home(1).with_port(port);
        players[player].send(&mut rig, b"moved");
    }
    assert_eq!(rig.counters().port_switches, 3);
    rig.succeed(rehearsal);
    game.hear(&mut rig);
    for (player, session) in players.iter_mut().zip(sessions) {
        player.send(&mut rig, b"me");
        assert_eq!(game.hear(&mut rig), [Heard::Payload(session, b"me".to_vec())]);
    }
}

#[test]
fn records_that_say_the_same_are_not_written_twice() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let mut player = Player::connected(&mut rig, home(1), 1);
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    let len = |rehearsal: &mut Rehearsal| rehearsal.streams().map(<[u8]>::len).sum::<usize>();
    copy(&mut rehearsal, &rig);
    let once = len(&mut rehearsal);
    copy(&mut rehearsal, &rig);
    assert_eq!(len(&mut rehearsal), once);
    player.send(&mut rig, b"x");
    copy(&mut rehearsal, &rig);
    assert!(len(&mut rehearsal) > once);
    rig.succeed(rehearsal);
}

#[test]
fn the_rest_is_the_same_however_small_the_window_is_that_it_goes_through() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let _stay = [1, 2, 3].map(|n| Player::connected(&mut rig, home(n), n.into()));
    Player::connected(&mut rig, home(4), 4).leave(&mut rig);
    let asks = Scribe::new(&rig.token(5));
    rig.deliver(home(5), &asks.request());
    game.hear(&mut rig);
    let through = |window: usize| {
        let mut rehearsal = Rehearsal::new(1, window);
        rehearsal.write_rest(&[rig.host.gate()]).expect("it is quiet");
        rehearsal.streams().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let at_once = through(STREAM_BYTES);
    let longest = at_once[1].len();
    // Shorter than a session's record, and shorter than the front's.
    for window in [100, 333, 1000, longest - 1, longest] {
        assert!(through(window) == at_once, "a window of {window} bytes");
    }
    let mut rehearsal = Rehearsal::new(1, 1000);
    copy(&mut rehearsal, &rig);
    rig.succeed(rehearsal);
    assert_eq!(rig.sessions(), 3);
}

#[test]
fn a_process_that_ends_a_session_after_the_copy_has_ended_it() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let _player = Player::connected(&mut rig, home(1), 1);
    let session = game.guests(&mut rig)[0].session;
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    copy(&mut rehearsal, &rig);
    game.say(&mut rig, |writer| writer.close(session, CloseReason::Kicked));
    rig.succeed(rehearsal);
    game.say(&mut rig, |writer| writer.payload(session, b"late"));
    assert_eq!((rig.sessions(), rig.drops(DropReason::SessionUnknown)), (0, 1));
}

#[test]
fn user_data_is_told_by_the_successor_to_a_process_that_comes_back() {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    let user_data = |text: &str| user_data(text.as_bytes()).expect("short");
    let come = |rig: &mut Rig, n: u16, text: &str| {
        let token = rig.token_with(n.into(), |spec| spec.user_data = user_data(text));
        let mut player = Player::new(rig, home(n), &token);
        player.connect(rig);
        player
    };
    let mut leaves = come(&mut rig, 1, "before");
    let mut stays = come(&mut rig, 2, "team=red");
    let mut moves = come(&mut rig, 4, "team=blue");
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    copy(&mut rehearsal, &rig);
    // Another one in its place, and one without.
    leaves.leave(&mut rig);
    let mut comes = come(&mut rig, 1, "after");
    let mut plain = Player::connected(&mut rig, home(3), 3);
    copy(&mut rehearsal, &rig);
    rig.pass(400);
    moves.home = moves.home.with_port(6000);
    moves.send(&mut rig, b"from elsewhere");
    assert_eq!(rig.counters().port_switches, 1);
    stays.send(&mut rig, b"x");
    game.hear(&mut rig);
    rig.succeed(rehearsal);
    game.crash(&mut rig);
    let game = Game::join(&mut rig, "arena");
    for player in [&mut stays, &mut comes, &mut plain, &mut moves] {
        player.live(&mut rig, 200);
    }
    let mut told: Vec<_> = game.guests(&mut rig);
    told.sort_by_key(|guest| guest.client_id);
    let told: Vec<_> = told.iter().map(|it| (it.client_id, it.user_data.to_vec())).collect();
    let expected = [(1, "after"), (2, "team=red"), (3, ""), (4, "team=blue")];
    assert_eq!(told, expected.map(|(id, text)| (id, user_data(text).to_vec())));
}
