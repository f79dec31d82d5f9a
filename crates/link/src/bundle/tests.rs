//! Round trips, and what happens to records that are cut, stretched or changed.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;
use written::{write_to_game, write_to_gateway};

mod written;

const USER_DATA: [u8; USER_DATA_BYTES] = [0x5a; USER_DATA_BYTES];

fn session(worker: usize, serial: u64) -> SessionId {
    SessionId::new(worker, serial)
}

fn opened(listener: &str) -> Opened<'_> {
    Opened {
        session: session(3, 9),
        client_id: u64::MAX,
        address: "192.0.2.7:4711".parse().expect("literal"),
        slot: 5,
        slots_max: 64,
        delivers: false,
        ticket: None,
        user_data: &USER_DATA,
        listener,
    }
}

fn opened_plain(slot: Option<u32>) -> OpenedPlain<'static> {
    let address = "192.0.2.7:4711".parse().expect("literal");
    OpenedPlain { session: session(3, 9), address, slot, slots_max: 64, listener: "any" }
}

fn offered(data: &[u8]) -> Offered<'_> {
    Offered {
        session: session(3, 9),
        offer: 4,
        ticket: 12,
        client_id: 42,
        address: "192.0.2.7:4711".parse().expect("literal"),
        slot: 5,
        slots_max: 64,
        left_ms: 2000,
        delivers: false,
        user_data: &USER_DATA,
        listener: "eu-west",
        from: "lobby-1",
        data,
    }
}

/// Moves of every kind.
fn moves_asked() -> [Move<'static>; 3] {
    let message = Some((Channel::Reliable(1), &b"door"[..]));
    let (session, backend) = (session(3, 9), "arena-1");
    let data = &b"level 3"[..];
    let plain =
        Move { session, backend, ticket: 12, time_ms: 2000, confirms: false, message: None, data };
    [plain, Move { confirms: true, data: b"", ..plain }, Move { confirms: true, message, ..plain }]
}

const ANSWERS: [Answer; 4] = [Answer::No, Answer::Yes, Answer::Full, Answer::Cannot];

const QUALITY: Quality =
    Quality { round_trip_us: 50_000, variation_us: 3, loss_per_mille: 50, waiting_bytes: 7 };

fn message(channel: Channel, bytes: &[u8]) -> MessagePart<'_> {
    let session = session(3, 9);
    MessagePart { session, channel, is_first: true, is_last: true, token: 0, bytes }
}

/// Every kind of record from the gateway.
fn records_to_game() -> Vec<ToGame<'static>> {
    vec![
        ToGame::Welcome(Welcome { version: VERSION_MAX, worker: 3, workers: 4, incarnation: 77 }),
        ToGame::Opened(opened("eu-west")),
        ToGame::Opened(Opened { delivers: true, ..opened("eu-west") }),
        ToGame::Opened(Opened { ticket: Some(9), ..opened("eu-west") }),
        ToGame::Opened(Opened { delivers: true, ticket: Some(0), ..opened("e") }),
        ToGame::OpenedPlain(opened_plain(None)),
        ToGame::OpenedPlain(opened_plain(Some(5))),
        ToGame::Payload { session: session(3, 9), bytes: b"input" },
        ToGame::Message(message(Channel::Sequenced(7), b"state")),
        ToGame::Message(MessagePart { is_last: false, ..message(Channel::Reliable(0), b"lo") }),
        ToGame::Message(MessagePart { is_first: false, ..message(Channel::Reliable(0), b"ng") }),
        ToGame::Report { session: session(3, 9), token: 8, is_delivered: true },
        ToGame::Room { session: session(3, 9), is_full: true, waiting_bytes: 150_000 },
        ToGame::Quality { session: session(3, 9), quality: QUALITY },
        ToGame::Lingered { session: session(3, 9), undelivered_bytes: 7, is_told: true },
        ToGame::Offered(offered(b"")),
        ToGame::Offered(Offered { delivers: true, ..offered(&[7; MOVE_BYTES_MAX]) }),
        ToGame::OfferOver { session: session(3, 9), offer: 4, reason: MoveRefusal::Time },
        ToGame::Moved { session: session(3, 9), ticket: 12 },
        ToGame::MoveRefused { session: session(3, 9), ticket: 12, reason: MoveRefusal::Full },
        ToGame::Closed { session: session(3, 9), reason: CloseReason::TimedOut },
        ToGame::Pong { token: 0x0123_4567_89ab_cdef },
        ToGame::Draining { left_ms: 30_000 },
        ToGame::Undrained,
        ToGame::TakenOver { generation: 7 },
        ToGame::Players { count: 60, grace_ms: 5_000, gather_us: Some(190) },
        ToGame::Goodbye(Goodbye {
            reason: GoodbyeReason::RecordInvalid,
            error: Some(RecordError::SessionZero),
        }),
    ]
}

