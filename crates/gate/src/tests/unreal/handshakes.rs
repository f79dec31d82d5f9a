//! Getting in, and staying out.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::rig::home;
use super::rig::{Arena, BASE, Player, rules_mut, unreal_setup};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{Limits, Route, Setup};
use crate::shared::buckets::Buckets;
use ringgate_batch::spread::{Bucket, SPREAD_WORDS, Spread, SpreadKey};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::client::State;
use ringgate_core::proto::unreal::handshake::{Base, Body, Handshake, Tail};
use ringgate_core::proto::unreal::prefix::{Framing, Ids};

#[test]
fn looking_at_a_server_leaves_no_trace_and_teaches_what_it_is() {
    let mut arena = Arena::new(unreal_setup(2), 1);
    assert!(arena.servers.iter().all(|server| server.stand_in.connections().is_empty()));
    let servers: Vec<_> = arena.rig().host.gate().servers().collect();
    let session = |at: usize| servers[at].and_then(|server| server.identity).map(|it| it.session);
    assert_eq!((session(0), session(1)), (Some(1), Some(2)));
    assert_eq!(
        servers[0].and_then(|it| it.identity).map(|it| it.base.network_version),
        Some(0x1234_5678)
    );
    assert!(arena.rig().host.gate().backends_up().all(|up| up));
}

#[test]
fn player_and_server_have_the_same_cookie_and_the_player_his_own_address_there() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let one = Player::connected(&mut arena, 1);
    let two = Player::connected(&mut arena, 2);
    let connections = arena.servers[0].stand_in.connections();
    assert_eq!(connections.len(), 2);
    assert_ne!(connections[0].address, connections[1].address);
    assert_eq!(Some(&connections[0].cookie), one.client.cookie());
    assert_eq!(Some(&connections[1].cookie), two.client.cookie());
    assert_eq!(arena.counters().sessions, 2);
}

#[test]
fn the_server_is_asked_again_each_second_and_the_player_waits_quietly() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    arena.servers[0].is_deaf = true;
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    player.step(&mut arena);
    assert_eq!(arena.counters().pending, 1);
    arena.pass(3000);
    let again = player.sent.last().expect("a response").clone();
    assert!(player.exchange(&mut arena, &again).is_empty(), "absorbed");
    arena.servers[0].is_deaf = false;
    arena.pass(2000);
    let answers = arena.take_for(player.home);
    assert_eq!(answers.len(), 1, "one acknowledgement");
    player.take(&arena, &answers[0]);
    assert_eq!(player.client.state(), State::Connected);
    assert_eq!((arena.counters().pending, arena.counters().sessions), (0, 1));
    assert!(player.plays(&mut arena));
}

#[test]
fn a_server_that_never_answers_is_given_up_and_its_slot_is_free() {
    let mut setup = unreal_setup(1);
    setup.backends[BackendId(0)].slots = 1;
    let mut arena = Arena::new(setup, 1);
    arena.servers[0].is_deaf = true;
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    player.step(&mut arena);
    arena.pass(10_100);
    let counters = arena.counters();
    assert_eq!((counters.pending, counters.sessions, counters.sessions_opened), (0, 0, 0));
    assert_eq!(counters.sessions_closed, [0; Ended::COUNT]);
    arena.servers[0].is_deaf = false;
    arena.pass(1000);
    Player::connected(&mut arena, 2);
}

#[test]
fn a_server_that_is_silent_gets_no_new_players_and_keeps_those_it_has() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    arena.servers[0].is_deaf = true;
    for _ in 0..13 {
        arena.pass(1000);
        player.plays(&mut arena);
    }
    assert!(arena.rig().host.gate().backends_up().all(|up| !up));
    let mut late = Player::new(&arena, 2);
    late.step(&mut arena);
    assert_eq!(arena.drops(DropReason::RequestBackendDown), 1);
    arena.servers[0].is_deaf = false;
    arena.pass(1000);
    assert!(player.plays(&mut arena));
    Player::connected(&mut arena, 3);
}

#[test]
fn a_lost_acknowledgement_is_repeated_once_a_second() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    let response = player.sent[1].clone();
    arena.pass(1000);
    assert_eq!(player.exchange(&mut arena, &response).len(), 1);
    (0..5).for_each(|_| assert!(player.exchange(&mut arena, &response).is_empty()));
    arena.pass(1000);
    assert_eq!(player.exchange(&mut arena, &response).len(), 1);
    assert_eq!(arena.counters().sessions_opened, 1);
}

