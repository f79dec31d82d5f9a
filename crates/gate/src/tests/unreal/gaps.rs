//! Players of whom nothing arrives for a while, and others who pretend that it was so.

use super::rig::{Arena, Player, rules_mut, unreal_setup};
use crate::counters::Ended;
use ringgate_bots::unreal::peer::Fields;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::PacketSeq;
use ringgate_core::proto::unreal::bits::BitWriter;

impl Player {
    /// A packet with any number, which acknowledges what the player has received.
    fn packet_at(&self, sequence: PacketSeq) -> Vec<u8> {
        let acked = self.peer.as_ref().expect("connected").latest();
        let mut buffer = [0; 64];
        let mut out = BitWriter::new(&mut buffer);
        Fields { sequence, acked, history: &[u32::MAX] }.write(
            &self.framing,
            self.client.ids(),
            &mut out,
        );
        // No packet info, and some bits in place of bunches.
        out.write(0, 2);
        (0..3).for_each(|_| out.write(7, 60));
        let len = out.finish(2);
        buffer[..len].to_vec()
    }

    fn next(&self) -> PacketSeq {
        self.peer.as_ref().expect("connected").next()
    }
}

/// Packets that the server has taken.
fn taken(arena: &Arena) -> u64 {
    let tally = arena.servers[0].tally();
    assert_eq!((tally.duplicates, tally.implausible), (0, 0));
    tally.packets
}

/// A player who plays at 60 Hz, and of whose packets that many are lost.
fn losing(arena: &mut Arena, lost: u64) -> (Player, PacketSeq) {
    let mut player = Player::connected(arena, 1);
    (0..3).for_each(|_| assert!(player.plays(arena)));
    arena.pass(lost * 1000 / 60);
    let after = player.next().wrapping_add(lost);
    (player, after)
}

#[test]
fn a_player_survives_as_long_a_gap_as_an_engine_does() {
    for lost in [1023, 1024, 1100, 8000] {
        for worker in [0, 1] {
            let mut setup = unreal_setup(1);
            rules_mut(&mut setup).idle_timeout_ns = 600_000_000_000;
            let mut arena = Arena::new(setup, 2);
            let (mut player, after) = losing(&mut arena, lost);
            player.worker = worker;
            if worker == 1 {
                // Another worker receives the player and forwards it.
                player.change_port(&mut arena, 1);
                player.restart(&mut arena);
                arena.pass(2000);
            }
            let before = taken(&arena);
            for n in 0..10 {
                player.exchange(&mut arena, &player.packet_at(after.wrapping_add(n)));
                arena.pass(17);
            }
            let refused = u64::from(lost > 1023);
            assert_eq!(taken(&arena), before + 10 - refused, "{lost} lost");
            assert_eq!(arena.drops(DropReason::GapUnconfirmed), refused);
            assert_eq!(arena.counters().sessions, 1);
        }
    }
}

/// A game that sends so fast that the gap is long before a second is over.
#[test]
fn a_gap_within_a_second_is_survived_when_the_second_is_over() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let (after, before) = (player.next().wrapping_add(8000), taken(&arena));
    for n in 0..25 {
        player.exchange(&mut arena, &player.packet_at(after.wrapping_add(n)));
        arena.pass(50);
    }
    assert_eq!(taken(&arena), before + 25 - 21, "20 within the second, and the first one after it");
}

#[test]
fn forged_jumps_shut_nobody_out() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    for round in 0..30 {
        assert!(player.plays(&mut arena), "round {round}");
        // Whoever forges them knows the ids and what to acknowledge, and sends several that agree.
        let ahead = player.next().wrapping_add(1100 + 200 * round);
        for n in 0..3 {
            let forged = player.packet_at(ahead.wrapping_add(n));
            assert!(arena.deliver(0, player.home, &forged).is_empty());
        }
        arena.pass(200);
    }
    assert_eq!(arena.drops(DropReason::GapUnconfirmed), 90);
    // Neither when the player has been silent, and one packet is all they get through.
    arena.pass(3000);
    let forged = player.packet_at(player.next().wrapping_add(5000));
    assert!(arena.deliver(0, player.home, &forged).is_empty());
    (0..3).for_each(|_| assert!(player.plays(&mut arena)));
    assert!(arena.deliver(0, player.home, &forged).is_empty());
    assert!(player.plays(&mut arena));
    assert_eq!(arena.counters().sessions, 1);
}

#[test]
fn a_limit_ends_the_session_and_nobody_but_the_player_can() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).gap_limit = 100;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    let at = |player: &Player, ahead| player.packet_at(player.next().wrapping_add(ahead));
    for n in 0..5 {
        assert!(player.plays(&mut arena));
        arena.deliver(0, player.home, &at(&player, 101 + n));
        arena.deliver(0, player.home, &at(&player, 102 + n));
        arena.pass(200);
    }
    assert_eq!(arena.counters().sessions, 1);
    arena.pass(2000);
    arena.deliver(0, player.home, &at(&player, 101));
    assert_eq!(arena.counters().sessions, 1);
    arena.deliver(0, player.home, &at(&player, 102));
    assert_eq!(arena.counters().sessions_closed[Ended::SequenceGap as usize], 1);
    assert_eq!(arena.drops(DropReason::SequenceGap), 1);
    assert_eq!(arena.counters().sessions, 0);
}

#[test]
fn a_limit_lets_shorter_gaps_pass() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).gap_limit = 2000;
    let mut arena = Arena::new(setup, 1);
    let (mut player, after) = losing(&mut arena, 1700);
    let before = taken(&arena);
    for n in 0..3 {
        player.exchange(&mut arena, &player.packet_at(after.wrapping_add(n)));
    }
    assert_eq!((taken(&arena), arena.counters().sessions), (before + 2, 1));
}
