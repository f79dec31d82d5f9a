//! Owners of plain sessions that have slept or were cut off, and what has ended meanwhile.

use super::super::super::rig::home;
use super::super::takeover::tenure;
use super::stage::Stage;
use super::{A, B};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::CloseReason;

fn ready() -> Stage {
    let mut stage = Stage::new(|_| {});
    stage.stand();
    stage.pair.pass(500);
    stage.hear(A);
    stage
}

#[test]
fn an_owner_that_is_fenced_forgets_the_session_and_says_nothing() {
    let mut stage = ready();
    // Nobody hears the first one, and it lives.
    stage.cut();
    stage.at(B, b"one");
    assert_eq!(stage.pair.sessions(), [1, 1]);
    stage.pair.rig(A).deliver(home(1), b"late");
    stage.hear(A);
    assert_eq!((stage.pair.sessions(), stage.agent.refused.len()), ([0, 1], 1));
    stage.hear(A);
    assert!(stage.agent.closed.is_empty() && stage.pair.rig(A).take_for(home(1)).is_empty());
    assert_eq!((stage.closed(A, Ended::Fenced), stage.pair.standbys(A).counts().fenced), (1, 1));
    stage.at(B, b"two");
    assert_eq!(stage.handed(), ["two"]);
    // It goes on there again once the other is gone.
    stage.pair.stand(B);
    stage.agent.lose(B);
    let now_ns = stage.pair.rig(A).now.mono_ns;
    stage.pair.standbys(A).set_gone(super::super::OTHER[A], now_ns);
    stage.pair.whereabouts(A).forget(super::super::OTHER[A]);
    stage.at(A, b"three");
    stage.at(A, b"four");
    assert_eq!(stage.agent.claims.last(), Some(&(stage.id, tenure(3, A), tenure(2, B))));
    assert_eq!(stage.handed(), ["two", "four"]);
}

#[test]
fn an_owner_that_has_slept_says_and_believes_nothing_before_it_hears_that_it_is_one() {
    for is_taken_over in [false, true] {
        let mut stage = ready();
        stage.sleep(300);
        if is_taken_over {
            stage.cut();
            stage.at(B, b"one");
            stage.at(B, b"two");
        }
        let lane = &stage.agent.lanes[&(A, 0)];
        let session = lane.sessions.keys().next().copied().expect("it has told of it");
        lane.game.push(stage.pair.rig(A), |writer| writer.payload(session, b"down"));
        stage.pair.rig(A).push(home(1), b"queued");
        stage.pair.rig(A).turn();
        let rig = stage.pair.rig(A);
        assert_eq!((rig.take_for(home(1)).len(), rig.drops(DropReason::OwnerUnconfirmed)), (0, 1));
        (0..3).for_each(|_| stage.hear(A));
        stage.at(A, b"three");
        // Where it is another one's that cannot be reached, the player takes it along to here.
        let expected = if is_taken_over { ([1, 1], vec!["two"]) } else { ([1, 0], vec!["three"]) };
        assert_eq!((stage.pair.sessions(), stage.handed()), (expected.0, own(&expected.1)));
        assert_eq!(stage.pair.rig(A).drops(DropReason::TakeoverAwaited), u64::from(is_taken_over));
    }
}

fn own(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn an_owner_that_has_slept_for_longer_than_its_players_wait_ends_nobody_before_it_is_sure() {
    let mut stage = ready();
    stage.sleep(90_000);
    stage.cut();
    stage.at(B, b"one");
    stage.pair.rig(A).push(home(1), b"queued");
    stage.pair.rig(A).turn();
    assert_eq!(stage.pair.sessions(), [1, 1]);
    (0..3).for_each(|_| stage.hear(A));
    assert_eq!((stage.pair.sessions(), stage.closed(A, Ended::Fenced)), ([0, 1], 1));
    assert!(stage.agent.closed.is_empty());
}

#[test]
fn who_is_to_be_ended_while_it_is_asked_whose_it_is_ends_wherever_it_is() {
    for (why, is_taken_over, is_upgraded) in [
        (Ended::ByOperator, false, false),
        (Ended::ByOperator, true, true),
        (Ended::Denied, false, true),
        (Ended::Denied, true, false),
        (Ended::ByBackend, false, true),
        (Ended::ByBackend, true, true),
    ] {
        let mut stage = ready();
        stage.sleep(300);
        if why == Ended::ByBackend {
            let lane = &stage.agent.lanes[&(A, 0)];
            let session = lane.sessions.keys().next().copied().expect("it has told of it");
            lane.game.push(stage.pair.rig(A), |it| it.close(session, CloseReason::Kicked));
        }
        if is_taken_over {
            stage.cut();
            stage.at(B, b"one");
        }
        stage.pair.rig(A).turn();
        if why != Ended::ByBackend {
            stage.kick(A, why);
        }
        if is_upgraded {
            stage.stays = None;
            stage.pair.fleets[A].hand_over();
            stage.pair.rig(A).turn();
        }
        assert_eq!(stage.pair.sessions(), [1, is_taken_over.into()], "{why:?}");
        for _ in 0..60 {
            for at in [A, B] {
                stage.hear(at);
            }
            stage.pair.pass(10);
        }
        assert_eq!(stage.pair.sessions(), [0, 0], "{why:?}");
        assert_eq!(stage.agent.closed.first(), Some(&stage.id), "{why:?}");
        assert_eq!(stage.closed(A, why), 1, "{why:?}");
    }
}

#[test]
fn what_ends_while_the_agent_is_away_is_over_wherever_it_has_gone_on() {
    for (goes_on, is_upgraded) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut stage = ready();
        stage.cut_off();
        if goes_on {
            stage.at(B, b"one");
        }
        stage.kick(A, Ended::ByOperator);
        if is_upgraded {
            let stays = stage.stays.take();
            stage.pair.rig(A).hand_over();
            stage.stays = stays;
        }
        stage.join_again();
        let closed = &stage.agent.closed;
        assert!(!closed.is_empty() && closed.iter().all(|it| *it == stage.id), "{closed:?}");
        assert_eq!(stage.pair.sessions(), [0, 0], "{goes_on} {is_upgraded}");
        // Its player begins anew, as anybody does.
        stage.pair.pass(100);
        stage.at(B, b"two");
        stage.at(B, b"three");
        assert_eq!(stage.pair.sessions(), [0, 0]);
        assert!(stage.agent.held().is_empty());
    }
}

#[test]
fn a_session_is_announced_on_the_next_link_though_its_player_is_silent() {
    let mut stage = ready();
    for (_, lane) in stage.agent.lose(A) {
        lane.game.crash(stage.pair.rig(A));
    }
    stage.join_again();
    assert_eq!(stage.agent.home(stage.id).map(|it| it.0), Some((A, 0)));
    stage.game_says(A, b"down");
    assert_eq!(stage.pair.rig(A).take_for(home(1)), [b"down"]);
}

#[test]
fn a_session_that_has_ended_at_its_arbiter_ends_and_begins_anew() {
    let mut stage = ready();
    stage.kill();
    stage.agent.arbiter.end(stage.id);
    stage.at(B, b"one");
    assert_eq!((stage.refused(), stage.pair.standbys(B).counts().standing), (vec!["ended"], 0));
    stage.at(B, b"two");
    assert_eq!((stage.handed(), stage.pair.rig(B).counters().pending), (own(&["two"]), 1));
}
