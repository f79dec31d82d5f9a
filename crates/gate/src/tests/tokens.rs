//! Tokens that come again: after a session, beside one, and after the wall clock was set.

use std::sync::Arc;

use super::clients::{Player, Scribe};
use super::games::{Game, Heard};
use super::rig::{
    Fleet, Rig, bundle_backend, claims_for, home, listener, netcode_rules, plain_setup, udp_backend,
};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{Setup, TokenReuse};
use crate::shared::fleet_players::FleetPlayers;
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::destination::{self, Join};
use ringgate_core::netcode::{ConnectToken, user_data};
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::replay::Policy;
use ringgate_link::bundle::{Answer, CloseReason, Move};

fn ready() -> (Rig, Game) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    (rig, game)
}

#[test]
fn packets_of_one_session_are_never_taken_in_another() {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    let recorded = [scribe.payload(200, b"pay 100 gold"), scribe.disconnect(201)];
    rig.deliver_all(home(1), &recorded);
    assert_eq!((rig.sessions(), game.payloads(&mut rig).len()), (0, 1));

    // The player comes again with its token, and counts from the start as the reference does.
    rig.deliver(home(1), &scribe.request());
    let answer = rig.take_for(home(1)).pop().expect("an answer");
    let (kind, body) = scribe.open(&answer).expect("sealed for the token's owner");
    if kind == PacketKind::Challenge {
        let body = scribe.packet(PacketKind::Response, 1, &body);
        rig.deliver(home(1), &body);
    }
    rig.deliver(home(1), &recorded[0]);
    assert_eq!(game.payloads(&mut rig).len(), 0, "taken twice");
    assert_eq!(rig.sessions(), 0);
}

/// Asserts that a request from there is denied, sealed for the token's owner, and opens nothing.
#[track_caller]
fn is_denied(rig: &mut Rig, scribe: &Scribe, from: Endpoint) {
    rig.take_for(from);
    rig.provokes(DropReason::TokenSpent, |rig| rig.deliver(from, &scribe.request()));
    assert_eq!(scribe.kinds(rig, from), [PacketKind::Denied]);
    assert_eq!(rig.counters().pending, 0);
}

/// Asserts that a request from there is not answered at all.
#[track_caller]
fn is_met_with_silence(rig: &mut Rig, scribe: &Scribe, from: Endpoint) {
    rig.take_for(from);
    rig.provokes(DropReason::TokenUsedElsewhere, |rig| rig.deliver(from, &scribe.request()));
    assert!(rig.take_for(from).is_empty());
}

#[test]
fn whatever_a_session_takes_in_spends_its_token() {
    type Act = fn(&Scribe, &mut Rig);
    let acts: [Act; 5] = [
        |scribe, rig| rig.deliver(home(1), &scribe.keep_alive(2)),
        |scribe, rig| rig.deliver(home(1), &scribe.payload(2, b"x")),
        |scribe, rig| rig.deliver(home(1), &scribe.disconnect(2)),
        // Authentic and of no use: it has still taken a number.
        |scribe, rig| rig.deliver(home(1), &scribe.packet(PacketKind::KeepAlive, 2, &[1])),
        // Further ahead than is allowed, so it ends its session, as it would the next.
        |scribe, rig| rig.deliver(home(1), &scribe.payload(1_000, b"x")),
    ];
    for act in acts {
        let mut setup = plain_setup();
        netcode_rules(&mut setup).replay = Policy::new(256, 100).expect("a power of two");
        let mut rig = Rig::new(setup);
        let _game = Game::join(&mut rig, "arena");
        let scribe = Scribe::new(&rig.token(1));
        scribe.connect(&mut rig, home(1));
        act(&scribe, &mut rig);
        rig.pass(10_000);
        assert_eq!(rig.sessions(), 0);
        is_denied(&mut rig, &scribe, home(1));
        is_denied(&mut rig, &scribe, home(1));
        is_met_with_silence(&mut rig, &scribe, home(1).with_port(9));
        // A new one is what it takes.
        Scribe::new(&rig.token(1)).connect(&mut rig, home(1));
        assert_eq!(rig.sessions(), 1);
    }
}

