//! netcode players in front of two gateways.

use super::super::clients::{Scribe, forged};
use super::super::games::Game;
use super::super::rig::{Rig, home, plain_setup};
use super::{OTHER, Pair, SECOND};
use crate::denied::Denied;
use crate::ids::{BackendId, BindId, ListenerId, MemberId, WorkerId};
use crate::mail::{ForwardedDatagram, Mail};
use crate::prefix::Prefix;
use crate::setup::Setup;
use crate::store::table::Address;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::drops::DropReason;
use ringgate_core::proto::netcode::packet::PacketKind;
use std::sync::Arc;

const A: usize = 0;
const B: usize = 1;

fn setup() -> Setup {
    let mut setup = plain_setup();
    setup.backends[BackendId(0)].slots = 50;
    setup
}

/// Two gateways of so many workers, and a game process that each has.
fn pair(workers: u16) -> (Pair, [Game; 2]) {
    let mut pair = Pair::new(setup(), workers);
    let games = [A, B].map(|at| Game::join(pair.rig(at), "arena"));
    (pair, games)
}

/// A player of the first gateway.
fn playing() -> (Pair, [Game; 2], Scribe) {
    let (mut pair, games) = pair(1);
    let scribe = join(&mut pair, 1);
    (pair, games, scribe)
}

/// Another one.
fn join(pair: &mut Pair, number: u16) -> Scribe {
    let scribe = Scribe::new(&pair.rig(A).token(u64::from(number)));
    scribe.connect(pair.rig(A), home(number));
    pair.arrive(A, home(number), &scribe.keep_alive(5));
    pair.rig(A).take_for(home(number));
    scribe
}

fn address(endpoint: Endpoint) -> Address {
    Address { listener: ListenerId(0), endpoint }
}

fn deny(rig: &mut Rig, endpoint: Endpoint) {
    let std::net::IpAddr::V4(ip) = std::net::SocketAddr::from(endpoint).ip() else { panic!("v4") };
    let prefix: Prefix = format!("{ip}/32").parse().expect("a prefix");
    let denied = Denied::new([(prefix, true)]);
    let setup = Setup::clone(rig.host.gate().setup());
    let revision = setup.revision + 1;
    rig.mail(Mail::Setup(Arc::new(Setup { denied: Arc::new(denied), revision, ..setup })));
    rig.turn();
}

#[test]
fn a_players_datagrams_reach_its_session_by_either_gateway() {
    let (mut pair, games, scribe) = playing();
    for sequence in 6..30 {
        pair.arrive(sequence as usize % 2, home(1), &scribe.payload(sequence, b"up"));
    }
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 24);
    assert_eq!((pair.forwarded(A), pair.forwarded(B), pair.sessions()), (0, 12, [1, 0]));
    // It answers by itself, and remembers nobody.
    let session = pair.rig(A).session_at(home(1));
    games[A].say(pair.rig(A), |w| w.payload(session, b"down"));
    assert_eq!(scribe.kinds(pair.rig(A), home(1)).last(), Some(&PacketKind::Payload));
    assert!(pair.rig(B).take_for(home(1)).is_empty());
    pair.arrive(B, home(1), &scribe.disconnect(40));
    assert_eq!(pair.sessions(), [0, 0]);
    pair.rig(B).provokes(DropReason::UnknownSource, |rig| {
        rig.deliver(home(1), &scribe.payload(41, b"late"));
    });
}

#[test]
fn a_handshake_goes_on_at_either_gateway() {
    let (mut pair, games) = pair(1);
    for doors in 0..8_u16 {
        let door = |bit: u16| usize::from(doors >> bit & 1);
        let from = home(10 + doors);
        let scribe = Scribe::new(&pair.rig(A).token(u64::from(doors) + 10));
        pair.arrive(door(0), from, &scribe.request());
        let challenge = scribe.challenge(pair.rig(door(0)), from);
        // It is asked again, and is the same handshake.
        pair.arrive(door(1), from, &scribe.request());
        let response = scribe.packet(PacketKind::Response, 1, &challenge);
        pair.arrive(door(2), from, &response);
        pair.arrive(door(1), from, &scribe.payload(2, b"up"));
        assert_eq!(games[door(0)].payloads(pair.rig(door(0))).len(), 1, "{doors:b}");
        pair.rig(door(0)).take_for(from);
    }
    assert_eq!(pair.sessions(), [4, 4]);
}

