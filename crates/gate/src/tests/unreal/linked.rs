//! Servers behind agents: to their players they are as servers of this host.

use super::super::denied::{denied, deny};
use super::super::games::{Game, Heard};
use super::rig::{Arena, Player, linked_setup, unreal_setup};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::setup::Route;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_link::bundle::{Answer, CloseReason, Goodbye, GoodbyeReason, SessionId};

/// Players whom an agent was told of since the last look, and their slots.
fn opened(arena: &mut Arena) -> Vec<(SessionId, Option<u32>)> {
    let told = std::mem::take(&mut arena.agents[0][0].told);
    let opened = |heard| match heard {
        Heard::OpenedPlain(session, slot) => Some((session, slot)),
        _ => None,
    };
    told.into_iter().filter_map(opened).collect()
}

fn closed(arena: &mut Arena) -> Vec<CloseReason> {
    let told = std::mem::take(&mut arena.agents[0][0].told);
    let closed = |heard| if let Heard::Closed(_, reason) = heard { Some(reason) } else { None };
    told.into_iter().filter_map(closed).collect()
}

/// One server, which has been asked.
fn arena() -> Arena {
    let mut arena = Arena::linked(linked_setup(1), 1);
    let asks = opened(&mut arena);
    assert!(matches!(asks[..], [(_, None)]), "the gateway itself has no slot: {asks:?}");
    arena
}

#[test]
fn a_player_plays_at_a_server_behind_an_agent() {
    let mut arena = arena();
    let mut player = Player::connected(&mut arena, 1);
    let told = opened(&mut arena);
    assert!(matches!(told[..], [(_, Some(0))]), "once, with its slot: {told:?}");
    for _ in 0..5 {
        assert!(player.plays(&mut arena));
    }
    assert_eq!(opened(&mut arena), []);
    let counters = arena.counters();
    assert_eq!((counters.payloads_up, counters.payloads_to_links), (5, 5));
    assert_eq!((counters.payloads_from_links, counters.payloads_down), (5, 5));
    assert_eq!(arena.servers[0].tally().packets, 5);
    // A copy goes nowhere, whichever side it comes from.
    let packet = player.game(1).expect("room");
    player.exchange(&mut arena, &packet);
    arena.rig().provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(player.home, &packet));
    // It falls silent.
    arena.pass(40_000);
    assert_eq!(arena.counters().sessions_closed[Ended::TimedOut as usize], 1);
    assert_eq!(closed(&mut arena), [CloseReason::TimedOut]);
    assert_eq!(arena.agents[0][0].sessions().len(), 1, "that of the gateway");
}

#[test]
fn nobody_is_sent_to_a_server_that_does_not_answer() {
    let mut arena = arena();
    arena.servers[0].is_deaf = true;
    arena.pass(11_000);
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    player.step(&mut arena);
    assert!(player.peer.is_none());
    // The gateway itself is announced again by each of its processes.
    assert!(opened(&mut arena).iter().all(|(_, slot)| slot.is_none()));
    arena.servers[0].is_deaf = false;
    arena.pass(1_000);
    Player::connected(&mut arena, 2);
}

#[test]
fn a_player_finds_its_server_where_it_was_when_the_agent_is_back() {
    let mut arena = arena();
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let seen = *arena.seen.last().expect("a packet");
    let before = opened(&mut arena);
    arena.unlink(0);
    assert!(!player.plays(&mut arena));
    assert_eq!(arena.drops(DropReason::LinkDown), 1);
    arena.pass(1_000);
    arena.link(0);
    assert!(player.plays(&mut arena));
    assert_eq!(*arena.seen.last().expect("a packet"), seen, "the same player to the server");
    let again = opened(&mut arena);
    assert!(before.iter().all(|it| again.contains(it)), "{again:?} after {before:?}");
    // Who goes on speaking is nobody who is over, though another process might be there.
    for _ in 0..20 {
        arena.pass(500);
        assert!(player.plays(&mut arena));
    }
}

#[test]
fn players_wait_for_an_agent_no_longer_than_for_a_process() {
    let mut arena = arena();
    Player::connected(&mut arena, 1);
    arena.unlink(0);
    arena.pass(40_000);
    assert_eq!(arena.counters().sessions_closed[Ended::BackendGone as usize], 1);
    arena.link(0);
    Player::connected(&mut arena, 2);
}

#[test]
fn a_server_that_was_started_again_has_no_sessions_from_before_for_long() {
    for speaks in [true, false] {
        let mut arena = arena();
        let mut player = Player::connected(&mut arena, 1);
        arena.unlink(0);
        arena.restart(0, Framing::default(), 1);
        arena.pass(600);
        arena.link(0);
        if speaks {
            player.plays(&mut arena);
        } else {
            arena.pass(8_000);
        }
        let ended = if speaks { Ended::BackendGone } else { Ended::TimedOut };
        assert_eq!(arena.counters().sessions_closed[ended as usize], 1, "{speaks}");
        assert_eq!(closed(&mut arena).len(), 1);
        Player::connected(&mut arena, 2);
    }
}