#[test]
fn nobody_is_acknowledged_for_a_cookie_of_zeros() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let zeros = ringgate_core::proto::unreal::cookie::Proof {
        secret_id: ringgate_core::proto::unreal::cookie::SecretId::from_bit(false),
        timestamp: ringgate_core::proto::unreal::cookie::Timestamp::from_ns(arena.now_ns()),
        cookie: ringgate_core::proto::unreal::cookie::Cookie::ZERO,
    };
    let packet = Handshake { ids: Ids::new(1, 1), base: BASE, body: Body::Response(zeros) };
    let mut out = [0; 100];
    let len = packet.encode(&Framing::default(), &Tail::draw(&[9; 17]), &mut out);
    assert!(arena.deliver(0, home(1), &out[..len]).is_empty());
    assert_eq!(arena.drops(DropReason::CookieForged), 1);
}

#[test]
fn a_response_whose_bucket_was_another_workers_lets_its_player_in_later() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let words: Vec<_> = (0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect();
    let buckets = Buckets::new(Spread::new(Box::new(words), SpreadKey::new([7; 6]), 2));
    let buckets = Arc::new(buckets);
    buckets.set_listener(ListenerId(0), true);
    arena.rig().host.gate_mut().share(&buckets);
    let mut player = Player::new(&arena, 1);
    player.step(&mut arena);
    let bucket = buckets.spread().key().bucket(&player.home);
    buckets.spread().set(bucket, Bucket { worker: 1, sessions: 1 });
    let response = player.owed(&mut arena).expect("a response");
    player.exchange(&mut arena, &response);
    assert_eq!((arena.drops(DropReason::BucketMoved), player.peer.is_some()), (1, false));
    buckets.spread().leave(bucket);
    player.exchange(&mut arena, &response);
    assert!(player.plays(&mut arena));
    // It has done its work now.
    player.exchange(&mut arena, &response);
    assert_eq!(arena.counters().sessions_opened, 1);
}

#[test]
fn a_silent_player_is_gone_after_the_idle_time() {
    let mut setup = unreal_setup(1);
    rules_mut(&mut setup).idle_timeout_ns = 5_000_000_000;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    for _ in 0..3 {
        arena.pass(4900);
        assert!(player.plays(&mut arena));
    }
    arena.pass(5100);
    assert_eq!(arena.counters().sessions_closed[Ended::TimedOut as usize], 1);
    assert_eq!(arena.counters().sessions, 0);
}

#[test]
fn slots_and_sessions_are_limits() {
    let mut setup = unreal_setup(1);
    setup.backends[BackendId(0)].slots = 2;
    let mut arena = Arena::new(setup, 1);
    let players = [1, 2].map(|id| Player::connected(&mut arena, id));
    let mut third = Player::new(&arena, 3);
    third.step(&mut arena);
    third.step(&mut arena);
    assert_eq!(arena.drops(DropReason::ResponseBackendFull), 1);
    assert_eq!(players.len() as u64, arena.counters().sessions);
    let response = third.sent[1].clone();
    third.exchange(&mut arena, &response);
    assert_eq!(arena.drops(DropReason::ResponseBackendFull), 2, "asked again, not replayed");
    let mut more = Setup::clone(arena.rig().host.gate().setup());
    more.backends[BackendId(0)].slots = 3;
    arena.rig().mail(Mail::Setup(Arc::new(more)));
    third.exchange(&mut arena, &response);
    assert!(third.plays(&mut arena), "when there is room, the same response will do");

    let mut setup = unreal_setup(1);
    setup.listeners[ListenerId(0)].sessions_max = 1;
    let mut arena = Arena::new(setup, 1);
    Player::connected(&mut arena, 1);
    let mut second = Player::new(&arena, 2);
    second.step(&mut arena);
    second.step(&mut arena);
    assert_eq!(arena.drops(DropReason::ResponseSessionsFull), 1);
}

#[test]
fn a_draining_gateway_takes_nobody_in_and_a_stopped_one_has_nobody() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    let mut between = Player::new(&arena, 2);
    between.step(&mut arena);
    arena.rig().mail(Mail::Drain { left_ms: 5000 });
    between.step(&mut arena);
    let mut late = Player::new(&arena, 3);
    late.step(&mut arena);
    late.step(&mut arena);
    assert_eq!(arena.drops(DropReason::Draining), 2);
    assert!(player.plays(&mut arena), "who is here stays");
    player.change_port(&mut arena, 0);
    player.restart(&mut arena);
    assert!(player.plays(&mut arena), "and is followed to another port");
    arena.rig().mail(Mail::Stop);
    arena.settle();
    assert_eq!(arena.counters().sessions, 0);
    assert_eq!(arena.counters().sessions_closed[Ended::Shutdown as usize], 1);
}

