//! The client's states on a clock that the test turns, against a server made of the codec alone.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use crate::limits::DATAGRAM_BYTES_MAX;
use crate::proto::netcode::token::tests::connect_token;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const SLOTS: KeepAlive = KeepAlive { slot: 3, slots: 64 };

/// The token lives for 30 s and its timeout is 5 s.
fn client(servers: usize) -> Client {
    Client::new(&connect_token(servers), 0, Options::default())
}

fn connected(servers: usize) -> Client {
    let mut client = client(servers);
    assert_eq!(receive(&mut client, 0, PacketKind::Challenge, 0, &[7; 308]), Ok(None));
    let event = receive(&mut client, 0, PacketKind::KeepAlive, 0, &SLOTS.encode());
    assert_eq!(event, Ok(Some(Event::Connected(SLOTS))));
    client
}

/// Has the client receive a packet of its current server, as if the tag had verified.
fn receive(
    client: &mut Client,
    now_ns: u64,
    kind: PacketKind,
    sequence: u64,
    body: &[u8],
) -> Result<Option<Event>, DropReason> {
    let work = prepare(client, client.server(), kind, sequence, body)?;
    client.handle_opened(now_ns, &work, body)
}

fn prepare(
    client: &Client,
    from: Endpoint,
    kind: PacketKind,
    sequence: u64,
    body: &[u8],
) -> Result<OpenWork, DropReason> {
    let mut datagram = [0; DATAGRAM_BYTES_MAX];
    let (_, len) = encode_packet(kind, sequence, body, &mut datagram);
    let work = client.handle_datagram(from, &datagram[..len])?;
    assert_eq!(datagram[work.body()], *body);
    assert_eq!(work.sealed(), work.header.body_start()..len);
    Ok(work)
}

/// What the client sends at that instant: to whom, what kind, which sequence (`None` for requests).
fn sent(client: &mut Client, now_ns: u64) -> Vec<(Endpoint, PacketKind, Option<u64>)> {
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let mut list = Vec::new();
    while let Some(transmit) = client.poll_transmit(now_ns, &mut out) {
        let kind = PacketKind::of_prefix(out[0]).expect("a kind");
        list.push((transmit.to, kind, transmit.seal.map(|header| header.sequence)));
    }
    list
}

fn server_at(index: usize) -> Endpoint {
    connect_token(32).addresses[index].into()
}

#[test]
fn the_handshake_runs_at_ten_packets_a_second() {
    let mut client = client(1);
    let to = server_at(0);
    assert_eq!(sent(&mut client, 0), [(to, PacketKind::Request, None)]);
    assert_eq!(sent(&mut client, 100 * MS), []);
    assert_eq!(sent(&mut client, 100 * MS + 1), [(to, PacketKind::Request, None)]);

    assert_eq!(receive(&mut client, 110 * MS, PacketKind::Challenge, 9, &[7; 308]), Ok(None));
    assert_eq!(client.state(), State::SendingResponse);
    assert_eq!(sent(&mut client, 200 * MS), []);
    // The two requests have spent the sequences 0 and 1.
    assert_eq!(sent(&mut client, 201 * MS), [(to, PacketKind::Response, Some(2))]);
    assert_eq!(sent(&mut client, 302 * MS), [(to, PacketKind::Response, Some(3))]);

    let event = receive(&mut client, 310 * MS, PacketKind::KeepAlive, 0, &SLOTS.encode());
    assert_eq!(event, Ok(Some(Event::Connected(SLOTS))));
    assert_eq!(client.state(), State::Connected);
    assert_eq!(sent(&mut client, 403 * MS), [(to, PacketKind::KeepAlive, Some(4))]);
}

#[test]
fn keep_alives_may_be_rarer_where_who_is_in_wants_that() {
    let to = server_at(0);
    let mut client = connected(2);
    let keep_alive = |sequence| [(to, PacketKind::KeepAlive, Some(sequence))];
    assert_eq!(sent(&mut client, 0), keep_alive(0));
    client.set_keep_alive(S);
    assert_eq!(sent(&mut client, 100 * MS + 1), keep_alive(1), "it was due by then");
    assert_eq!(sent(&mut client, 1100 * MS + 1), []);
    assert_eq!(client.poll_timeout(), Some(1100 * MS + 2));
    assert_eq!(sent(&mut client, 1100 * MS + 2), keep_alive(2));
    // A quarter of the token's 5 s.
    client.set_keep_alive(60 * S);
    assert_eq!(sent(&mut client, 2101 * MS), keep_alive(3));
    assert_eq!(client.poll_timeout(), Some(3351 * MS + 1));

    // The next server does not know of it.
    let goodbye = receive(&mut client, 3 * S, PacketKind::Disconnect, 1, &[]);
    assert_eq!(goodbye, Ok(Some(Event::NextServer)));
    assert_eq!(sent(&mut client, 3 * S).len(), 1);
    assert_eq!(client.poll_timeout(), Some(3100 * MS + 1));
}

