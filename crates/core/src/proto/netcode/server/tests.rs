//! The server's decisions: each refusal is provoked by what it is for, and challenges are bound to
//! their handshake.

use super::*;
use crate::proto::netcode::packet::{Header, Receiver};
use crate::proto::netcode::request::Request;

#[test]
fn a_packet_of_the_requests_type_is_no_request_and_means_nothing() {
    // Only a first byte of exactly 0 is a request; with a sequence it is a packet, which decrypts
    // and is then dropped.
    let datagram = [0x10; 18];
    assert!(!Request::is_claimed_by(&datagram));
    let header = Header::decode(&datagram, Receiver::Server).expect("a packet");
    assert_eq!(session_packet(header.kind, &[]), Err(DropReason::PacketUnexpected));
}

#[test]
fn a_session_takes_three_kinds_of_packets() {
    assert_eq!(session_packet(PacketKind::Disconnect, &[]), Ok(SessionPacket::Disconnect));
    assert_eq!(session_packet(PacketKind::KeepAlive, &[1; 8]), Ok(SessionPacket::KeepAlive));
    assert_eq!(session_packet(PacketKind::Payload, &[1]), Ok(SessionPacket::Payload(&[1])));
    assert_eq!(session_packet(PacketKind::Payload, &[]), Err(DropReason::BodyLength));
    assert_eq!(session_packet(PacketKind::Response, &[0; 308]), Err(DropReason::PacketUnexpected));
    assert_eq!(session_packet(PacketKind::Response, &[0; 307]), Err(DropReason::BodyLength));
}

#[test]
fn a_handshake_takes_nothing_but_a_response() {
    let (sequence, token) = pending_packet(PacketKind::Response, &mut [1; 308])
        .map(|(sequence, token)| (sequence, *token))
        .expect("a response");
    assert_eq!((sequence, token), (0x0101_0101_0101_0101, [1; CHALLENGE_TOKEN_BYTES]));
    for (kind, len, why) in [
        (PacketKind::Response, 307, DropReason::BodyLength),
        (PacketKind::Payload, 0, DropReason::BodyLength),
        (PacketKind::Payload, 5, DropReason::PacketUnexpected),
        (PacketKind::KeepAlive, 8, DropReason::PacketUnexpected),
        (PacketKind::Disconnect, 0, DropReason::PacketUnexpected),
        (PacketKind::Request, 0, DropReason::PacketUnexpected),
    ] {
        assert_eq!(pending_packet(kind, &mut vec![0; len]), Err(why), "{kind:?} {len}");
    }
}

#[test]
fn a_token_must_name_one_of_our_addresses_with_its_port() {
    let check = |token: &str, own: &[&str]| {
        let own: Vec<_> =
            own.iter().map(|text| text.parse::<SocketAddr>().expect("literal").into()).collect();
        check_addressed_to(&token.parse().expect("literal"), &own)
    };
    let foreign = Err(DropReason::TokenNotForUs);
    assert_eq!(check("10.0.0.1:1,192.0.2.1:5", &["192.0.2.1:5"]), Ok(()));
    assert_eq!(check("192.0.2.1:5", &["[2001:db8::1]:5", "192.0.2.1:5"]), Ok(()));
    assert_eq!(check("192.0.2.1:6", &["192.0.2.1:5"]), foreign);
    assert_eq!(check("192.0.2.2:5", &["192.0.2.1:5"]), foreign);
    assert_eq!(check("192.0.2.1:5", &[]), foreign);
    assert_eq!(check("[2001:db8::1]:5", &["[2001:db8::1]:5"]), Ok(()));
    assert_eq!(check("[2001:db8::1]:5", &["[fe80::1%3]:5"]), foreign);
    // Network order, read as little-endian words.
    assert_eq!(check("[120:b80d::100]:5", &["[2001:db8::1]:5"]), Ok(()));
    assert_eq!(check("[120:b80d::100]:6", &["[2001:db8::1]:5"]), foreign);
    // IPv4-mapped, in either order, is IPv4; IPv4 itself has one order only.
    assert_eq!(check("[::ffff:192.0.2.1]:5", &["192.0.2.1:5"]), Ok(()));
    assert_eq!(check("[::ffff:0.192.1.2]:5", &["192.0.2.1:5"]), Ok(()));
    assert_eq!(check("0.192.1.2:5", &["192.0.2.1:5"]), foreign);
}

#[test]
fn a_challenge_answers_its_own_handshake_only() {
    let binding = PendingBinding { first_challenge_sequence: 10, client_id: 7 };
    assert_eq!(binding.check(10, 7), Ok(()));
    assert_eq!(binding.check(11, 7), Ok(()));
    assert_eq!(binding.check(9, 7), Err(DropReason::ChallengeForeign));
    assert_eq!(binding.check(10, 8), Err(DropReason::ChallengeForeign));
}

#[test]
fn sessions_of_one_token_have_ranges_of_their_own() {
    let mut first = SessionSequence::begin(None, u64::MAX);
    let next = first.after();
    assert_eq!([first.take(), first.take()], [Ok((1 << 48) - 1), Ok(1 << 48)]);
    let mut second = SessionSequence::begin(Some(next), 5);
    assert_eq!(second.take(), Ok((1 << 48) - 1 + (1 << 40)));
    let mut last = (0..1 << 23).fold(second, |sequence, _| sequence.after());
    assert_eq!(last.take(), Err(DropReason::SequenceExhausted));
}

#[test]
fn a_session_never_reaches_the_nonces_of_challenges() {
    let mut last = SessionSequence(GLOBAL_SEQUENCE_START - 1);
    assert_eq!(last.take(), Ok(GLOBAL_SEQUENCE_START - 1));
    assert_eq!(last.take(), Err(DropReason::SequenceExhausted));
    assert_eq!(last.take(), Err(DropReason::SequenceExhausted));
}

#[test]
fn workers_number_challenges_in_ranges_of_their_own() {
    let range = |worker: usize| {
        let mut at_end = GlobalSequence::new(worker, u64::MAX);
        let (last, first) = (at_end.take(), at_end.take());
        assert_eq!(first, GlobalSequence::new(worker, 0).take());
        first..=last
    };
    let mut next = GLOBAL_SEQUENCE_START;
    for worker in 0..WORKERS_MAX {
        let range = range(worker);
        assert_eq!(*range.start(), next);
        next = range.end().wrapping_add(1);
    }
    assert_eq!(next, 0, "the ranges fill the upper half");
}
