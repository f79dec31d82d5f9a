//! A gateway dies, and its plain sessions go on at the other one.

use super::super::super::plain::{numbered, unet};
use super::super::super::rig::home;
use super::super::agent::{ToldApart, arbitrates};
use super::super::takeover::tenure;
use super::stage::{Stage, known, setup};
use super::{A, B};
use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Credit, Echo, Plain, Route, Sequence, Token, TokenPlace};
use crate::store::table::Address;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;
use ringgate_link::bundle::Hello;
use std::sync::Arc;

fn any(_: &mut Plain) {}

#[test]
fn a_session_is_its_clusters_once_it_has_a_slot() {
    let mut stage = Stage::waiting(setup(any), b"hello");
    assert_eq!((stage.agent.held(), stage.pair.standbys(A).counts().owned), (vec![], 0));
    stage.game_says(A, b"welcome");
    stage.at(A, b"thanks");
    stage.id = stage.agent.held()[0];
    let record = stage.record().expect("it is kept");
    assert_eq!((record.holder, record.backend.as_str()), (tenure(1, A), "arena"));
    assert_eq!((record.token, record.timeout_ms, known(&record)), ([0; 16], 60_000, (false, 0)));
    assert_eq!(stage.handed(), ["hello", "thanks"]);
    // It is the same on the next link, and is over with its player.
    stage.pair.rig(A).hand_over();
    stage.at(A, b"more");
    assert_eq!(stage.handed().last().map(String::as_str), Some("more"));
    stage.stays = None;
    stage.pair.pass(61_000);
    stage.hear(A);
    assert_eq!((stage.closed(A, Ended::TimedOut), stage.pair.standbys(A).counts().owned), (1, 0));
}

#[test]
fn an_agent_of_an_earlier_release_is_told_of_no_plain_session() {
    let mut stage = Stage::waiting(setup(any), b"hello");
    let lanes = stage.agent.lose(A);
    for (_, lane) in lanes {
        lane.game.crash(stage.pair.rig(A));
    }
    let game = super::super::super::games::Game::connect(
        stage.pair.rig(A),
        super::super::super::rig::OUR_USER,
    );
    game.say(stage.pair.rig(A), |it| it.hello(&Hello::new(1, "arena")) && arbitrates(it));
    stage.pair.rig(A).deliver(home(1), b"hello");
    let heard = game.hear(stage.pair.rig(A));
    let session = heard.iter().find_map(|it| match it {
        super::super::super::games::Heard::OpenedPlain(session, None) => Some(*session),
        _ => None,
    });
    let session = session.expect("it is announced");
    game.say(stage.pair.rig(A), |writer| writer.payload(session, b"welcome"));
    stage.pair.rig(A).deliver(home(1), b"thanks");
    let heard = game.hear(stage.pair.rig(A));
    assert_eq!(heard.len(), 2, "an opening and a payload: {heard:?}");
    assert_eq!(stage.pair.standbys(A).counts().owned, 0);
}

#[test]
fn a_session_whose_gateway_is_gone_goes_on_at_its_standby() {
    let mut stage = Stage::new(any);
    stage.stand();
    stage.kill();
    stage.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| rig.deliver(home(1), b"one"));
    stage.pair.rig(B).provokes(DropReason::TakeoverAwaited, |rig| rig.deliver(home(1), b"two"));
    assert_eq!(stage.pair.sessions(), [1, 0]);
    stage.hear(B);
    assert_eq!(stage.agent.claims, [(stage.id, tenure(2, B), tenure(1, A))]);
    stage.hear(B);
    assert_eq!(stage.pair.rig(B).sessions(), 1);
    stage.game_says(B, b"down");
    assert_eq!(stage.pair.rig(B).take_for(home(1)), [b"down"]);
    stage.at(B, b"three");
    assert_eq!(stage.handed(), ["three"]);
    let counts = stage.pair.standbys(B).counts();
    assert_eq!((counts.owned, counts.standing, counts.taken_over), (1, 0, 1));
    // It goes on in the next process, and ends as any does.
    stage.stays = None;
    stage.pair.rig(B).hand_over();
    stage.at(B, b"four");
    assert_eq!(stage.handed(), ["three", "four"]);
    stage.kick(B, Ended::ByOperator);
    stage.hear(B);
    assert_eq!(stage.agent.closed, [stage.id]);
}