/// A bundle with every kind of record from the game process.
fn bundle_to_gateway() -> Vec<u8> {
    let mut buf = [0; 4096];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.hello(&Hello::new(4321, "arena-1")));
    assert!(writer.payload(session(0, 1), b"state"));
    assert!(writer.multicast(&[session(0, 1), session(0, 2)], b"snapshot"));
    assert!(writer.close(session(0, 2), CloseReason::Kicked));
    assert!(writer.ping(42));
    let part = MessagePart { token: 5, ..message(Channel::Reliable(1), b"map") };
    assert!(writer.message(&part));
    assert!(writer.ask_quality(session(3, 9)));
    assert!(writer.intake(false) && writer.intake(true));
    for text in [&b"bye"[..], b""] {
        let (session, reason) = (session(3, 9), CloseReason::Kicked);
        assert!(writer.close_after(&CloseAfter { session, reason, linger_ms: 5000, text }));
    }
    assert!(moves_asked().iter().all(|asked| writer.move_session(asked)));
    assert!(ANSWERS.iter().all(|answer| writer.answer(session(3, 9), 4, *answer)));
    assert!(writer.confirm(session(3, 9)));
    writer.bytes().to_vec()
}

fn bundle_to_game() -> Vec<u8> {
    let mut buf = [0; 4096];
    let mut writer = Writer::new(&mut buf);
    assert!(records_to_game().iter().all(|record| write_to_game(&mut writer, record)));
    writer.bytes().to_vec()
}

#[test]
fn every_record_to_the_game_comes_back() {
    let bundle = bundle_to_game();
    let read: Vec<_> = ToGame::read(&bundle).map(|record| record.expect("valid")).collect();
    assert_eq!(read, records_to_game());
}

#[test]
fn every_record_to_the_gateway_comes_back() {
    let bundle = bundle_to_gateway();
    let read: Vec<_> = ToGateway::read(&bundle).map(|record| record.expect("valid")).collect();
    assert_eq!(read[0], ToGateway::Hello(Hello::new(4321, "arena-1")));
    assert_eq!(read[1], ToGateway::Payload { session: session(0, 1), bytes: b"state" });
    let ToGateway::Multicast { sessions, bytes } = read[2] else { panic!("{:?}", read[2]) };
    assert!(sessions.iter().eq([session(0, 1), session(0, 2)]));
    assert_eq!((sessions.len(), bytes), (2, &b"snapshot"[..]));
    let close = ToGateway::Close { session: session(0, 2), reason: CloseReason::Kicked };
    assert_eq!(read[3..5], [close, ToGateway::Ping { token: 42 }]);
    let part = MessagePart { token: 5, ..message(Channel::Reliable(1), b"map") };
    let asked = ToGateway::AskQuality { session: session(3, 9) };
    let intakes = [false, true].map(|is_open| ToGateway::Intake { is_open });
    assert_eq!(read[5..9], [ToGateway::Message(part), asked, intakes[0], intakes[1]]);
    let ends = [&b"bye"[..], b""].map(|text| {
        let (session, reason) = (session(3, 9), CloseReason::Kicked);
        ToGateway::CloseAfter(CloseAfter { session, reason, linger_ms: 5000, text })
    });
    assert_eq!(read[9..11], ends);
    let answer = |answer| ToGateway::Answer { session: session(3, 9), offer: 4, answer };
    let moves = moves_asked().map(ToGateway::Move).into_iter().chain(ANSWERS.map(answer));
    let confirm = ToGateway::Confirm { session: session(3, 9) };
    assert!(read[11..].iter().eq(&moves.chain([confirm]).collect::<Vec<_>>()));
}

#[test]
fn a_session_names_its_worker() {
    let id = session(127, (1 << 56) - 1);
    assert_eq!((id.worker(), id.as_u64()), (127, 0x7fff_ffff_ffff_ffff));
    assert_eq!(SessionId::from_u64(id.as_u64()), Some(id));
    assert_eq!(SessionId::from_u64(0), None);
    assert_eq!(format!("{}", session(2, 70)), "2/70");
}

