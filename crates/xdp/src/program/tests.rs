//! What the program says to frames, run by the kernel itself (`BPF_PROG_TEST_RUN`): the same as the
//! parser in all that both look at.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::frame::{HEADERS_MAX, Leaving, Leg, parse, write_headers};
use ringgate_batch::Endpoint;

const MAC: Mac = [2, 0, 0, 0, 0, 1];
const LEG: Leg = Leg { to: MAC, from: [2, 0, 0, 0, 0, 2], vlan: 0 };
const PORT: u16 = 40_000;
const VLAN: u16 = 7;

/// A program that sends frames of ours back. `None`, said aloud, where none can be loaded.
fn program() -> Option<Program> {
    match Program::load_with(MAC, 1, Verdict::SendBack) {
        Ok(program) => {
            for local in [own_v4(), own_v6()] {
                for vlan in [0, VLAN] {
                    program.add(&Ours { vlan, local, port: PORT }).expect("room");
                }
            }
            Some(program)
        }
        Err(why) => {
            let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|value| value == "1");
            assert!(!is_required, "REQUIRE_XDP=1, but: {why}");
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn own_v4() -> LocalIp {
    LocalIp::v4([192, 0, 2, 1], 0)
}

fn own_v6() -> LocalIp {
    LocalIp::v6(v6_address(1), 0)
}

fn v6_address(last: u8) -> [u8; 16] {
    let mut ip = [0; 16];
    ip[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    ip[15] = last;
    ip
}

/// A player's frame to an address of ours.
fn frame_to(local: LocalIp, vlan: u16, datagram: &[u8]) -> Vec<u8> {
    let theirs = if local.is_v4() {
        LocalIp::v4([198, 51, 100, 7], 0)
    } else {
        LocalIp::v6(v6_address(2), 0)
    };
    let peer = Endpoint::v6(*local.ip_bytes(), 0, PORT);
    let leg = Leg { vlan, ..LEG };
    let leaving =
        Leaving { leg, local: theirs, port: 5, peer, fragments: None, sum_is_left: false };
    let mut room = [0; HEADERS_MAX];
    let bytes = write_headers(&mut room, &leaving, datagram);
    [&room[HEADERS_MAX - bytes..], datagram].concat()
}

fn is_ours(program: &Program, frame: &[u8]) -> bool {
    let said = program.judge(frame).expect("it runs");
    assert!([Verdict::Pass as u32, Verdict::SendBack as u32].contains(&said), "{said}");
    said == Verdict::SendBack as u32
}

#[test]
fn datagrams_for_our_addresses_are_ours_in_either_family_and_vlan() {
    let Some(program) = program() else { return };
    for local in [own_v4(), own_v6()] {
        for vlan in [0, VLAN] {
            for len in [0, 1, 17, 18, 19, 1200] {
                let frame = frame_to(local, vlan, &vec![7; len]);
                assert!(is_ours(&program, &frame), "{local:?} in {vlan}, {len} bytes");
            }
        }
        assert!(!is_ours(&program, &frame_to(local, VLAN + 1, b"another VLAN")));
        // A priority beside the VLAN changes nothing.
        let mut urgent = frame_to(local, VLAN, b"hello");
        urgent[14] |= 0xe0;
        assert!(is_ours(&program, &urgent));
    }
    program.remove(&Ours { vlan: 0, local: own_v4(), port: PORT }).expect("it was there");
    assert!(!is_ours(&program, &frame_to(own_v4(), 0, b"no longer")));
    assert!(is_ours(&program, &frame_to(own_v4(), VLAN, b"still")));
}

#[test]
fn without_a_socket_the_kernel_goes_on() {
    let Some(_) = program() else { return };
    let program = Program::load(MAC, 1).expect("as before");
    program.add(&Ours { vlan: 0, local: own_v4(), port: PORT }).expect("room");
    assert!(!is_ours(&program, &frame_to(own_v4(), 0, b"hello")));
    assert_eq!(program.counts(0), Counts { taken: 0, unserved: 1 });
    assert!(!is_ours(&program, &frame_to(own_v6(), 0, b"nobody's")));
    assert_eq!(program.counts(0), Counts { taken: 0, unserved: 1 }, "not ours, so not counted");
}

#[test]
fn a_stamp_is_known_by_its_mark() {
    let stamp = [77_u64.to_ne_bytes(), i64::from(STAMP_MARK).to_ne_bytes()].concat();
    assert_eq!(stamp_in(&stamp), Some(77));
    assert_eq!(stamp_in(&[&[9; 240], &stamp[..]].concat()), Some(77), "it ends where it stands");
    assert_eq!(stamp_in(&stamp[1..]), None);
    assert_eq!(stamp_in(&[&stamp[..], &[0; 4]].concat()), None);
    assert_eq!(stamp_in(&[0; 256]), None);
    assert_eq!(stamp_in(&[]), None);
}

/// The same frame with these bytes at these places.
fn with(frame: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (at, byte) in changes {
        frame[*at] = *byte;
    }
    frame
}

#[test]
fn what_is_odd_is_the_kernels() {
    let Some(program) = program() else { return };
    let v4 = frame_to(own_v4(), 0, b"some datagram that is long enough");
    let v6 = frame_to(own_v6(), 0, b"some datagram that is long enough");
    let mut twice = frame_to(own_v4(), VLAN, b"hello");
    twice.splice(12..12, [0x81, 0, 0, 9]);
    let provider = with(&frame_to(own_v4(), VLAN, b"hello"), &[(12, 0x88), (13, 0xa8)]);
    let odd = [
        ("for another host", with(&v4, &[(5, 9)])),
        ("for another host, by its first bytes", with(&v6, &[(0, 4)])),
        ("for everybody", with(&v4, &[(0, 255), (1, 255), (2, 255), (3, 255), (4, 255), (5, 255)])),
        ("two tags", twice),
        ("a provider's tag", provider),
        ("neither family", with(&v4, &[(13, 6)])),
        ("options", with(&v4, &[(14, 0x46)])),
        ("a short header", with(&v4, &[(14, 0x44)])),
        ("IPv6 where IPv4 is announced", with(&v4, &[(14, 0x60)])),
        ("a first fragment", with(&v4, &[(20, 0x20)])),
        ("a last fragment", with(&v4, &[(21, 8)])),
        ("TCP", with(&v4, &[(23, 6)])),
        ("another port", with(&v4, &[(37, 0x41)])),
        ("another address", with(&v4, &[(33, 2)])),
        ("from nowhere", with(&v4, &[(26, 0)])),
        ("from loopback", with(&v4, &[(26, 127)])),
        ("from a group", with(&v4, &[(26, 224)])),
        ("from everybody", with(&v4, &[(26, 255)])),
        ("longer than the frame", with(&v4, &[(16, 9)])),
        ("shorter than its headers", with(&v4, &[(16, 0), (17, 27)])),
        ("UDP shorter than the packet", with(&v4, &[(39, 12)])),
        ("UDP shorter than its header", with(&v4, &[(17, 27), (39, 7)])),
        ("IPv4 where IPv6 is announced", with(&v6, &[(14, 0x45)])),
        ("an extension header", with(&v6, &[(20, 0)])),
        ("a fragment header", with(&v6, &[(20, 44)])),
        ("another address, IPv6", with(&v6, &[(53, 2)])),
        ("another port, IPv6", with(&v6, &[(57, 0x41)])),
        ("from a group, IPv6", with(&v6, &[(22, 0xff)])),
        ("from the link only, IPv6", with(&v6, &[(22, 0xfe), (23, 0xbf)])),
        ("from loopback, IPv6", with(&v6, &[(22, 0), (23, 0), (24, 0), (25, 0)])),
        ("no checksum", with(&v6, &[(60, 0), (61, 0)])),
        ("longer than the frame, IPv6", with(&v6, &[(18, 9), (58, 9)])),
        ("UDP shorter than the packet, IPv6", with(&v6, &[(59, 12)])),
        ("UDP shorter than its header, IPv6", with(&v6, &[(19, 7), (59, 7)])),
    ];
    for (what, frame) in odd {
        assert!(!is_ours(&program, &frame), "{what}");
    }
    for frame in [v4, v6] {
        for len in ETHERNET_BYTES..frame.len() {
            assert!(!is_ours(&program, &frame[..len]), "cut to {len}");
        }
        assert!(is_ours(&program, &frame));
    }
}

/// Frames of ours with a byte or two changed: whatever the program takes, the parser takes as well,
/// but for checksums.
#[test]
fn program_and_parser_agree() {
    let Some(program) = program() else { return };
    let frames: Vec<_> = [(own_v4(), 0), (own_v6(), 0), (own_v4(), VLAN), (own_v6(), VLAN)]
        .map(|(local, vlan)| frame_to(local, vlan, b"hello"))
        .into();
    let changes = prop::collection::vec((0..70_usize, any::<u8>()), 0..3);
    let cases = (prop::sample::select(frames), changes, 14..80_usize);
    let agree = |(mut frame, changes, len): (Vec<u8>, Vec<(usize, u8)>, usize)| {
        for (at, byte) in changes {
            let at = at % frame.len();
            frame[at] = byte;
        }
        frame.resize(len, 0);
        let taken = is_ours(&program, &frame);
        let parsed = parse(&frame);
        if taken {
            prop_assert!(matches!(parsed, Ok(_) | Err(frame::Refusal::Checksum)), "{:?}", parsed);
        } else if let Ok(arrived) = parsed {
            // Not to an address of ours, or not by its MAC.
            let ours = Ours { vlan: arrived.vlan, local: arrived.local, port: arrived.port };
            let is_for_us = [own_v4(), own_v6()].contains(&ours.local)
                && [0, VLAN].contains(&ours.vlan)
                && ours.port == PORT;
            prop_assert!(!is_for_us || frame[..6] != MAC);
        }
        Ok(())
    };
    TestRunner::default().run(&cases, agree).expect("they agree");
}