#[test]
fn gateways_that_are_asked_at_the_same_moment_give_one_session() {
    for (asked, door) in [(A, A), (A, B), (B, A), (B, B)] {
        let (mut pair, games) = pair(1);
        let scribe = Scribe::new(&pair.rig(A).token(1));
        for at in [A, B] {
            pair.rig(at).deliver(home(1), &scribe.request());
        }
        let challenge = scribe.challenge(pair.rig(asked), home(1));
        pair.carry();
        pair.arrive(door, home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
        let expected = if asked == A { [1, 0] } else { [0, 1] };
        assert_eq!(pair.sessions(), expected);
        for at in [A, B, A] {
            pair.arrive(at, home(1), &scribe.payload(2 + at as u64, b"up"));
        }
        assert_eq!(games[asked].payloads(pair.rig(asked)).len(), 2, "and the repeated one once");
        pair.pass(300);
        assert_eq!(pair.sessions(), expected);
    }
}

#[test]
fn a_request_goes_to_the_gateway_that_has_its_address() {
    let (mut pair, _games, _) = playing();
    let other = Scribe::new(&pair.rig(A).token(2));
    pair.arrive(B, home(1), &other.request());
    assert_eq!(pair.rig(A).drops(DropReason::RequestAddressConnected), 1);
    assert_eq!((pair.forwarded(B), pair.rig(B).counters().pending), (1, 0));
    // What is none goes nowhere.
    let mut junk = other.request();
    junk[20] ^= 1;
    pair.rig(B).provokes(DropReason::RequestProtocol, |rig| rig.deliver(home(1), &junk));
    assert_eq!(pair.forwarded(B), 1);
}

#[test]
fn a_session_follows_its_player_who_comes_from_another_port_by_the_other_gateway() {
    let (mut pair, games, scribe) = playing();
    let _stay = pair.stay();
    let moved = home(1).with_port(6000);
    for sequence in 6..40 {
        pair.arrive(B, moved, &scribe.payload(sequence, b"moved"));
    }
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 34);
    assert_eq!(pair.rig(A).counters().port_switches, 1);
    // It was no more than a moment ago at the first port.
    pair.rig(B).provokes(DropReason::UnknownSource, |rig| {
        let mut junk = scribe.payload(50, b"x");
        junk.truncate(9);
        rig.deliver(home(1), &junk);
    });
    // A late packet of the old port moves nothing back.
    pair.arrive(B, home(1), &scribe.payload(20, b"late"));
    pair.arrive(A, moved, &scribe.payload(60, b"by its own door"));
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 1);
    assert_eq!(pair.rig(A).counters().port_switches, 1);
    // Forged ones cost the trunk what unknown ports may cost other workers.
    let before = pair.forwarded(B);
    for sequence in 100..1000 {
        pair.arrive(B, home(1).with_port(7000), &forged(scribe.payload(sequence, b"x")));
    }
    assert!((1..=8).contains(&(pair.forwarded(B) - before)));
}

#[test]
fn what_was_recorded_is_taken_once_whichever_way_it_comes_again() {
    let (mut pair, games, scribe) = playing();
    let packet = scribe.payload(6, b"once");
    for at in [B, A, B, B, A] {
        pair.arrive(at, home(1), &packet);
    }
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 1);
    assert_eq!(pair.rig(A).drops(DropReason::ReplayDuplicate), 4);
}

#[test]
fn a_flood_from_a_players_address_takes_neither_its_own_way_nor_that_of_others() {
    let (mut pair, games, scribe) = playing();
    let _stay = pair.stay();
    let other = join(&mut pair, 2);
    let mut sequence = 10;
    for _ in 0..100 {
        for _ in 0..20 {
            pair.rig(B).push(home(1), &forged(scribe.payload(sequence, b"junk")));
        }
        pair.rig(B).turn();
        sequence += 1;
        pair.arrive(B, home(2), &other.payload(sequence, b"by the flooded gateway"));
        pair.arrive(A, home(1), &scribe.payload(sequence, b"by its own"));
        pair.pass(20);
    }
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 200, "each player's all");
    let limited = pair.rig(B).drops(DropReason::ForwardLimited);
    // Fifty at once, and fifty in each of two seconds.
    assert!((1840..=1860).contains(&limited), "{limited}");
}