#[test]
fn a_record_that_does_not_fit_changes_nothing() {
    let mut buf = [0xee; 2 * PAYLOAD_OVERHEAD_BYTES + 9];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.payload(session(0, 1), &[1; 5]));
    let before = writer.bytes().to_vec();
    assert!(!writer.payload(session(0, 1), &[2; 5]));
    assert!(!writer.opened(&opened("eu-west")));
    assert_eq!(writer.bytes(), before);
    assert!(writer.payload(session(0, 1), &[3; 4]), "one byte less fills the buffer exactly");
    assert_eq!(writer.len(), buf.len());
}

#[test]
fn a_writer_goes_on_where_another_stopped() {
    let mut buf = [0; 64];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.ping(1));
    let len = writer.len();
    let mut writer = Writer::resume(&mut buf, len);
    assert!(writer.ping(2));
    let tokens: Vec<_> = ToGateway::read(writer.bytes()).collect();
    let expected = [Ok(ToGateway::Ping { token: 1 }), Ok(ToGateway::Ping { token: 2 })];
    assert_eq!(tokens, expected);
}

#[test]
fn a_bundle_is_never_longer_than_the_limit() {
    let mut buf = vec![0; BUNDLE_BYTES_MAX + 100];
    let mut writer = Writer::new(&mut buf);
    while writer.ping(0) {}
    assert!(writer.len() <= BUNDLE_BYTES_MAX && writer.len() > BUNDLE_BYTES_MAX - 12);
}

#[test]
fn the_largest_records_fit_and_come_back() {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let sessions: Vec<_> = (1..=MULTICAST_SESSIONS_MAX as u64).map(|n| session(0, n)).collect();
    assert!(writer.multicast(&sessions, &[7; PAYLOAD_BYTES_MAX]));
    let record = ToGateway::read(writer.bytes()).next().expect("one").expect("valid");
    let ToGateway::Multicast { sessions: read, bytes } = record else { panic!("{record:?}") };
    assert!(read.iter().eq(sessions.iter().copied()));
    assert_eq!(bytes, [7; PAYLOAD_BYTES_MAX]);

    let mut writer = Writer::new(&mut buf);
    assert!(writer.opened(&opened(&"n".repeat(NAME_BYTES_MAX))));
    assert!(ToGame::read(writer.bytes()).all(|record| record.is_ok()));
}

#[test]
fn what_must_not_be_lost_can_be_saved_from_a_refused_bundle() {
    let bundle = bundle_to_game();
    let mut buf = [0; 4096];
    let mut saved = Writer::new(&mut buf);
    let mut payloads = 0;
    for frame in Frames::new(&bundle).map(|frame| frame.expect("own bundle")) {
        payloads += frame.payloads();
        assert!(frame.may_be_lost() || saved.frame(frame));
    }
    let kept: Vec<_> = ToGame::read(saved.bytes()).map(|record| record.expect("valid")).collect();
    let may_be_lost = |record: &ToGame<'_>| match record {
        ToGame::Payload { .. } | ToGame::Pong { .. } | ToGame::Quality { .. } => true,
        ToGame::Message(part) => !part.channel.is_reliable(),
        _ => false,
    };
    let expected: Vec<_> = records_to_game().into_iter().filter(|r| !may_be_lost(r)).collect();
    assert_eq!((kept, payloads), (expected, 1));

    let payloads = |bundle: &[u8]| Frames::new(bundle).flatten().map(Frame::payloads).sum::<u64>();
    assert_eq!(payloads(&bundle_to_gateway()), 3, "a multicast counts once for each session");
}

/// The error that reading `bytes` as the gateway ends with.
fn gateway_error(bytes: &[u8]) -> Option<RecordError> {
    payloads_are_known_at_sight(bytes);
    let mut reader = ToGateway::read(bytes);
    let error = reader.find_map(Result::err);
    assert!(error.is_none() || reader.next().is_none(), "nothing follows an error");
    error
}

fn game_error(bytes: &[u8]) -> Option<RecordError> {
    ToGame::read(bytes).find_map(Result::err)
}

/// A record with a right length and the body given in parts.
fn raw(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut record = ((HEADER_BYTES + body.len()) as u16).to_le_bytes().to_vec();
    record.extend([kind, 0]);
    record.extend(body);
    record
}

