//! Frames that were written are read as they were meant, and no others are taken for a datagram.

use proptest::prelude::*;

use super::*;

const LEG: Leg = Leg { to: [1, 2, 3, 4, 5, 6], from: [6, 5, 4, 3, 2, 1], vlan: 0 };

/// The whole frame of a datagram.
fn frame_of(leaving: &Leaving, datagram: &[u8]) -> Vec<u8> {
    let mut room = [0xee; HEADERS_MAX + 7];
    let bytes = write_headers(&mut room, leaving, datagram);
    assert!(room[..room.len() - bytes].iter().all(|byte| *byte == 0xee));
    [&room[room.len() - bytes..], datagram].concat()
}

fn v4() -> Leaving {
    Leaving {
        leg: LEG,
        local: LocalIp::v4([192, 0, 2, 1], 0),
        port: 40_000,
        peer: Endpoint::v4([198, 51, 100, 7], 5),
        fragments: None,
        sum_is_left: false,
    }
}

fn v6() -> Leaving {
    let [own, other] = [1, 2].map(|last| [0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    Leaving { local: LocalIp::v6(own, 0), peer: Endpoint::v6(other, 0, 5), ..v4() }
}

/// The headers as another implementation writes them (tcpdump's hex of a datagram that the kernel
/// has sent: "hello" from 10.0.0.1:1000 to 10.0.0.2:2000, not to be fragmented).
#[test]
fn headers_are_those_that_the_kernel_writes() {
    let leaving = Leaving {
        local: LocalIp::v4([10, 0, 0, 1], 0),
        port: 1000,
        peer: Endpoint::v4([10, 0, 0, 2], 2000),
        ..v4()
    };
    let frame = frame_of(&leaving, b"hello");
    assert_eq!(frame[..14], [1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1, 8, 0]);
    let ip = [0x45, 0, 0, 33, 0, 0, 0x40, 0, 64, 17, 0x26, 0xca, 10, 0, 0, 1, 10, 0, 0, 2];
    assert_eq!(frame[14..34], ip);
    assert_eq!(frame[34..40], [3, 0xe8, 7, 0xd0, 0, 13]);
}

/// What a card adds the datagram of an untagged frame to, and where the checksum stands.
fn pseudo_of(frame: &[u8]) -> ([u8; 2], usize) {
    let is_v4 = frame[12] == KIND_V4[0];
    let udp = ETHERNET_BYTES + if is_v4 { V4_BYTES } else { V6_BYTES };
    let addresses = udp - if is_v4 { 8 } else { 32 };
    let len = u16::from_be_bytes([frame[udp + 4], frame[udp + 5]]);
    let sum = Sum::default().add(&frame[addresses..udp]).add_number(len).add_number(17);
    (sum.folded().to_ne_bytes(), udp + 6)
}

#[test]
fn a_frame_that_a_card_was_to_finish_is_taken() {
    for leaving in [v4(), v6()] {
        let mut frame = frame_of(&leaving, b"hello");
        let (pseudo, field) = pseudo_of(&frame);
        frame[field..field + 2].copy_from_slice(&pseudo);
        assert!(parse(&frame).is_ok());
        frame[field] ^= 1;
        assert_eq!(parse(&frame), Err(Refusal::Checksum));
    }
}

/// What a card that is left a checksum makes of it is what we would have written.
#[test]
fn a_checksum_that_is_left_becomes_the_same() {
    // Of the second, the datagram's sum is zero, which is written as ones.
    let mut zero = frame_of(&v6(), &[0, 0]);
    let field = zero.len() - 4;
    let becomes_zero = [zero[field], zero[field + 1]];
    for datagram in [&b"hello"[..], &becomes_zero] {
        for leaving in [v4(), v6()] {
            let whole = frame_of(&leaving, datagram);
            let mut left = frame_of(&Leaving { sum_is_left: true, ..leaving }, datagram);
            assert_eq!(left.len(), whole.len());
            let from = left.len() - datagram.len() - UDP_BYTES;
            let sum = Sum::default().add(&left[from..]).field();
            left[from + SUM_AT..][..2].copy_from_slice(&sum);
            assert_eq!(left, whole);
        }
    }
    zero[field..field + 2].fill(0);
    assert_eq!(parse(&zero), Err(Refusal::Checksum), "IPv6 has no datagram without one");
}

#[test]
fn only_ipv4_may_do_without_a_checksum() {
    let mut frame = frame_of(&v4(), b"hello");
    frame[40..42].fill(0);
    assert!(parse(&frame).is_ok());
    let mut frame = frame_of(&v6(), b"hello");
    frame[60..62].fill(0);
    assert_eq!(parse(&frame), Err(Refusal::Checksum));
}

#[test]
fn sources_that_no_host_has_are_refused() {
    for first in [0, 127, 224, 255] {
        let leaving = Leaving { local: LocalIp::v4([first, 0, 2, 1], 0), ..v4() };
        assert_eq!(parse(&frame_of(&leaving, b"x")), Err(Refusal::Source), "{first}");
    }
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    let mut loopback = [0; 16];
    loopback[15] = 1;
    let mut of_link = loopback;
    of_link[..2].copy_from_slice(&[0xfe, 0xbf]);
    for ip in [[0; 16], loopback, mapped, [0xff; 16], of_link] {
        let leaving = Leaving { local: LocalIp::v6(ip, 0), ..v6() };
        assert_eq!(parse(&frame_of(&leaving, b"x")), Err(Refusal::Source), "{ip:?}");
    }
}

#[test]
fn what_is_optional_is_not_taken() {
    let good = frame_of(&v4(), b"hello");
    for (at, byte) in [(14, 0x46), (14, 0x55), (20, 0x20), (21, 0x01), (23, 6), (17, 34), (39, 12)]
    {
        let mut odd = good.clone();
        odd[at] = byte;
        assert_eq!(parse(&odd), Err(Refusal::Shape), "byte {at}");
    }
    let good = frame_of(&v6(), b"hello");
    for (at, byte) in [(14, 0x40), (20, 44), (20, 0), (20, 60), (19, 12), (59, 12), (12, 8)] {
        let mut odd = good.clone();
        odd[at] = byte;
        assert_eq!(parse(&odd), Err(Refusal::Shape), "byte {at}");
    }
    for leaving in [v4(), v6()] {
        let tagged = Leaving { leg: Leg { vlan: 7, ..LEG }, ..leaving };
        let mut twice = frame_of(&tagged, b"hello");
        twice.splice(12..12, [0x81, 0, 0, 9]);
        assert_eq!(parse(&twice), Err(Refusal::Shape));
    }
}

fn addresses() -> impl Strategy<Value = (LocalIp, [u8; 16], bool)> {
    prop_oneof![
        (1..127_u8, any::<[u8; 3]>(), any::<[u8; 4]>()).prop_map(|(first, [b, c, d], own)| {
            let peer = Endpoint::v4([first, b, c, d], 0);
            (LocalIp::v4(own, 0), *peer.ip_bytes(), true)
        }),
        (1..255_u8, any::<[u8; 15]>(), any::<[u8; 16]>()).prop_map(|(first, rest, own)| {
            let mut ip = [first; 16];
            ip[1..].copy_from_slice(&rest);
            // What is an address on its link only is refused.
            if Ipv6Addr::from(ip).is_unicast_link_local() {
                ip[0] = 0x20;
            }
            // An own address that looks like an IPv4 one would be one.
            let own = if LocalIp::v6(own, 0).is_v4() { [1; 16] } else { own };
            (LocalIp::v6(own, 0), ip, false)
        }),
    ]
}

prop_compose! {
    /// A datagram that somebody could send us, as they would write its headers.
    fn anything()(
        (local, ip, is_v4) in addresses(),
        macs: [Mac; 2],
        vlan in 0..4096_u16,
        ports: [u16; 2],
        fragments: Option<u16>,
    ) -> (Leaving, Endpoint) {
        let peer = Endpoint::v6(ip, 0, ports[0]);
        let theirs = if is_v4 {
            LocalIp::v4([ip[12], ip[13], ip[14], ip[15]], 0)
        } else {
            LocalIp::v6(ip, 0)
        };
        let leg = Leg { to: macs[0], from: macs[1], vlan };
        let to = Endpoint::v6(*local.ip_bytes(), 0, ports[1]);
        let leaving =
            Leaving { leg, local: theirs, port: ports[0], peer: to, fragments, sum_is_left: false };
        (leaving, peer)
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        (leaving, peer) in anything(), datagram in prop::collection::vec(any::<u8>(), 0..1472)
    ) {
        let frame = frame_of(&leaving, &datagram);
        let arrived = parse(&frame).expect("a good frame");
        prop_assert_eq!((arrived.from, arrived.vlan), (leaving.leg.from, leaving.leg.vlan));
        prop_assert_eq!((arrived.peer, arrived.port), (peer, leaving.peer.port()));
        prop_assert_eq!(arrived.local.ip(), leaving.peer.ip());
        prop_assert_eq!(&frame[arrived.payload], &datagram[..]);
    }

    /// What an Ethernet frame is filled up with is no part of the datagram.
    #[test]
    fn padding_is_left_out((leaving, _) in anything(), padding in 1..60_usize) {
        let mut frame = frame_of(&leaving, b"hello");
        let end = frame.len();
        frame.resize(end + padding, 0xaa);
        prop_assert_eq!(parse(&frame).expect("a good frame").payload, end - 5..end);
    }

    #[test]
    fn a_cut_frame_is_refused((leaving, _) in anything(), cut in 0..1000_usize) {
        let frame = frame_of(&leaving, &[7; 900]);
        prop_assert_eq!(parse(&frame[..cut.min(frame.len() - 1)]), Err(Refusal::Shape));
    }

    /// One flipped bit behind the Ethernet header: it is another frame, never the same datagram
    /// with other bytes.
    #[test]
    fn a_damaged_frame_is_not_taken_for_another(
        (leaving, _) in anything(),
        datagram in prop::collection::vec(any::<u8>(), 0..64),
        at: prop::sample::Index,
        bit in 0..8_u8,
    ) {
        let leaving = Leaving { leg: LEG, ..leaving };
        let mut frame = frame_of(&leaving, &datagram);
        let at = 14 + at.index(frame.len() - 14);
        frame[at] ^= 1 << bit;
        let is_v4 = leaving.peer.is_v4();
        // IPv6 guards neither its hop limit nor its traffic class and flow label.
        let is_unguarded = !is_v4 && matches!(at, 14..=17 | 21);
        // A checksum may by chance look like none, or like one that is left to the card.
        let (pseudo, field) = pseudo_of(&frame);
        let is_excused = [[0; 2], pseudo].contains(&[frame[field], frame[field + 1]]);
        prop_assert!(is_unguarded || is_excused || parse(&frame).is_err());
    }

    #[test]
    fn bytes_from_anywhere_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(arrived) = parse(&bytes) {
            prop_assert!(arrived.payload.end <= bytes.len());
        }
    }
}