#[test]
fn the_response_echoes_the_challenge() {
    let mut client = client(1);
    let challenge: Vec<_> = (0..308_u16).map(|i| i as u8).collect();
    receive(&mut client, 0, PacketKind::Challenge, 0, &challenge).expect("a challenge");
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let transmit = client.poll_transmit(0, &mut out).expect("a response");
    let sealed = &out[transmit.sealed()];
    assert_eq!(sealed[..sealed.len() - TAG_BYTES], challenge);
}

#[test]
fn an_eager_client_answers_at_once() {
    let options = Options { answers_at_once: true, ..Options::default() };
    let mut client = Client::new(&connect_token(1), 0, options);
    assert_eq!(sent(&mut client, 0).len(), 1);
    receive(&mut client, 5 * MS, PacketKind::Challenge, 0, &[7; 308]).expect("a challenge");
    assert_eq!(client.poll_timeout(), Some(5 * MS));
    assert_eq!(sent(&mut client, 5 * MS), [(server_at(0), PacketKind::Response, Some(1))]);
}

#[test]
fn a_connected_client_needs_its_token_only_while_there_is_another_server() {
    assert!(connected(1).handshake.is_none());
    assert!(connected(2).handshake.is_some());
}

#[test]
fn each_way_to_end_has_its_state() {
    let after = |servers, now_ns, prepare: fn(&mut Client)| {
        let mut client = client(servers);
        prepare(&mut client);
        assert_eq!(client.handle_timeout(now_ns), Some(Event::Closed));
        assert_eq!(client.poll_timeout(), None);
        client.state()
    };
    assert_eq!(after(1, 5 * S + 1, |_| ()), State::RequestTimedOut);
    let challenge = |client: &mut Client| {
        receive(client, S, PacketKind::Challenge, 0, &[7; 308]).expect("a challenge");
    };
    assert_eq!(after(1, 6 * S + 1, challenge), State::ResponseTimedOut);
    let connect = |client: &mut Client| *client = connected(1);
    assert_eq!(after(1, 5 * S + 1, connect), State::ConnectionTimedOut);
    assert_eq!(after(1, 30 * S, |_| ()), State::TokenExpired);

    let mut denied = client(1);
    assert_eq!(receive(&mut denied, 0, PacketKind::Denied, 0, &[]), Ok(Some(Event::Closed)));
    assert_eq!(denied.state(), State::Denied);

    let mut dismissed = connected(1);
    assert_eq!(receive(&mut dismissed, 0, PacketKind::Disconnect, 1, &[]), Ok(Some(Event::Closed)));
    assert_eq!(dismissed.state(), State::Disconnected);

    let mut token = connect_token(1);
    token.create_unix_s = token.expire_unix_s + 1;
    let mut invalid = Client::new(&token, 0, Options::default());
    assert_eq!(invalid.state(), State::InvalidToken);
    assert_eq!((sent(&mut invalid, 0), invalid.poll_timeout()), (vec![], None));
    invalid.disconnect();
    assert_eq!((sent(&mut invalid, 0), invalid.state()), (vec![], State::InvalidToken));
}

#[test]
fn silence_is_forgiven_up_to_the_last_instant() {
    let mut client = client(1);
    assert_eq!(client.handle_timeout(5 * S), None);
    receive(&mut client, 5 * S, PacketKind::Challenge, 0, &[7; 308]).expect("a challenge");
    assert_eq!(client.handle_timeout(10 * S), None);
    let event = receive(&mut client, 10 * S, PacketKind::KeepAlive, 0, &SLOTS.encode());
    assert_eq!(event, Ok(Some(Event::Connected(SLOTS))));
    assert_eq!(client.handle_timeout(15 * S), None);
    assert_eq!(
        receive(&mut client, 15 * S, PacketKind::Payload, 1, &[1]),
        Ok(Some(Event::Payload))
    );
    assert_eq!(client.handle_timeout(20 * S), None);
    assert_eq!(client.handle_timeout(20 * S + 1), Some(Event::Closed));
}