#[test]
fn each_error_has_a_record_that_provokes_it() {
    let one = 1u64.to_le_bytes();
    let zero = 0u64.to_le_bytes();
    assert_eq!(gateway_error(&[]), None);
    assert_eq!(gateway_error(&[4, 0, 19]), Some(RecordError::HeaderTruncated));
    assert_eq!(gateway_error(&[3, 0, 19, 0]), Some(RecordError::RecordLength));
    assert_eq!(gateway_error(&[5, 0, 19, 0]), Some(RecordError::RecordLength));
    assert_eq!(gateway_error(&raw(0, &[])), Some(RecordError::KindUnknown));
    assert_eq!(gateway_error(&raw(kind::OPENED, &[])), Some(RecordError::KindUnknown));
    assert_eq!(game_error(&raw(kind::HELLO, &[])), Some(RecordError::KindUnknown));
    assert_eq!(gateway_error(&[4, 0, 19, 1]), Some(RecordError::FlagsUnknown));
    assert_eq!(game_error(&[4, 0, kind::OPENED, 1]), Some(RecordError::BodyLength));
    for flags in [4, 5, 0x80] {
        let error = Some(RecordError::FlagsUnknown);
        assert_eq!(game_error(&[4, 0, kind::OPENED, flags]), error);
        assert_eq!(game_error(&[4, 0, kind::OPENED_PLAIN, flags]), error);
    }
    assert_eq!(gateway_error(&raw(kind::PING, &[&[0; 7]])), Some(RecordError::BodyLength));
    assert_eq!(gateway_error(&raw(kind::PING, &[&[0; 9]])), Some(RecordError::BodyLength));
    assert_eq!(gateway_error(&raw(kind::PAYLOAD, &[&zero, b"x"])), Some(RecordError::SessionZero));
    assert_eq!(gateway_error(&raw(kind::PAYLOAD, &[&one])), Some(RecordError::PayloadLength));
    let too_long = [0; LONG_PAYLOAD_BYTES_MAX + 1];
    let payload = raw(kind::PAYLOAD, &[&one, &too_long]);
    assert_eq!(gateway_error(&payload), Some(RecordError::PayloadLength));
    assert_eq!(game_error(&payload), Some(RecordError::PayloadLength));
    let hello = |name: &[u8]| gateway_error(&raw(kind::HELLO, &[&[1, 0, 0, 0, 0, 0], name]));
    assert_eq!(hello(b"arena-1"), None);
    for name in [&b""[..], b"a b", b"a\0", "ä".as_bytes(), &[b'a'; NAME_BYTES_MAX + 1]] {
        assert_eq!(hello(name), Some(RecordError::NameInvalid), "{name:?}");
    }
    let multicast = |count: u16, ids: &[&[u8]]| {
        let mut body = vec![count.to_le_bytes().to_vec()];
        body.extend(ids.iter().map(|id| id.to_vec()));
        let parts: Vec<_> = body.iter().map(Vec::as_slice).collect();
        gateway_error(&raw(kind::MULTICAST, &parts))
    };
    assert_eq!(multicast(1, &[&one, b"x"]), None);
    assert_eq!(multicast(0, &[b"x"]), Some(RecordError::SessionCount));
    assert_eq!(multicast(1025, &[&[1; 1025 * 8], b"x"]), Some(RecordError::SessionCount));
    assert_eq!(multicast(2, &[&one, b"x"]), Some(RecordError::BodyLength));
    assert_eq!(multicast(2, &[&one, &one]), Some(RecordError::PayloadLength));
    assert_eq!(multicast(2, &[&one, &zero, b"x"]), Some(RecordError::SessionZero));
    let welcome = |worker: u8, workers: u8| {
        game_error(&raw(kind::WELCOME, &[&[1, 0, worker, 0, workers, 0], &one]))
    };
    assert_eq!(welcome(127, 128), None);
    assert_eq!(welcome(4, 4), Some(RecordError::WorkerInvalid));
    assert_eq!(welcome(0, 129), Some(RecordError::WorkerInvalid));
    let message = |head: [u8; 3], bytes: &[u8]| {
        let record = raw(kind::MESSAGE, &[&one, &head, &[0; 8], bytes]);
        assert_eq!(gateway_error(&record), game_error(&record));
        game_error(&record)
    };
    assert_eq!(message([1, 255, 0], b"x"), None, "the middle of a long one");
    assert_eq!(message([0, 0, 3], b"x"), Some(RecordError::ChannelUnknown));
    assert_eq!(message([4, 0, 3], b"x"), Some(RecordError::ChannelUnknown));
    assert_eq!(message([1, 0, 4], b"x"), Some(RecordError::MessageMarks));
    assert_eq!(message([3, 0, 1], b"x"), Some(RecordError::MessageMarks));
    assert_eq!(message([2, 0, 3], b""), Some(RecordError::MessageLength));
    assert_eq!(message([1, 0, 3], &[0; PART_BYTES_MAX + 1]), Some(RecordError::MessageLength));
    let long = [0; SHORT_MESSAGE_BYTES_MAX + 1];
    assert_eq!(message([2, 0, 3], &long), Some(RecordError::MessageLength));
    let close = |reason: u8| gateway_error(&raw(kind::CLOSE, &[&one, &[reason]]));
    assert_eq!(close(CloseReason::Kicked.as_u8()), None);
    assert_eq!(close(CloseReason::TimedOut.as_u8()), Some(RecordError::ReasonUnknown));
    assert_eq!(close(255), Some(RecordError::ReasonUnknown));
    let close_after = |reason: CloseReason, text: &[u8]| {
        gateway_error(&raw(kind::CLOSE_AFTER, &[&one, &[reason.as_u8()], &[0; 4], text]))
    };
    assert_eq!(close_after(CloseReason::Kicked, &[7; FAREWELL_BYTES_MAX]), None);
    let too_long = close_after(CloseReason::Kicked, &[7; FAREWELL_BYTES_MAX + 1]);
    assert_eq!(too_long, Some(RecordError::FarewellLength));
    let not_a_choice = close_after(CloseReason::Shutdown, b"");
    assert_eq!(not_a_choice, Some(RecordError::ReasonUnknown));
    let short = raw(kind::CLOSE_AFTER, &[&one, &[129], &[0; 3]]);
    assert_eq!(gateway_error(&short), Some(RecordError::BodyLength));
    let asked = |marks: u8, rest: &[&[u8]]| {
        let head = [&one[..], &[0; 8], &[0; 4], &[marks]].concat();
        gateway_error(&raw(kind::MOVE, &[&[&head[..]], rest].concat()))
    };
    assert_eq!(asked(0, &[&[1], b"a", &[7; MOVE_BYTES_MAX]]), None);
    assert_eq!(asked(4, &[&[1], b"a"]), None, "of a later version");
    assert_eq!(asked(0, &[&[1], b"a", &[7; MOVE_BYTES_MAX + 1]]), Some(RecordError::MoveLength));
    assert_eq!(asked(0, &[&[0]]), Some(RecordError::NameInvalid));
    assert_eq!(asked(0, &[&[33], &[b'a'; 33]]), Some(RecordError::NameInvalid));
    assert_eq!(asked(0, &[&[9], b"a"]), Some(RecordError::BodyLength));
    assert_eq!(asked(2, &[&[1], b"a", &[0, 0, 1, 0], b"x"]), Some(RecordError::ChannelUnknown));
    assert_eq!(asked(2, &[&[1], b"a", &[1, 0, 0, 0]]), Some(RecordError::MessageLength));
    assert_eq!(asked(2, &[&[1], b"a", &[1, 0, 2, 0], b"x"]), Some(RecordError::BodyLength));
    let message_too_long = [&[1, 0][..], &1160_u16.to_le_bytes(), &[7; 1160]].concat();
    assert_eq!(asked(2, &[&[1], b"a", &message_too_long]), Some(RecordError::MessageLength));
    let answered = |answer: u8| gateway_error(&raw(kind::ANSWER, &[&one, &one, &[answer]]));
    assert_eq!((answered(3), answered(4)), (None, Some(RecordError::AnswerUnknown)));
    assert_eq!(gateway_error(&raw(kind::CONFIRM, &[&one, b"x"])), Some(RecordError::BodyLength));
}

