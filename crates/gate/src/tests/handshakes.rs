//! Who is let in: addresses, keys, tokens that are used again, handshakes that are played back.

use super::clients::{Library, Player, Scribe, forged};
use super::games::{Game, Heard};
use super::rig::{
    Fleet, PROTOCOL, PUBLIC, Rig, bundle_backend, endpoint, home, key, listener, netcode_rules,
    plain_setup,
};
use crate::counters::Ended;
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::setup::{Protocol, Setup, TokenReuse};
use ringgate_batch::Endpoint;
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::TokenSpec;
use ringgate_core::proto::netcode::packet::PacketKind;

fn ready() -> (Rig, Game) {
    let mut rig = Rig::new(plain_setup());
    let game = Game::join(&mut rig, "arena");
    (rig, game)
}

/// The same where a token may have several sessions.
fn ready_to_reuse() -> (Rig, Game) {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).token_reuse = TokenReuse::Allow;
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    (rig, game)
}

#[test]
fn a_recorded_session_played_again_gets_nowhere() {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    let recorded = [
        scribe.packet(PacketKind::Response, 1, &challenge),
        scribe.payload(2, b"pay 100 gold"),
        scribe.disconnect(3),
    ];
    rig.deliver_all(home(1), &recorded);
    assert_eq!((rig.sessions(), game.payloads(&mut rig).len()), (0, 1));

    for _ in 0..2 {
        rig.deliver(home(1), &scribe.request());
        rig.deliver_all(home(1), &recorded);
    }
    assert_eq!(
        (rig.sessions(), game.hear(&mut rig).len()),
        (0, 0),
        "the game process hears nothing"
    );
    assert_eq!(rig.drops(DropReason::TokenSpent), 2);
}

#[test]
fn a_recorded_session_played_again_gets_nowhere_where_tokens_may_be_used_again() {
    let (mut rig, game) = ready_to_reuse();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    let recorded = [
        scribe.packet(PacketKind::Response, 1, &challenge),
        scribe.payload(2, b"pay 100 gold"),
        scribe.disconnect(3),
    ];
    rig.deliver_all(home(1), &recorded);
    game.hear(&mut rig);
    for _ in 0..2 {
        rig.deliver(home(1), &scribe.request());
        rig.deliver_all(home(1), &recorded);
    }
    assert_eq!((rig.sessions(), game.hear(&mut rig).len()), (0, 0));
    assert_eq!(rig.drops(DropReason::ChallengeForeign), 2);

    // Who can answer the new challenge has the keys, and is the player.
    scribe.connect(&mut rig, home(1));
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn a_token_is_good_again_at_the_same_address_and_repeats_no_nonce() {
    let (mut rig, game) = ready_to_reuse();
    let token = rig.token(1);
    for round in 0..5 {
        // The rig's judge sees to it that no nonce comes twice.
        let mut player = Player::new(&rig, home(1), &token);
        player.connect(&mut rig);
        let session = game.guests(&mut rig)[0].session;
        (0..20).for_each(|_| game.say(&mut rig, |w| w.payload(session, b"down")));
        player.receive(&mut rig);
        assert_eq!(player.got.len(), 20, "round {round}");
        player.leave(&mut rig);
        assert_eq!(rig.sessions(), 0);
    }
}

#[test]
fn one_token_at_two_listeners_at_once_repeats_no_nonce() {
    let listeners = vec![listener("eu", &[0]), listener("us", &[0])];
    let mut setup = Setup::new(listeners, vec![bundle_backend("arena", 4)], 1);
    for listener in &mut setup.listeners {
        let Protocol::Netcode(rules) = &mut listener.protocol else { panic!("netcode") };
        rules.token_reuse = TokenReuse::Allow;
    }
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    for _ in 0..3 {
        scribe.connect(&mut rig, home(1));
        scribe.connect_at(&mut rig, ListenerId(1), home(1));
        assert_eq!(rig.sessions(), 2);
        for guest in game.guests(&mut rig) {
            (0..20).for_each(|_| game.say(&mut rig, |w| w.payload(guest.session, b"down")));
        }
        rig.deliver(home(1), &scribe.disconnect(2));
        rig.deliver_at(ListenerId(1), home(1), &scribe.disconnect(2));
        assert_eq!(rig.sessions(), 0);
    }
}

#[test]
fn an_ipv4_player_is_the_same_behind_a_dual_stack_socket() {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, endpoint("192.0.2.7:5000"));
    let mapped = endpoint("[::ffff:192.0.2.7]:5000");
    rig.deliver(mapped, &scribe.payload(2, b"mapped"));
    assert_eq!(game.payloads(&mut rig), [b"mapped"]);
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn a_token_may_write_our_ipv6_address_in_either_word_order() {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].public = vec!["[2001:db8::9]:40000".parse().expect("literal")];
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let home = |n| Endpoint::v6([0x20, 1, 0xd, 0xb8, 0, n, 0, 0, 0, 0, 0, 0, 0, 0, 0, n], 0, 9);
    for (n, server) in [(1, "[2001:db8::9]:40000"), (2, "[120:b80d::900]:40000")] {
        let token =
            rig.token_with(n.into(), |spec| spec.servers = server.parse().expect("literal"));
        Scribe::new(&token).connect(&mut rig, home(n));
        assert_eq!(rig.sessions(), usize::from(n), "{server}");
    }
}

