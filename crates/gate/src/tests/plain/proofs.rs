//! Sources that an echo proves, and those that none does.

use super::super::rig::{Rig, endpoint, home};
use super::{SERVERS, arrived, numbered, plain_rig, plain_setup_with, unet};
use crate::ids::{BackendId, ListenerId};
use crate::setup::{Credit, Echo, Plain, Sequence};
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::replay::Policy;

/// A server's datagrams begin with four bytes that come behind the first byte of a player's.
const ECHO: Echo = Echo { sent: 0, heard: 1 };

fn proving(rules: &mut Plain) {
    rules.echo = Some(ECHO);
    rules.unproven_percent = 50;
    rules.answer_times = 1;
    rules.credit = Credit { ratio: 2, burst: 2000, pause_ns: 5_000_000_000 };
}

/// A source sends a datagram with what may be an echo. Returns where its server knows it.
fn say(rig: &mut Rig, n: u16, word: [u8; 4]) -> Option<(LocalIp, Endpoint)> {
    say_from(rig, home(n), word)
}

fn say_from(rig: &mut Rig, from: Endpoint, word: [u8; 4]) -> Option<(LocalIp, Endpoint)> {
    rig.deliver(from, &[&[b'p'][..], &word, &[0; 15]].concat());
    let (local, server, _) = arrived(rig).pop()?;
    Some((local, endpoint(SERVERS[server])))
}

fn answer(rig: &mut Rig, (local, server): (LocalIp, Endpoint), word: [u8; 4]) {
    rig.answer_udp(server, local, &[&word[..], &[0; 8]].concat());
}

/// How many of ten long datagrams reach a source.
fn reached(rig: &mut Rig, n: u16, (local, server): (LocalIp, Endpoint)) -> usize {
    rig.take_for(home(n));
    (0..10).for_each(|_| rig.answer_udp(server, local, &[9; 1200]));
    rig.take_for(home(n)).len()
}

#[test]
fn who_sends_back_what_only_its_server_has_sent_is_proven_for_good() {
    let mut rig = plain_rig(proving);
    let at = say(&mut rig, 1, [0; 4]).expect("it goes on at once");
    answer(&mut rig, at, *b"4711");
    // Another word opens the session, and proves nothing.
    say(&mut rig, 1, *b"4712");
    assert_eq!(rig.counters().sessions, 1);
    assert_eq!(reached(&mut rig, 1, at), 0);
    assert_eq!(rig.drops(DropReason::CreditSpent), 10);
    rig.hand_over();
    say(&mut rig, 1, *b"4711");
    assert_eq!(reached(&mut rig, 1, at), 10);
    rig.pass(30_000);
    assert_eq!(reached(&mut rig, 1, at), 10, "it is not paused");
    rig.hand_over();
    assert_eq!(reached(&mut rig, 1, at), 10);
    assert_eq!(rig.host.gate().common.claims.shares().of(BackendId(0)), 0);
}

#[test]
fn numbers_that_can_be_guessed_prove_nothing() {
    for word in [[0; 4], [7, 0, 0, 0], [0, 0, 1, 7], [0xff; 4], [1, 2, 0xff, 0xff]] {
        let mut rig = plain_rig(proving);
        let at = say(&mut rig, 1, *b"what").expect("it goes on at once");
        answer(&mut rig, at, word);
        say(&mut rig, 1, word);
        assert_eq!((rig.counters().sessions, reached(&mut rig, 1, at)), (1, 0), "{word:?}");
    }
}

#[test]
fn what_was_dropped_on_its_way_to_a_source_proves_nothing() {
    let mut rig = plain_rig(proving);
    let (local, server) = say(&mut rig, 1, [0; 4]).expect("it goes on at once");
    rig.provokes(DropReason::AnswerLimited, |rig| rig.answer_udp(server, local, &[b'x'; 100]));
    answer(&mut rig, (local, server), *b"4711");
    say(&mut rig, 1, *b"xxxx");
    assert_eq!(reached(&mut rig, 1, (local, server)), 0);
}