#[test]
fn a_hello_of_the_first_release_offers_one_version() {
    let hello = raw(kind::HELLO, &[&[1, 0, 0xe1, 0x10, 0, 0], b"arena-1"]);
    let expected = Hello { version_min: 1, version_max: 0, pid: 4321, name: "arena-1" };
    assert!(ToGateway::read(&hello).eq([Ok(ToGateway::Hello(expected))]));
    assert_eq!(expected.common_version(), Some(1));
}

#[test]
fn a_record_of_a_later_version_can_be_skipped_whatever_it_holds() {
    for kind in [140, 200, 255] {
        for (flags, body) in [(0, &b""[..]), (0x80, b"x"), (0xff, &[0; 4000])] {
            let mut record = raw(kind, &[body]);
            record[3] = flags;
            let bundle = [&raw(kind::PONG, &[&[1; 8]])[..], &record, &raw(kind::PONG, &[&[2; 8]])];
            let bundle = bundle.concat();
            let read = ToGame::read(&bundle).map(|record| record.is_ok());
            assert!(read.eq([true; 3]));
            assert!(matches!(ToGame::read(&record).next(), Some(Ok(ToGame::Unknown(_)))));
            assert!(matches!(ToGateway::read(&record).next(), Some(Ok(ToGateway::Unknown(_)))));
        }
    }
    assert_eq!(game_error(&raw(127, &[])), Some(RecordError::KindUnknown));
    assert_eq!(gateway_error(&raw(127, &[])), Some(RecordError::KindUnknown));
    // A record that can be skipped must still say where it ends.
    assert_eq!(game_error(&[5, 0, 128, 0]), Some(RecordError::RecordLength));
}

