//! Known answers: packets as hexadecimal text, both ways.

use super::super::PacketSeq;
use super::super::bits::{BitReader, BitWriter};
use super::super::cookie::{COOKIE_BYTES, Cookie, Proof, SecretId, Timestamp};
use super::super::handshake::{Base, Body, HANDSHAKE_BYTES_MAX, Handshake, Receiver, Shape, Tail};
use super::super::notify::Header;
use super::super::prefix::{Framing, Ids, Layout, Magic, Prefix};

pub(in crate::proto::unreal) const IDS: Ids = Ids::new(1, 5);

pub(in crate::proto::unreal) const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 2,
    network_version: 0x1234_5678,
    network_features: 1,
};

pub(in crate::proto::unreal) const VERSIONED: Framing =
    Framing { magic: Magic::NONE, layout: Layout::Versioned };
pub(in crate::proto::unreal) const ORIGINAL: Framing =
    Framing { magic: Magic::NONE, layout: Layout::Original };

impl Base {
    /// What is left of it on the wire: the fields that its version does not have in that layout are
    /// zero.
    pub(in crate::proto::unreal) fn as_written(self, layout: Layout) -> Self {
        match Shape::of(layout, self.version) {
            Shape::Original => Self::default(),
            Shape::Randomized => Self { network_version: 0, network_features: 0, ..self },
            Shape::Short => Self { network_features: 0, ..self },
            Shape::Long => self,
        }
    }
}

/// A cookie that counts up from `first`.
pub(in crate::proto::unreal) fn cookie(first: u8) -> Cookie {
    Cookie(std::array::from_fn::<_, COOKIE_BYTES, _>(|index| first + index as u8))
}

pub(in crate::proto::unreal) fn proof() -> Proof {
    let timestamp = Timestamp::from_seconds(12.5);
    Proof { secret_id: SecretId::from_bit(true), timestamp, cookie: cookie(0x10) }
}

/// The shortest tail.
pub(in crate::proto::unreal) fn tail() -> Tail {
    let mut random = [0x55; 17];
    random[0] = 0;
    Tail::draw(&random)
}

/// Begins a game packet of this number, which acknowledges that one, as an engine does.
pub(in crate::proto::unreal) fn write_header(
    framing: &Framing,
    ids: Ids,
    (sequence, acked): (PacketSeq, PacketSeq),
    history: &[u32],
    out: &mut BitWriter<'_>,
) {
    framing.write(Prefix { ids, is_handshake: false }, out);
    out.write(history.len() as u64 - 1, 3);
    out.flag(false);
    out.write(acked.value(), 14);
    out.write(sequence.value(), 14);
    for &word in history {
        out.write(word.into(), 32);
    }
}

pub(in crate::proto::unreal) fn magic(text: &str) -> Magic {
    let bits: Vec<_> = text.bytes().map(|byte| byte == b'1').collect();
    Magic::from_bits(&bits).expect("at most 32 bits")
}

/// One packet of each type, and who receives it.
pub(in crate::proto::unreal) fn all_bodies() -> [(Body, Receiver); 8] {
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

/// Derived bit by bit from the layout's rules: counter 2, build 0x12345678, features 1, the cookies
/// and tail of above. In the order of [`all_bodies`]; version 1 knows no upgrade.
#[test]
fn handshake_packets_of_older_versions_are_the_known_ones() {
    for (layout, version, texts) in OLDER {
        let framing = Framing { layout: *layout, ..Framing::default() };
        let version_min = if layout.has_ids() { 3 } else { 1 };
        let base = Base { version_min, version: *version, ..BASE };
        for (text, (body, receiver)) in texts.iter().zip(all_bodies()) {
            let packet = Handshake { ids: layout.ids(1, 5), base: base.as_written(*layout), body };
            let mut buf = [0xee; HANDSHAKE_BYTES_MAX];
            let len = packet.encode(&framing, &tail(), &mut buf);
            assert_eq!(buf[..len], bytes(text), "{layout:?} {version} {body:?}");
            let (prefix, reader) = framing.read(&buf[..len]).expect("a packet");
            assert_eq!(Handshake::decode(&framing, prefix, reader, receiver), Ok(packet));
        }
    }
}

/// Layout, version, packets.
type Older = (Layout, u8, &'static [&'static str]);