#[test]
fn players_are_routed_by_load_or_by_address() {
    let mut setup = unreal_setup(2);
    setup.listeners[ListenerId(0)].route = Route::LeastPlayers;
    let mut arena = Arena::new(setup, 1);
    (0..6).for_each(|id| drop(Player::connected(&mut arena, id)));
    let counts = arena.servers.iter().map(|server| server.stand_in.connections().len());
    assert_eq!(counts.collect::<Vec<_>>(), [3, 3]);

    let mut setup = unreal_setup(2);
    setup.listeners[ListenerId(0)].route = Route::Hash;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    let first = arena.servers.iter().position(|it| it.stand_in.connections().len() == 1);
    player.home = player.home.with_port(6000);
    player.client = Player::new(&arena, 2).client;
    player.peer = None;
    player.connect(&mut arena);
    let again = arena.servers.iter().position(|it| it.stand_in.connections().len() == 2);
    assert_eq!(first, again, "the same server for the same address");
}

#[test]
fn another_handshake_replaces_the_session_even_when_the_server_is_full() {
    let mut setup = unreal_setup(1);
    setup.backends[BackendId(0)].slots = 1;
    let mut arena = Arena::new(setup, 1);
    let mut player = Player::connected(&mut arena, 1);
    let (recorded, old) = (player.sent[1].clone(), player.client.cookie().copied());
    player.client = Player::new(&arena, 2).client;
    player.peer = None;
    player.step(&mut arena);
    assert!(player.peer.is_none());
    assert_eq!(arena.counters().sessions_closed[Ended::Replaced as usize], 0, "not by asking");
    player.step(&mut arena);
    assert!(player.plays(&mut arena));
    assert_ne!(player.client.cookie().copied(), old);
    assert_eq!(arena.counters().sessions_closed[Ended::Replaced as usize], 1);
    assert!(player.exchange(&mut arena, &recorded).is_empty());
    assert_eq!(arena.drops(DropReason::ResponseReplayed), 1);
    assert!(player.plays(&mut arena), "the recorded response has done nothing");
}

#[test]
fn a_server_that_has_restarted_loses_its_players_and_gets_new_ones() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let mut player = Player::connected(&mut arena, 1);
    arena.restart_server(0, Framing::default(), 3);
    assert!(arena.rig().host.gate().backends_up().all(|up| !up));
    arena.pass(600);
    assert!(arena.rig().host.gate().backends_up().all(|up| up), "it has answered");
    assert!(!player.plays(&mut arena));
    assert_eq!(
        arena.counters().sessions_closed[Ended::BackendGone as usize],
        0,
        "another session number: ignored"
    );
    arena.pass(31_000);
    assert_eq!(arena.counters().sessions, 0);
    let mut again = Player::connected(&mut arena, 2);
    assert_eq!(again.client.ids().session(), 3);
    assert!(again.plays(&mut arena));

    arena.restart_server(0, Framing::default(), 3);
    arena.pass(600);
    assert!(!again.plays(&mut arena));
    assert_eq!(
        arena.counters().sessions_closed[Ended::BackendGone as usize],
        1,
        "it asked for a restart"
    );
}

#[test]
fn a_version_that_the_server_refuses_is_told_to_the_player() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    arena.servers[0].is_deaf = true;
    let mut player = Player::new(&arena, 5);
    player.step(&mut arena);
    player.step(&mut arena);
    let upgrade = Handshake { ids: Ids::new(1, 5), base: BASE, body: Body::VersionUpgrade };
    let mut out = [0; 100];
    let len = upgrade.encode(&Framing::default(), &Tail::draw(&[9; 17]), &mut out);
    let there = ringgate_batch::Endpoint::v4([127, 255, 255, 254], 4000);
    arena.say(0, there, &out[..len]);
    let answers = arena.take_for(player.home);
    assert_eq!(answers.len(), 1);
    player.take(&arena, &answers[0]);
    assert_eq!(player.client.state(), State::WrongVersion);
    assert_eq!((arena.counters().pending, arena.counters().sessions_opened), (0, 0));
}

#[test]
fn secrets_change_and_players_get_in_all_the_time() {
    let mut arena = Arena::new(unreal_setup(1), 2);
    for id in 0..8 {
        let mut player = Player::new(&arena, id);
        player.worker = usize::from(id % 2);
        player.step(&mut arena);
        arena.pass(9000);
        // The response is 9 s old by now, and its secret may have been replaced once.
        player.step(&mut arena);
        player.connect_if_late(&mut arena);
        arena.pass(31_000);
    }
    assert_eq!(arena.counters().sessions_opened, 8);
    assert!(arena.counters().drops.of(DropReason::CookieSecret) == 0);
}

#[test]
fn a_response_is_taken_until_its_secret_is_replaced_and_never_after_forty_seconds() {
    for (wait_ms, is_taken) in [(0, true), (14_000, true), (41_000, false)] {
        let mut arena = Arena::new(unreal_setup(1), 1);
        let mut player = Player::new(&arena, 1);
        player.step(&mut arena);
        let response = player.owed(&mut arena).expect("challenged");
        arena.pass(wait_ms);
        player.exchange(&mut arena, &response);
        assert_eq!(arena.counters().sessions == 1, is_taken, "{wait_ms} ms");
    }
}