#[test]
fn what_a_later_version_says_in_a_known_record_that_may_be_skipped_is_passed_over() {
    let longer = [9, 0, 129, 1, 7, 0, 0, 0, 5];
    assert!(ToGame::read(&longer).eq([Ok(ToGame::TakenOver { generation: 7 })]));
    let shorter = [6, 0, 129, 0, 7, 0];
    assert!(matches!(ToGame::read(&shorter).next(), Some(Ok(ToGame::Unknown(_)))));
    for record in [&[4, 0, 128, 0][..], &[4, 0, 128, 0xff], &[7, 0, 128, 1, 1, 2, 3]] {
        assert!(ToGame::read(record).eq([Ok(ToGame::Undrained)]), "{record:?}");
        // Of the other direction it is a record of a later version.
        assert!(matches!(ToGateway::read(record).next(), Some(Ok(ToGateway::Unknown(_)))));
    }
    let intakes =
        [&[4, 0, 144, 0][..], &[5, 0, 144, 0, 2], &[5, 0, 144, 1, 0], &[6, 0, 144, 0, 0, 0]];
    for record in intakes {
        assert!(matches!(ToGateway::read(record).next(), Some(Ok(ToGateway::Unknown(_)))));
        assert!(matches!(ToGame::read(record).next(), Some(Ok(ToGame::Unknown(_)))));
    }
}

#[test]
fn records_that_may_be_lost_are_taken_off_in_runs_and_runs_in_parts() {
    let (mut bytes, session) = ([0; 512], session(0, 1));
    let mut writer = Writer::new(&mut bytes);
    assert!(writer.payload(session, b"a") && writer.multicast(&[session; 3], b"b"));
    assert!(writer.closed(session, CloseReason::Kicked) && writer.payload(session, b"c"));
    let bundle = [writer.bytes(), &[3, 0, 1]].concat();
    let mut frames = Frames::new(&bundle);
    let mut run = frames.take_run();
    let lens: Vec<_> = run.frames().map(|frame| frame.bytes().len()).collect();
    assert_eq!((run.payloads(), lens.len()), (4, 2));
    assert!(frames.take_run().is_empty(), "the next one must arrive");
    assert!(frames.next().is_some_and(|frame| frame.is_ok_and(|frame| !frame.may_be_lost())));
    assert_eq!(frames.take_run().payloads(), 1);
    assert!(frames.take_run().is_empty() && frames.next().is_some_and(|frame| frame.is_err()));

    assert!(run.take(lens[0] - 1).is_empty());
    let part = run.take(lens[0] + lens[1] - 1);
    assert_eq!((part.bytes(), part.payloads(), run.payloads()), (&bundle[..lens[0]], 1, 3));
    assert_eq!(run.take_first().map(Frame::payloads), Some(3));
    assert!(run.is_empty() && run.take_first().is_none() && run.payloads() == 0);
}

#[test]
fn a_game_process_takes_an_unknown_reason_for_another() {
    let closed = raw(kind::CLOSED, &[&1u64.to_le_bytes(), &[99]]);
    let expected = ToGame::Closed { session: session(0, 1), reason: CloseReason::Other };
    assert!(ToGame::read(&closed).eq([Ok(expected)]));
    let goodbye = raw(kind::GOODBYE, &[&[99, 99]]);
    let expected = ToGame::Goodbye(Goodbye { reason: GoodbyeReason::Other, error: None });
    assert!(ToGame::read(&goodbye).eq([Ok(expected)]));
}