#[test]
fn nobody_takes_a_session_whose_owner_lives() {
    let mut stage = Stage::new(any);
    stage.stand();
    for spoofed in [b"one", b"two"] {
        stage.pair.arrive(B, home(1), spoofed);
        stage.hear(A);
    }
    assert_eq!((stage.handed(), stage.pair.sessions()), (vec!["one".into(), "two".into()], [1, 0]));
    assert!(stage.agent.claims.is_empty());
}

#[test]
fn nothing_but_a_datagram_from_the_players_address_that_looks_as_it_should_is_believed() {
    let mut stage = Stage::playing(setup(|it| it.begins_with = b"h".to_vec()), [b"hello", b"ha"]);
    stage.stand();
    stage.kill();
    let rig = stage.pair.rig(B);
    rig.provokes(DropReason::PatternMissing, |rig| rig.deliver(home(1), b"else"));
    for stranger in [home(1).with_port(9), home(2)] {
        rig.deliver(stranger, b"hello");
    }
    assert!(stage.agent.claims.is_empty());
    let denied = super::super::super::denied::denied(&[("10.0.1.0/24", true)], &[]);
    super::super::super::denied::deny(stage.pair.rig(B), &denied);
    stage.pair.rig(B).provokes(DropReason::AddressDenied, |rig| rig.deliver(home(1), b"hello"));
    stage.hear(B);
    assert!(stage.agent.claims.is_empty());
}

/// Half open, it has proven nothing, and begins anew.
#[test]
fn a_source_that_has_not_answered_goes_on_nowhere() {
    let mut stage = Stage::waiting(setup(any), b"hello");
    stage.game_says(A, b"welcome");
    stage.stand();
    stage.kill();
    stage.at(B, b"hello");
    assert!(stage.agent.claims.is_empty());
    assert_eq!((stage.pair.sessions(), stage.pair.rig(B).counters().pending), ([0, 0], 1));
}

#[test]
fn no_more_datagrams_than_a_budget_ask_for_a_session() {
    let mut stage = Stage::new(any);
    stage.stand();
    stage.kill();
    stage.agent.lose(B).into_iter().for_each(|(_, lane)| lane.game.crash(stage.pair.rig(B)));
    for _ in 0..2 {
        stage.pair.rig(B).provokes(DropReason::TakeoverRefused, |rig| rig.deliver(home(1), b"x"));
    }
    stage.pair.rig(B).provokes(DropReason::TakeoverLimited, |rig| rig.deliver(home(1), b"x"));
    assert_eq!(stage.refused(), ["link_down"]);
    let claims = &stage.pair.rig(B).host.gate().common.claims;
    assert_eq!(claims.players(BackendId(0)), 0, "what it would have held is free");
}

pub(super) fn with_tokens(rules: &mut Plain) {
    let known = [(b"aa", BackendId(0)), (b"bb", BackendId(0))].into_iter().collect();
    rules.token =
        Some(Token { at: TokenPlace::Start, bytes: 2, strip: true, backends: Arc::new(known) });
}