#[test]
fn while_keys_are_rotated_tokens_of_both_are_taken() {
    let (mut rig, _game) = ready();
    let spec = |id| TokenSpec::new(PROTOCOL, id, PUBLIC.parse().expect("literal"));
    let old = Scribe::new(&rig.token_under(&spec(1), &key(1)));
    let newer = Scribe::new(&rig.token_under(&spec(2), &key(2)));
    rig.provokes(DropReason::RequestForged, |rig| rig.deliver(home(2), &newer.request()));

    let mut setup = plain_setup();
    netcode_rules(&mut setup).keys = [3, 2, 1].map(|it| key(it).into()).into();
    rig.mail(Mail::Setup(setup.clone().into()));
    old.connect(&mut rig, home(1));
    newer.connect(&mut rig, home(2));
    assert_eq!(rig.sessions(), 2);

    netcode_rules(&mut setup).keys = vec![key(3).into()];
    rig.mail(Mail::Setup(setup.into()));
    let late = Scribe::new(&rig.token_under(&spec(3), &key(1)));
    rig.provokes(DropReason::RequestForged, |rig| rig.deliver(home(3), &late.request()));
    rig.deliver(home(1), &old.payload(2, b"still here"));
    assert_eq!(rig.sessions(), 2, "players who are in stay in");
}

