//! A datagram on a bundle link, from either side: whatever a reader accepts, a writer writes again.
//! From a game process the bytes are the same, so nothing in a record is passed over; a gateway's
//! reasons may be newer than the reader, and what it says of its players may be an older version's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{
    Frame, Frames, FromArbiter, ToArbiter, ToGame, ToGateway, VERSION_MAX, VERSION_MIN, Writer,
};
use written::{write_to_game, write_to_gateway};

#[path = "../../crates/link/src/bundle/tests/written.rs"]
mod written;

fuzz_target!(|datagram: &[u8]| {
    let datagram = &datagram[..datagram.len().min(BUNDLE_BYTES_MAX)];
    let mut buf = [0; BUNDLE_BYTES_MAX];

    let mut writer = Writer::new(&mut buf);
    let mut reader = ToGateway::read(datagram);
    let failed = reader.by_ref().any(|record| match record {
        Ok(record) => {
            assert!(write_to_gateway(&mut writer, &record));
            check_offer(&record);
            false
        }
        Err(_) => true,
    });
    assert!(reader.next().is_none(), "an error is the last item");
    assert!(datagram.starts_with(writer.bytes()));
    assert!(failed || datagram == writer.bytes());

    let mut writer = Writer::new(&mut buf);
    let is_of_this_version =
        |record: &ToGame<'_>| !matches!(record, ToGame::Players { gather_us: None, .. });
    let records = ToGame::read(datagram).map_while(Result::ok);
    let accepted: Vec<_> = records.filter(is_of_this_version).collect();
    assert!(accepted.iter().all(|record| write_to_game(&mut writer, record)));
    assert!(ToGame::read(writer.bytes()).map(|record| record.expect("written")).eq(accepted));

    let mut writer = Writer::new(&mut buf);
    for frame in Frames::new(datagram).map_while(Result::ok) {
        assert!(writer.frame(frame) && (frame.payloads() == 0 || frame.may_be_lost()));
        let decoded = match ToGateway::decode(frame) {
            Ok(ToGateway::Payload { session, bytes }) => Some((session, bytes)),
            _ => None,
        };
        assert_eq!(frame.as_payload(), decoded);
        check_cluster(frame);
    }
    assert!(datagram.starts_with(writer.bytes()));
});

/// What an arbiter and a gateway say to each other is written again as it was read.
fn check_cluster(frame: Frame<'_>) {
    let mut buf = [0; BUNDLE_BYTES_MAX];
    let mut writer = Writer::new(&mut buf);
    let to = ToArbiter::decode(frame).map(|record| match record {
        ToArbiter::Numbered { session, number, bytes } => {
            assert_eq!(frame.payload_session(), Some(session));
            writer.numbered(session, number, bytes)
        }
        ToArbiter::Clustered(it) => writer.clustered(&it),
        ToArbiter::Claim(it) => writer.claim(&it),
        ToArbiter::Given { id, tenure } => writer.given(&id, tenure),
        ToArbiter::Over { id, tenure } => writer.over(&id, tenure),
        ToArbiter::Woke(number) => writer.woke(number),
        ToArbiter::Plays(it) => writer.plays(&it),
        ToArbiter::There(session) => writer.there(session),
    });
    let from = FromArbiter::decode(frame).map(|record| match record {
        FromArbiter::Arbitrates(which) => writer.arbitrates(which),
        FromArbiter::Crowded(is_crowded) => writer.crowded(is_crowded),
        FromArbiter::Sure(number) => writer.sure(number),
        FromArbiter::Standing(it) => writer.standing(&it),
    });
    assert!(to.is_none() || from.is_none());
    if let Some(is_written) = to.or(from) {
        assert!(is_written && writer.bytes() == frame.bytes());
    }
}

/// Whatever is chosen was offered, and is spoken here.
fn check_offer(record: &ToGateway<'_>) {
    if let ToGateway::Hello(hello) = record
        && let Some(version) = hello.common_version()
    {
        let offered = hello.version_min..=hello.version_min.max(hello.version_max.into());
        assert!(offered.contains(&version) && (VERSION_MIN..=VERSION_MAX).contains(&version));
    }
}