#[test]
fn a_players_version_goes_to_the_server_as_it_is() {
    let mut arena = Arena::new(unreal_setup(1), 1);
    let base = Base { network_version: 0xdead_beef, version: 3, ..BASE };
    let mut player = Player::with_base(&arena, Framing::default(), 1, base);
    player.connect(&mut arena);
    assert_eq!(arena.servers[0].stand_in.connections()[0].network_version(), 0xdead_beef);
}

impl Player {
    /// A client whose challenge has become too old asks for another.
    fn connect_if_late(&mut self, arena: &mut Arena) {
        while self.peer.is_none() {
            arena.pass(1000);
            self.step(arena);
        }
    }
}

/// A setup whose server has room for everybody.
fn roomy_setup() -> Setup {
    let mut setup = unreal_setup(1);
    setup.backends[BackendId(0)].slots = 64;
    setup
}

/// Tries to get so many players in from one address; returns how many are.
fn flood(arena: &mut Arena, count: u16) -> u64 {
    for port in 0..count {
        let mut player = Player::new(arena, 1);
        player.home = player.home.with_port(7000 + port);
        player.step(arena);
        player.step(arena);
    }
    arena.counters().sessions
}

#[test]
fn one_address_does_not_fill_a_server() {
    let mut arena = Arena::new(roomy_setup(), 2);
    assert_eq!(flood(&mut arena, 40), 32);
    assert_eq!(arena.drops(DropReason::AddressFull), 8);
    let mut other = Player::connected(&mut arena, 2);
    assert!(other.plays(&mut arena));

    let mut setup = roomy_setup();
    setup.listeners[ListenerId(0)].limits = Limits { sessions_per_block: 5, ..Limits::NONE };
    let mut arena = Arena::new(setup, 1);
    assert_eq!(flood(&mut arena, 8), 5);
    assert_eq!(arena.drops(DropReason::BlockFull), 3);

    let mut setup = roomy_setup();
    setup.listeners[ListenerId(0)].limits = Limits::NONE;
    let mut arena = Arena::new(setup, 1);
    assert_eq!(flood(&mut arena, 40), 40, "0 is no limit");
}

#[test]
fn sessions_count_where_their_players_are_now() {
    let mut setup = roomy_setup();
    setup.listeners[ListenerId(0)].limits.sessions_per_address = 1;
    let mut arena = Arena::new(setup, 1);
    let mut first = Player::connected(&mut arena, 1);
    let mut second = Player::connected(&mut arena, 2);
    let (mine, theirs) = (first.home, second.home);
    // Nobody collects the sessions of several addresses at one of them.
    first.change_port(&mut arena, 0);
    first.home = theirs.with_port(9);
    first.restart(&mut arena);
    assert!(arena.drops(DropReason::AddressFull) > 0);
    assert_eq!(arena.counters().port_switches, 0);
    // To an address that has room it goes, and the place it had is free.
    second.change_port(&mut arena, 0);
    second.home = Player::new(&arena, 3).home;
    second.restart(&mut arena);
    assert!(second.plays(&mut arena));
    let mut third = Player::new(&arena, 4);
    third.home = mine.with_port(10);
    third.step(&mut arena);
    third.step(&mut arena);
    assert!(third.peer.is_none(), "the first player's session is still there");
    third = Player::new(&arena, 4);
    third.home = theirs.with_port(10);
    third.connect(&mut arena);
    assert_eq!(arena.counters().sessions, 3);
}

/// Responses that verify, and a server that does not answer: each waits for it, and takes a place,
/// for ten seconds.
#[test]
fn unfinished_handshakes_of_one_block_are_bounded() {
    let mut setup = roomy_setup();
    setup.listeners[ListenerId(0)].limits = Limits { handshakes_per_block: 3, ..Limits::NONE };
    let mut arena = Arena::new(setup, 1);
    arena.servers[0].is_deaf = true;
    flood(&mut arena, 8);
    assert_eq!(arena.drops(DropReason::BlockHandshakesFull), 5);
    assert_eq!(arena.counters().pending, 3);
    let mut other = Player::new(&arena, 2);
    other.step(&mut arena);
    other.step(&mut arena);
    assert_eq!(arena.counters().pending, 4, "another block's is taken");
    arena.servers[0].is_deaf = false;
    arena.pass(3000);
    assert_eq!((arena.counters().pending, arena.counters().sessions), (0, 4));
    flood(&mut arena, 11);
    assert_eq!(arena.counters().sessions, 1 + 11, "what is finished does not count");
}