#[test]
fn a_player_may_send_twice_what_its_gateway_has_taken_of_it() {
    let (mut pair, games, scribe) = playing();
    let _stay = pair.stay();
    let mut sequence = 6;
    // Two hundred a second are within what anybody may send at first and what is taken meanwhile.
    for _ in 0..100 {
        for _ in 0..2 {
            pair.rig(B).push(home(1), &scribe.payload(sequence, b"up"));
            sequence += 1;
        }
        pair.rig(B).turn();
        pair.pass(10);
    }
    let taken = games[A].payloads(pair.rig(A)).len();
    assert_eq!((taken, pair.rig(B).drops(DropReason::ForwardLimited)), (200, 0));
    // What is recorded and comes again is not taken, and what was taken is forgotten soon.
    pair.pass(2_000);
    for _ in 0..100 {
        for recorded in 0..10 {
            pair.rig(B).push(home(1), &scribe.payload(sequence - 1 - recorded, b"up"));
        }
        pair.rig(B).turn();
        pair.pass(10);
    }
    let limited = pair.rig(B).drops(DropReason::ForwardLimited);
    assert!((895..=905).contains(&limited), "{limited}");
}

#[test]
fn an_address_that_is_denied_at_one_gateway_gets_in_by_none() {
    for denies in [A, B] {
        let (mut pair, games, scribe) = playing();
        deny(pair.rig(denies), home(1));
        let before = pair.rig(denies).drops(DropReason::AddressDenied);
        pair.arrive(B, home(1), &scribe.payload(6, b"up"));
        let request = Scribe::new(&pair.rig(A).token(3)).request();
        pair.arrive(B, home(1), &request);
        assert_eq!(games[A].payloads(pair.rig(A)).len(), 0);
        let denied = pair.rig(denies).drops(DropReason::AddressDenied) - before;
        assert_eq!((denied, pair.forwarded(B)), (2, if denies == A { 2 } else { 0 }));
    }
}

#[test]
fn a_gateway_that_drains_forwards_what_is_anothers() {
    let (mut pair, games, scribe) = playing();
    pair.rig(B).mail(Mail::Drain { left_ms: 60_000 });
    pair.rig(B).turn();
    pair.arrive(B, home(1), &scribe.payload(6, b"up"));
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 1);
    let newcomer = Scribe::new(&pair.rig(A).token(2));
    pair.rig(B).provokes(DropReason::Draining, |rig| rig.deliver(home(2), &newcomer.request()));
}

