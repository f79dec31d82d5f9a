//! Players whose router gives them each other's ports, and what forged packets make of that.

use super::rig::{Arena, Player, unreal_setup};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;

/// Players with such client ids, each at an address and a worker of its own.
fn players<const N: usize>(arena: &mut Arena, ids: [u8; N], workers: u16) -> [Player; N] {
    let mut number = 0_u16;
    ids.map(|id| {
        let mut player = Player::new(arena, id);
        player.home = player.home.with_port(5000 + number);
        player.worker = usize::from(number % workers);
        number += 1;
        player.connect(arena);
        player
    })
}

/// Each player is where another one was.
fn rotate(players: &mut [Player]) {
    let mut places: Vec<_> = players.iter().map(|player| (player.home, player.worker)).collect();
    places.rotate_left(1);
    for (player, place) in players.iter_mut().zip(places) {
        (player.home, player.worker) = place;
    }
}

/// Everybody sends as engines do, whatever is heard of them.
fn play_on(arena: &mut Arena, players: &mut [Player], ms: u64) {
    for _ in 0..ms.div_ceil(200) {
        arena.pass(200);
        for player in players.iter_mut() {
            if player.client.state() == State::Connected
                && let Some(datagram) = player.game(7)
            {
                player.exchange(arena, &datagram);
            }
            player.step(arena);
            // What a server has sent to where the player is now, with whatever it was sent for.
            for stray in arena.take_for(player.home) {
                player.take(arena, &stray);
            }
        }
    }
}

fn ended(arena: &Arena) -> u64 {
    arena.counters().sessions_closed.iter().sum()
}

#[test]
fn players_whose_ports_are_swapped_are_followed_whatever_their_ids() {
    for (ids, workers) in [([1, 1], 1), ([1, 2], 1), ([1, 1], 2), ([1, 2], 2)] {
        let mut arena = Arena::new(unreal_setup(1), workers);
        let mut both = players(&mut arena, ids, workers);
        play_on(&mut arena, &mut both, 11_000);
        rotate(&mut both);
        play_on(&mut arena, &mut both, 8000);
        for player in &mut both {
            assert!(player.plays(&mut arena), "{ids:?} at {workers}");
        }
        let counters = arena.counters();
        assert_eq!((counters.sessions, counters.port_switches), (2, 2), "{ids:?} at {workers}");
        assert_eq!((ended(&arena), arena.servers[0].tally().connections), (0, 2));
    }
}

#[test]
fn players_who_have_just_come_are_followed_too() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut both = players(&mut arena, [1, 1], 1);
    play_on(&mut arena, &mut both, 3000);
    rotate(&mut both);
    // An engine passes over requests for ten seconds after its handshake.
    play_on(&mut arena, &mut both, 15_000);
    assert!(both.iter_mut().all(|player| player.plays(&mut arena)));
    assert_eq!((arena.counters().sessions, ended(&arena)), (2, 0));
}

#[test]
fn players_are_followed_when_they_change_places_again_and_again_across_workers() {
    let mut arena = Arena::new(unreal_setup(2), 3);
    let mut all = players(&mut arena, [1, 1, 2, 1], 3);
    play_on(&mut arena, &mut all, 11_000);
    for round in 0..5 {
        rotate(&mut all);
        play_on(&mut arena, &mut all, 20_000);
        for player in &mut all {
            assert!(player.plays(&mut arena), "round {round}");
        }
    }
    assert_eq!((arena.counters().sessions, ended(&arena)), (4, 0));
    assert_eq!(arena.servers.iter().map(|server| server.tally().connections).sum::<u64>(), 4);
}

