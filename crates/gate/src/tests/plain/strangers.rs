//! Strangers at a plain listener: anybody can write any address on a datagram.

use super::super::rig::{Rig, UDP_LINK, endpoint, home};
use super::{SERVERS, arrived, plain_rig, plain_setup_with, play, tokens};
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::setup::{Plain, TokenPlace};
use ringgate_batch::{Endpoint, IoEvent};
use ringgate_core::drops::DropReason;
use std::collections::HashSet;
use std::sync::Arc;

/// An address that nobody has, of very many.
fn nobody(n: u32) -> Endpoint {
    let mut ip = n.wrapping_mul(2_654_435_761).to_be_bytes();
    ip[0] |= 16;
    Endpoint::v4(ip, 1024 + (n % 50_000) as u16)
}

#[test]
fn a_flood_of_random_sources_takes_no_slot_and_no_place_from_players() {
    let mut rig = Rig::new(plain_setup_with(8, |rules| rules.half_open_max = 64));
    let players: Vec<_> = (0..8).map(|n| (home(n), play(&mut rig, home(n), b"hello"))).collect();
    let mut addresses = HashSet::new();
    for n in 0..300_000 {
        rig.push(nobody(n), b"let me in");
        if n % 50 == 0 {
            rig.turn();
            addresses.extend(arrived(&mut rig).into_iter().map(|(local, ..)| local));
        }
    }
    rig.turn();
    assert_eq!((rig.counters().sessions, rig.counters().pending), (8, 64));
    assert!(rig.counters().half_open_evicted > 290_000);
    for (from, (local, server)) in &players {
        assert!(!addresses.contains(local), "a player's address is nobody else's");
        arrived(&mut rig);
        rig.deliver(*from, b"still here");
        assert_eq!(arrived(&mut rig), [(*local, *server, b"still here".to_vec())]);
    }
    // And whoever comes next finds a free slot.
    play(&mut rig, home(9), b"hello");
    assert_eq!(rig.counters().sessions, 9);
}

#[test]
fn a_stranger_finds_room_also_where_as_many_are_half_open_as_there_may_be() {
    const MANY: u32 = 20_000;
    let mut rig = plain_rig(|rules| rules.half_open_max = MANY);
    for n in 0..MANY + 10 {
        rig.push(nobody(n), b"let me in");
        rig.sent.clear();
    }
    rig.turn();
    assert_eq!(rig.drops(DropReason::HalfOpenFull), 0);
    let counters = rig.counters();
    assert_eq!((counters.pending, counters.half_open_evicted), (u64::from(MANY), 10));
}

#[test]
fn what_a_flood_takes_is_the_same_however_long_it_lasts() {
    let mut rig = plain_rig(|rules| rules.half_open_max = 64);
    let places = |rig: &Rig| rig.host.gate().fronts.plain.sessions.places();
    let mut after_a_while = 0;
    for n in 0..40_000 {
        rig.push(nobody(n), b"let me in");
        if n % 50 == 0 {
            rig.turn();
        }
        rig.sent.clear();
        if n == 10_000 {
            after_a_while = places(&rig);
        }
    }
    assert_eq!(places(&rig), after_a_while);
    assert!(after_a_while < 512, "{after_a_while}");
}

#[test]
fn who_is_half_open_is_given_up_soon_and_its_source_may_come_again() {
    let mut rig = plain_rig(|_| {});
    rig.deliver(home(1), b"hello");
    let (local, server, _) = arrived(&mut rig).remove(0);
    rig.pass(1500);
    rig.deliver(home(1), b"hello");
    assert_eq!(arrived(&mut rig).remove(0).0, local);
    rig.pass(1990);
    assert_eq!(rig.counters().pending, 1, "it was heard again");
    rig.jump(10);
    rig.answer_udp(endpoint(SERVERS[server]), local, b"late");
    assert_eq!(rig.take_for(home(1)), Vec::<Vec<u8>>::new());
    rig.pass(4000);
    assert_eq!(rig.counters().pending, 0);
    play(&mut rig, home(1), b"hello");
    assert_eq!(rig.counters().sessions, 1);
}