#[test]
fn a_session_keeps_its_token_and_nobody_elses_is_believed() {
    let mut with_routes = setup(with_tokens);
    with_routes.listeners[ListenerId(0)].route = Route::Token;
    for (offered, upgraded) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut stage = Stage::playing(with_routes.clone(), [b"aahello", b"aathanks"]);
        let record = stage.record().expect("it is kept");
        assert_ne!(record.token, [0; 16]);
        if offered {
            stage.pair.standbys(A).set_leaving(true, true);
            stage.pair.standbys(A).renew();
            stage.settle();
            assert_eq!(stage.pair.sessions(), [0, 1]);
        } else {
            stage.stand();
            stage.kill();
            let rig = stage.pair.rig(B);
            rig.provokes(DropReason::TokenSuperseded, |rig| rig.deliver(home(1), b"bbx"));
            rig.provokes(DropReason::TokenUnknown, |rig| rig.deliver(home(1), b"ccx"));
            rig.pass(100);
            stage.at(B, b"aaone");
        }
        if upgraded {
            stage.stays = None;
            stage.pair.rig(B).hand_over();
        }
        // Another token ends a session here as anywhere: not while its player is heard.
        stage.pair.rig(B).provokes(DropReason::TokenSuperseded, |rig| {
            rig.deliver(home(1), b"bbtwo");
        });
        stage.at(B, b"aathree");
        stage.at(B, b"aafour");
        assert_eq!(stage.handed(), ["three", "four"], "{offered} {upgraded}");
        assert_eq!(stage.pair.rig(B).sessions(), 1);
    }
}

/// It plays again after its gateway has died, and has the same port.
#[test]
fn who_comes_back_with_another_token_begins_once_the_first_was_silent() {
    let mut stage = Stage::playing(setup(with_tokens), [b"aahello", b"aathanks"]);
    stage.agent.told_apart = ToldApart::Token;
    stage.stand();
    stage.kill();
    stage.pair.rig(B).pass(1900);
    stage.pair.rig(B).provokes(DropReason::TokenSuperseded, |rig| rig.deliver(home(1), b"bbx"));
    stage.pair.rig(B).pass(100);
    stage.at(B, b"bbagain");
    assert_eq!((stage.refused(), stage.handed()), (vec!["token_superseded"], vec!["again".into()]));
    stage.game_says(B, b"welcome");
    stage.at(B, b"bbmore");
    assert_eq!((stage.pair.rig(B).sessions(), stage.handed().len()), (1, 2));
    assert_eq!(stage.pair.standbys(B).counts().standing, 0);
}

#[test]
fn numbers_that_were_handed_over_are_taken_by_nobody_again() {
    let mut numbers = setup(|rules| rules.sequence = Some(unet(false)));
    numbers.backends[BackendId(0)].slots = 3;
    let mut stage = Stage::playing(numbers, [&numbered(100), &numbered(101)]);
    assert_eq!(known(&stage.record().expect("it is kept")).1, (1 << 32) + 101);
    for number in [102, 104, 105] {
        stage.at(A, &numbered(number));
    }
    stage.stand();
    stage.kill();
    // Its owner has had 103 and died before it could say so.
    stage.at(B, &numbered(106));
    assert_eq!((stage.pair.rig(B).sessions(), stage.agent.handed.len()), (1, 3));
    for number in [100, 101, 102, 105] {
        stage.pair.rig(B).provokes(DropReason::ReplayDuplicate, |rig| {
            rig.deliver(home(1), &numbered(number));
        });
    }
    for number in [107, 103, 106] {
        stage.at(B, &numbered(number));
    }
    assert_eq!(stage.agent.handed.len(), 6);
    // A jump ends the session, as its owner would have done.
    stage.pair.rig(B).provokes(DropReason::SequenceGap, |rig| {
        rig.deliver(home(1), &numbered(107 + 513));
    });
    stage.hear(B);
    assert_eq!(stage.agent.closed, [stage.id]);
    assert_eq!(stage.closed(B, Ended::SequenceGap), 1);
}