#[test]
fn reasons_keep_their_numbers_and_have_a_text() {
    for &reason in CloseReason::ALL {
        assert_eq!(CloseReason::from_u8(reason.as_u8()), Some(reason));
    }
    for &reason in GoodbyeReason::ALL {
        assert_eq!(GoodbyeReason::from_u8(reason.as_u8()), Some(reason));
    }
    for &error in RecordError::ALL {
        assert_eq!(RecordError::from_u8(error.as_u8()), Some(error));
        assert!(error.as_u8() != 0, "0 says that a goodbye has no error");
    }
}

#[test]
fn a_mapped_address_is_the_ipv4_one_and_a_link_local_one_keeps_its_interface() {
    for text in ["192.0.2.7:9", "[fe80::1%5]:3", "[2001:db8::1]:65535", "[::]:0"] {
        let plain: SocketAddr = text.parse().expect("literal");
        let (ip, interface, port) = address::to_fields(plain);
        assert_eq!(address::from_fields(ip, interface, port), plain);
    }
    let mapped = "[::ffff:192.0.2.7]:9".parse().expect("literal");
    let (ip, interface, port) = address::to_fields(mapped);
    let plain: SocketAddr = "192.0.2.7:9".parse().expect("literal");
    assert_eq!(address::from_fields(ip, 7, port), plain);
    assert_eq!((address::to_fields(plain), interface), ((ip, 0, 9), 0));
}

#[test]
fn a_cut_bundle_yields_whole_records_and_then_an_error() {
    let bundle = bundle_to_game();
    let ends: Vec<_> = Frames::new(&bundle)
        .scan(0, |end, frame| {
            *end += frame.expect("own bundle").bytes().len();
            Some(*end)
        })
        .collect();
    for len in 0..bundle.len() {
        let whole = ends.iter().filter(|&&end| end <= len).count();
        let at_record_end = len == 0 || ends.contains(&len);
        let read: Vec<_> = ToGame::read(&bundle[..len]).collect();
        assert_eq!(read.iter().filter(|record| record.is_ok()).count(), whole, "cut at {len}");
        assert_eq!(read.len(), whole + usize::from(!at_record_end), "cut at {len}");
    }
}

/// A game process may send anything; whatever the reader accepts, the writer writes the same way,
/// so no two encodings mean the same and nothing in a record is skipped over.
fn every_accepted_bundle_is_canonical(bundle: &[u8]) {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let mut errors = 0;
    for record in ToGateway::read(bundle) {
        match record {
            Ok(record) => assert!(write_to_gateway(&mut writer, &record)),
            Err(_) => errors += 1,
        }
    }
    assert!(errors <= 1 && bundle.starts_with(writer.bytes()));
    assert!(errors == 1 || bundle == writer.bytes());
    payloads_are_known_at_sight(bundle);
}

/// What is taken for a payload without being decoded is decoded as that one, and nothing else is.
fn payloads_are_known_at_sight(bundle: &[u8]) {
    for frame in Frames::new(bundle).map_while(Result::ok) {
        let decoded = match ToGateway::decode(frame) {
            Ok(ToGateway::Payload { session, bytes }) => Some((session, bytes)),
            _ => None,
        };
        assert_eq!(frame.as_payload(), decoded);
    }
}

#[test]
fn changing_any_one_byte_is_noticed_or_means_another_record() {
    let bundle = bundle_to_gateway();
    for at in 0..bundle.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = bundle.clone();
            changed[at] ^= flip;
            every_accepted_bundle_is_canonical(&changed);
        }
    }
}

fn any_session() -> impl Strategy<Value = SessionId> {
    (0..WORKERS_MAX, 1u64..1 << 56).prop_map(|(worker, serial)| SessionId::new(worker, serial))
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 1..=PAYLOAD_BYTES_MAX)
}

