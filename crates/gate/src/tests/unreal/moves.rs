//! Players whose port changes, on one worker and across workers.

use std::sync::Arc;

use super::rig::{Arena, Player, unreal_setup};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;

#[test]
fn a_session_follows_its_player_on_the_same_worker() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    assert!(player.plays(&mut arena));
    player.change_port(&mut arena, 0);
    player.restart(&mut arena);
    assert_eq!(player.client.state(), State::Connected);
    assert!(player.plays(&mut arena));
    let counters = arena.counters();
    assert_eq!((counters.port_switches, counters.sessions, counters.sessions_opened), (1, 1, 1));
    let tally = arena.servers[0].tally();
    assert_eq!((tally.connections, tally.restarts, tally.duplicates), (1, 0, 0));
}

#[test]
fn a_session_follows_its_player_where_its_server_gets_nobody_new() {
    let retire = |arena: &mut Arena| {
        let mut setup = unreal_setup(1);
        setup.listeners[ListenerId(0)].backends.clear();
        setup.backends[BackendId(0)].retired = true;
        arena.rig().mail(Mail::Setup(Arc::new(setup)));
    };
    let load_a_level = |arena: &mut Arena| arena.servers[0].is_deaf = true;
    let becomes: [fn(&mut Arena); 2] = [retire, load_a_level];
    for become_so in becomes {
        let mut arena = Arena::new(unreal_setup(1), 1);
        let mut player = Player::connected(&mut arena, 1);
        become_so(&mut arena);
        player.change_port(&mut arena, 0);
        player.restart(&mut arena);
        assert_eq!((player.client.state(), arena.counters().port_switches), (State::Connected, 1));
        let down = arena.drops(DropReason::RequestBackendDown);
        Player::new(&arena, 2).step(&mut arena);
        assert_eq!(arena.drops(DropReason::RequestBackendDown), down + 1, "no newcomer");
        arena.servers[0].is_deaf = false;
        assert!(player.plays(&mut arena));
    }
}

#[test]
fn a_session_stays_on_its_worker_whichever_receives_its_player() {
    let mut arena = Arena::new(unreal_setup(1), 3);
    let mut player = Player::connected(&mut arena, 1);
    for worker in [1, 2, 0, 2, 1] {
        player.change_port(&mut arena, worker);
        player.restart(&mut arena);
        assert_eq!(player.client.state(), State::Connected);
        (0..3).for_each(|_| assert!(player.plays(&mut arena)));
        let owned = arena.fleet.rigs[0].sessions();
        assert_eq!(owned, 1, "worker 0 has it");
    }
    let counters = arena.counters();
    assert_eq!((counters.port_switches, counters.sessions_opened), (5, 1));
    assert_eq!(arena.servers[0].tally().connections, 1);
    assert_eq!(arena.servers[0].tally().duplicates, 0);
}

#[test]
fn a_forwarded_player_can_begin_anew_and_is_forgotten_when_gone() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 1);
    player.restart(&mut arena);
    assert!(player.plays(&mut arena));
    // A new connection from there: the owner replaces its session, and the other worker goes on
    // forwarding.
    player.client = Player::new(&arena, 2).client;
    player.peer = None;
    player.connect(&mut arena);
    assert!(player.plays(&mut arena));
    assert_eq!(arena.fleet.rigs[0].sessions(), 1);
    assert_eq!(arena.counters().sessions_closed[Ended::Replaced as usize], 1);
    arena.pass(31_000);
    assert_eq!(arena.counters().sessions, 0);
    // Now the worker that the kernel chooses takes it in.
    player.client = Player::new(&arena, 3).client;
    player.peer = None;
    player.connect(&mut arena);
    assert_eq!(arena.fleet.rigs[1].sessions(), 1);
}

#[test]
fn a_recorded_restart_moves_nothing_back() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 1);
    player.restart(&mut arena);
    let (recorded, there) = (player.sent.last().expect("a restart").clone(), player.home);
    player.change_port(&mut arena, 0);
    player.restart(&mut arena);
    assert!(player.plays(&mut arena));
    assert!(arena.deliver(1, there, &recorded).is_empty());
    assert!(arena.deliver(0, there, &recorded).is_empty());
    assert_eq!(arena.drops(DropReason::ResponseReplayed), 2);
    assert!(player.plays(&mut arena));
    assert_eq!(arena.counters().port_switches, 2);
}

#[test]
fn a_repeated_restart_is_acknowledged_again() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 1);
    player.restart(&mut arena);
    let repeated = player.sent.last().expect("a restart").clone();
    arena.pass(1000);
    assert_eq!(player.exchange(&mut arena, &repeated).len(), 1);
    assert_eq!(arena.counters().port_switches, 1);
}

#[test]
fn somebody_with_the_cookie_and_no_proof_of_their_own_gets_nothing() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 0);
    let datagram = player.game(1).expect("room");
    player.exchange(&mut arena, &datagram);
    player.step(&mut arena);
    let restart = player.owed(&mut arena).expect("challenged");
    let elsewhere = player.home.with_port(9);
    assert!(arena.deliver(0, elsewhere, &restart).is_empty());
    assert_eq!(arena.drops(DropReason::CookieForged), 1);
    assert_eq!(player.exchange(&mut arena, &restart).len(), 1, "the player himself does");
}

