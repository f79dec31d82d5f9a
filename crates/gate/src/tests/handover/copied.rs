//! Unreal and plain players who change after they were copied: what follows from a session (counts,
//! addresses, cookies) is noted as it comes, so it has to be taken back as well.

use super::super::plain::{SERVERS, arrived, plain_rig, play};
use super::super::rig::{Rig, endpoint, home};
use super::super::unreal::rig::{Arena, Player, unreal_setup};
use super::STREAM_BYTES;
use super::ahead::copy;
use crate::rehearsal::Rehearsal;

fn unreal_counts(rig: &Rig) -> (usize, usize) {
    let unreal = &rig.host.gate().fronts.unreal;
    (unreal.sessions.len(), unreal.opening_count)
}

#[test]
fn unreal_players_who_open_move_or_leave_after_the_copy_are_known_as_they_are() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let stays = Player::connected(&mut arena, 1);
    let mut moves = Player::connected(&mut arena, 2);
    let mut opens = Player::new(&arena, 3);
    arena.servers[0].is_deaf = true;
    for _ in 0..3 {
        opens.step(&mut arena);
    }
    assert_eq!(unreal_counts(arena.rig()), (3, 1), "one whose server does not hear it");
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    copy(&mut rehearsal, arena.rig());
    arena.servers[0].is_deaf = false;
    while opens.peer.is_none() {
        opens.step(&mut arena);
        arena.pass(50);
    }
    moves.change_port(&mut arena, 0);
    moves.restart(&mut arena);
    copy(&mut rehearsal, arena.rig());
    let late = Player::connected(&mut arena, 4);
    assert_eq!(unreal_counts(arena.rig()), (4, 0));
    arena.rig().succeed(rehearsal);
    assert_eq!(unreal_counts(arena.rig()), (4, 0));
    let mut players = [stays, moves, opens, late];
    for at in 0..players.len() {
        assert!(players.iter_mut().all(|player| player.plays(&mut arena)), "{at}");
        // It is found by its cookie, whichever that is by now.
        players[at].change_port(&mut arena, 0);
        players[at].restart(&mut arena);
        assert!(players[at].plays(&mut arena), "{at}");
    }
    assert_eq!(unreal_counts(arena.rig()), (4, 0));
}

#[test]
fn plain_players_who_come_open_or_make_room_after_the_copy_are_counted_as_they_are() {
    let mut rig = plain_rig(|rules| rules.half_open_max = 3);
    let mut rehearsal = Rehearsal::new(1, STREAM_BYTES);
    for n in 1..20 {
        rig.deliver(home(n), b"hello");
        arrived(&mut rig);
        if n % 5 == 0 {
            copy(&mut rehearsal, &rig);
            play(&mut rig, home(n), b"and again");
        }
    }
    let counts = |rig: &Rig| {
        let plain = &rig.host.gate().fronts.plain;
        (plain.open_count, plain.half_open_count)
    };
    let before = counts(&rig);
    assert_eq!(before, (3, 3), "who is half open makes room for the next");
    rig.succeed(rehearsal);
    assert_eq!(counts(&rig), before);
    // Whoever is there is known to its server by the address that it had.
    rig.deliver(home(19), b"again");
    let (local, server, _) = arrived(&mut rig).pop().expect("it is half open");
    rig.answer_udp(endpoint(SERVERS[server]), local, b"answer");
    assert_eq!(rig.take_for(home(19)).len(), 1);
}
