//! Unreal players in front of two gateways.

mod takeover;

use super::super::unreal::rig::{Arena, Player, unreal_setup};
use super::Pair;
use crate::shared::claims::Claims;
use ringgate_core::drops::DropReason;
use std::sync::Arc;

const A: usize = 0;
const B: usize = 1;

/// The gateways, each with a server behind it.
struct Both {
    arenas: [Arena; 2],
    pair: Pair,
    stays: [Arc<Claims>; 2],
}

impl Both {
    fn new() -> Self {
        let mut setup = unreal_setup(1);
        setup.cluster = Some("fra".into());
        let arenas = [A, B].map(|_| Arena::new(setup.clone(), 1));
        let mut all =
            Self { stays: stay(&arenas), arenas, pair: Pair::of([(); 2].map(|()| vec![])) };
        all.carry();
        all
    }

    /// One of them is handed over.
    fn hand_over(&mut self, at: usize) {
        self.arenas[at].fleet.hand_over();
        self.stays = stay(&self.arenas);
        self.carry();
    }

    fn swap(&mut self) {
        for (arena, fleet) in self.arenas.iter_mut().zip(&mut self.pair.fleets) {
            std::mem::swap(&mut arena.fleet, fleet);
        }
    }

    /// Lets everything go on between the gateways, and at each.
    fn carry(&mut self) {
        self.swap();
        self.pair.carry();
        self.swap();
        self.arenas.iter_mut().for_each(Arena::settle);
    }

    /// Sends a game packet to one of them; whether its echo has come back from the other.
    fn plays(&mut self, player: &mut Player, at: usize) -> bool {
        let (before, datagram) = (player.packets, player.game(7).expect("few are in flight"));
        assert!(self.arenas[at].deliver(0, player.home, &datagram).is_empty());
        self.carry();
        let answers = self.arenas[1 - at].take_for(player.home);
        for answer in &answers {
            player.take(&self.arenas[1 - at], answer);
        }
        player.packets > before
    }
}

/// Keeps their processes, or one would be handed over before it has met the other.
fn stay(arenas: &[Arena; 2]) -> [Arc<Claims>; 2] {
    arenas.each_ref().map(|arena| Arc::clone(arena.fleet.rigs[0].host.gate().claims()))
}

#[test]
fn a_players_packets_reach_its_session_by_either_gateway() {
    let mut all = Both::new();
    let mut player = Player::connected(&mut all.arenas[A], 1);
    all.carry();
    for _ in 0..5 {
        assert!(all.plays(&mut player, B));
        assert!(player.plays(&mut all.arenas[A]));
    }
    let counters = all.arenas[B].counters();
    assert_eq!((counters.members_out, counters.drops.total()), (5, 0));
    assert_eq!(all.arenas[B].servers[0].tally().packets, 0);
    // What was recorded is refused by its session, whichever way it comes.
    let packet = player.game(1).expect("few are in flight");
    for at in [A, B, B] {
        all.arenas[at].deliver(0, player.home, &packet);
        all.carry();
    }
    let drops = |why| all.arenas[A].drops(why);
    assert_eq!(drops(DropReason::ReplayDuplicate) + drops(DropReason::ReplayTooOld), 2);
}

#[test]
fn a_handshake_packet_of_a_player_goes_to_its_session() {
    let mut all = Both::new();
    let player = Player::connected(&mut all.arenas[A], 1);
    all.carry();
    // The acknowledgement was lost: the player says once more what its session has begun with.
    all.arenas.iter_mut().for_each(|arena| arena.pass(1_000));
    let response = player.sent.last().expect("a response").clone();
    assert!(all.arenas[B].deliver(0, player.home, &response).is_empty());
    all.carry();
    assert_eq!(all.arenas[A].take_for(player.home).len(), 1, "acknowledged again");
    assert_eq!(all.arenas[B].counters().members_out, 1);
}

#[test]
fn a_player_plays_on_by_the_other_gateway_when_its_own_is_handed_over() {
    let mut all = Both::new();
    let mut player = Player::connected(&mut all.arenas[A], 1);
    all.carry();
    all.hand_over(A);
    assert!(all.plays(&mut player, B));
}
