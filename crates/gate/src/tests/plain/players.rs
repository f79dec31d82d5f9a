//! Players of a plain listener: how they come in, where they go and how they leave.

use super::super::rig::{Rig, endpoint, home};
use super::{SERVERS, arrived, plain_rig, plain_setup_with, play, play_with, rules_of, tokens};
use crate::counters::Ended;
use crate::front::Front;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{Route, TokenPlace};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::PLAIN_BYTES_MAX;
use std::sync::Arc;

#[test]
fn datagrams_of_any_length_pass_unchanged_in_both_directions() {
    let mut rig = plain_rig(|_| {});
    let (local, server) = play(&mut rig, home(1), b"hello");
    for len in [1, 2, 100, 1200, 1201, PLAIN_BYTES_MAX] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
        rig.deliver(home(1), &bytes);
        assert_eq!(arrived(&mut rig), [(local, server, bytes.clone())]);
        rig.answer_udp(endpoint(SERVERS[server]), local, &bytes);
        assert_eq!(rig.take_for(home(1)), [bytes]);
    }
    let kind = Front::Plain.first_kind();
    assert_eq!((rig.counters().handled[kind], rig.counters().packets_out[kind]), (8, 7));
}

#[test]
fn a_session_opens_when_its_source_has_sent_again_after_an_answer() {
    let mut rig = plain_rig(|_| {});
    rig.deliver(home(1), b"hello");
    rig.deliver(home(1), b"hello");
    assert_eq!((rig.counters().sessions, rig.counters().pending), (0, 1), "no answer so far");
    let (local, server, _) = arrived(&mut rig).remove(0);
    rig.answer_udp(endpoint(SERVERS[server]), local, b"hi");
    assert_eq!((rig.counters().sessions, rig.counters().pending), (0, 1), "many servers answer");
    rig.deliver(home(1), b"hello");
    assert_eq!((rig.counters().sessions, rig.counters().pending), (1, 0));
    assert_eq!((rig.counters().sessions_opened, rig.sessions()), (1, 1));
    let told: Vec<_> = rig.host.gate().sessions().collect();
    assert_eq!((told[0].address, told[0].backend), (home(1), BackendId(server as u16)));
}

#[test]
fn every_player_has_an_address_of_its_own_and_only_its_server_answers_it() {
    let mut rig = plain_rig(|_| {});
    let (one, first) = play(&mut rig, home(1), b"hello");
    let (other, second) = play(&mut rig, home(2), b"hello");
    assert_ne!((one, first), (other, second), "least players: each has a server of its own");
    assert_ne!(one, other);
    rig.answer_udp(endpoint(SERVERS[second]), one, b"for another's");
    assert_eq!(rig.drops(DropReason::SessionUnknown), 1);
    assert_eq!(rig.take_for(home(1)), Vec::<Vec<u8>>::new());
}

#[test]
fn a_player_ends_by_its_silence_and_its_slot_is_free() {
    let mut rig = Rig::new(plain_setup_with(1, |rules| rules.idle_ns = 5_000_000_000));
    let (local, _) = play(&mut rig, home(1), b"hello");
    play(&mut rig, home(2), b"hello");
    rig.provokes(DropReason::RequestBackendFull, |rig| rig.deliver(home(3), b"hello"));
    for _ in 0..4 {
        rig.pass(2000);
        rig.deliver(home(2), b"here");
    }
    assert_eq!(rig.counters().sessions_closed[Ended::TimedOut as usize], 1);
    let (again, _) = play(&mut rig, home(3), b"hello");
    assert_ne!(again, local, "a server must not take a newcomer for who was there before");
    assert_eq!(rig.sessions(), 2);
}

#[test]
fn the_token_says_which_server_and_may_be_taken_off() {
    for (at, strip) in
        [TokenPlace::End, TokenPlace::Start].map(|at| [(at, true), (at, false)]).concat()
    {
        let mut rig = plain_rig(|rules| rules.token = Some(tokens(at, strip)));
        for (token, server) in [(b"aa", 0), (b"bb", 1)] {
            let bytes = match at {
                TokenPlace::End => [&b"data"[..], token].concat(),
                TokenPlace::Start => [&token[..], b"data"].concat(),
            };
            let from = home(server as u16);
            assert_eq!(play(&mut rig, from, &bytes).1, server);
            rig.deliver(from, &bytes);
            let expected = if strip { b"data".to_vec() } else { bytes };
            assert_eq!(arrived(&mut rig).remove(0).2, expected);
        }
    }
}