/// What has never answered a source may belong to players of another protocol by now.
#[test]
fn a_source_that_nobody_has_answered_follows_its_listener_to_other_servers() {
    let setup = plain_setup_with(8, |_| {});
    let mut rig = Rig::new(setup.clone());
    rig.deliver(home(1), b"hello");
    let (local, server, _) = arrived(&mut rig).remove(0);
    let (playing, _) = (play(&mut rig, home(2), b"hello"), play(&mut rig, home(3), b"hello"));
    let mut after = setup;
    after.listeners[ListenerId(0)].backends.retain(|it| it.index() != server);
    rig.mail(Mail::Setup(Arc::new(after)));
    rig.turn();
    rig.deliver(home(1), b"hello");
    let there = arrived(&mut rig);
    assert_eq!(there.iter().map(|(_, server, _)| *server).collect::<Vec<_>>(), [1 - server]);
    assert_eq!(rig.counters().pending, 1);
    rig.answer_udp(endpoint(SERVERS[server]), local, b"late");
    assert_eq!(rig.take_for(home(1)), Vec::<Vec<u8>>::new());
    // Who plays plays on where it is.
    rig.deliver(home(2), b"still here");
    assert_eq!(arrived(&mut rig), [(playing.0, playing.1, b"still here".to_vec())]);
}

#[test]
fn a_source_that_proves_nothing_is_sent_at_most_three_times_what_it_sent() {
    let mut rig = plain_rig(|_| {});
    rig.deliver(home(1), &[0; 100]);
    let (local, server, _) = arrived(&mut rig).remove(0);
    let from = endpoint(SERVERS[server]);
    rig.provokes(DropReason::AnswerLimited, |rig| rig.answer_udp(from, local, &[1; 301]));
    rig.answer_udp(from, local, &[1; 262]);
    // A victim is hit by the headers of each answer more: 28 bytes.
    rig.provokes(DropReason::AnswerLimited, |rig| rig.answer_udp(from, local, &[2; 11]));
    rig.answer_udp(from, local, &[3; 10]);
    rig.provokes(DropReason::AnswerLimited, |rig| rig.answer_udp(from, local, &[4; 1]));
    assert_eq!(rig.take_for(home(1)).iter().map(Vec::len).sum::<usize>(), 272);
    rig.deliver(home(1), &[0; 1]);
    rig.answer_udp(from, local, &[4; 1400]);
    assert_eq!(rig.take_for(home(1)).len(), 1, "a player is sent what its server likes");
}

#[test]
fn an_answer_beyond_the_limit_opens_nothing() {
    let mut rig = plain_rig(|_| {});
    rig.deliver(home(1), b"x");
    let (local, server, _) = arrived(&mut rig).remove(0);
    let from = endpoint(SERVERS[server]);
    rig.provokes(DropReason::AnswerLimited, |rig| rig.answer_udp(from, local, &[0; 4]));
    rig.deliver(home(1), b"x");
    assert_eq!((rig.counters().sessions, rig.counters().pending), (0, 1));
    rig.answer_udp(from, local, &[0; 6]);
    assert_eq!(rig.take_for(home(1)).len(), 1, "it has sent twice");
}

#[test]
fn sources_of_one_block_and_all_together_begin_so_often_a_second() {
    let mut rig = plain_rig(|rules| (rules.starts_per_block, rules.starts_total) = (3, 5));
    let block = |n: u16| Endpoint::v4([192, 0, 2, 1], 1000 + n);
    (0..3).for_each(|n| rig.deliver(block(n), b"x"));
    rig.provokes(DropReason::StartBlockLimited, |rig| rig.deliver(block(3), b"x"));
    (0..2).for_each(|n| rig.deliver(home(n), b"x"));
    rig.provokes(DropReason::StartLimited, |rig| rig.deliver(home(2), b"x"));
    rig.deliver(block(0), b"known already");
    rig.pass(1000);
    rig.deliver(home(3), b"x");
    assert_eq!(rig.counters().drops.total(), 2);
}