#[test]
fn timeouts_of_zero_and_below_never_fire() {
    for seconds in [0, -1, i32::MIN] {
        let mut token = connect_token(1);
        token.timeout_seconds = seconds;
        let mut client = Client::new(&token, 0, Options::default());
        assert_eq!(client.handle_timeout(30 * S - 1), None);
        receive(&mut client, 0, PacketKind::Challenge, 0, &[7; 308]).expect("a challenge");
        assert_eq!(client.handle_timeout(30 * S - 1), None);
        receive(&mut client, 0, PacketKind::KeepAlive, 0, &SLOTS.encode()).expect("connected");
        assert_eq!(client.handle_timeout(u64::MAX), None);
    }
}

#[test]
fn a_connection_outlives_its_token() {
    let mut client = connected(2);
    assert_eq!(receive(&mut client, 29 * S, PacketKind::KeepAlive, 1, &[0; 8]), Ok(None));
    assert_eq!(client.handle_timeout(31 * S), None);
    assert_eq!(client.state(), State::Connected);
}

#[test]
fn the_token_lives_anew_at_every_server() {
    let mut token = connect_token(2);
    token.timeout_seconds = -1;
    let mut client = Client::new(&token, 0, Options::default());
    assert_eq!(
        receive(&mut client, 20 * S, PacketKind::Denied, 0, &[]),
        Ok(Some(Event::NextServer))
    );
    assert_eq!(client.handle_timeout(50 * S - 1), None);
    assert_eq!(client.handle_timeout(50 * S), Some(Event::Closed));
    assert_eq!(client.state(), State::TokenExpired);
}

#[test]
fn a_token_without_end_does_not_overflow() {
    let mut token = connect_token(1);
    (token.create_unix_s, token.expire_unix_s, token.timeout_seconds) = (0, u64::MAX, i32::MAX);
    let mut client = Client::new(&token, u64::MAX - 5, Options::default());
    assert_eq!(client.handle_timeout(u64::MAX - 1), None);
    assert_eq!(sent(&mut client, u64::MAX - 1).len(), 1);
    assert_eq!(client.poll_timeout(), Some(u64::MAX));
}

#[test]
fn the_next_server_is_tried_after_denial_silence_and_dismissal() {
    let next = Ok(Some(Event::NextServer));
    let mut client = client(4);
    assert_eq!(receive(&mut client, 0, PacketKind::Denied, 0, &[]), next);
    assert_eq!(sent(&mut client, 0), [(server_at(1), PacketKind::Request, None)]);

    assert_eq!(client.handle_timeout(5 * S + 1), Some(Event::NextServer));
    assert_eq!(client.state(), State::SendingRequest);
    assert_eq!(client.server(), server_at(2));

    receive(&mut client, 6 * S, PacketKind::Challenge, 0, &[7; 308]).expect("a challenge");
    receive(&mut client, 6 * S, PacketKind::KeepAlive, 0, &SLOTS.encode()).expect("connected");
    assert_eq!(receive(&mut client, 6 * S, PacketKind::Disconnect, 1, &[]), next);
    assert_eq!(client.server(), server_at(3));

    // The new server counts from its own start, the client goes on with its sequence: the keys are
    // the same.
    receive(&mut client, 6 * S, PacketKind::Challenge, 0, &[8; 308]).expect("a challenge");
    assert_eq!(sent(&mut client, 6 * S), [(server_at(3), PacketKind::Response, Some(1))]);
    receive(&mut client, 6 * S, PacketKind::KeepAlive, 0, &SLOTS.encode()).expect("connected");
    assert_eq!(
        receive(&mut client, 6 * S, PacketKind::Disconnect, 1, &[]),
        Ok(Some(Event::Closed))
    );
    assert_eq!(client.state(), State::Disconnected);
}

#[test]
fn a_connected_client_that_times_out_does_not_try_the_next_server() {
    let mut client = connected(2);
    assert_eq!(client.handle_timeout(5 * S + 1), Some(Event::Closed));
    assert_eq!(client.state(), State::ConnectionTimedOut);
}

#[test]
fn only_the_server_itself_is_listened_to() {
    let client = client(2);
    let refusal = |from| prepare(&client, from, PacketKind::Challenge, 0, &[7; 308]).err();
    assert_eq!(refusal(server_at(0)), None);
    assert_eq!(refusal(server_at(1)), Some(DropReason::UnknownSource));
    assert_eq!(refusal(server_at(0).with_port(1)), Some(DropReason::UnknownSource));
    let mut gone = connected(1);
    gone.disconnect();
    assert_eq!(receive(&mut gone, 0, PacketKind::Payload, 1, &[1]), Err(DropReason::UnknownSource));
}