#[test]
fn a_player_who_was_never_heard_may_try_again() {
    let (mut rig, _game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    for _ in 0..3 {
        rig.deliver(home(1), &scribe.request());
        let challenge = scribe.challenge(&mut rig, home(1));
        // The keep-alives for it are lost, so it repeats its response until it gives up.
        for sequence in 1..10 {
            rig.deliver(home(1), &scribe.packet(PacketKind::Response, sequence, &challenge));
        }
        assert_eq!(rig.sessions(), 1);
        rig.pass(10_000);
        assert_eq!(rig.sessions(), 0);
    }
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 3);
    assert_eq!(rig.drops(DropReason::TokenSpent), 0);
}

fn two_listeners() -> (Rig, Game, Scribe) {
    let listeners = vec![listener("eu", &[0]), listener("us", &[0])];
    let mut rig = Rig::new(Setup::new(listeners, vec![bundle_backend("arena", 4)], 1));
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    (rig, game, scribe)
}

#[test]
fn a_handshake_that_began_before_the_token_was_spent_ends_with_a_denial() {
    let (mut rig, game, scribe) = two_listeners();
    rig.deliver_at(ListenerId(1), home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    scribe.connect(&mut rig, home(1));
    let recorded = scribe.payload(2, b"once");
    rig.deliver(home(1), &recorded);
    rig.take_for(home(1));
    let response = scribe.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(DropReason::TokenSpent, |rig| rig.deliver_at(ListenerId(1), home(1), &response));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
    assert_eq!(rig.counters().pending, 0);
    rig.deliver_at(ListenerId(1), home(1), &recorded);
    assert_eq!((rig.sessions(), game.payloads(&mut rig).len()), (1, 1));
    rig.provokes(DropReason::TokenSpent, |rig| {
        rig.deliver_at(ListenerId(1), home(1), &scribe.request());
    });
}

#[test]
fn a_token_is_in_one_session_at_a_time() {
    let (mut rig, _game, scribe) = two_listeners();
    scribe.connect(&mut rig, home(1));
    // The player has not heard of it, gives up, and tries the next address of its token.
    rig.deliver_at(ListenerId(1), home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    let response = scribe.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(DropReason::ResponseClientConnected, |rig| {
        rig.deliver_at(ListenerId(1), home(1), &response);
    });
    assert!(scribe.kinds(&mut rig, home(1)).is_empty(), "no denial: it may go on trying");
    for _ in 0..100 {
        rig.pass(100);
        rig.deliver_at(ListenerId(1), home(1), &scribe.request());
        let challenge = scribe.challenge(&mut rig, home(1));
        rig.deliver_at(ListenerId(1), home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
        if rig.counters().sessions_opened == 2 {
            return assert_eq!(rig.sessions(), 1);
        }
    }
    panic!("the first session is over, and the second did not begin");
}

#[test]
fn a_spent_token_is_denied_where_its_session_has_moved() {
    let (mut rig, _game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    let moved = home(1).with_port(6000);
    rig.deliver(moved, &scribe.payload(2, b"x"));
    rig.deliver(moved, &scribe.disconnect(3));
    assert_eq!(rig.sessions(), 0);
    is_denied(&mut rig, &scribe, moved);
    is_met_with_silence(&mut rig, &scribe, home(1));
}

#[test]
fn a_spent_token_is_denied_by_every_worker_and_no_nonce_comes_twice() {
    let mut fleet = Fleet::new(plain_setup(), 3);
    let _games: Vec<Game> = fleet.rigs.iter_mut().map(|rig| Game::join(rig, "arena")).collect();
    let scribe = Scribe::new(&fleet.rigs[0].token(1));
    scribe.connect(&mut fleet.rigs[0], home(1));
    fleet.rigs[0].deliver(home(1), &scribe.disconnect(2));
    // The judge that all workers share knows every number that was sealed under the token's key.
    for _ in 0..3 {
        fleet.rigs.iter_mut().for_each(|rig| is_denied(rig, &scribe, home(1)));
    }
}

#[test]
fn a_used_token_is_not_challenged_from_elsewhere_after_the_clock_went_ahead_and_back() {
    let (mut rig, _game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.disconnect(2));
    rig.step_wall_clock(7200);
    // Others log in meanwhile, with tokens of the same clock.
    for n in 2..6 {
        Scribe::new(&rig.token(n)).connect(&mut rig, home(n as u16));
        rig.pass(1000);
    }
    rig.step_wall_clock(-7200);
    rig.provokes(DropReason::TokenUsedElsewhere, |rig| rig.deliver(home(9), &scribe.request()));
    assert!(rig.take_for(home(9)).is_empty());
}

#[test]
fn used_tokens_are_forgotten_again_after_the_clock_went_ahead_and_back() {
    let (mut rig, _game) = ready();
    let log_in = |rig: &mut Rig, n: u64| {
        let scribe = Scribe::new(&rig.token(n));
        scribe.connect(rig, home(n as u16));
        rig.deliver(home(n as u16), &scribe.disconnect(2));
    };
    rig.step_wall_clock(7200);
    rig.turn();
    log_in(&mut rig, 1);
    rig.step_wall_clock(-7200);
    (2..50).for_each(|n| log_in(&mut rig, n));
    assert_eq!(rig.host.gate().common.claims.tokens_remembered(), 49);
    // Longer than these tokens are good for, and less than the clock had gone ahead.
    rig.jump(400_000);
    (50..60).for_each(|n| log_in(&mut rig, n));
    assert_eq!(rig.host.gate().common.claims.tokens_remembered(), 11, "the first is still good");
    rig.jump(7_500_000);
    (60..70).for_each(|n| log_in(&mut rig, n));
    assert_eq!(rig.host.gate().common.claims.tokens_remembered(), 10);
}

#[test]
fn the_newer_login_ends_the_older_session_where_ids_are_the_fleets() {
    let players = Arc::new(FleetPlayers::new(4));
    let mut setup = Setup { fleet_players: Some(Arc::clone(&players)), ..plain_setup() };
    netcode_rules(&mut setup).unique_in = Some(Arc::from("arena"));
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let older = Scribe::new(&rig.token(1));
    older.connect(&mut rig, home(1));
    let session = rig.session_at(home(1));
    assert_eq!(players.take_news(9)[0].session, Some(session));
    // The same token from its own address is no newer login, and nobody else can use it.
    rig.deliver(home(1), &older.request());
    assert!(!players.has_ousted());

    let newer = Scribe::new(&rig.token(1));
    for _ in 0..3 {
        rig.deliver(home(2), &newer.request());
    }
    assert_eq!(rig.drops(DropReason::RequestClientConnected), 3);
    let ousted = players.take_ousted(9);
    assert_eq!(ousted, [session], "once, however often its client asks");
    rig.mail(Mail::Oust(ousted.into()));
    rig.turn();
    assert_eq!(rig.sessions(), 0);
    assert_eq!(rig.counters().sessions_closed[Ended::NewerLogin as usize], 1);
    let heard = game.hear(&mut rig);
    assert!(heard.contains(&Heard::Closed(session, CloseReason::NewerLogin)), "{heard:?}");
    newer.connect(&mut rig, home(2));
    let newer = rig.session_at(home(2));
    assert_eq!(players.take_news(9)[0].session, Some(newer));
    // What was said of a session that is over ends nobody.
    rig.mail(Mail::Oust(Arc::new([session])));
    rig.turn();
    assert_eq!((rig.sessions(), players.len()), (1, 1));
}

/// A token of a fleet for the only backend, with a tag.
fn tagged(rig: &mut Rig, client_id: u64, number: u64) -> (ConnectToken, Option<Join>) {
    let mut data = user_data(b"arena").expect("short");
    assert!(destination::mark(&mut data, number));
    let token = rig.token_with(client_id, |spec| spec.user_data = data);
    (token, destination::join(client_id, &data))
}

#[test]
fn a_fleet_is_told_of_a_token_once_it_can_open_no_other_session() {
    for backend in [bundle_backend("arena", 4), udp_backend("arena", "127.0.0.1:7777", 4)] {
        let mut setup = plain_setup();
        setup.backends[BackendId(0)] = backend;
        let claims = claims_for(&setup, setup.claim_limits());
        let mut rig = Rig::with_claims(setup, Arc::clone(&claims));
        let _game = Game::join(&mut rig, "arena");
        assert!(claims.take_joins().is_empty());
        let (token, join) = tagged(&mut rig, 1, 5);
        let scribe = Scribe::new(&token);
        scribe.connect(&mut rig, home(1));
        assert_eq!((rig.sessions(), claims.take_joins()), (1, Vec::new()), "it may come again");
        rig.deliver(home(1), &scribe.payload(2, b"here"));
        assert_eq!(claims.take_joins(), [(BackendId(0), join.expect("it is tagged"))]);
        rig.deliver(home(1), &scribe.payload(3, b"still"));
        assert!(claims.take_joins().is_empty(), "once");
        let untagged = rig.token(2);
        let mut player = Player::new(&rig, home(2), &untagged);
        player.connect(&mut rig);
        player.send(&mut rig, b"here");
        assert!(claims.take_joins().is_empty());
    }
}

#[test]
fn a_player_who_is_moved_before_it_speaks_has_come_where_its_token_says() {
    let mut setup = plain_setup();
    setup.backends.push(bundle_backend("zone", 4));
    netcode_rules(&mut setup).moves = vec![BackendId(1)];
    let claims = claims_for(&setup, setup.claim_limits());
    let mut rig = Rig::with_claims(setup, Arc::clone(&claims));
    let [arena, zone] = ["arena", "zone"].map(|name| Game::join(&mut rig, name));
    assert!(claims.take_joins().is_empty());
    let (token, join) = tagged(&mut rig, 1, 5);
    let scribe = Scribe::new(&token);
    scribe.connect(&mut rig, home(1));
    let session = rig.session_at(home(1));
    let (backend, ticket, time_ms, message, data) = ("zone", 7, 500, None, &b""[..]);
    let asked = Move { session, backend, ticket, time_ms, confirms: false, message, data };
    arena.say(&mut rig, |writer| writer.move_session(&asked));
    let heard = zone.news(&mut rig);
    let [Heard::Offered(offer)] = &heard[..] else { panic!("{heard:?}") };
    zone.say(&mut rig, |writer| writer.answer(session, offer.number, Answer::Yes));
    assert_eq!(zone.guests(&mut rig).len(), 1);
    rig.deliver(home(1), &scribe.payload(2, b"here"));
    assert_eq!(zone.payloads(&mut rig), [b"here".to_vec()]);
    assert_eq!(claims.take_joins(), [(BackendId(0), join.expect("it is tagged"))]);
}

#[test]
fn no_fleet_is_told_of_tokens_that_may_be_used_again() {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).token_reuse = TokenReuse::Allow;
    let claims = claims_for(&setup, setup.claim_limits());
    let mut rig = Rig::with_claims(setup, Arc::clone(&claims));
    let game = Game::join(&mut rig, "arena");
    assert!(claims.take_joins().is_empty());
    let (token, _) = tagged(&mut rig, 1, 5);
    let mut player = Player::new(&rig, home(1), &token);
    player.connect(&mut rig);
    player.send(&mut rig, b"here");
    assert_eq!((game.payloads(&mut rig).len(), claims.take_joins()), (1, Vec::new()));
}