#[test]
fn sessions_go_on_in_the_next_process_and_their_end_is_told_there() {
    let mut arena = arena();
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let seen = *arena.seen.last().expect("a packet");
    for _ in 0..3 {
        arena.fleet.hand_over();
        arena.seen.clear();
        assert!(player.plays(&mut arena));
        assert!(arena.seen.contains(&seen), "{:?}", arena.seen);
        assert_eq!(arena.agents[0][0].sessions().len(), 2, "it is the same to the agent");
    }
    let mut other = Player::connected(&mut arena, 2);
    assert!(other.plays(&mut arena));
    // Also of one who has said nothing since.
    arena.fleet.hand_over();
    closed(&mut arena);
    assert_eq!(deny(arena.rig(), &denied(&[("10.1.0.0/16", true)], &[])), 2);
    arena.pass(100);
    assert_eq!(closed(&mut arena), [CloseReason::Operator; 2]);
    assert_eq!(arena.agents[0][0].sessions().len(), 1);
}

#[test]
fn a_handshake_that_begins_in_one_process_ends_in_the_next() {
    let mut arena = arena();
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    arena.fleet.hand_over();
    arena.servers[0].is_deaf = true;
    player.step(&mut arena);
    arena.fleet.hand_over();
    arena.servers[0].is_deaf = false;
    arena.pass(1_500);
    let answers = arena.take_for(player.home);
    for answer in &answers {
        player.take(&arena, answer);
    }
    assert!(player.plays(&mut arena));
}

#[test]
fn a_player_whose_port_changes_stays_the_same_to_the_server_also_by_another_worker() {
    for workers in [1, 2] {
        let mut arena = Arena::linked(linked_setup(1), workers);
        let mut player = Player::connected(&mut arena, 1);
        assert!(player.plays(&mut arena));
        let seen = *arena.seen.last().expect("a packet");
        player.change_port(&mut arena, usize::from(workers) - 1);
        player.restart(&mut arena);
        assert_eq!(player.client.state(), State::Connected);
        arena.seen.clear();
        assert!(player.plays(&mut arena));
        assert!(arena.seen.contains(&seen), "{:?}", arena.seen);
        assert_eq!(arena.counters().port_switches, 1);
    }
}

#[test]
fn an_agent_without_a_slot_for_a_player_sends_it_away() {
    let mut arena = arena();
    arena.servers[0].is_deaf = true;
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    player.step(&mut arena);
    let told = opened(&mut arena);
    let [(session, Some(0))] = told[..] else { panic!("{told:?}") };
    arena.agent_says(|writer| writer.close(session, CloseReason::Refused));
    assert_eq!((arena.counters().sessions, arena.counters().pending), (0, 0));
    assert_eq!(closed(&mut arena), [CloseReason::Refused]);
    arena.servers[0].is_deaf = false;
    for id in 2..6 {
        Player::connected(&mut arena, id);
    }
}

#[test]
fn players_are_spread_over_servers_here_and_behind_agents() {
    let mut setup = unreal_setup(2);
    setup.listeners[ListenerId(0)].route = Route::LeastPlayers;
    setup.backends[BackendId(1)].link = linked_setup(2).backends[BackendId(1)].link.clone();
    let mut arena = Arena::linked(setup, 1);
    let mut players: Vec<_> = (1..5).map(|id| Player::connected(&mut arena, id)).collect();
    assert!(players.iter_mut().all(|player| player.plays(&mut arena)));
    assert_eq!(arena.servers.iter().map(|it| it.tally().packets).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn a_process_with_our_library_is_no_server_of_an_unreal_game() {
    let mut arena = Arena::linked(linked_setup(1), 1);
    arena.unlink(0);
    let game = Game::join(arena.rig(), "game-0");
    let goodbye = Goodbye { reason: GoodbyeReason::VersionUnsupported, error: None };
    assert_eq!(game.hear(arena.rig()), [Heard::Goodbye(goodbye)]);
}

#[test]
fn what_an_agent_says_of_nobody_is_counted() {
    let mut arena = arena();
    let _ = Player::connected(&mut arena, 1);
    let asks = SessionId::new(0, 9);
    arena.agent_says(|writer| writer.payload(asks, b"anything"));
    assert_eq!(arena.drops(DropReason::SessionUnknown), 1);
    let whole = arena.agents[0][0].sessions();
    let at_backends = |arena: &mut Arena| -> u64 {
        arena.rig().host.gate().backend_traffic().map(|traffic| traffic.drops).sum()
    };
    let before = (arena.drops(DropReason::ServerPacketInvalid), at_backends(&mut arena));
    for session in whole {
        arena.agent_says(|writer| writer.payload(session, b"anything"));
    }
    let after = (arena.drops(DropReason::ServerPacketInvalid), at_backends(&mut arena));
    assert_eq!(after, (before.0 + 2, before.1 + 1), "one is of a player, one of the gateway's");
    arena.agent_says(|writer| writer.answer(asks, 1, Answer::Yes));
}

#[test]
fn what_is_longer_than_a_record_is_dropped() {
    let mut arena = arena();
    let player = Player::connected(&mut arena, 1);
    let long = [0x11; 1473];
    arena.rig().provokes(DropReason::TooLong, |rig| rig.deliver(player.home, &long));
}