#[test]
fn another_token_is_another_session_and_an_unknown_one_is_nothing() {
    let mut rig = plain_rig(|rules| rules.token = Some(tokens(TokenPlace::End, true)));
    let (first, server) = play(&mut rig, home(1), b"datacc");
    assert_eq!(server, 1);
    rig.provokes(DropReason::TokenUnknown, |rig| rig.deliver(home(1), b"dataxx"));
    rig.deliver(home(1), b"datacc");
    assert_eq!(arrived(&mut rig), [(first, 1, b"data".to_vec())], "it plays on");
    // Whoever knows another token may write this source's address on a datagram.
    rig.provokes(DropReason::TokenSuperseded, |rig| rig.deliver(home(1), b"databb"));
    rig.pass(1_990);
    rig.provokes(DropReason::TokenSuperseded, |rig| rig.deliver(home(1), b"databb"));
    rig.deliver(home(1), b"datacc");
    assert_eq!(arrived(&mut rig), [(first, 1, b"data".to_vec())], "it is heard");
    rig.pass(2_000);
    rig.deliver(home(1), b"databb");
    let (second, server, _) = arrived(&mut rig).remove(0);
    assert_eq!((second != first, server), (true, 1), "the same server sees another player");
    assert_eq!(rig.counters().sessions_closed[Ended::Replaced as usize], 1);
    assert_eq!((rig.counters().sessions, rig.counters().pending), (0, 1));
    rig.answer_udp(endpoint(SERVERS[1]), first, b"late");
    assert_eq!(rig.drops(DropReason::SessionUnknown), 1);
}

#[test]
fn by_hash_a_source_comes_back_to_its_server() {
    let mut setup = plain_setup_with(8, |_| {});
    setup.listeners[ListenerId(0)].route = Route::Hash;
    let mut rig = Rig::new(setup);
    let servers: Vec<_> = (0..8).map(|n| play(&mut rig, home(n), b"hello").1).collect();
    assert!(servers.contains(&0) && servers.contains(&1), "{servers:?}");
    let again: Vec<_> = (0..8).map(|n| play(&mut rig, home(n).with_port(9), b"hello").1).collect();
    assert_eq!(again, servers, "from another port, which is another session");
}

#[test]
fn a_draining_gate_takes_no_one_in_and_a_stopped_one_has_no_one() {
    let mut rig = plain_rig(|_| {});
    play(&mut rig, home(1), b"hello");
    rig.deliver(home(2), b"hello");
    let (local, server, _) = arrived(&mut rig).remove(0);
    rig.mail(Mail::Drain { left_ms: 60_000 });
    rig.turn();
    rig.provokes(DropReason::Draining, |rig| rig.deliver(home(3), b"hello"));
    rig.answer_udp(endpoint(SERVERS[server]), local, b"a");
    rig.provokes(DropReason::Draining, |rig| rig.deliver(home(2), b"hello"));
    rig.deliver(home(1), b"hello");
    assert_eq!(arrived(&mut rig).len(), 1, "who plays plays on");
    rig.mail(Mail::Stop);
    rig.turn();
    assert_eq!((rig.sessions(), rig.counters().pending), (0, 0));
    assert_eq!(rig.counters().sessions_closed[Ended::Shutdown as usize], 1);
}

#[test]
fn a_reload_brings_tokens_and_limits_and_keeps_who_plays() {
    let mut setup = plain_setup_with(8, |rules| rules.token = Some(tokens(TokenPlace::End, true)));
    let mut rig = Rig::new(setup.clone());
    let (local, _) = play(&mut rig, home(1), b"dataaa");
    let known = [(b"dd", BackendId(1))].into_iter().collect();
    let rules = rules_of(&mut setup);
    rules.token.as_mut().expect("as before").backends = Arc::new(known);
    rules.half_open_max = 2;
    rig.mail(Mail::Setup(Arc::new(setup)));
    rig.turn();
    rig.deliver(home(1), b"dataaa");
    assert_eq!(arrived(&mut rig), [(local, 0, b"data".to_vec())]);
    rig.provokes(DropReason::TokenUnknown, |rig| rig.deliver(home(2), b"dataaa"));
    assert_eq!(play_with(&mut rig, home(3), [b"onedd", b"twodd"]).1, 1);
    for n in 4..8 {
        rig.deliver(home(n), b"onedd");
    }
    assert_eq!((rig.counters().pending, rig.counters().half_open_evicted), (2, 2));
}

#[test]
fn players_of_a_server_that_is_gone_for_good_are_given_up() {
    let mut rig = plain_rig(|_| {});
    let (_, server) = play(&mut rig, home(1), b"hello");
    let socket = super::super::rig::UDP_LINK;
    for _ in 0..80 {
        let peer = endpoint(SERVERS[server]);
        rig.event(ringgate_batch::IoEvent::Unreachable { socket, peer });
        rig.pass(100);
    }
    assert_eq!(rig.counters().sessions_closed[Ended::BackendGone as usize], 1);
}
