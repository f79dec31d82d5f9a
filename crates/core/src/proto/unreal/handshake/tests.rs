//! Every type of handshake packet, in every layout and behind every magic; sizes; and what is
//! refused.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::proto::unreal::prefix::{MAGIC_BITS_MAX, Magic};
use crate::proto::unreal::tests::vectors::{
    BASE, IDS, ORIGINAL, VERSIONED, all_bodies, cookie, magic, proof, tail,
};

fn decode(framing: &Framing, datagram: &[u8], receiver: Receiver) -> Result<Handshake, DropReason> {
    let (prefix, reader) = framing.read(datagram)?;
    assert!(prefix.is_handshake);
    Handshake::decode(framing, prefix, reader, receiver)
}

fn encode(framing: &Framing, body: Body, tail: &Tail) -> Vec<u8> {
    encode_in(BASE.version, framing, body, tail)
}

fn encode_in(version: u8, framing: &Framing, body: Body, tail: &Tail) -> Vec<u8> {
    let mut buf = [0xee; HANDSHAKE_BYTES_MAX];
    let base = Base { version, ..BASE };
    let len = Handshake { ids: IDS, base, body }.encode(framing, tail, &mut buf);
    buf[..len].to_vec()
}

/// A tail of that many bytes.
fn tail_of(bytes: usize) -> Tail {
    let mut random = [0xc3; TAIL_BYTES_MAX + 1];
    random[0] = (bytes - TAIL_BYTES_MIN) as u8;
    Tail::draw(&random)
}

fn framings() -> impl Strategy<Value = Framing> {
    let layouts = prop::sample::select(Layout::ALL.to_vec());
    (vec(any::<bool>(), 0..=MAGIC_BITS_MAX), layouts).prop_map(|(bits, layout)| Framing {
        magic: Magic::from_bits(&bits).expect("at most 32"),
        layout,
    })
}

fn proofs() -> impl Strategy<Value = Proof> {
    (any::<bool>(), 0.001..1e9, any::<[u8; COOKIE_BYTES]>()).prop_map(|(bit, seconds, bytes)| {
        let timestamp = Timestamp::from_seconds(seconds);
        Proof { secret_id: SecretId::from_bit(bit), timestamp, cookie: Cookie(bytes) }
    })
}

fn bodies() -> impl Strategy<Value = (Body, Receiver)> {
    (0..all_bodies().len(), proofs(), any::<[u8; COOKIE_BYTES]>()).prop_map(
        |(which, proof, original)| {
            let (body, receiver) = all_bodies()[which];
            let original = Cookie(original);
            let body = match body {
                Body::Challenge(_) => Body::Challenge(proof),
                Body::Response(_) => Body::Response(proof),
                Body::Ack(_) => Body::Ack(proof.cookie),
                Body::RestartResponse { .. } => Body::RestartResponse { proof, original },
                other => other,
            };
            (body, receiver)
        },
    )
}

