//! Players who answer more than one challenge, as engines do whose requests were repeated on the
//! way, and others who send such answers again.

use super::rig::{Arena, Player, rules_mut, unreal_setup};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;

impl Player {
    /// Answers a challenge, not sent yet.
    fn answer(&mut self, arena: &mut Arena, challenge: &[u8]) -> Vec<u8> {
        self.take(arena, challenge);
        self.owed(arena).expect("every challenge is answered")
    }

    /// Two responses of one attempt to get in, to challenges that were made so long one after the
    /// other.
    fn two_responses(&mut self, arena: &mut Arena, apart_ms: u64) -> [Vec<u8>; 2] {
        let initial = self.owed(arena).expect("a request");
        let first = arena.deliver(self.worker, self.home, &initial);
        arena.pass(apart_ms);
        let second = arena.deliver(self.worker, self.home, &initial);
        [first, second].map(|challenge| self.answer(arena, &challenge[0]))
    }

    /// Another connection from the same address.
    fn begin_anew(&mut self, arena: &Arena, client_id: u8) {
        self.client = Self::new(arena, client_id).client;
        self.peer = None;
    }
}

fn replaced(arena: &Arena) -> u64 {
    arena.counters().sessions_closed[Ended::Replaced as usize]
}

fn replayed(arena: &Arena) -> u64 {
    arena.drops(DropReason::ResponseReplayed)
}

/// The player is in, on the connection that the server has, and is the only one there.
fn is_in_once(arena: &mut Arena, player: &mut Player) {
    assert_eq!(player.client.state(), State::Connected);
    (0..3).for_each(|_| assert!(player.plays(arena)));
    let connections = arena.servers[0].stand_in.connections();
    assert_eq!(connections.len(), 1, "no ghost stays at the server");
    assert_eq!(Some(&connections[0].cookie), player.client.cookie());
    assert_eq!((replaced(arena), arena.counters().sessions_opened), (0, 1));
    assert_eq!(arena.counters().sessions, 1);
}

/// A request that the network has repeated 50 ms later, and one that the player has repeated
/// because the first challenge took more than a second.
#[test]
fn a_player_who_answers_two_challenges_has_one_session() {
    for apart_ms in [50, 1000, 1900] {
        for swapped in [false, true] {
            let mut arena = Arena::new(unreal_setup(1), 1);
            let mut player = Player::new(&arena, 1);
            let mut responses = player.two_responses(&mut arena, apart_ms);
            if swapped {
                responses.reverse();
            }
            let acks: Vec<_> = responses
                .iter()
                .flat_map(|response| arena.deliver(player.worker, player.home, response))
                .collect();
            assert_eq!(acks.len(), 1, "one acknowledgement for two responses at once");
            player.take(&arena, &acks[0]);
            is_in_once(&mut arena, &mut player);
        }
    }
}

#[test]
fn the_second_response_is_acknowledged_with_the_cookie_of_the_session() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::new(&arena, 1);
    let [first, second] = player.two_responses(&mut arena, 50);
    // The first acknowledgement is lost; the player repeats what it answered last.
    assert_eq!(arena.deliver(0, player.home, &first).len(), 1);
    for _ in 0..3 {
        arena.pass(1000);
        let acks = arena.deliver(0, player.home, &second);
        assert_eq!(acks.len(), 1);
        assert!(arena.deliver(0, player.home, &second).is_empty(), "once a second");
        assert!(acks[0].len() <= second.len());
        player.take(&arena, &acks[0]);
    }
    is_in_once(&mut arena, &mut player);
}

#[test]
fn a_second_response_while_the_server_is_asked_changes_nothing() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::new(&arena, 1);
    let responses = player.two_responses(&mut arena, 1200);
    arena.servers[0].is_deaf = true;
    for response in &responses {
        assert!(player.exchange(&mut arena, response).is_empty());
    }
    // And a challenge that was made while the server was being asked, seconds later.
    for wait_ms in [2500, 2500] {
        arena.pass(wait_ms);
        assert!(player.exchange(&mut arena, &responses[1]).is_empty());
        let initial = player.sent[0].clone();
        let challenge = arena.deliver(0, player.home, &initial);
        let late = player.answer(&mut arena, &challenge[0]);
        assert!(player.exchange(&mut arena, &late).is_empty());
    }
    assert_eq!(arena.counters().pending, 1);
    arena.servers[0].is_deaf = false;
    arena.pass(1500);
    let acks = arena.take_for(player.home);
    assert_eq!(acks.len(), 1);
    player.take(&arena, &acks[0]);
    is_in_once(&mut arena, &mut player);
}

