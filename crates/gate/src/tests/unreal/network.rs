//! A whole game over a network that loses, repeats, delays and reorders, with somebody on it who
//! sends everything again.

use super::rig::{Arena, Dice, Player, rules_mut, unreal_setup};
use crate::gate::Gate;
use crate::setup::{Duplicates, Setup};
use crate::tests::rig::{Rig, plain_setup};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::prefix::{Framing, Layout, Magic};

#[test]
fn an_unreal_workers_own_tables_are_named_for_huge_pages_too() {
    let bytes = |gate: &Gate| -> usize {
        gate.large_tables().map(|table| table.end.addr() - table.start.addr()).sum()
    };
    let sessions_max = 1000;
    let with_room = |setup: Setup| Setup { worker_sessions_max: sessions_max, ..setup };
    let netcode = bytes(Rig::new(with_room(plain_setup())).host.gate());
    assert!(netcode >= sessions_max * 256, "{netcode}");
    let both = bytes(Arena::new(with_room(unreal_setup(1)), 1).rig().host.gate());
    assert!(both >= netcode + sessions_max * 256, "{both} and {netcode}");
}

/// A datagram on the way to a worker.
struct InFlight {
    due_round: u64,
    bytes: Vec<u8>,
}

/// Rounds of play, and how many packets were sent and how many of them passed.
fn play(arena: &mut Arena, player: &mut Player, rounds: u64, seed: u64) -> (u64, u64) {
    let mut dice = Dice(seed);
    let mut wire: Vec<InFlight> = Vec::new();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    let mut sent = 0;
    let before = arena.counters().payloads_to_links;
    for round in 0..rounds {
        arena.rig().jump(10);
        if let Some(bytes) = player.game(round) {
            sent += 1;
            kept.push(bytes.clone());
            // Lost one time in ten, twice one time in ten.
            let copies = [0, 2].get(dice.roll(20) as usize / 2).copied().unwrap_or(1);
            for _ in 0..copies {
                wire.push(InFlight { due_round: round + dice.roll(4), bytes: bytes.clone() });
            }
        }
        if dice.roll(3) == 0 {
            let recorded = kept[dice.roll(kept.len() as u64) as usize].clone();
            wire.push(InFlight { due_round: round, bytes: recorded });
        }
        for bytes in
            wire.extract_if(.., |it| it.due_round <= round).map(|it| it.bytes).collect::<Vec<_>>()
        {
            player.exchange(arena, &bytes);
        }
    }
    (sent, arena.counters().payloads_to_links - before)
}

#[test]
fn the_server_sees_every_packet_at_most_once_while_numbers_wrap() {
    let magic = Magic::from_bits(&[true, false, true]).expect("three");
    for (seed, framing) in [
        Framing::default(),
        Framing { layout: Layout::Original, ..Framing::default() },
        Framing { magic, ..Framing::default() },
    ]
    .into_iter()
    .enumerate()
    {
        let mut setup = unreal_setup(1);
        rules_mut(&mut setup).framing = framing;
        let mut arena = Arena::new(setup, 1);
        let mut player = Player::connected(&mut arena, 1);
        let first = player.peer.as_ref().expect("in").next();
        let (sent, passed) = play(&mut arena, &mut player, 18_000, seed as u64);
        assert!(sent > 17_000, "{sent} sent");
        let next = player.peer.as_ref().expect("in").next();
        assert_eq!(next, PacketSeq::new(first.value() + sent), "once round and on");
        let tally = arena.servers[0].tally();
        assert_eq!((tally.duplicates, tally.implausible), (0, 0), "{tally:?}");
        assert_eq!(player.repeats, 0);
        assert!(passed > sent * 8 / 10 && passed <= sent, "{passed} of {sent}");
        assert!(arena.drops(DropReason::ReplayDuplicate) > 1000);
        assert_eq!(arena.counters().sessions, 1);
    }
}

#[test]
fn encrypted_packets_pass_once_within_a_second() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).duplicates = Duplicates::Opaque;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    for round in 0..500 {
        let bytes = player.game(round).expect("room");
        player.exchange(&mut arena, &bytes);
        arena.pass(50);
        assert!(player.exchange(&mut arena, &bytes).is_empty());
    }
    assert_eq!(arena.servers[0].tally().duplicates, 0);
    assert_eq!(arena.drops(DropReason::ReplayDuplicate), 500);
}

#[test]
fn nothing_is_filtered_where_that_is_wanted() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).duplicates = Duplicates::Pass;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    let bytes = player.game(1).expect("room");
    (0..3).for_each(|_| drop(player.exchange(&mut arena, &bytes)));
    assert_eq!(arena.servers[0].tally().duplicates, 2);
}

/// While nothing comes back, an engine sends up to 256 packets, and its history grows to eight
/// words.
#[test]
fn long_silences_of_one_side_are_survived() {
    for unheard in [33, 64, 65, 200, 255] {
        let mut arena = Arena::new(unreal_setup(1), 1);
        let mut player = Player::connected(&mut arena, 1);
        (0..3).for_each(|_| assert!(player.plays(&mut arena)));
        for round in 0..unheard {
            // Heard by the server; its answers are lost.
            let bytes = player.game(round).expect("fewer than 256 in flight");
            arena.deliver(0, player.home, &bytes);
        }
        for round in 0..20 {
            arena.pass(50);
            if let Some(bytes) = player.game(round) {
                player.exchange(&mut arena, &bytes);
            }
        }
        assert!(player.plays(&mut arena), "after {unheard}");
        let tally = arena.servers[0].tally();
        assert_eq!((tally.duplicates, tally.implausible), (0, 0));
        assert_eq!(arena.drops(DropReason::AckImplausible), 0);
    }
}