#[test]
fn a_player_whose_address_another_one_has_is_sent_nothing_until_it_is_back() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut both = players(&mut arena, [1, 2], 1);
    play_on(&mut arena, &mut both, 11_000);
    let gone = both[1].home;
    let [one, other] = &mut both;
    one.home = gone;
    play_on(&mut arena, std::slice::from_mut(one), 4000);
    assert!(one.plays(&mut arena));
    let paused = arena.drops(DropReason::SourcePaused);
    let there = arena.servers[0].stand_in.connections()[1].address;
    let mut out = [0; 100];
    let now_ns = arena.now_ns();
    let mut said = 0;
    while let Some((to, len)) = arena.servers[0].stand_in.poll_keep_alive(now_ns, &mut out) {
        arena.say(0, to, &out[..len]);
        said += u64::from(to == there);
    }
    assert_eq!((said, arena.drops(DropReason::SourcePaused)), (1, paused + 1));
    arena.take_for(one.home);
    assert!(arena.rig().sent.is_empty(), "to nowhere");
    other.home = other.home.with_port(9);
    play_on(&mut arena, &mut both, 4000);
    assert!(both.iter_mut().all(|player| player.plays(&mut arena)));
    assert_eq!(ended(&arena), 0);
}

#[test]
fn a_player_who_does_not_come_back_times_out() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut both = players(&mut arena, [1, 2], 1);
    play_on(&mut arena, &mut both, 11_000);
    both[0].home = both[1].home;
    play_on(&mut arena, &mut both[..1], 31_000);
    assert!(both[0].plays(&mut arena));
    let closed = arena.counters().sessions_closed;
    assert_eq!((closed[Ended::TimedOut as usize], ended(&arena)), (1, 1));
    // Whoever comes by that address next is let in.
    both[1].client = Player::new(&arena, 3).client;
    both[1].peer = None;
    both[1].home = both[1].home.with_port(7000);
    both[1].connect(&mut arena);
    assert_eq!(arena.counters().sessions, 2);
}

#[test]
fn players_are_followed_by_a_process_that_takes_over_while_one_has_no_address() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut both = players(&mut arena, [1, 2], 2);
    play_on(&mut arena, &mut both, 11_000);
    let homes = [both[0].home, both[1].home];
    (both[0].home, both[0].worker) = (homes[1], 1);
    play_on(&mut arena, &mut both[..1], 4000);
    arena.fleet.hand_over();
    assert!(both[0].plays(&mut arena));
    (both[1].home, both[1].worker) = (homes[0], 0);
    play_on(&mut arena, &mut both, 4000);
    assert!(both.iter_mut().all(|player| player.plays(&mut arena)));
    assert_eq!((arena.counters().sessions, ended(&arena)), (2, 0));
}

/// Packets that say they are from a player's address, and are not the player's.
#[test]
fn forged_packets_ask_nobody_who_is_heard_and_end_nobody() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let [mut player, mut attacker] = players(&mut arena, [1, 1], 1);
    play_on(&mut arena, std::slice::from_mut(&mut player), 11_000);
    for n in 0..100 {
        arena.pass(100);
        assert!(player.plays(&mut arena), "{n}");
        if let Some(forged) = attacker.game(n) {
            assert!(arena.deliver(0, player.home, &forged).is_empty(), "asked while it is heard");
        }
    }
    assert_eq!((player.client.state(), ended(&arena)), (State::Connected, 0));
    // A player who is silent, as while it loads, may be asked: within what came, and seldom.
    let (mut came, mut went, mut asked) = (0, 0, 0);
    let forged = attacker.game(7).unwrap_or_else(|| attacker.sent[0].clone());
    for _ in 0..200 {
        arena.pass(50);
        came += forged.len();
        for answer in arena.deliver(0, player.home, &forged) {
            went += answer.len();
            asked += 1;
            player.take(&arena, &answer);
        }
    }
    assert!(went <= came && asked <= 60, "{asked} questions, {went} bytes for {came}");
    // It proves that it is where it was.
    play_on(&mut arena, std::slice::from_mut(&mut player), 4000);
    assert!(player.plays(&mut arena));
    // The attacker's own session has ended: nothing was heard of it.
    let closed = arena.counters().sessions_closed;
    assert_eq!((closed[Ended::TimedOut as usize], ended(&arena)), (1, 1));
    assert_eq!(arena.counters().port_switches, 0);
}