#[test]
fn a_repeated_request_is_challenged_again_and_any_of_its_challenges_may_be_answered() {
    let (mut rig, _game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let first = scribe.challenge(&mut rig, home(1));
    rig.deliver(home(1), &scribe.request());
    let second = scribe.challenge(&mut rig, home(1));
    assert_ne!(first, second);
    rig.deliver(home(1), &scribe.packet(PacketKind::Response, 1, &first));
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn a_handshake_lasts_for_the_tokens_timeout_from_its_last_request() {
    let respond = |timeout_seconds, wait_ms: u64, ask_again: bool| {
        let (mut rig, _game) = ready();
        let token = rig.token_with(1, |spec| spec.timeout_seconds = timeout_seconds);
        let scribe = Scribe::new(&token);
        rig.deliver(home(1), &scribe.request());
        let challenge = scribe.challenge(&mut rig, home(1));
        if ask_again {
            rig.pass(wait_ms / 2);
            rig.deliver(home(1), &scribe.request());
            rig.pass(wait_ms / 2);
        } else {
            rig.pass(wait_ms);
        }
        rig.deliver(home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
        rig.sessions() == 1
    };
    assert!(respond(2, 2_000, false), "at exactly the timeout");
    assert!(!respond(2, 2_010, false), "after it");
    assert!(respond(2, 3_000, true), "a repeated request extends it");
    assert!(!respond(2, 4_500, true));
    assert!(respond(0, 0, false), "no time at all is enough in the same instant");
    assert!(!respond(0, 10, false));
    assert!(respond(-1, 20_000, false), "never ends");
}

#[test]
fn forgotten_handshakes_make_room_again() {
    let mut setup = plain_setup();
    setup.worker_pending_max = 8;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let token_of = |rig: &mut Rig, n| rig.token_with(n, |spec| spec.timeout_seconds = 1);
    for n in 0..8 {
        let scribe = Scribe::new(&token_of(&mut rig, n));
        rig.deliver(endpoint(&format!("198.51.{n}.1:9")), &scribe.request());
    }
    let ninth = Scribe::new(&token_of(&mut rig, 9));
    rig.provokes(DropReason::PendingFull, |rig| rig.deliver(home(9), &ninth.request()));
    assert_eq!(rig.counters().pending, 8);
    // However few turns there are: an idle worker comes round when `poll_timeout` says so.
    for _ in 0..40 {
        let due_ns = rig.host.gate().poll_timeout().expect("something waits");
        rig.jump(due_ns.saturating_sub(rig.now.mono_ns).div_ceil(1_000_000));
        rig.turn();
        if rig.counters().pending == 0 {
            break;
        }
    }
    assert_eq!(rig.counters().pending, 0);
    ninth.connect(&mut rig, home(9));
    assert_eq!(rig.sessions(), 1);
}

#[test]
fn another_token_from_the_same_address_takes_the_handshake_over() {
    let (mut rig, _game) = ready();
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    rig.deliver(home(1), &first.request());
    second.connect(&mut rig, home(1));
    assert_eq!(rig.sessions(), 1);
    rig.provokes(DropReason::RequestAddressConnected, |rig| {
        rig.deliver(home(1), &first.request());
    });
}

#[test]
fn a_client_id_has_one_session_over_all_workers() {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let [left, right] = &mut fleet.rigs[..] else { panic!("two workers") };
    let _games = [Game::join(left, "arena"), Game::join(right, "arena")];
    Scribe::new(&left.token(1)).connect(left, home(1));
    let again = Scribe::new(&right.token(1));
    right.provokes(DropReason::RequestClientConnected, |rig| {
        rig.deliver(home(2), &again.request());
    });
    left.pass(10_000);
    assert_eq!(left.sessions(), 0, "timed out");
    Scribe::new(&right.token(1)).connect(right, home(2));
    assert_eq!(right.sessions(), 1);
}

#[test]
fn a_player_who_was_denied_gets_in_when_there_is_room() {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let mut first = Player::connected(&mut rig, home(1), 1);
    let token = rig.token(2);
    let mut second = Player::new(&rig, home(2), &token);
    second.exchange(&mut rig);
    assert!(second.library.is_over());
    first.leave(&mut rig);
    let mut again = Player::new(&rig, home(2), &token);
    again.connect(&mut rig);
}

/// Whoever holds very many valid tokens, and all addresses of a block, keeps only its own block
/// waiting.
#[test]
fn twenty_thousand_valid_tokens_from_one_block_keep_nobody_else_out() {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.requests_per_block = 0;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let source = |n: u32| Endpoint::v4([198, 51, 100, n as u8], 1000 + (n >> 8) as u16);
    for n in 0..20_000 {
        let scribe = Scribe::new(&rig.token(1000 + u64::from(n)));
        rig.deliver(source(n), &scribe.request());
        rig.sent.clear();
        rig.forget_tokens();
    }
    assert_eq!(rig.counters().pending, 2000);
    assert_eq!(rig.drops(DropReason::BlockHandshakesFull), 18_000);
    let tokens_max = rig.host.gate().setup().claim_limits().tokens_max;
    assert!(tokens_max > 20_000, "what is refused for its block is no used token either");
    let newcomer = Scribe::new(&rig.token(1));
    newcomer.connect(&mut rig, home(1));
    assert_eq!(rig.sessions(), 1);
}

/// The share of a table that one block may have at most is not the operator's to give away.
#[test]
fn one_block_never_fills_the_table_even_without_a_limit() {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.handshakes_per_block = 0;
    setup.worker_pending_max = 64;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    for n in 0..64 {
        let scribe = Scribe::new(&rig.token(1000 + u64::from(n)));
        rig.deliver(Endpoint::v4([198, 51, 100, n], 9), &scribe.request());
    }
    assert_eq!(rig.counters().pending, 16);
    Scribe::new(&rig.token(1)).connect(&mut rig, home(1));
}

#[test]
fn a_player_who_has_not_heard_that_it_is_in_is_told_when_it_asks() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    let response = scribe.packet(PacketKind::Response, 1, &challenge);
    rig.deliver(home(1), &response);
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::KeepAlive]);
    for _ in 0..3 {
        rig.provokes(DropReason::PacketUnexpected, |rig| rig.deliver(home(1), &response));
        assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::KeepAlive], "that one was lost");
    }
    rig.deliver(home(1), &scribe.keep_alive(2));
    rig.provokes(DropReason::PacketUnexpected, |rig| rig.deliver(home(1), &response));
    assert!(rig.take_for(home(1)).is_empty(), "it knows");
}