#[test]
fn unproven_players_hold_a_share_of_a_servers_slots() {
    // Two servers with four slots.
    let mut rig = Rig::new(plain_setup_with(4, proving));
    let mut begun = Vec::new();
    for n in 0..12 {
        let at = say(&mut rig, n, [0; 4]).expect("it goes on at once");
        answer(&mut rig, at, *b"4711");
        say(&mut rig, n, [0; 4]);
        begun.push((n, at));
    }
    assert_eq!((rig.counters().sessions, rig.counters().pending), (4, 8));
    // Half-open sessions are heard all the same, and each may be proven.
    for (n, _) in &begun[4..] {
        assert!(say(&mut rig, *n, [0; 4]).is_some());
        say(&mut rig, *n, *b"4711");
    }
    // All of them were sent to the first server.
    assert_eq!(rig.counters().sessions, 6);
    rig.hand_over();
    let shares =
        |rig: &Rig| [0, 1].map(|at| rig.host.gate().common.claims.shares().of(BackendId(at)));
    assert_eq!(shares(&rig), [2, 2]);
    rig.pass(61_000);
    assert_eq!((rig.counters().sessions, shares(&rig)), (0, [0, 0]));
}

#[test]
fn forged_sources_of_an_address_leave_room_for_who_is_there() {
    let mut setup = plain_setup_with(16, proving);
    setup.listeners[ListenerId(0)].limits.sessions_per_address = 4;
    let mut rig = Rig::new(setup);
    let at = |port| home(1).with_port(port);
    for port in 1..9 {
        let there = say_from(&mut rig, at(port), [0; 4]).expect("it goes on at once");
        answer(&mut rig, there, *b"4711");
        say_from(&mut rig, at(port), [0; 4]);
    }
    assert_eq!((rig.counters().sessions, rig.counters().pending), (2, 6));
    rig.hand_over();
    for (port, sessions) in [(9, 3), (10, 4)] {
        let there = say_from(&mut rig, at(port), [0; 4]).expect("it goes on at once");
        answer(&mut rig, there, *b"4711");
        say_from(&mut rig, at(port), *b"4711");
        assert_eq!(rig.counters().sessions, sessions);
    }
    rig.provokes(DropReason::AddressFull, |rig| _ = say_from(rig, at(11), [0; 4]));
    // Whoever proves its address makes room for another who does not yet.
    say_from(&mut rig, at(1), *b"4711");
    rig.pass(61_000);
    for port in 1..5 {
        let there = say_from(&mut rig, at(port), [0; 4]).expect("it goes on at once");
        answer(&mut rig, there, *b"4711");
        say_from(&mut rig, at(port), [0; 4]);
    }
    assert_eq!((rig.counters().sessions, rig.counters().pending), (2, 2));
}

#[test]
fn where_no_share_is_theirs_nobody_opens_without_an_echo() {
    let mut rig = plain_rig(|rules| {
        proving(rules);
        rules.unproven_percent = 0;
    });
    let at = say(&mut rig, 1, [0; 4]).expect("it goes on at once");
    answer(&mut rig, at, *b"4711");
    (0..9).for_each(|_| assert!(say(&mut rig, 1, [0; 4]).is_some()));
    assert_eq!((rig.counters().sessions, rig.counters().drops.total()), (0, 0));
    say(&mut rig, 1, *b"4711");
    assert_eq!(rig.counters().sessions, 1);
}

#[test]
fn what_a_source_may_be_sent_and_what_would_confirm_its_jump_are_handed_over() {
    let policy = Policy::new(256, 0).expect("a size");
    let mut rig = plain_rig(|rules| {
        rules.sequence = Some(Sequence { policy, ..unet(false) });
        rules.credit.ratio = 10;
    });
    let (local, server) = super::play_with(&mut rig, home(1), [&numbered(1), &numbered(2)]);
    let server = endpoint(SERVERS[server]);
    // It has 18 bytes less one, and 34 times 10.
    rig.answer_udp(server, local, &[0; 300]);
    rig.hand_over();
    rig.provokes(DropReason::CreditSpent, |rig| rig.answer_udp(server, local, &[0; 2]));
    rig.answer_udp(server, local, &[0; 1]);
    assert_eq!(rig.take_for(home(1)).len(), 2);
    rig.pass(2000);
    rig.provokes(DropReason::GapUnconfirmed, |rig| rig.deliver(home(1), &numbered(9000)));
    rig.hand_over();
    rig.deliver(home(1), &numbered(9001));
    assert_eq!(arrived(&mut rig).len(), 1);
}
