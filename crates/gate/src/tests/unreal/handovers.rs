//! What happens while a restart is on its way between two workers: the mail is delivered piece by
//! piece.

use super::rig::{Arena, BASE, Player, unreal_setup};
use crate::counters::Ended;
use crate::shared::cookies::By;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::bits::BitReader;
use ringgate_core::proto::unreal::client::State;
use ringgate_core::proto::unreal::handshake::{Body, Handshake, Receiver, Tail};

/// A player of worker 0 whose datagrams arrive at worker 1 by now, and what it answers to the
/// challenge there.
fn proven(arena: &mut Arena) -> (Player, Vec<u8>) {
    let mut player = Player::connected(arena, 1);
    player.change_port(arena, 1);
    let datagram = player.game(8).expect("few are in flight");
    player.exchange(arena, &datagram);
    player.step(arena);
    let restart = player.owed(arena).expect("challenged");
    (player, restart)
}

fn forwarded(arena: &Arena) -> u64 {
    arena.fleet.rigs[1].counters().forwarded_out
}

#[test]
fn packets_right_behind_a_move_reach_the_owner() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let (mut player, restart) = proven(&mut arena);
    arena.fleet.rigs[1].deliver(player.home, &restart);
    arena.fleet.deliver_mail_once(1);
    // The owner has answered the player, and its word to the other worker is still on the way.
    let acknowledged = arena.take_for(player.home);
    for answer in &acknowledged {
        player.take(&arena, answer);
    }
    assert_eq!(player.client.state(), State::Connected);
    let before = arena.servers[0].tally().packets;
    let first = player.game(1).expect("room");
    arena.fleet.rigs[1].deliver(player.home, &first);
    arena.settle();
    assert_eq!(arena.servers[0].tally().packets, before + 1);
    let before = player.packets;
    let answers = arena.take_for(player.home);
    for answer in &answers {
        player.take(&arena, answer);
    }
    assert_eq!((answers.len(), player.packets), (1, before + 1), "the echo, and no question");
    assert!(player.plays(&mut arena));
}

#[test]
fn packets_that_overtake_the_word_of_the_owner_are_in_order_behind_the_restart() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let (mut player, restart) = proven(&mut arena);
    let before = arena.servers[0].tally().packets;
    arena.fleet.rigs[1].deliver(player.home, &restart);
    // An engine that was told nothing yet goes on sending.
    for n in 0..5 {
        let packet = player.game(n).expect("room");
        arena.fleet.rigs[1].deliver(player.home, &packet);
    }
    arena.settle();
    assert_eq!(arena.servers[0].tally().packets, before + 5);
}

#[test]
fn an_address_whose_restart_the_owner_refuses_is_forgotten_again() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let (mut player, restart) = proven(&mut arena);
    arena.fleet.rigs[1].deliver(player.home, &restart);
    let cookie = match decode(&player, &restart) {
        Body::RestartResponse { proof, .. } => proof.cookie,
        other => panic!("{other:?}"),
    };
    let now_ns = arena.now_ns();
    let claims = std::sync::Arc::clone(&arena.rig().host.gate().common.claims);
    assert_eq!(claims.cookies().use_once(&cookie, By::Mover, now_ns), Ok(()));
    arena.settle();
    assert_eq!(arena.drops(DropReason::ResponseReplayed), 1);
    let before = forwarded(&arena);
    let packet = player.game(1).expect("room");
    assert_eq!(player.exchange(&mut arena, &packet).len(), 1, "asked to restart");
    assert_eq!(forwarded(&arena), before);
}

#[test]
fn a_restart_that_could_not_be_handed_over_can_be_tried_again() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let (mut player, restart) = proven(&mut arena);
    arena.fleet.rigs[1].deliver(player.home, &restart);
    arena.fleet.rigs[1].refuse_mail();
    assert_eq!(arena.drops(DropReason::MailboxFull), 1);
    player.exchange(&mut arena, &restart);
    assert_eq!(player.client.state(), State::Connected);
    assert!(player.plays(&mut arena));
}

#[test]
fn a_recorded_restart_does_not_end_the_session_that_has_its_address_now() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 1);
    player.restart(&mut arena);
    let (recorded, there) = (player.sent.last().expect("a restart").clone(), player.home);
    player.change_port(&mut arena, 0);
    player.restart(&mut arena);
    let mut other = Player::new(&arena, 2);
    (other.home, other.worker) = (there, 1);
    other.connect(&mut arena);
    assert_eq!(arena.fleet.rigs[1].sessions(), 1);
    arena.deliver(1, there, &recorded);
    assert_eq!(arena.counters().sessions_closed[Ended::Replaced as usize], 0);
    assert!(other.plays(&mut arena) && player.plays(&mut arena));
}

#[test]
fn nobody_moves_a_session_with_another_client_id() {
    for worker in [0, 1] {
        let mut arena = Arena::new(unreal_setup(1), 2);
        let mut player = Player::connected(&mut arena, 1);
        let original = *player.client.cookie().expect("in");
        let mut other = Player::new(&arena, 2);
        other.worker = worker;
        other.step(&mut arena);
        let response = other.owed(&mut arena).expect("challenged");
        let Body::Response(proof) = decode(&other, &response) else { panic!("a response") };
        let body = Body::RestartResponse { proof, original };
        let restart = Handshake { ids: other.client.ids(), base: BASE, body };
        let mut out = [0; 100];
        let len = restart.encode(&other.framing, &Tail::draw(&[8; 17]), &mut out);
        assert!(arena.deliver(worker, other.home, &out[..len]).is_empty());
        assert_eq!(arena.drops(DropReason::UnrealIds), 1, "worker {worker}");
        assert_eq!(arena.counters().port_switches, 0);
        assert!(player.plays(&mut arena));
    }
}

#[test]
fn a_repeated_restart_is_not_acknowledged_to_another_client_id() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 0);
    player.restart(&mut arena);
    let original = *player.client.cookie().expect("in");
    // Somebody behind the same address and port asks under another number, and knows the cookie.
    let mut other = Player::new(&arena, 2);
    other.home = player.home;
    other.step(&mut arena);
    let response = other.owed(&mut arena).expect("challenged");
    let Body::Response(proof) = decode(&other, &response) else { panic!("a response") };
    let body = Body::RestartResponse { proof, original };
    let restart = Handshake { ids: other.client.ids(), base: BASE, body };
    let mut out = [0; 100];
    let len = restart.encode(&other.framing, &Tail::draw(&[8; 17]), &mut out);
    arena.pass(1000);
    assert!(arena.deliver(0, other.home, &out[..len]).is_empty());
    assert_eq!(arena.drops(DropReason::UnrealIds), 1);
}

/// What a packet of a player's says.
fn decode(player: &Player, packet: &[u8]) -> Body {
    let (prefix, reader): (_, BitReader<'_>) = player.framing.read(packet).expect("a packet");
    Handshake::decode(&player.framing, prefix, reader, Receiver::Server).expect("for a server").body
}
