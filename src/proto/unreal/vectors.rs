//! Known answers: packets as hexadecimal text, both ways.

use super::PacketSeq;
use super::bits::{BitReader, BitWriter};
use super::cookie::{COOKIE_BYTES, Cookie, Proof, SecretId, Timestamp, first_reliable_bunch};
use super::handshake::{Base, Body, HANDSHAKE_BYTES_MAX, Handshake, Receiver, Tail};
use super::notify::{Fields, Header};
use super::prefix::{Framing, Ids, Layout, Magic, Prefix};

pub(super) const IDS: Ids = Ids::new(1, 5);

pub(super) const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 2,
    network_version: 0x1234_5678,
    network_features: 1,
};

pub(super) const VERSIONED: Framing = Framing { magic: Magic::NONE, layout: Layout::Versioned };
pub(super) const ORIGINAL: Framing = Framing { magic: Magic::NONE, layout: Layout::Original };

/// A cookie that counts up from `first`.
pub(super) fn cookie(first: u8) -> Cookie {
    Cookie(std::array::from_fn::<_, COOKIE_BYTES, _>(|index| first + index as u8))
}

pub(super) fn proof() -> Proof {
    let timestamp = Timestamp::from_seconds(12.5);
    Proof { secret_id: SecretId::from_bit(true), timestamp, cookie: cookie(0x10) }
}

/// The shortest tail.
pub(super) fn tail() -> Tail {
    let mut random = [0x55; 17];
    random[0] = 0;
    Tail::draw(&random)
}

pub(super) fn magic(text: &str) -> Magic {
    let bits: Vec<_> = text.bytes().map(|byte| byte == b'1').collect();
    Magic::from_bits(&bits).expect("at most 32 bits")
}

/// One packet of each type, and who receives it.
pub(super) fn all_bodies() -> [(Body, Receiver); 8] {
    [
        (Body::Initial { is_restart: false }, Receiver::Server),
        (Body::Initial { is_restart: true }, Receiver::Server),
        (Body::Challenge(proof()), Receiver::Client),
        (Body::Response(proof()), Receiver::Server),
        (Body::Ack(cookie(0x10)), Receiver::Client),
        (Body::RestartRequest, Receiver::Client),
        (Body::RestartResponse { proof: proof(), original: cookie(0xa0) }, Receiver::Server),
        (Body::VersionUpgrade, Receiver::Client),
    ]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digits).collect()
}

#[test]
fn handshake_packets_are_the_known_ones() {
    let common = "013c2b1a8900";
    let filler = "00".repeat(28);
    let shown = "800000000000002940101112131415161718191a1b1c1d1e1f20212223";
    let acked = "80000000000000f0bf101112131415161718191a1b1c1d1e1f20212223";
    let original = "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3";
    let end = "555555555555555501";
    let texts = [
        format!("b5010200{common}{filler}00{end}"),
        format!("f5010200{common}{filler}00{end}"),
        format!("b5018200{common}{shown}{end}"),
        format!("b5010201{common}{shown}{end}"),
        format!("b5018201{common}{acked}{end}"),
        format!("f5010202{common}80aaaaaaaaaaaaaaaa"),
        format!("f5018202{common}{shown}{original}{end}"),
        format!("b5010203{common}80aaaaaaaaaaaaaaaa"),
    ];
    for (text, (body, receiver)) in texts.iter().zip(all_bodies()) {
        let packet = Handshake { ids: IDS, base: BASE, body };
        let mut buf = [0xee; HANDSHAKE_BYTES_MAX];
        let len = packet.encode(&VERSIONED, &tail(), &mut buf);
        assert_eq!(buf[..len], bytes(text), "{body:?}");
        let (prefix, reader) = VERSIONED.read(&buf[..len]).expect("a packet");
        assert_eq!(prefix, Prefix { ids: IDS, is_handshake: true });
        assert_eq!(Handshake::decode(&VERSIONED, prefix, reader, receiver), Ok(packet));
    }
}

#[test]
fn cookies_seed_the_sequences() {
    let cookie = cookie(0x10);
    assert_eq!(cookie.server_sequence(), PacketSeq::new(4368));
    assert_eq!(cookie.client_sequence(), PacketSeq::new(4882));
    // The reliable bases, before the step to the first bunch.
    assert_eq!(first_reliable_bunch(cookie.server_sequence()), 272 + 1);
    assert_eq!(first_reliable_bunch(cookie.client_sequence()), 786 + 1);
}

#[test]
fn game_packets_are_the_known_ones() {
    let wide: &[u32] = &[u32::MAX, 7];
    let cases: [Case<'_>; 4] = [
        ("153c4412130000008001", VERSIONED, 4882, 4367, &[0], &[(0, 1)]),
        (
            "550000ffffffffffff010000c0ff0d",
            VERSIONED,
            16383,
            0,
            wide,
            // Packet info with a clock that says nothing.
            &[(1, 1), (1023, 10), (0, 1)],
        ),
        ("e0219298020000000c", ORIGINAL, 4882, 4367, &[1], &[(0, 1)]),
        (
            "5dc14324310500000018",
            Framing { magic: magic("1011"), ..VERSIONED },
            4882,
            4367,
            &[1],
            &[(0, 1)],
        ),
    ];
    for (text, framing, sequence, acked, history, info) in cases {
        let (sequence, acked) = (PacketSeq::new(sequence), PacketSeq::new(acked));
        let ids = if framing.layout == Layout::Original { Ids::default() } else { IDS };
        let mut buf = [0xee; 32];
        let mut out = BitWriter::new(&mut buf);
        Fields { sequence, acked, history }.write(&framing, ids, &mut out);
        for &(value, width) in info {
            out.write(value, width);
        }
        let len = out.finish(2);
        assert_eq!(buf[..len], bytes(text), "{text}");

        let (prefix, reader) = framing.read(&buf[..len]).expect("a packet");
        assert_eq!(prefix, Prefix { ids, is_handshake: false });
        let header = Header::read(reader).expect("a header");
        assert_eq!((header.sequence, header.acked), (sequence, acked));
        let words = history.iter().flat_map(|word| (0..32).map(move |bit| word >> bit & 1 == 1));
        assert!((0..header.history_packets()).map(|age| header.has_arrived(age)).eq(words));
        assert_eq!(read_all(header.payload()), info);
    }
}

/// Text, framing, sequence, acknowledgement, history, packet info.
type Case<'a> = (&'a str, Framing, u64, u64, &'a [u32], &'a [Field]);

/// A value and its width.
type Field = (u64, usize);

/// The payload's fields, by the widths they have in these packets.
fn read_all(mut payload: BitReader<'_>) -> Vec<Field> {
    let widths = [1, 10, 1].into_iter();
    widths.map_while(|width| payload.read(width).map(|value| (value, width))).collect()
}