proptest! {
    #[test]
    fn payloads_and_multicasts_come_back(
        one in any_session(),
        many in prop::collection::vec(any_session(), 1..40),
        first in any_payload(),
        second in any_payload(),
    ) {
        let mut buf = [0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        prop_assert!(writer.payload(one, &first) && writer.multicast(&many, &second));
        let mut reader = ToGateway::read(writer.bytes());
        let payload = ToGateway::Payload { session: one, bytes: &first };
        prop_assert_eq!(reader.next(), Some(Ok(payload)));
        let Some(Ok(ToGateway::Multicast { sessions, bytes })) = reader.next() else {
            return Err(TestCaseError::fail("not a multicast"));
        };
        prop_assert!(sessions.iter().eq(many) && bytes == second && reader.next().is_none());
    }

    #[test]
    fn opened_comes_back(
        session in any_session(),
        client_id: u64,
        ip: [u8; 16],
        mapped_and_delivers: (bool, bool),
        scope: u32,
        ports_and_slots: (u16, u32, u32),
        user_data: [u8; 32],
        listener in "[!-~]{1,32}",
    ) {
        let (port, slot, slots_max) = ports_and_slots;
        let (mapped, delivers) = mapped_and_delivers;
        let address = match (mapped, ip) {
            (true, [a, b, c, d, ..]) => SocketAddr::from(([a, b, c, d], port)),
            (false, ip) => address::from_fields(ip, scope, port),
        };
        let user_data: [u8; USER_DATA_BYTES] = std::array::from_fn(|at| user_data[at % 32]);
        let opened = Opened {
            session, client_id, address, slot, slots_max, delivers,
            ticket: None,
            user_data: &user_data, listener: &listener,
        };
        let mut buf = [0; 1024];
        let mut writer = Writer::new(&mut buf);
        prop_assert!(writer.opened(&opened));
        prop_assert!(ToGame::read(writer.bytes()).eq([Ok(ToGame::Opened(opened))]));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        every_accepted_bundle_is_canonical(&bytes);
        let _ = ToGame::read(&bytes).count();
    }

    #[test]
    fn no_record_body_makes_a_reader_panic(
        kind in prop_oneof![0_u8..=21, 127_u8..=132, 144_u8..=146],
        body in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let record = raw(kind, &[&body]);
        every_accepted_bundle_is_canonical(&record);
        let _ = ToGame::read(&record).count();
    }
}

#[test]
fn a_long_message_is_put_together_from_its_parts_and_from_nothing_else() {
    let bytes: Vec<_> = (0..MESSAGE_BYTES_MAX).map(|at| (at * 7 % 251) as u8).collect();
    let of = |channel, token, bytes| MessagePart::of(session(3, 9), channel, token, bytes);
    let parts: Vec<_> = of(Channel::Reliable(3), 8, &bytes).collect();
    assert_eq!((parts.len(), parts[0].token, parts[4].token), (5, 8, 0));
    let mut assembly = Assembly::new();
    for part in &parts[..4] {
        assert_eq!(assembly.take(part), Ok(false));
        assert_eq!(assembly.token(), 8);
    }
    assert_eq!(assembly.take(&parts[4]), Ok(true));
    assert!(assembly.message() == bytes && !assembly.is_open());

    let begun = || {
        let mut assembly = Assembly::new();
        assert_eq!(assembly.take(&parts[0]), Ok(false));
        assembly
    };
    let marks = Err(RecordError::MessageMarks);
    assert_eq!(Assembly::new().take(&parts[1]), marks, "without a beginning");
    assert_eq!(begun().take(&parts[0]), marks, "in the middle of another");
    let elsewhere = MessagePart { channel: Channel::Reliable(4), ..parts[1] };
    assert_eq!(begun().take(&elsewhere), marks);
    let whole = |channel| {
        let bytes = b"whole";
        MessagePart { channel, bytes, is_first: true, is_last: true, ..parts[0] }
    };
    for (channel, is_reliable) in [
        (Channel::Reliable(4), true),
        (Channel::Sequenced(3), false),
        (Channel::Unreliable(3), false),
    ] {
        assert!(Assembly::new().is_passed_by(&whole(channel)));
        assert_eq!(begun().is_passed_by(&whole(channel)), !is_reliable);
    }
    assert!(!Assembly::new().is_passed_by(&parts[0]), "it goes on");
    assert_eq!(begun().take(&MessagePart { session: session(3, 8), ..parts[1] }), marks);
    let mut endless = begun();
    let whole = (1..4).map(|_| endless.take(&parts[1])).collect::<Vec<_>>();
    assert_eq!(whole, [Ok(false); 3]);
    assert_eq!(endless.take(&parts[1]), Err(RecordError::MessageLength));
    assert_eq!(of(Channel::Reliable(3), 8, &[]).count(), 0);
}