/// A player who has been challenged, with its response and what comes with it in one turn.
fn responds_with(rest: impl Fn(&Scribe) -> Vec<Vec<u8>>) -> (Rig, Game, Scribe) {
    let (mut rig, game) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    rig.push(home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
    for packet in rest(&scribe) {
        rig.push(home(1), &packet);
    }
    rig.turn();
    (rig, game, scribe)
}

#[test]
fn who_says_goodbye_in_the_turn_of_its_response_has_no_session_left() {
    let goodbyes = |scribe: &Scribe| (2..12).map(|it| scribe.disconnect(it)).collect();
    let (mut rig, game, _) = responds_with(goodbyes);
    assert_eq!((rig.sessions(), rig.drops(DropReason::SessionEnded)), (0, 9));
    assert_eq!(rig.counters().sessions_closed[Ended::ByPlayer as usize], 1);
    let heard = game.hear(&mut rig);
    assert!(matches!(heard[..], [.., Heard::Opened(_), Heard::Closed(..)]), "{heard:?}");
}

#[test]
fn what_comes_in_the_turn_of_a_response_is_taken_as_in_the_next_one() {
    let (mut rig, game, scribe) = responds_with(|scribe| {
        let first = scribe.payload(3, b"first");
        let copy = first.clone();
        vec![first, copy, forged(scribe.payload(4, b"x")), scribe.payload(2, b"second")]
    });
    assert_eq!(game.payloads(&mut rig), [&b"first"[..], b"second"]);
    let drops = [DropReason::ReplayDuplicate, DropReason::PacketForged];
    assert_eq!(drops.map(|why| rig.drops(why)), [1; 2]);
    rig.deliver(home(1), &scribe.payload(4, b"third"));
    assert_eq!(game.payloads(&mut rig), [b"third"]);
}

#[test]
fn what_is_numbered_before_the_response_is_of_an_earlier_session() {
    let (mut rig, game) = ready_to_reuse();
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    let recorded = scribe.payload(30, b"pay 100 gold");
    rig.deliver(home(1), &recorded);
    rig.deliver(home(1), &scribe.disconnect(31));
    assert_eq!(game.payloads(&mut rig).len(), 1);

    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    rig.deliver(home(1), &scribe.packet(PacketKind::Response, 40, &challenge));
    rig.provokes(DropReason::ReplayDuplicate, |rig| rig.deliver(home(1), &recorded));
    rig.deliver(home(1), &scribe.payload(41, b"the first"));
    assert_eq!(game.payloads(&mut rig), [b"the first"]);
}

/// A gate for one player at a time, who plays, and another who has been challenged.
fn challenged_where_there_is_no_room() -> (Rig, Game, [Scribe; 2], Vec<u8>) {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    let [first, second] = [1, 2].map(|id| Scribe::new(&rig.token(id)));
    rig.deliver(home(2), &second.request());
    let challenge = second.challenge(&mut rig, home(2));
    let response = second.packet(PacketKind::Response, 1, &challenge);
    first.connect(&mut rig, home(1));
    (rig, game, [first, second], response)
}

#[test]
fn who_was_denied_has_gone_on_and_what_it_has_answered_opens_nothing() {
    type Deny = fn(&mut Rig, &Scribe, &[u8]);
    let denials: [(DropReason, Deny); 2] = [
        (DropReason::ResponseBackendFull, |rig, _, response| rig.deliver(home(2), response)),
        (DropReason::RequestBackendFull, |rig, it, _| rig.deliver(home(2), &it.request())),
    ];
    for (why, deny) in denials {
        let (mut rig, _game, [first, second], response) = challenged_where_there_is_no_room();
        rig.provokes(why, |rig| deny(rig, &second, &response));
        rig.deliver(home(1), &first.disconnect(2));
        rig.take_for(home(2));
        rig.provokes(DropReason::ChallengeForeign, |rig| rig.deliver(home(2), &response));
        assert_eq!(rig.sessions(), 0, "nobody is there");
        assert_eq!(second.kinds(&mut rig, home(2)), [PacketKind::Denied], "it may not know");
        second.connect(&mut rig, home(2));
        assert_eq!(rig.sessions(), 1, "it has asked anew");
    }
}

#[test]
fn that_another_token_was_denied_at_its_address_keeps_nobody_out() {
    let (mut rig, _game, [first, _], response) = challenged_where_there_is_no_room();
    let other = Scribe::new(&rig.token(3));
    rig.provokes(DropReason::RequestBackendFull, |rig| rig.deliver(home(2), &other.request()));
    rig.deliver(home(1), &first.disconnect(2));
    rig.deliver(home(2), &response);
    assert_eq!(rig.sessions(), 1);
}

/// Requests of those from `first` on, each from its own address, in one turn.
fn ask_at_once(rig: &mut Rig, scribes: &[Scribe], first: usize) {
    for (n, scribe) in scribes.iter().enumerate().skip(first) {
        rig.push(endpoint(&format!("198.51.{n}.1:9")), &scribe.request());
    }
    rig.turn();
}

#[test]
fn a_worker_that_is_behind_answers_some_requests_and_leaves_the_others_to_their_next_try() {
    let mut rig = Rig::new(plain_setup());
    let _game = Game::join(&mut rig, "arena");
    let scribes: Vec<_> = (0..60).map(|n| Scribe::new(&rig.token(n))).collect();
    ask_at_once(&mut rig, &scribes[..31], 0);
    assert_eq!((rig.counters().pending, rig.drops(DropReason::RequestDeferred)), (31, 0));
    ask_at_once(&mut rig, &scribes, 0);
    assert_eq!((rig.counters().pending, rig.drops(DropReason::RequestDeferred)), (32, 28));
    ask_at_once(&mut rig, &scribes, 32);
    assert_eq!((rig.counters().pending, rig.drops(DropReason::RequestDeferred)), (60, 28));
}

#[test]
fn what_finds_no_place_for_its_handshake_costs_no_cipher() {
    let mut setup = plain_setup();
    setup.worker_pending_max = 1;
    let mut rig = Rig::new(setup);
    let _game = Game::join(&mut rig, "arena");
    let [first, second] = [1, 2].map(|n| Scribe::new(&rig.token(n)));
    rig.deliver(home(1), &first.request());
    let mut forged = second.request();
    *forged.last_mut().expect("a byte") ^= 1;
    rig.provokes(DropReason::PendingFull, |rig| rig.deliver(home(2), &forged));
    // The one who has the place can ask again.
    scribe_is_challenged(&mut rig, &first);
}

fn scribe_is_challenged(rig: &mut Rig, scribe: &Scribe) {
    rig.take_for(home(1));
    rig.deliver(home(1), &scribe.request());
    assert_eq!(scribe.kinds(rig, home(1)), [PacketKind::Challenge]);
}
