//! Encrypted packets: each check of the header has its reason, and what is encoded decodes to
//! itself.

use proptest::prelude::*;

use super::*;

const KINDS: [PacketKind; 7] = [
    PacketKind::Request,
    PacketKind::Denied,
    PacketKind::Challenge,
    PacketKind::Response,
    PacketKind::KeepAlive,
    PacketKind::Payload,
    PacketKind::Disconnect,
];

fn server(datagram: &[u8]) -> Result<Header, DropReason> {
    Header::decode(datagram, Receiver::Server)
}

#[test]
fn each_check_of_the_header_has_its_reason() {
    assert_eq!(server(&[0x15; 17]), Err(DropReason::PacketLength));
    assert_eq!(server(&[0x15; DATAGRAM_BYTES_MAX + 1]), Err(DropReason::TooLong));
    assert_eq!(server(&[0x17; 18]), Err(DropReason::PacketType));
    assert_eq!(server(&[0x1f; 18]), Err(DropReason::PacketType));
    assert_eq!(server(&[0x05; 18]), Err(DropReason::SequenceLength));
    assert_eq!(server(&[0x95; 18]), Err(DropReason::SequenceLength));
    assert_eq!(server(&[0xf5; 18]), Err(DropReason::SequenceLength));
    assert_eq!(server(&[0x25; 18]), Err(DropReason::PacketTruncated));
    assert_eq!(server(&[0x85; 24]), Err(DropReason::PacketTruncated));
    assert!(server(&[0x85; 25]).is_ok());
}

#[test]
fn the_first_failing_check_decides() {
    assert_eq!(server(&[0x07; 17]), Err(DropReason::PacketLength));
    assert_eq!(server(&[0x07; 18]), Err(DropReason::PacketType));
    assert_eq!(server(&[0x91; 18]), Err(DropReason::PacketType));
    assert_eq!(server(&[0x05; 18]), Err(DropReason::SequenceLength));
}

#[test]
fn each_side_takes_its_own_packets_only() {
    let kinds_for = |receiver| {
        let takes = |kind: &PacketKind| {
            let datagram = [0x10 | *kind as u8; 18];
            match Header::decode(&datagram, receiver) {
                Ok(header) => header.kind == *kind,
                Err(why) => {
                    assert_eq!(why, DropReason::PacketType);
                    false
                }
            }
        };
        KINDS.into_iter().filter(takes).map(|kind| kind as u8).collect::<Vec<_>>()
    };
    // A request with a sequence decrypts at the server and is dropped afterwards, as in the
    // reference.
    assert_eq!(kinds_for(Receiver::Server), [0, 3, 4, 5, 6]);
    assert_eq!(kinds_for(Receiver::Client), [1, 2, 4, 5, 6]);
}

#[test]
fn sequences_take_the_fewest_bytes_but_one_at_least() {
    for (sequence, prefix) in [
        (0, 0x15),
        (1, 0x15),
        (255, 0x15),
        (256, 0x25),
        (u64::from(u16::MAX), 0x25),
        (1 << 16, 0x35),
        (u64::from(u32::MAX), 0x45),
        (1 << 32, 0x55),
        (1 << 55, 0x75),
        (1 << 56, 0x85),
        (u64::MAX, 0x85),
    ] {
        assert_eq!(Header::new(PacketKind::Payload, sequence).prefix, prefix, "{sequence}");
    }
}

#[test]
fn a_sequence_may_use_more_bytes_than_it_needs() {
    let mut datagram = [0; 25];
    datagram[..3].copy_from_slice(&[0x85, 7, 1]);
    let header = server(&datagram).expect("eight sequence bytes");
    assert_eq!((header.sequence, header.body_start()), (0x107, 9));
}

#[test]
fn bodies_have_the_length_of_their_kind() {
    use DropReason::{BodyLength, PacketUnexpected};
    for (kind, right, wrong) in [
        (PacketKind::Denied, vec![0], vec![1]),
        (PacketKind::Challenge, vec![308], vec![0, 307, 309]),
        (PacketKind::Response, vec![308], vec![0, 307, 309]),
        (PacketKind::KeepAlive, vec![8], vec![0, 7, 9]),
        (PacketKind::Payload, vec![1, 1200], vec![0, 1201]),
        (PacketKind::Disconnect, vec![0], vec![1]),
    ] {
        for len in right {
            assert_eq!(kind.check_body(len), Ok(()), "{kind:?} {len}");
        }
        for len in wrong {
            assert_eq!(kind.check_body(len), Err(BodyLength), "{kind:?} {len}");
        }
    }
    assert_eq!(PacketKind::Request.check_body(0), Err(PacketUnexpected));
}

#[test]
fn associated_data_names_version_protocol_and_prefix() {
    let table = AadTable::new(0x1122_3344_5566_7788);
    for kind in KINDS {
        for sequence_bytes in 1..=8 {
            let prefix = sequence_bytes << 4 | kind as u8;
            let mut expected = b"NETCODE 1.02\0\x88\x77\x66\x55\x44\x33\x22\x11".to_vec();
            expected.push(prefix);
            assert_eq!(table.of(prefix)[..], expected);
        }
    }
}

#[test]
fn a_keep_alive_of_another_size_does_not_decode() {
    assert_eq!(KeepAlive::decode(&[0; 7]), Err(DropReason::BodyLength));
    assert_eq!(KeepAlive::decode(&[0; 9]), Err(DropReason::BodyLength));
}

proptest! {
    #[test]
    fn every_header_comes_back(kind in 3_usize..7, sequence: u64, shift in 0_u32..64, len in 0_usize..=1200) {
        let (kind, sequence) = (KINDS[kind], sequence >> shift);
        let mut out = [0xaa; DATAGRAM_BYTES_MAX];
        let body = vec![0x5c; len];
        let (written, packet_bytes) = encode_packet(kind, sequence, &body, &mut out);
        let read = server(&out[..packet_bytes]).expect("a packet of our own");
        prop_assert_eq!(read, written);
        prop_assert_eq!((read.kind, read.sequence), (kind, sequence));
        prop_assert_eq!(&out[read.body_start()..packet_bytes - TAG_BYTES], &body[..]);
        prop_assert_eq!(&read.nonce()[4..], sequence.to_le_bytes());
    }

    #[test]
    fn no_datagram_makes_the_header_panic(datagram in proptest::collection::vec(any::<u8>(), 0..64)) {
        for receiver in [Receiver::Client, Receiver::Server] {
            if let Ok(header) = Header::decode(&datagram, receiver) {
                prop_assert!(header.body_start() + TAG_BYTES <= datagram.len());
            }
        }
    }

    #[test]
    fn every_keep_alive_comes_back(slot: u32, slots: u32) {
        let body = KeepAlive { slot, slots };
        prop_assert_eq!(KeepAlive::decode(&body.encode()), Ok(body));
    }
}