#[test]
fn packets_out_of_place_are_dropped_and_prove_no_life() {
    use PacketKind::{Challenge, Denied, Disconnect, KeepAlive, Payload};
    let unexpected = Err(DropReason::PacketUnexpected);
    let challenged = || {
        let mut client = client(1);
        receive(&mut client, 0, Challenge, 0, &[7; 308]).expect("a challenge");
        client
    };
    let cases = [
        (client(1), vec![(KeepAlive, 8), (Payload, 1), (Disconnect, 0)]),
        (challenged(), vec![(Challenge, 308), (Payload, 1), (Disconnect, 0)]),
        (connected(1), vec![(Challenge, 308), (Denied, 0)]),
    ];
    for (mut client, packets) in cases {
        let before = client.state();
        for (sequence, (kind, body_bytes)) in (1..).zip(packets) {
            let result = receive(&mut client, 4 * S, kind, sequence, &vec![8; body_bytes]);
            assert_eq!(result, unexpected, "{before:?} {kind:?}");
        }
        assert_eq!(client.state(), before);
        assert_eq!(client.handle_timeout(5 * S + 1), Some(Event::Closed), "{before:?}");
    }
}

#[test]
fn each_body_of_a_wrong_size_is_refused_but_has_spent_its_sequence() {
    let mut client = connected(1);
    let mut refusal = |kind, sequence, body: &[u8]| {
        receive(&mut client, 0, kind, sequence, body).expect_err("a refusal")
    };
    assert_eq!(refusal(PacketKind::Payload, 1, &[]), DropReason::BodyLength);
    assert_eq!(refusal(PacketKind::Payload, 1, &[1]), DropReason::ReplayDuplicate);
    assert_eq!(refusal(PacketKind::KeepAlive, 2, &[0; 9]), DropReason::BodyLength);
    assert_eq!(refusal(PacketKind::Disconnect, 3, &[0]), DropReason::BodyLength);
    assert_eq!(refusal(PacketKind::Challenge, 4, &[0; 307]), DropReason::BodyLength);
    assert_eq!(refusal(PacketKind::Denied, 5, &[0]), DropReason::BodyLength);
}

#[test]
fn repeated_and_late_packets_are_refused_before_they_are_opened() {
    let mut client = connected(1);
    assert_eq!(receive(&mut client, 0, PacketKind::Payload, 300, &[1]), Ok(Some(Event::Payload)));
    let check =
        |sequence| prepare(&client, client.server(), PacketKind::Payload, sequence, &[1]).map(drop);
    assert_eq!(check(300), Err(DropReason::ReplayDuplicate));
    assert_eq!(check(44), Err(DropReason::ReplayTooOld));
    assert_eq!(check(45), Ok(()));
    // A forged number far ahead gets as far as the tag and moves nothing.
    assert_eq!(check(u64::MAX), Ok(()));
    assert_eq!(check(301), Ok(()));
}

#[test]
fn two_equal_packets_of_one_batch_count_once() {
    let mut client = connected(1);
    let work = |client: &Client| {
        prepare(client, client.server(), PacketKind::Payload, 1, &[1]).expect("new to the window")
    };
    let (first, second) = (work(&client), work(&client));
    assert_eq!(client.handle_opened(0, &first, &[1]), Ok(Some(Event::Payload)));
    assert_eq!(client.handle_opened(0, &second, &[1]), Err(DropReason::ReplayDuplicate));
}

#[test]
fn what_was_opened_for_an_ended_attempt_is_dropped() {
    let mut client = client(2);
    let from = client.server();
    let denied = prepare(&client, from, PacketKind::Denied, 0, &[]).expect("plausible");
    let late = prepare(&client, from, PacketKind::Challenge, 1, &[7; 308]).expect("plausible");
    assert_eq!(client.handle_opened(0, &denied, &[]), Ok(Some(Event::NextServer)));
    assert_eq!(client.handle_opened(0, &late, &[7; 308]), Err(DropReason::UnknownSource));
    assert_eq!(client.state(), State::SendingRequest);
}

#[test]
fn a_client_that_leaves_says_so_ten_times() {
    let mut client = connected(2);
    client.disconnect();
    assert_eq!((client.state(), client.poll_timeout()), (State::Disconnected, Some(0)));
    let expected: Vec<_> =
        (0..10).map(|i| (server_at(0), PacketKind::Disconnect, Some(i))).collect();
    assert_eq!(sent(&mut client, 0), expected);
    client.disconnect();
    assert_eq!((sent(&mut client, S), client.poll_timeout()), (vec![], None));
}