/// The same for a player whose datagrams another worker receives and hands over.
#[test]
fn a_forwarded_player_who_answers_twice_has_one_session() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 1);
    player.restart(&mut arena);
    assert!(player.plays(&mut arena));
    player.begin_anew(&arena, 2);
    let responses = player.two_responses(&mut arena, 50);
    for response in &responses {
        player.exchange(&mut arena, response);
    }
    assert!(player.plays(&mut arena));
    assert_eq!((replaced(&arena), arena.counters().sessions_opened), (1, 2));
    assert_eq!((arena.fleet.rigs[0].sessions(), arena.fleet.rigs[1].sessions()), (1, 0));
    assert_eq!(arena.servers[0].tally().connections, 2, "one for each client id");
}

/// Two requests of a restart make two responses, the second of which comes when the session has
/// moved.
#[test]
fn a_restart_that_is_answered_twice_moves_once() {
    for worker in [0, 1] {
        let mut arena = Arena::new(unreal_setup(1), 2);
        let mut player = Player::connected(&mut arena, 1);
        player.change_port(&mut arena, worker);
        let stray = player.game(8).expect("few are in flight");
        player.exchange(&mut arena, &stray);
        let responses = player.two_responses(&mut arena, 50);
        for response in &responses {
            player.exchange(&mut arena, response);
        }
        assert!(player.plays(&mut arena), "worker {worker}");
        assert_eq!((arena.counters().port_switches, replaced(&arena)), (1, 0));
        // The response that was not needed moves nothing back later, from wherever it comes again.
        let there = player.home;
        player.change_port(&mut arena, 0);
        player.restart(&mut arena);
        assert!(player.plays(&mut arena));
        for response in &responses {
            assert!(arena.deliver(worker, there, response).is_empty());
        }
        assert_eq!((arena.counters().port_switches, replayed(&arena)), (2, 2));
        assert!(player.plays(&mut arena), "worker {worker}");
    }
}

/// Somebody on the way holds a response back and delivers it when it hurts.
#[test]
fn a_response_that_was_held_back_takes_nothing_over() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::new(&arena, 1);
    let [first, held_back] = player.two_responses(&mut arena, 50);
    player.exchange(&mut arena, &first);
    is_in_once(&mut arena, &mut player);
    // In mid-game, and while the player's line is down for a few seconds.
    for quiet_ms in [0, 4000] {
        arena.pass(quiet_ms);
        player.exchange(&mut arena, &held_back);
        is_in_once(&mut arena, &mut player);
    }
    // When the player has a new connection with another client id.
    let [first, held_back] = {
        player.begin_anew(&arena, 2);
        player.two_responses(&mut arena, 50)
    };
    player.exchange(&mut arena, &first);
    arena.pass(50);
    player.begin_anew(&arena, 3);
    player.connect(&mut arena);
    let before = replaced(&arena);
    assert!(player.exchange(&mut arena, &held_back).is_empty());
    assert_eq!((replaced(&arena), replayed(&arena)), (before, 1));
    assert!(player.plays(&mut arena));
}

/// A response that was acknowledged and not needed opens nothing later.
#[test]
fn a_second_response_opens_no_session_when_the_first_ones_is_over() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).idle_timeout_ns = 5_000_000_000;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::new(&arena, 1);
    let responses = player.two_responses(&mut arena, 50);
    for response in &responses {
        player.exchange(&mut arena, response);
    }
    is_in_once(&mut arena, &mut player);
    arena.pass(6000);
    assert_eq!(arena.counters().sessions, 0);
    for response in &responses {
        assert!(player.exchange(&mut arena, response).is_empty());
    }
    assert_eq!((arena.counters().sessions, arena.counters().sessions_opened), (0, 1));
    assert_eq!(replayed(&arena), 2);
}

/// A game that was started again has its port and its client id by chance.
#[test]
fn a_cookie_made_after_the_session_fell_silent_replaces_it() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    let old = player.client.cookie().copied();
    arena.pass(4000);
    player.begin_anew(&arena, 1);
    player.connect(&mut arena);
    assert!(player.plays(&mut arena));
    assert_ne!(player.client.cookie().copied(), old);
    assert_eq!(replaced(&arena), 1);
}
