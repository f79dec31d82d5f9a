//! Addresses that are denied, at every step of a handshake.

use super::super::denied::{denied, deny};
use super::rig::{Arena, Player, unreal_setup};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;

#[test]
fn unreal_players_are_denied_at_every_step_of_their_handshake() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut playing = Player::connected(&mut arena, 1);
    let mut challenged = Player::new(&arena, 2);
    challenged.step(&mut arena);
    arena.servers[0].is_deaf = true;
    let mut opening = Player::new(&arena, 3);
    (0..2).for_each(|_| opening.step(&mut arena));
    assert_eq!((arena.counters().sessions, arena.counters().pending), (1, 1));
    let list = denied(&[("10.1.0.0/16", true)], &[]);
    assert_eq!(deny(arena.rig(), &list), 1);
    arena.servers[0].is_deaf = false;
    arena.pass(3000);
    assert_eq!((arena.counters().sessions, arena.counters().pending), (0, 0));
    assert!(arena.take_for(opening.home).is_empty(), "the server's answer came too late");
    // What was still opening was no session.
    assert_eq!(arena.counters().sessions_closed[Ended::Denied as usize], 1);
    let before = arena.drops(DropReason::AddressDenied);
    let game = playing.game(1).expect("room");
    assert!(playing.exchange(&mut arena, &game).is_empty());
    challenged.step(&mut arena);
    let mut newcomer = Player::new(&arena, 4);
    newcomer.step(&mut arena);
    assert_eq!(arena.drops(DropReason::AddressDenied), before + 3);
    assert!(challenged.peer.is_none() && arena.take_for(newcomer.home).is_empty());
}
