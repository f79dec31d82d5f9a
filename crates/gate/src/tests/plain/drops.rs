//! Every reason for which only a plain listener refuses something, provoked.

use super::super::drops::OF_PLAIN;
use super::super::lens::Lens;
use super::super::rig::{Rig, claims_for, endpoint, home};
use super::{SERVERS, arrived, numbered, plain_setup_with, play_with, rules_of, tokens, unet};
use crate::mail::Mail;
use crate::setup::{Plain, TokenPlace};
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PLAIN_BYTES_MAX;
use std::sync::Arc;

/// What makes the gateway count the reason once.
type Case = fn(&mut Rig);

const CASES: &[(DropReason, Case)] = &[
    (DropReason::PatternMissing, |rig| rig.deliver(home(1), b"\x01\0\0\0\x01xaa")),
    (DropReason::TokenUnknown, |rig| rig.deliver(home(1), b"\0\0\0\0\x01xxx")),
    (DropReason::SequenceMissing, |rig| rig.deliver(home(1), b"\0\0aa")),
    (DropReason::AfterGap, |rig| {
        rig.deliver(home(1), &whole(1));
        rig.deliver(home(1), &whole(1000));
        rig.deliver(home(1), &whole(1));
    }),
    (DropReason::StartBlockLimited, |rig| {
        (0..3).for_each(|port| rig.deliver(home(1).with_port(port), &whole(1)));
    }),
    (DropReason::StartLimited, |rig| (0..5).for_each(|n| rig.deliver(home(n), &whole(1)))),
    (DropReason::AnswerLimited, |rig| {
        rig.deliver(home(1), &whole(1));
        let (local, server, _) = arrived(rig).remove(0);
        rig.answer_udp(endpoint(SERVERS[server]), local, &[0; 100]);
    }),
    (DropReason::UnprovenFull, |rig| {
        for n in 1..=2 {
            begin(rig, n);
        }
    }),
    (DropReason::SourcePaused, |rig| {
        let (local, server) = begin(rig, 1);
        rig.pass(5000);
        rig.answer_udp(server, local, b"late");
    }),
    (DropReason::CreditSpent, |rig| {
        let (local, server) = begin(rig, 1);
        rig.answer_udp(server, local, &[0; 400]);
    }),
];

/// A source has sent, was answered and has sent again. All have the same server.
fn begin(rig: &mut Rig, n: u16) -> (LocalIp, Endpoint) {
    rig.deliver(home(n), &whole(1));
    let (local, server, _) = arrived(rig).remove(0);
    let server = endpoint(SERVERS[server]);
    rig.answer_udp(server, local, b"a");
    rig.deliver(home(n), &whole(2));
    arrived(rig);
    (local, server)
}

fn whole(number: u16) -> Vec<u8> {
    [&numbered(number)[..], b"aa"].concat()
}

fn strict(rules: &mut Plain) {
    rules.begins_with = vec![0];
    rules.token = Some(tokens(TokenPlace::End, true));
    rules.sequence = Some(unet(false));
    (rules.starts_per_block, rules.starts_total) = (2, 4);
    rules.credit.ratio = 10;
    // One of eight.
    rules.unproven_percent = 12;
}

#[test]
fn every_reason_of_a_plain_listener_is_provoked() {
    for (reason, provoke) in CASES {
        let mut rig = Rig::new(plain_setup_with(8, strict));
        let lens = Lens::wide(&mut rig);
        provoke(&mut rig);
        assert_eq!(rig.drops(*reason), 1, "{reason:?}");
        lens.has_seen(*reason);
    }
    let provoked: Vec<_> = CASES.iter().map(|(reason, _)| *reason).collect();
    let rest: Vec<_> = OF_PLAIN.iter().filter(|reason| !provoked.contains(reason)).collect();
    assert_eq!(rest, [&DropReason::HalfOpenFull], "which has a test of its own");
}

#[test]
fn what_has_no_length_that_is_passed_on_is_dropped() {
    let mut rig = Rig::new(plain_setup_with(8, |_| {}));
    rig.provokes(DropReason::Empty, |rig| rig.deliver(home(1), b""));
    let long = [0; PLAIN_BYTES_MAX + 1];
    rig.provokes(DropReason::TooLong, |rig| rig.deliver(home(1), &long));
    let (local, server) = play_with(&mut rig, home(1), [b"x", b"x"]);
    let from = endpoint(SERVERS[server]);
    rig.provokes(DropReason::PayloadLength, |rig| rig.answer_udp(from, local, b""));
    rig.provokes(DropReason::PayloadLength, |rig| rig.answer_udp(from, local, &long));
    let stripped = |rules: &mut Plain| rules.token = Some(tokens(TokenPlace::End, true));
    let mut rig = Rig::new(plain_setup_with(8, stripped));
    rig.provokes(DropReason::Empty, |rig| rig.deliver(home(1), b"aa"));
}

#[test]
fn a_reload_gives_half_open_sessions_no_more_room_than_was_set_aside() {
    let mut setup = plain_setup_with(8, |_| {});
    // Not rehearsed: a successor sets aside what the setup says by then.
    let claims = claims_for(&setup, setup.claim_limits());
    let mut rig = Rig::with_claims(setup.clone(), claims);
    let room = rig.host.gate().fronts.plain.unproven_max as u32;
    rules_of(&mut setup).half_open_max = room + 10;
    rig.mail(Mail::Setup(Arc::new(setup)));
    rig.turn();
    for n in 0..room {
        rig.push(home((n / 60_000) as u16).with_port((n % 60_000) as u16), b"x");
        rig.sent.clear();
    }
    rig.turn();
    assert_eq!(rig.counters().pending, u64::from(room));
    rig.provokes(DropReason::HalfOpenFull, |rig| rig.deliver(home(9), b"x"));
}