#[test]
fn gateways_that_each_take_a_player_for_the_others_send_nothing_round() {
    let (mut pair, _games) = pair(1);
    let _stay = pair.stay();
    for at in [A, B] {
        assert!(pair.whereabouts(at).learn(&address(home(1)), OTHER[at], 0).is_ok());
    }
    let scribe = Scribe::new(&pair.rig(A).token(1));
    pair.arrive(A, home(1), &scribe.payload(2, b"x"));
    assert_eq!((pair.forwarded(A), pair.forwarded(B)), (1, 0));
    assert_eq!(pair.rig(B).drops(DropReason::UnknownSource), 1);
    // Who asks to be let in is let in where it comes to.
    pair.arrive(A, home(1), &scribe.request());
    let challenge = scribe.challenge(pair.rig(B), home(1));
    pair.arrive(A, home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
    assert_eq!(pair.sessions(), [0, 1]);
}

#[test]
fn what_a_member_says_of_a_player_who_is_here_changes_nothing() {
    let (mut pair, games, scribe) = playing();
    let _stay = pair.stay();
    assert!(pair.whereabouts(A).learn(&address(home(1)), MemberId(5), 0).is_ok());
    pair.arrive(A, home(1), &scribe.payload(6, b"up"));
    assert_eq!((games[A].payloads(pair.rig(A)).len(), pair.forwarded(A)), (1, 0));
}

#[test]
fn what_a_member_makes_up_is_refused_by_name() {
    let (mut pair, _games, scribe) = playing();
    let made_up = |bind, is_lost, bytes: &[u8]| {
        let (parties, to) = ((OTHER[A], WorkerId(0)), (BindId(bind), LocalIp::UNSPECIFIED));
        ForwardedDatagram::of_member(parties, address(home(7)), to, is_lost, bytes)
    };
    let (packet, response) =
        (scribe.payload(50, b"x"), scribe.packet(PacketKind::Response, 50, &[0; 308]));
    for (bind, is_lost, bytes, why) in [
        (9, false, &packet[..], DropReason::UnknownSource),
        (0, false, &packet, DropReason::UnknownSource),
        (0, true, &packet, DropReason::UnknownSource),
        (0, true, &response, DropReason::UnknownSource),
        (0, true, &packet[..5], DropReason::PacketLength),
        (0, false, &[], DropReason::Empty),
        (0, false, &[1; 1301], DropReason::TooLong),
        (0, false, &[0; 1078], DropReason::RequestVersion),
    ] {
        let datagram = made_up(bind, is_lost, bytes).expect("it is short enough");
        pair.rig(A).provokes(why, |rig| {
            rig.mail(Mail::Datagram(datagram));
            rig.turn();
        });
    }
    assert!(made_up(0, false, &[1; 5000]).is_none());
    assert_eq!(pair.rig(A).counters().members_in, 8);
}

#[test]
fn players_play_on_by_the_other_gateway_when_theirs_is_handed_over() {
    let (mut pair, games, scribe) = playing();
    let waiting = Scribe::new(&pair.rig(A).token(2));
    pair.arrive(A, home(2), &waiting.request());
    let challenge = waiting.challenge(pair.rig(A), home(2));
    for at in [A, B] {
        pair.fleets[at].hand_over();
        pair.carry();
    }
    pair.arrive(B, home(1), &scribe.payload(6, b"up"));
    pair.arrive(B, home(2), &waiting.packet(PacketKind::Response, 1, &challenge));
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 1);
    assert_eq!(pair.sessions(), [2, 0]);
    pair.arrive(B, home(1), &scribe.disconnect(7));
    pair.fleets[A].hand_over();
    pair.carry();
    assert_eq!(pair.whereabouts(B).others_count(), 1);
}

#[test]
fn a_player_who_has_come_by_a_member_is_found_by_its_gateways_own_workers() {
    let (mut pair, games) = pair(2);
    let scribe = Scribe::new(&pair.rig(A).token(1));
    pair.arrive(A, home(1), &scribe.request());
    let challenge = scribe.challenge(pair.rig(A), home(1));
    // The network sends the player to the other gateway, and that hashes to another worker later.
    let at_second = |pair: &mut Pair, packet: &[u8]| {
        pair.fleets[A].rigs[SECOND.index()].deliver(home(1), packet);
        pair.carry();
    };
    at_second(&mut pair, &scribe.request());
    at_second(&mut pair, &scribe.packet(PacketKind::Response, 1, &challenge));
    at_second(&mut pair, &scribe.payload(2, b"up"));
    assert_eq!(games[A].payloads(pair.rig(A)).len(), 1);
    assert_eq!(pair.fleets[A].rigs[SECOND.index()].counters().forwarded_out, 3);
    assert_eq!(pair.sessions(), [1, 0]);
    // Forged ones do not fill the mailbox of its worker.
    let _stay = pair.stay();
    for sequence in 3..3003 {
        at_second(&mut pair, &forged(scribe.payload(sequence, b"junk")));
    }
    let forwarded = pair.fleets[A].rigs[SECOND.index()].counters().forwarded_out;
    assert!((900..=1003).contains(&forwarded), "{forwarded}");
}

#[test]
fn a_datagram_that_finds_no_room_on_its_way_is_lost_by_name() {
    let (mut pair, _games, scribe) = playing();
    let _stay = pair.stay();
    let whereabouts = pair.whereabouts(B);
    let rig = pair.rig(B);
    rig.provokes(DropReason::MemberQueueFull, |rig| {
        rig.deliver(home(1), &scribe.payload(6, b"up"));
        for (_, datagram) in rig.host.take_for_members() {
            rig.host.gate_mut().member_refused(&datagram);
        }
    });
    assert_eq!(rig.counters().members_out, 0);
    while whereabouts.pay(&address(home(1)), rig.now.mono_ns).is_ok() {}
    rig.provokes(DropReason::ForwardLimited, |rig| {
        rig.deliver(home(1), &scribe.payload(7, b"up"));
    });
}