fn bases() -> impl Strategy<Value = Base> {
    let versions = prop_oneof![0..=5_u8, any::<u8>()];
    (versions, any::<[u8; 2]>(), any::<u32>(), any::<u16>()).prop_map(
        |(version, [version_min, sent_count], network_version, network_features)| Base {
            version_min,
            version,
            sent_count,
            network_version,
            network_features,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn packets_come_back(
        framing in framings(),
        (body, receiver) in bodies(),
        base in bases(),
        random in any::<[u8; TAIL_BYTES_MAX + 1]>(),
        (session, client) in (0..4_u8, 0..8_u8),
    ) {
        let tail = Tail::draw(&random);
        let ids = framing.layout.ids(session, client);
        let packet = Handshake { ids, base: base.as_written(framing.layout), body };
        let tail_bytes = tail.bytes().len();
        let Some(expected) = body.kind().packet_bytes(&framing, base.version, tail_bytes) else {
            return Ok(());
        };
        let mut buf = [0xee; HANDSHAKE_BYTES_MAX];
        let len = packet.encode(&framing, &tail, &mut buf);
        prop_assert_eq!(len, expected);
        prop_assert_eq!(decode(&framing, &buf[..len], receiver), Ok(packet));
        prop_assert!(buf[len..].iter().all(|&byte| byte == 0xee));
    }

    #[test]
    fn no_packet_is_taken_at_another_length(
        framing in framings(),
        (body, receiver) in bodies(),
        cut in any::<usize>(),
    ) {
        if body.kind().body_end(&framing, BASE.version).is_none() {
            return Ok(());
        }
        let packet = encode(&framing, body, &tail_of(TAIL_BYTES_MIN));
        let mut short = packet[..cut % packet.len()].to_vec();
        if let Some(last) = short.last_mut() {
            *last |= 0x80;
        }
        if let Ok((prefix, reader)) = framing.read(&short) {
            let read = Handshake::decode(&framing, prefix, reader, receiver);
            prop_assert!(read.is_err() || framing.layout == Layout::Original, "{cut}: {read:?}");
        }
    }

    #[test]
    fn junk_is_read_without_harm(framing in framings(), datagram in vec(any::<u8>(), 1..90)) {
        for receiver in [Receiver::Client, Receiver::Server] {
            if let Ok((prefix, reader)) = framing.read(&datagram) {
                let _verdict = Handshake::decode(&framing, prefix, reader, receiver);
            }
        }
    }
}

#[test]
fn sizes_in_bytes_are_the_documented_ones() {
    let range = |kind: Kind, framing: &Framing, version| {
        let bytes = |tail| kind.packet_bytes(framing, version, tail);
        bytes(TAIL_BYTES_MIN).zip(bytes(TAIL_BYTES_MAX))
    };
    // By version and layout: initial, challenge, response, ack; restart request; restart response;
    // version upgrade.
    let expected = [
        (0, Layout::Original, (29, 29), (1, 1), (49, 49), None),
        (1, Layout::EarlyShort, (41, 49), (13, 21), (61, 69), None),
        (1, Layout::Early, (41, 49), (13, 21), (61, 69), None),
        (2, Layout::EarlyShort, (45, 53), (17, 25), (65, 73), Some((17, 25))),
        (2, Layout::Early, (47, 55), (19, 27), (67, 75), Some((19, 27))),
        (3, Layout::VersionedShort, (46, 54), (17, 25), (66, 74), Some((17, 25))),
        (3, Layout::Versioned, (48, 56), (19, 27), (68, 76), Some((19, 27))),
        (4, Layout::Versioned, (48, 56), (19, 27), (68, 76), Some((19, 27))),
    ];
    for (version, layout, challenge, restart, response, upgrade) in expected {
        let framing = Framing { layout, ..Framing::default() };
        let of_kind =
            [Some(challenge); 4].into_iter().chain([Some(restart), Some(response), upgrade]);
        for (size, expected) in SIZES.iter().zip(of_kind) {
            assert_eq!(range(size.kind, &framing, version), expected, "{:?} {version}", size.kind);
        }
    }
    assert!(SIZES.iter().enumerate().all(|(at, size)| size.kind as usize == at));
    for layout in Layout::ALL {
        let framing = Framing { magic: magic(&"1".repeat(MAGIC_BITS_MAX)), layout };
        let longest = range(Kind::RestartResponse, &framing, BASE.version);
        assert!(longest.is_some_and(|(_, most)| most <= HANDSHAKE_BYTES_MAX));
        if layout == Layout::Versioned {
            assert_eq!(longest.map(|(_, most)| most), Some(HANDSHAKE_BYTES_MAX));
        }
    }
}

#[test]
fn encoder_and_decoder_go_by_the_table_for_every_magic() {
    for magic_bits in 0..=MAGIC_BITS_MAX {
        for (layout, version) in Layout::ALL.iter().flat_map(|it| (1..=4).map(move |v| (*it, v))) {
            let framing = Framing { magic: magic(&"10".repeat(16)[..magic_bits]), layout };
            for (body, receiver) in all_bodies() {
                let Some(body_end) = body.kind().body_end(&framing, version) else { continue };
                for tail_bytes in TAIL_BYTES_MIN..=TAIL_BYTES_MAX {
                    let packet = encode_in(version, &framing, body, &tail_of(tail_bytes));
                    let tail_bits = if layout == Layout::Original { 0 } else { 8 * tail_bytes };
                    let end = crate::proto::unreal::bits::terminator(&packet);
                    assert_eq!(end, Some(body_end + tail_bits), "{body:?} {framing:?}");
                    assert!(decode(&framing, &packet, receiver).is_ok());
                }
            }
        }
    }
}

#[test]
fn a_tail_has_64_to_128_bits_of_anything() {
    let (body, receiver) = (Body::Response(proof()), Receiver::Server);
    let body_end = body.kind().body_end(&VERSIONED, BASE.version).expect("a size");
    let longest = encode(&VERSIONED, body, &tail_of(TAIL_BYTES_MAX));
    for bits in 0..140 {
        let mut out = [0; 64];
        let mut writer = BitWriter::new(&mut out);
        writer.copy(BitReader::new(&longest).take(body_end).expect("the body"));
        for _ in 0..bits {
            writer.flag(false);
        }
        let len = writer.finish(1);
        let expected =
            if (64..=128).contains(&bits) { Ok(body) } else { Err(DropReason::UnrealSize) };
        assert_eq!(decode(&VERSIONED, &out[..len], receiver).map(|p| p.body), expected, "{bits}");
    }
}

#[test]
fn tails_are_8_to_16_bytes_and_can_be_shortened() {
    for length in 0..=u8::MAX {
        let mut random = [7; TAIL_BYTES_MAX + 1];
        random[0] = length;
        let tail = Tail::draw(&random);
        assert!((TAIL_BYTES_MIN..=TAIL_BYTES_MAX).contains(&tail.bytes().len()));
        assert_eq!(tail.at_most(0).bytes().len(), TAIL_BYTES_MIN);
        assert_eq!(tail.at_most(100), tail);
    }
    let room = |bytes| Kind::Challenge.tail_room(&VERSIONED, 4, bytes);
    assert_eq!(
        [room(47), room(48), room(50), room(56), room(1500)],
        [None, Some(8), Some(10), Some(16), Some(16)]
    );
    assert_eq!(Kind::RestartRequest.tail_room(&VERSIONED, 4, 18), None);
    assert_eq!(Kind::VersionUpgrade.tail_room(&ORIGINAL, 0, 100), None);
}

#[test]
fn each_side_takes_its_own_types_only() {
    for (body, receiver) in all_bodies() {
        let packet = encode(&VERSIONED, body, &tail());
        let other = match receiver {
            Receiver::Client => Receiver::Server,
            Receiver::Server => Receiver::Client,
        };
        assert_eq!(decode(&VERSIONED, &packet, other), Err(DropReason::UnrealType), "{body:?}");
    }
    let mut packet = encode(&VERSIONED, Body::VersionUpgrade, &tail());
    for number in 7..=u8::MAX {
        crate::proto::unreal::bits::store(&mut packet, 23, 8, number.into());
        assert_eq!(decode(&VERSIONED, &packet, Receiver::Client), Err(DropReason::UnrealType));
    }
}

#[test]
fn any_bit_in_the_filler_of_an_initial_is_refused() {
    let layouts = Layout::ALL.into_iter().filter(|layout| layout.has_versions());
    for (layout, version) in layouts.flat_map(|it| (1..=4).map(move |version| (it, version))) {
        let framing = Framing { magic: magic(["", "10110"][usize::from(version % 2)]), layout };
        let body = Body::Initial { is_restart: false };
        let packet = encode_in(version, &framing, body, &tail());
        let end = body.kind().body_end(&framing, version).expect("a size");
        for bit in end - 225..end {
            let mut packet = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            let read = decode(&framing, &packet, Receiver::Server);
            assert_eq!(read, Err(DropReason::UnrealFiller), "bit {bit}");
        }
    }
}

#[test]
fn the_original_layout_tells_types_by_length_and_timestamp() {
    let initial = encode(&ORIGINAL, Body::Initial { is_restart: false }, &tail());
    // A timestamp of zero is an initial connect, and then all else has to be zero.
    let mut with_cookie = initial.clone();
    with_cookie[20] = 1;
    assert_eq!(decode(&ORIGINAL, &with_cookie, Receiver::Server), Err(DropReason::UnrealFiller));
    // The same bits are a challenge to a client and a response to a server.
    let challenge = encode(&ORIGINAL, Body::Challenge(proof()), &tail());
    let body = |receiver| decode(&ORIGINAL, &challenge, receiver).map(|packet| packet.body);
    assert_eq!(body(Receiver::Client), Ok(Body::Challenge(proof())));
    assert_eq!(body(Receiver::Server), Ok(Body::Response(proof())));
    let ack = encode(&ORIGINAL, Body::Ack(cookie(1)), &tail());
    let read = decode(&ORIGINAL, &ack, Receiver::Client).map(|packet| packet.body);
    assert_eq!(read, Ok(Body::Ack(cookie(1))));
    // Handshake bit, restart bit, end.
    assert_eq!(encode(&ORIGINAL, Body::RestartRequest, &tail()), [0b111]);
    assert_eq!(decode(&ORIGINAL, &[0b101], Receiver::Client), Err(DropReason::UnrealSize));
    assert_eq!(decode(&ORIGINAL, &[0b111], Receiver::Server), Err(DropReason::UnrealType));
}

#[test]
fn short_packets_are_refused_by_size() {
    for len in 1..19 {
        let mut packet = encode(&VERSIONED, Body::RestartRequest, &tail());
        packet.truncate(len);
        packet[len - 1] |= 0x80;
        if len > 1 {
            assert_eq!(
                decode(&VERSIONED, &packet, Receiver::Client),
                Err(DropReason::UnrealSize),
                "{len}"
            );
        }
    }
}

/// What the probe of game servers rests on: a question with the longest tail is too long for a
/// server that expects no features, and one with the shortest tail is too short for a server that
/// does.
#[test]
fn a_server_of_one_base_takes_no_question_of_the_other_with_such_a_tail() {
    let initial = Body::Initial { is_restart: false };
    for (long, version) in [(Layout::Versioned, 3), (Layout::Early, 2)] {
        for magic_bits in 0..=MAGIC_BITS_MAX {
            let long = Framing { magic: magic(&"10".repeat(16)[..magic_bits]), layout: long };
            let short = Framing { layout: long.layout.short(), ..long };
            let refused = |from: &Framing, to: &Framing, tail_bytes| {
                let packet = encode_in(version, from, initial, &tail_of(tail_bytes));
                assert!(decode(from, &packet, Receiver::Server).is_ok());
                decode(to, &packet, Receiver::Server).is_err()
            };
            assert!(refused(&long, &short, TAIL_BYTES_MAX), "{long:?}");
            assert!(refused(&short, &long, TAIL_BYTES_MIN), "{long:?}");
        }
    }
}
