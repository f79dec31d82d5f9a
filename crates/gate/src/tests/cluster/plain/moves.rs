//! Plain sessions move after their players, and leave with their gateway.

use super::super::super::plain::{numbered, unet};
use super::super::super::rig::home;
use super::super::takeover::tenure;
use super::stage::{Stage, setup};
use super::{A, B};
use crate::counters::Ended;
use ringgate_core::drops::DropReason;

/// A session that is two seconds old, at gateways that can give it to each other, of a player whose
/// datagrams are numbered or not.
fn settled(is_numbered: bool) -> Stage {
    let setup = setup(|rules| rules.sequence = is_numbered.then(|| unet(false)));
    let mut stage = Stage::playing(setup, [&numbered(1), &numbered(2)]);
    stage.pair.be_able();
    stage.pair.pass(2000);
    stage
}

fn numbers(stage: &Stage) -> Vec<u16> {
    stage.agent.handed.iter().map(|it| u16::from_be_bytes([it[3], it[4]])).collect()
}

#[test]
fn a_session_moves_where_all_its_datagrams_come_in_and_nothing_is_lost_or_twice() {
    for is_numbered in [true, false] {
        let mut stage = settled(is_numbered);
        for number in 10..30 {
            stage.pass_by(B, &numbered(number));
            stage.pair.pass(50);
        }
        assert_eq!(stage.pair.sessions(), [0, 1], "{is_numbered}");
        assert_eq!(numbers(&stage), (10..30).collect::<Vec<_>>(), "{is_numbered}");
        assert_eq!(stage.agent.claims, [(stage.id, tenure(2, B), tenure(1, A))]);
        let forwarded = stage.pair.forwarded(A) + stage.pair.forwarded(B);
        assert!((8..12).contains(&forwarded), "{forwarded}");
        // What still comes in at the first goes to the second at once, and begins nothing.
        stage.pass_by(A, &numbered(40));
        assert_eq!((numbers(&stage).last(), stage.pair.sessions()), (Some(&40), [0, 1]));
        assert_eq!(stage.pair.rig(A).counters().pending, 0);
        // A datagram that the network doubles is one where there are numbers.
        stage.pass_by(B, &numbered(40));
        let twice = numbers(&stage).iter().filter(|it| **it == 40).count();
        assert_eq!(twice, if is_numbered { 1 } else { 2 });
    }
}

#[test]
fn a_session_stays_while_some_datagrams_come_in_at_its_owner() {
    let mut stage = settled(false);
    for number in 10..60 {
        stage.pass_by(if number % 7 == 0 { A } else { B }, &numbered(number));
        stage.pair.pass(50);
    }
    assert_eq!((stage.pair.sessions(), numbers(&stage).len()), ([1, 0], 50));
}

#[test]
fn datagrams_that_were_recorded_move_nothing() {
    let mut stage = settled(true);
    for number in 10..60 {
        stage.pass_by(A, &numbered(number));
        stage.pass_by(B, &numbered(number));
        stage.pair.pass(50);
    }
    assert_eq!((stage.pair.sessions(), numbers(&stage).len()), ([1, 0], 50));
}

#[test]
fn a_gateway_that_leaves_gives_its_sessions_away_and_sends_on_what_still_comes() {
    for is_numbered in [true, false] {
        let mut stage = settled(is_numbered);
        stage.pass_by(A, &numbered(10));
        stage.pair.standbys(A).set_leaving(true, true);
        stage.pair.standbys(A).renew();
        stage.settle();
        assert_eq!(stage.pair.sessions(), [0, 1]);
        assert_eq!((stage.closed(A, Ended::Fenced), stage.agent.closed.len()), (1, 0));
        for number in 11..40 {
            stage.pass_by(A, &numbered(number));
            stage.pair.pass(100);
        }
        assert_eq!(numbers(&stage), (10..40).collect::<Vec<_>>());
        stage.pair.standbys(A).set_leaving(false, false);
        for number in 40..60 {
            stage.pass_by(A, &numbered(number));
            stage.pair.pass(100);
        }
        assert_eq!((stage.pair.sessions(), numbers(&stage).len()), ([1, 0], 50));
    }
}

/// What its owner had on its way when it gave the session away is still taken.
#[test]
fn the_last_datagrams_of_an_owner_that_gives_a_session_away_arrive() {
    let mut stage = settled(false);
    stage.pair.rig(A).deliver(home(1), &numbered(10));
    stage.pair.standbys(A).set_leaving(true, true);
    stage.pair.standbys(A).renew();
    stage.pair.stand(A);
    stage.hear(B);
    assert_eq!((stage.agent.claims.len(), stage.agent.handed.len()), (1, 0));
    stage.hear(A);
    stage.settle();
    assert_eq!((numbers(&stage), stage.pair.sessions()), (vec![10], [0, 1]));
}

#[test]
fn a_datagram_that_comes_before_its_session_waits() {
    for comes in [true, false] {
        let mut stage = settled(false);
        stage.pair.standbys(A).set_leaving(true, true);
        stage.pair.standbys(A).renew();
        stage.agent.is_mute = true;
        stage.settle();
        let reply = ringgate_cluster::Reply::Fenced { holder: tenure(2, B) };
        let (session, wake) = (stage.id, ringgate_cluster::Wake(0));
        let fenced = ringgate_cluster::Answer { session, tenure: tenure(1, A), wake, reply };
        let bundle = super::super::agent::standing(&fenced);
        stage.agent.lanes[&(A, 0)].game.push_bytes(stage.pair.rig(A), &bundle);
        stage.pair.rig(A).turn();
        stage.pair.pass(30);
        stage.pass_by(A, &numbered(11));
        assert_eq!((stage.pair.sessions(), stage.agent.handed.len()), ([0, 0], 0));
        assert_eq!(stage.pair.rig(B).counters().pending, 0);
        stage.agent.is_mute = !comes;
        stage.pair.pass(if comes { 300 } else { 4000 });
        stage.settle();
        assert_eq!(stage.pair.rig(B).drops(DropReason::TakeoverRefused), u64::from(!comes));
        let expected = if comes { (vec![11], [0, 1]) } else { (vec![], [0, 0]) };
        assert_eq!((numbers(&stage), stage.pair.sessions()), expected);
    }
}