#[test]
fn new_rules_for_numbers_have_no_number_be_one_of_before() {
    let mut stage = Stage::playing(
        setup(|rules| rules.sequence = Some(unet(false))),
        [&numbered(500), &numbered(501)],
    );
    let mut setup = stage.pair.rig(A).host.gate().setup().clone();
    setup.revision += 1;
    let crate::setup::Protocol::Plain(rules) = &mut setup.listeners[ListenerId(0)].protocol else {
        panic!("plain")
    };
    let policy = Policy::new(64, 0).expect("a window");
    rules.sequence = Some(Sequence { policy, ..unet(false) });
    stage.pair.rig(A).mail(crate::mail::Mail::Setup(Arc::new(setup)));
    for number in [3, 4, 3, 2] {
        stage.at(A, &numbered(number));
    }
    assert_eq!((stage.agent.handed.len(), stage.agent.refused.len()), (3, 0));
    assert_eq!(stage.pair.rig(A).drops(DropReason::ReplayDuplicate), 1);
}

fn proving(rules: &mut Plain) {
    rules.echo = Some(Echo { sent: 0, heard: 0 });
    rules.credit = Credit { ratio: 2, burst: 2000, pause_ns: 5_000_000_000 };
}

#[test]
fn who_is_proven_stays_so_and_who_is_not_is_sent_what_it_pays_for() {
    for is_proven in [true, false] {
        let mut stage = Stage::playing(setup(proving), [b"hello", b"thanks"]);
        stage.game_says(A, b"4711");
        if is_proven {
            stage.at(A, b"4711");
        }
        assert_eq!(known(&stage.record().expect("it is kept")).0, is_proven);
        stage.stand();
        stage.kill();
        stage.at(B, b"one");
        let shares = |stage: &mut Stage| {
            stage.pair.rig(B).host.gate().common.claims.shares().of(BackendId(0))
        };
        assert_eq!(shares(&mut stage), u32::from(!is_proven));
        for _ in 0..5 {
            stage.game_says(B, &[9; 1200]);
        }
        let reached = stage.pair.rig(B).take_for(home(1)).len();
        assert_eq!(reached, if is_proven { 5 } else { 0 });
        // What its server says here proves it here.
        stage.at(B, &[1; 1000]);
        stage.game_says(B, b"0815");
        stage.at(B, b"4711");
        assert_eq!(shares(&mut stage), u32::from(!is_proven), "another gateway's word");
        stage.at(B, b"0815");
        assert_eq!(shares(&mut stage), 0);
    }
}

#[test]
fn a_server_that_may_have_no_more_unproven_players_gets_none_by_a_takeover() {
    let mut stage = Stage::playing(setup(proving), [b"hello", b"thanks"]);
    stage.stand();
    stage.kill();
    fill_share(&mut stage);
    stage.at(B, b"one");
    assert_eq!((stage.refused(), stage.pair.rig(B).sessions()), (vec!["no_room"], 0));
    stage.hear(B);
    assert_eq!(stage.agent.closed, [stage.id], "nobody else would end it");
}

#[test]
fn a_session_that_its_owner_gives_away_is_taken_though_a_share_is_full() {
    let mut stage = Stage::playing(setup(proving), [b"hello", b"thanks"]);
    stage.pair.be_able();
    fill_share(&mut stage);
    stage.pair.standbys(A).set_leaving(true, true);
    stage.pair.standbys(A).renew();
    stage.settle();
    assert_eq!((stage.pair.sessions(), stage.agent.closed.len()), ([0, 1], 0));
}

/// The second gateway has as many players as it may who have proven nothing.
fn fill_share(stage: &mut Stage) {
    let shares = stage.pair.rig(B).host.gate().common.claims.shares();
    shares.resume(BackendId(0), &Address { listener: ListenerId(0), endpoint: home(1) });
    let mut few = stage.pair.rig(B).host.gate().setup().clone();
    few.revision += 1;
    let crate::setup::Protocol::Plain(rules) = &mut few.listeners[ListenerId(0)].protocol else {
        panic!("plain")
    };
    rules.unproven_percent = 30;
    stage.pair.rig(B).mail(crate::mail::Mail::Setup(Arc::new(few)));
}
