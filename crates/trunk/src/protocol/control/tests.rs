//! Frames of the stream, there and back, in pieces and broken.

use proptest::prelude::*;
use ringgate_core::crypto::Key;
use ringgate_link::bundle::{CloseReason, Frames, SessionId, Writer};

use super::frame::*;
use super::*;
use crate::protocol::keys::Rekey;
use crate::protocol::lane::{Lane, Role, Secrets};

fn lane() -> Lane {
    let secrets =
        Secrets { to_gateway: Key::from_bytes([1; 32]), to_agent: Key::from_bytes([2; 32]) };
    Lane::new(Role::Gateway, (5, 3), secrets, Rekey::default(), 0)
}

fn record() -> Vec<u8> {
    let mut buf = [0; 100];
    let mut writer = Writer::new(&mut buf);
    assert!(writer.closed(SessionId::new(3, 9), CloseReason::Kicked));
    writer.bytes().to_vec()
}

const WELCOME: Welcome = Welcome { version: 1, lanes: 2, trunk: 77, incarnation: u64::MAX - 3 };

/// One of each.
fn everything() -> Vec<u8> {
    let record = record();
    let frame = Frames::new(&record).next().expect("one").expect("own");
    let (mut outbox, mut lane) = (Outbox::default(), lane());
    let written = outbox
        .hello((1, 2), "host-7")
        .and_then(|()| outbox.welcome(&WELCOME))
        .and_then(|()| outbox.refused(Reason::UnknownAgent))
        .and_then(|()| outbox.record((&mut lane, 3), 600, frame))
        .and_then(|()| outbox.ended((&mut lane, 3), 600))
        .and_then(|()| outbox.beat())
        .and_then(|()| outbox.goodbye(Reason::Silence));
    assert_eq!(written, Ok(()));
    outbox.bytes().to_vec()
}

/// Reads a stream that comes so many bytes at a time.
fn read(stream: &[u8], at_once: usize) -> Vec<String> {
    let mut inbox = Inbox::default();
    let mut read = Vec::new();
    for part in stream.chunks(at_once) {
        inbox.room()[..part.len()].copy_from_slice(part);
        inbox.handle_read(part.len());
        while let Some(control) = inbox.next() {
            read.push(format!("{control:?}"));
        }
    }
    read
}

#[test]
fn frames_come_back_however_the_stream_is_cut() {
    let record = record();
    let frame = Frames::new(&record).next().expect("one").expect("own");
    let expected: Vec<_> = [
        Control::Hello { version_min: 1, version_max: 2, name: "host-7" },
        Control::Welcome(WELCOME),
        Control::Refused(Reason::UnknownAgent),
        Control::Record { lane: 3, link: 600, frame },
        Control::Ended { lane: 3, link: 600 },
        Control::Beat,
        Control::Goodbye(Reason::Silence),
    ]
    .iter()
    .map(|control| format!("{:?}", Ok::<_, Malformed>(control)))
    .collect();
    let stream = everything();
    for at_once in (1..20).chain([stream.len()]) {
        assert_eq!(read(&stream, at_once), expected, "{at_once} at once");
    }
}

#[test]
fn what_breaks_the_format_is_the_last_that_is_read() {
    let raw = |kind: u8, lane: u8, body: &[u8]| {
        let bytes = (4 + body.len()) as u16;
        [&bytes.to_le_bytes()[..], &[kind, lane], body].concat()
    };
    let (record, beat) = (record(), raw(kind::BEAT, 0, &[]));
    let mut payload = [0; 100];
    let mut writer = Writer::new(&mut payload);
    assert!(writer.payload(SessionId::new(3, 9), b"x"));
    for bad in [
        vec![3, 0, kind::BEAT, 0],
        vec![0xff, 0xff, kind::BEAT, 0],
        raw(kind::BEAT, 1, &[]),
        raw(kind::BEAT, 0, &[0]),
        raw(0, 0, &[]),
        raw(127, 0, &[]),
        raw(kind::HELLO, 0, &[1, 0, 1, 0]),
        raw(kind::HELLO, 0, b"\x01\x00\x01\x00a b"),
        raw(kind::WELCOME, 0, &[0; 14]),
        raw(kind::GOODBYE, 0, &[]),
        raw(kind::ENDED, 0, &[0]),
        raw(kind::RECORD, 0, &[1, 0]),
        raw(kind::RECORD, 0, &[&[1, 0][..], &record[..5]].concat()),
        raw(kind::RECORD, 0, &[&[1, 0][..], &record, &record].concat()),
        raw(kind::RECORD, 0, &[&[1, 0][..], writer.bytes()].concat()),
    ] {
        let stream = [&beat[..], &bad, &beat].concat();
        assert_eq!(read(&stream, 7), ["Ok(Beat)", "Err(Malformed)"], "{bad:?}");
    }
    assert_eq!(read(&raw(200, 9, b"later"), 1), ["Ok(Unknown)"]);
    assert_eq!(read(&raw(kind::GOODBYE, 0, &[99]), 1), ["Ok(Goodbye(Other))"]);
}

#[test]
fn a_side_that_does_not_read_is_given_up_and_what_it_takes_makes_room() {
    let mut outbox = Outbox::default();
    let mut beats = 0;
    while outbox.beat().is_ok() {
        beats += 1;
    }
    assert_eq!((beats, outbox.bytes().len()), (1 << 20, 4 << 20));
    let mut left = outbox.bytes().len();
    while left > 0 {
        let taken = left.min(1_000_003);
        outbox.handle_sent(taken);
        left -= taken;
        assert_eq!(outbox.bytes().len(), left);
        assert_eq!(outbox.beat(), Ok(()));
        left += 4;
        if taken < 1_000_003 {
            break;
        }
    }
    outbox.handle_sent(outbox.bytes().len());
    assert!(outbox.bytes().is_empty());
}

proptest! {
    #[test]
    fn no_stream_makes_an_inbox_panic_or_stall(
        stream in prop::collection::vec(any::<u8>(), 0..300),
        at_once in 1_usize..50,
    ) {
        let whole = read(&stream, stream.len().max(1));
        prop_assert_eq!(read(&stream, at_once), whole);
    }

    #[test]
    fn a_changed_byte_is_noticed_or_means_another_frame(at: prop::sample::Index, flip in 1_u8..) {
        let mut stream = everything();
        let at = at.index(stream.len());
        stream[at] ^= flip;
        prop_assert_eq!(read(&stream, 3), read(&stream, 11));
    }
}