#[test]
fn players_of_a_server_that_is_full_or_gone_use_up_nothing_of_the_others() {
    let rules = |rules: &mut Plain| {
        rules.token = Some(tokens(TokenPlace::End, true));
        (rules.starts_per_block, rules.starts_total) = (3, 3);
    };
    let mut rig = Rig::new(plain_setup_with(1, rules));
    let block = |n: u16| Endpoint::v4([192, 0, 2, 1], 1000 + n);
    play(&mut rig, block(0), b"xaa");
    let more_than_may_begin = |rig: &mut Rig, why| {
        for n in 1..9 {
            rig.provokes(why, |rig| rig.deliver(block(n), b"xaa"));
        }
    };
    more_than_may_begin(&mut rig, DropReason::RequestBackendFull);
    rig.event(IoEvent::Unreachable { socket: UDP_LINK, peer: endpoint(SERVERS[0]) });
    more_than_may_begin(&mut rig, DropReason::RequestBackendDown);
    play(&mut rig, block(9), b"xbb");
}

#[test]
fn a_server_has_no_more_players_than_slots() {
    let mut rig = Rig::new(plain_setup_with(1, |_| {}));
    let mut waiting = Vec::new();
    for n in 0..4 {
        rig.deliver(home(n), b"hello");
        let (local, server, _) = arrived(&mut rig).remove(0);
        rig.answer_udp(endpoint(SERVERS[server]), local, b"a");
        waiting.push(home(n));
    }
    // All of them were sent to the first server, which had a free slot.
    let full = DropReason::ResponseBackendFull;
    rig.deliver(waiting[0], b"hello");
    rig.provokes(full, |rig| rig.deliver(waiting[1], b"hello"));
    assert_eq!((rig.counters().sessions, rig.counters().pending), (1, 3));
    rig.pass(4100);
    rig.sent.clear();
    play(&mut rig, waiting[1], b"hello");
    assert_eq!(rig.counters().sessions, 2, "at the other server");
}

#[test]
fn an_address_has_at_most_so_many_sessions() {
    let mut setup = plain_setup_with(8, |_| {});
    setup.listeners[ListenerId(0)].limits.sessions_per_address = 2;
    let mut rig = Rig::new(setup);
    let at = |port| home(1).with_port(port);
    play(&mut rig, at(1), b"hello");
    rig.deliver(at(2), b"hello");
    let (local, server, _) = arrived(&mut rig).remove(0);
    rig.answer_udp(endpoint(SERVERS[server]), local, b"a");
    play(&mut rig, at(3), b"hello");
    rig.provokes(DropReason::AddressFull, |rig| rig.deliver(at(2), b"hello"));
    rig.provokes(DropReason::AddressFull, |rig| rig.deliver(at(4), b"hello"));
}

#[test]
fn a_listener_that_closes_leaves_nobody_who_was_half_open() {
    let mut setup = plain_setup_with(8, |rules| rules.half_open_max = 4);
    let mut rig = Rig::new(setup.clone());
    (0..4).for_each(|n| rig.deliver(home(n), b"hello"));
    // Three have no place any more, and would end by their timers.
    super::rules_of(&mut setup).half_open_max = 1;
    rig.mail(Mail::Setup(Arc::new(setup.clone())));
    rig.turn();
    setup.listeners[ListenerId(0)] = setup.listeners[ListenerId(0)].closed();
    rig.mail(Mail::Setup(Arc::new(setup)));
    rig.turn();
    assert_eq!((rig.counters().pending, rig.host.gate().fronts.plain.sessions.len()), (0, 0));
}
