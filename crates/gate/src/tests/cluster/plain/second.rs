//! A gateway that has not heard whose a player is begins with it, and the arbiter knows better.

use super::super::super::rig::home;
use super::super::OTHER;
use super::super::agent::ToldApart;
use super::super::takeover::{incarnation, tenure};
use super::stage::{Stage, setup};
use super::takeover::with_tokens;
use super::{A, B};
use crate::counters::Ended;
use crate::ids::ListenerId;
use crate::setup::{Route, Setup};
use ringgate_core::drops::DropReason;

/// The player plays at the first, and the other has just started: it has heard of nobody.
fn unheard(setup: Setup, said: [&[u8]; 2]) -> Stage {
    let stage = Stage::playing(setup, said);
    stage.pair.whereabouts(B).forget(OTHER[B]);
    stage
}

fn any() -> Setup {
    setup(|_| {})
}

fn connected(stage: &Stage) {
    stage.pair.standbys(B).set_able(vec![(incarnation(A), OTHER[B])]);
}

fn seconds(stage: &mut Stage) -> (u64, usize, u64) {
    let counts = stage.pair.standbys(B).counts();
    (counts.second, stage.agent.seconds, stage.pair.rig(B).counters().pending)
}

#[test]
fn what_the_player_sends_goes_to_the_gateway_that_has_it() {
    for is_upgraded in [false, true] {
        let mut stage = unheard(any(), [b"hello", b"thanks"]);
        connected(&stage);
        if is_upgraded {
            // It is half open there when that is handed over, and the agent has not looked at it.
            stage.stays = None;
            stage.pair.rig(B).deliver(home(1), b"one");
            stage.pair.rig(B).hand_over();
            connected(&stage);
            stage.hear(B);
            stage.hear(B);
        } else {
            stage.at(B, b"one");
        }
        assert_eq!((stage.handed(), seconds(&mut stage)), (vec![], (1, 1, 0)));
        for text in [b"two", b"six"] {
            stage.pair.arrive(B, home(1), text);
            stage.hear(A);
        }
        assert_eq!((stage.handed(), stage.pair.sessions()), (own(&["two", "six"]), [1, 0]));
        assert!(stage.agent.claims.is_empty() && stage.agent.closed.is_empty());
        assert_eq!(stage.pair.standbys(B).counts().fenced, 0);
    }
}

#[test]
fn it_goes_on_where_the_player_is_if_its_gateway_cannot_be_reached() {
    for is_dead in [false, true] {
        let mut stage = unheard(any(), [b"hello", b"thanks"]);
        if is_dead {
            stage.kill();
        }
        stage.at(B, b"one");
        stage.at(B, b"two");
        assert_eq!(stage.agent.claims, [(stage.id, tenure(2, B), tenure(1, A))]);
        stage.at(B, b"six");
        assert_eq!((stage.handed(), stage.pair.rig(B).sessions()), (own(&["six"]), 1));
        assert_eq!((stage.agent.held(), stage.agent.closed.len()), (vec![stage.id], 0));
        if !is_dead {
            stage.at(A, b"late");
            assert_eq!((stage.handed().len(), stage.pair.rig(A).sessions()), (1, 0));
        }
    }
}

/// The one that has it has ended it without a link, and the agent does not know.
#[test]
fn a_gateway_goes_on_with_what_it_had_itself() {
    let mut stage = Stage::new(|_| {});
    stage.cut_off();
    stage.pair.pass(61_000);
    stage.hear(A);
    assert_eq!(stage.pair.sessions(), [0, 0]);
    stage.join_again();
    for text in [b"one", b"two", b"six"] {
        stage.at(A, text);
    }
    assert_eq!(stage.agent.claims, [(stage.id, tenure(2, A), tenure(1, A))]);
    assert_eq!((stage.handed(), stage.pair.sessions()), (own(&["six"]), [1, 0]));
}

#[test]
fn who_has_left_begins_anew() {
    let mut stage = unheard(any(), [b"hello", b"thanks"]);
    connected(&stage);
    stage.kick(A, Ended::ByOperator);
    stage.hear(A);
    stage.at(B, b"hello");
    stage.game_says(B, b"welcome");
    stage.at(B, b"thanks");
    assert_eq!((stage.handed(), stage.pair.sessions()), (own(&["hello", "thanks"]), [0, 1]));
    assert_eq!((stage.agent.seconds, stage.agent.held().len()), (0, 1));
}

#[test]
fn a_token_is_another_players_and_takes_nothing() {
    let mut with_routes = setup(with_tokens);
    with_routes.listeners[ListenerId(0)].route = Route::Token;
    let mut stage = unheard(with_routes, [b"aahello", b"aathanks"]);
    stage.agent.told_apart = ToldApart::Token;
    // The other gateway cannot reach the first, and nobody's token takes the session from it.
    stage.at(B, b"bbone");
    assert_eq!((stage.handed(), seconds(&mut stage)), (own(&["one"]), (0, 0, 1)));
    stage.pair.rig(B).pass(61_000);
    stage.hear(B);
    stage.at(B, b"aatwo");
    assert_eq!(seconds(&mut stage).0, 1);
    stage.pair.rig(B).provokes(DropReason::TokenSuperseded, |rig| rig.deliver(home(1), b"bbx"));
    stage.at(B, b"aasix");
    assert_eq!(stage.agent.claims, [(stage.id, tenure(2, B), tenure(1, A))]);
}

#[test]
fn an_agent_of_an_earlier_release_lets_both_play() {
    let mut stage = unheard(any(), [b"hello", b"thanks"]);
    stage.agent.told_apart = ToldApart::Nothing;
    stage.at(B, b"hello");
    stage.game_says(B, b"welcome");
    stage.at(B, b"thanks");
    assert_eq!((stage.pair.sessions(), stage.agent.held().len()), ([1, 1], 2));
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}