#[test]
fn whoever_was_at_the_new_address_is_not_there_any_more() {
    for worker in [0, 1] {
        let mut arena = Arena::new(unreal_setup(1), 2);
        let mut player = Player::connected(&mut arena, 1);
        arena.pass(11_000);
        let mut other = Player::new(&arena, 2);
        other.worker = worker;
        other.connect(&mut arena);
        (player.home, player.worker) = (other.home, worker);
        // The gateway takes its packets for the other player's, so the client restarts by itself.
        let stray = player.game(1).expect("room");
        assert!(player.exchange(&mut arena, &stray).is_empty());
        player.be_asked_to_restart(&mut arena);
        player.step(&mut arena);
        player.step(&mut arena);
        assert!(player.plays(&mut arena), "worker {worker}");
        assert_eq!(arena.counters().sessions, 2, "the other one may be anywhere");
        arena.pass(5000);
        assert!(player.plays(&mut arena), "worker {worker}");
        arena.pass(26_000);
        let ended = arena.counters().sessions_closed;
        assert_eq!((ended[Ended::Replaced as usize], ended[Ended::TimedOut as usize]), (0, 1));
        assert_eq!(arena.counters().sessions, 1);
    }
}

#[test]
fn a_quiet_player_pays_for_the_question_with_two_small_packets() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 0);
    let small = [(); 2].map(|()| player.empty());
    assert!(small.iter().all(|packet| packet.len() == 10));
    assert!(player.exchange(&mut arena, &small[0]).is_empty());
    assert_eq!(arena.drops(DropReason::RestartRateLimited), 1);
    let asked = player.exchange(&mut arena, &small[1]);
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [19]);
    player.step(&mut arena);
    player.step(&mut arena);
    assert!(player.plays(&mut arena));
    assert_eq!(arena.counters().port_switches, 1);
}

#[test]
fn no_stranger_is_sent_more_bytes_than_came_from_there() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    let packets = [player.empty(), player.game(1).expect("room")];
    let mut balance = [(0, 0); 40];
    for _ in 0..600 {
        arena.pass(50);
        let who = arena.dice.roll(40);
        // Most of what comes is small; what is not is answered by itself.
        let packet = &packets[usize::from(arena.dice.roll(10) == 0)];
        let answers = arena.deliver(0, player.home.with_port(9000 + who as u16), packet);
        let (came, went) = &mut balance[who as usize];
        *came += packet.len();
        *went += answers.iter().map(Vec::len).sum::<usize>();
        assert!(*went <= *came, "{went} bytes for {came}");
    }
    let (came, went) = balance.iter().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert!(went > came / 3, "{went} bytes for {came}: the small ones are answered too");
}

#[test]
fn strangers_are_asked_to_restart_at_a_limited_rate_and_with_no_more_than_they_sent() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    // The gate stays in this process: the next one's budgets are full.
    let _claims = std::sync::Arc::clone(&arena.rig().host.gate().common.claims);
    let mut player = Player::connected(&mut arena, 1);
    let packet = player.game(1).expect("room");
    let (mut asked, mut bytes) = (0, 0);
    for port in 0..1000 {
        for answer in arena.deliver(0, player.home.with_port(10_000 + port), &packet) {
            asked += 1;
            bytes += answer.len();
            assert!(answer.len() <= packet.len());
        }
    }
    assert_eq!(asked, 400, "what a block may cause in a second, and an address with a player");
    assert_eq!(arena.drops(DropReason::RestartRateLimited), 1000 - 400);
    assert!(bytes <= 400 * packet.len());
}

#[test]
fn strangers_of_its_block_keep_no_player_from_being_followed() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    let initial = player.sent[0].clone();
    player.change_port(&mut arena, 0);
    let strange = |port| Endpoint::v4([10, 1, 1, 9], port);
    let stray = player.game(1).expect("room");
    (1..=300).for_each(|port| drop(arena.deliver(0, strange(port), &stray)));
    (1..=3000).for_each(|port| drop(arena.deliver(0, strange(port), &initial)));
    let why = [DropReason::RestartRateLimited, DropReason::RequestRateLimited];
    assert_eq!(why.map(|why| arena.drops(why)), [100, 1000]);
    player.restart(&mut arena);
    assert_eq!((player.client.state(), arena.counters().port_switches), (State::Connected, 1));
    assert!(player.plays(&mut arena));
    let mut late = Player::new(&arena, 2);
    late.home = strange(9);
    late.step(&mut arena);
    assert_eq!(arena.drops(DropReason::RequestRateLimited), 1001, "who has no session waits");
}

#[test]
fn sessions_that_must_not_follow_do_not() {
    let mut setup = unreal_setup(1);
    setup.listeners[ListenerId(0)].follow_port_switch = false;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    player.change_port(&mut arena, 0);
    let datagram = player.game(1).expect("room");
    assert!(player.exchange(&mut arena, &datagram).is_empty());
    player.be_asked_to_restart(&mut arena);
    player.step(&mut arena);
    player.step(&mut arena);
    assert_eq!(arena.drops(DropReason::UnknownSource), 2);
    assert_eq!(arena.counters().port_switches, 0);
}

impl Player {
    /// As if a request had come: from the gateway, or from anybody.
    fn be_asked_to_restart(&mut self, arena: &mut Arena) {
        use ringgate_core::proto::unreal::handshake::{Body, Handshake, Tail};
        let ids = self.client.ids();
        let request = Handshake { ids, base: super::rig::BASE, body: Body::RestartRequest };
        let mut out = [0; 100];
        let len = request.encode(&self.framing, &Tail::draw(&[9; 17]), &mut out);
        arena.pass(11_000);
        self.take(arena, &out[..len]);
    }

    /// A game packet without any bunch.
    fn empty(&mut self) -> Vec<u8> {
        let payload =
            ringgate_core::proto::unreal::bits::BitReader::new(&[0]).take(1).expect("a bit");
        let mut buffer = [0; 64];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buffer).expect("room");
        buffer[..len].to_vec()
    }
}