const OLDER: &[Older] = &[
    (
        Layout::Early,
        1,
        &[
            "0504000800000000000000000000000000000000000000000000000000000000a8aaaaaaaaaaaaaa0a",
            "0704000800000000000000000000000000000000000000000000000000000000a8aaaaaaaaaaaaaa0a",
            "05040408040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119a9aaaaaaaaaaaaaa0a",
            "05040808040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119a9aaaaaaaaaaaaaa0a",
            "05040c0804000000000080ff85889098a0a8b0b8c0c8d0d8e0e8f0f800091119a9aaaaaaaaaaaaaa0a",
            "07041008545555555555555505",
            "07041408040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             010d151d252d353d454d555d656d757d858d959dadaaaaaaaaaaaaaa0a",
        ],
    ),
    (
        Layout::EarlyShort,
        2,
        &[
            "05080008e059d14800000000000000000000000000000000000000000000000000000000\
             a8aaaaaaaaaaaaaa0a",
            "07080008e059d14800000000000000000000000000000000000000000000000000000000\
             a8aaaaaaaaaaaaaa0a",
            "05080408e059d148040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "05080808e059d148040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "05080c08e059d14804000000000080ff85889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "07081008e059d148545555555555555505",
            "07081408e059d148040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             010d151d252d353d454d555d656d757d858d959dadaaaaaaaaaaaaaa0a",
            "05081808e059d148545555555555555505",
        ],
    ),
    (
        Layout::Early,
        2,
        &[
            "05080008e059d148040000000000000000000000000000000000000000000000000000000000\
             a8aaaaaaaaaaaaaa0a",
            "07080008e059d148040000000000000000000000000000000000000000000000000000000000\
             a8aaaaaaaaaaaaaa0a",
            "05080408e059d1480400040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "05080808e059d1480400040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "05080c08e059d148040004000000000080ff85889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             a9aaaaaaaaaaaaaa0a",
            "07081008e059d1480400545555555555555505",
            "07081408e059d1480400040000000000480182889098a0a8b0b8c0c8d0d8e0e8f0f800091119\
             010d151d252d353d454d555d656d757d858d959dadaaaaaaaaaaaaaa0a",
            "05081808e059d1480400545555555555555505",
        ],
    ),
    (
        Layout::VersionedShort,
        3,
        &[
            "b5810100013c2b1a0900000000000000000000000000000000000000000000000000000000\
             555555555555555501",
            "f5810100013c2b1a0900000000000000000000000000000000000000000000000000000000\
             555555555555555501",
            "b5818100013c2b1a890000000000002940101112131415161718191a1b1c1d1e1f20212223\
             555555555555555501",
            "b5810101013c2b1a890000000000002940101112131415161718191a1b1c1d1e1f20212223\
             555555555555555501",
            "b5818101013c2b1a89000000000000f0bf101112131415161718191a1b1c1d1e1f20212223\
             555555555555555501",
            "f5810102013c2b1a89aaaaaaaaaaaaaaaa",
            "f5818102013c2b1a890000000000002940101112131415161718191a1b1c1d1e1f20212223\
             a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3555555555555555501",
            "b5810103013c2b1a89aaaaaaaaaaaaaaaa",
        ],
    ),
];

#[test]
fn cookies_seed_the_sequences() {
    let cookie = cookie(0x10);
    assert_eq!(cookie.server_sequence(), PacketSeq::new(4368));
    assert_eq!(cookie.client_sequence(), PacketSeq::new(4882));
}

#[test]
fn game_packets_are_the_known_ones() {
    let wide: &[u32] = &[u32::MAX, 7];
    let early = Framing { layout: Layout::EarlyShort, ..Framing::default() };
    let cases: [Case<'_>; 5] = [
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
        ("e0219298020000000c", early, 4882, 4367, &[1], &[(0, 1)]),
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
        let ids = framing.layout.ids(1, 5);
        let mut buf = [0xee; 32];
        let mut out = BitWriter::new(&mut buf);
        write_header(&framing, ids, (sequence, acked), history, &mut out);
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
        let told = header.told();
        assert!((0..header.history_packets()).map(|age| told.has_arrived(age)).eq(words));
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