#[test]
fn payloads_leave_while_connected_and_stand_in_for_keep_alives() {
    let mut out = [0; DATAGRAM_BYTES_MAX];
    let mut client = connected(1);
    let transmit = client.write_payload(S, &[9; 1200], &mut out).expect("connected");
    assert_eq!((transmit.to, transmit.len), (server_at(0), 1 + 1 + 1200 + 16));
    assert_eq!(out[..2], [0x15, 0]);
    assert_eq!(out[transmit.sealed()][..1200], [9; 1200]);
    assert_eq!(sent(&mut client, S + 100 * MS), []);
    assert_eq!(sent(&mut client, S + 100 * MS + 1).len(), 1);

    let mut refusal = |client: &mut Client, payload: &[u8]| {
        client.write_payload(S, payload, &mut out).expect_err("a refusal")
    };
    assert_eq!(refusal(&mut client, &[]), DropReason::PayloadLength);
    assert_eq!(refusal(&mut client, &[0; 1201]), DropReason::PayloadLength);
    client.next_sequence = u64::MAX;
    assert_eq!(refusal(&mut client, &[1]), DropReason::SequenceExhausted);
    client.disconnect();
    assert_eq!(refusal(&mut client, &[1]), DropReason::SessionUnknown);
}

#[test]
fn a_client_without_numbers_left_falls_silent_and_does_not_spin() {
    let mut client = connected(1);
    client.next_sequence = u64::MAX;
    assert_eq!(sent(&mut client, S), []);
    assert_eq!(client.poll_timeout(), Some(S + 100 * MS + 1));
}

#[test]
fn mapped_and_plain_ipv4_servers_are_the_same_source() {
    let mut token = connect_token(1);
    token.addresses = "[::ffff:192.0.2.1]:7".parse().expect("literal");
    let client = Client::new(&token, 0, Options::default());
    let from: SocketAddr = "192.0.2.1:7".parse().expect("literal");
    assert!(prepare(&client, from.into(), PacketKind::Challenge, 0, &[7; 308]).is_ok());
}

proptest! {
    /// A client that is woken only when it asks for it does the same, at the same instants, as one
    /// that is asked every millisecond.
    #[test]
    fn sleeping_until_the_deadline_misses_nothing(
        timeout in -1_i32..3,
        lifetime in 1_u64..5,
        packets in proptest::collection::vec((0_u64..6000, 0_usize..5), 0..8),
    ) {
        let mut token = connect_token(2);
        token.timeout_seconds = timeout;
        token.expire_unix_s = token.create_unix_s + lifetime;
        let mut packets = packets;
        packets.sort_unstable();
        let run = |wakes: fn(&Client, u64) -> bool| {
            let mut client = Client::new(&token, 0, Options::default());
            let mut log = Vec::new();
            for now_ms in 0..8000_u64 {
                for (at_ms, kind) in packets.iter().filter(|(at_ms, _)| *at_ms == now_ms) {
                    let (kind, body): (_, &[u8]) = [
                        (PacketKind::Denied, &[][..]),
                        (PacketKind::Challenge, &[7; 308]),
                        (PacketKind::KeepAlive, &[0; 8]),
                        (PacketKind::Payload, &[1]),
                        (PacketKind::Disconnect, &[]),
                    ][*kind];
                    let _ = receive(&mut client, at_ms * MS, kind, *at_ms, body);
                }
                if wakes(&client, now_ms) {
                    let event = client.handle_timeout(now_ms * MS);
                    let sent = sent(&mut client, now_ms * MS);
                    if event.is_some() || !sent.is_empty() {
                        log.push((now_ms, event, sent));
                    }
                }
            }
            (log, client.state())
        };
        let polled = run(|_, _| true);
        let woken = run(|client, now_ms| client.poll_timeout().is_some_and(|due| due <= now_ms * MS));
        prop_assert_eq!(polled, woken);
    }

    #[test]
    fn no_datagram_harms_a_client(datagram in proptest::collection::vec(any::<u8>(), 0..400)) {
        let client = connected(1);
        if let Ok(work) = client.handle_datagram(client.server(), &datagram) {
            prop_assert!(datagram.get(work.sealed()).is_some_and(|sealed| sealed.len() >= TAG_BYTES));
        }
    }
}
