//! What cookies cover, when they are taken, and how the secrets take turns.

use std::collections::HashSet;

use super::*;
use crate::secret::COOKIE_SECRET_BYTES;

const S: u64 = NS_PER_S;

fn secret(byte: u8) -> CookieSecret {
    CookieSecret::from_bytes([byte; COOKIE_SECRET_BYTES])
}

fn bytes(rotation: &Rotation) -> [u8; 2] {
    [0, 1].map(|index| rotation.secrets()[index].as_bytes()[0])
}

fn begin(now_ns: u64, draw: u64) -> Rotation {
    Rotation::new(now_ns, [secret(1), secret(2)], draw)
}

#[test]
fn secrets_take_turns_and_the_older_one_is_replaced() {
    let mut rotation = begin(100 * S, 0);
    assert_eq!((bytes(&rotation), rotation.epoch().active().index()), ([1, 2], 0));
    assert_eq!(rotation.poll_timeout(), 115 * S);
    assert!(!rotation.handle_timeout(115 * S - 1, secret(3), 0));
    assert_eq!(bytes(&rotation), [1, 2]);
    assert!(rotation.handle_timeout(115 * S, secret(3), 5 * S));
    assert_eq!((bytes(&rotation), rotation.epoch().active().index()), ([1, 3], 1));
    assert_eq!(rotation.poll_timeout(), 135 * S);
    assert!(rotation.handle_timeout(140 * S, secret(4), 1));
    assert_eq!((bytes(&rotation), rotation.epoch().active().index()), ([4, 3], 0));
    assert_eq!(rotation.poll_timeout(), 155 * S + 1);
}

#[test]
fn periods_are_15_to_20_seconds_whatever_is_drawn() {
    let period = |draw| begin(0, draw).poll_timeout();
    for draw in [0, 1, 5 * S, 5 * S + 1, u64::MAX, u64::MAX / 3] {
        assert!((15 * S..=20 * S).contains(&period(draw)), "{draw}");
    }
    assert_eq!((period(0), period(5 * S), period(5 * S + 1)), (15 * S, 20 * S, 15 * S));
}

/// An epoch whose active secret is number 1, since 200 s.
fn epoch() -> Epoch {
    let mut rotation = begin(180 * S, 5 * S);
    assert!(rotation.handle_timeout(200 * S, secret(3), 0));
    rotation.epoch()
}

fn check(secret: usize, made_ns: u64, now_ns: u64) -> Result<(), DropReason> {
    epoch().check(SecretId::from_bit(secret == 1), Timestamp::from_ns(made_ns), now_ns)
}

#[test]
fn a_cookie_lives_for_40_seconds() {
    assert_eq!(check(1, 210 * S, 210 * S), Ok(()));
    assert_eq!(check(1, 210 * S, 250 * S - 1), Ok(()));
    assert_eq!(check(1, 210 * S, 250 * S), Err(DropReason::CookieExpired));
    assert_eq!(check(0, 199 * S, 239 * S - 1), Ok(()));
    assert_eq!(check(0, 199 * S, 239 * S), Err(DropReason::CookieExpired));
    assert_eq!(check(1, 220 * S, 210 * S), Err(DropReason::CookieExpired));
}

#[test]
fn each_secret_speaks_for_its_own_time() {
    assert_eq!(check(1, 200 * S, 210 * S), Ok(()));
    assert_eq!(check(0, 200 * S, 210 * S), Ok(()));
    assert_eq!(check(1, 199 * S, 210 * S), Err(DropReason::CookieSecret));
    assert_eq!(check(0, 201 * S, 210 * S), Err(DropReason::CookieSecret));
}

#[test]
fn the_clocks_of_two_workers_may_differ_a_little() {
    // Made by a worker whose clock is ahead; made with either secret by one that learns late of the
    // rotation, or early.
    assert_eq!(check(1, 210 * S + SKEW_NS, 210 * S), Ok(()));
    assert_eq!(check(1, 210 * S + SKEW_NS + 1, 210 * S), Err(DropReason::CookieExpired));
    assert_eq!(check(1, 200 * S - SKEW_NS, 210 * S), Ok(()));
    assert_eq!(check(1, 200 * S - SKEW_NS - 1, 210 * S), Err(DropReason::CookieSecret));
    assert_eq!(check(0, 200 * S + SKEW_NS, 210 * S), Ok(()));
    assert_eq!(check(0, 200 * S + SKEW_NS + 1, 210 * S), Err(DropReason::CookieSecret));
}

#[test]
fn both_secrets_are_taken_from_the_start() {
    let epoch = begin(100 * S, 0).epoch();
    let at_start = Timestamp::from_ns(100 * S);
    for bit in [false, true] {
        assert_eq!(epoch.check(SecretId::from_bit(bit), at_start, 101 * S), Ok(()));
    }
}

#[test]
fn no_timestamp_that_is_none_is_taken() {
    for seconds in [0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, 1e-300] {
        let timestamp = Timestamp::from_seconds(seconds);
        for bit in [false, true] {
            let verdict = epoch().check(SecretId::from_bit(bit), timestamp, 210 * S);
            assert_eq!(verdict, Err(DropReason::CookieExpired), "{seconds}");
        }
    }
    assert!(Timestamp::from_wire(u64::MAX).seconds().is_nan());
}

#[test]
fn timestamps_are_exact_for_days_and_never_zero() {
    assert!(Timestamp::from_ns(0).seconds() > 0.0);
    for ns in [1, 999_999_999, 12_500_000_000, (1 << 50) - 1] {
        assert_eq!(Timestamp::from_ns(ns).to_ns(), Some(ns));
    }
    let years = 20 * 365 * 86_400 * S + 123;
    let read = Timestamp::from_ns(years).to_ns().expect("a time");
    assert!(read.abs_diff(years) < 1_000);
    assert_eq!(Timestamp::from_ns(12 * S + S / 2), Timestamp::from_seconds(12.5));
}

#[test]
fn the_input_of_the_mac_tells_everything_apart() {
    let at = Timestamp::from_ns(S);
    let v4 = Endpoint::v4([192, 0, 2, 1], 7777);
    let inputs = [
        MacInput::new(at, v4, 5, 1),
        MacInput::new(Timestamp::from_ns(S + 1), v4, 5, 1),
        MacInput::new(at, Endpoint::v4([192, 0, 2, 2], 7777), 5, 1),
        MacInput::new(at, Endpoint::v4([192, 0, 2, 1], 7778), 5, 1),
        MacInput::new(at, v4, 4, 1),
        MacInput::new(at, v4, 5, 2),
        MacInput::new(at, Endpoint::v6([0xfe; 16], 0, 7777), 5, 1),
        MacInput::new(at, Endpoint::v6([0xfe; 16], 1, 7777), 5, 1),
    ];
    let distinct: HashSet<_> = inputs.iter().map(MacInput::as_bytes).collect();
    assert_eq!(distinct.len(), inputs.len());
    assert_eq!(inputs[0].as_bytes()[8], 4);
    assert_eq!(inputs[6].as_bytes()[8], 6);
    // The same player behind a dual-stack socket.
    let mapped = Endpoint::v6(*v4.ip_bytes(), 0, 7777);
    assert_eq!(MacInput::new(at, mapped, 5, 1), inputs[0]);
}

#[test]
fn sequences_are_14_bits_of_the_cookie() {
    let mut cookie = Cookie([0xff; COOKIE_BYTES]);
    assert_eq!(cookie.server_sequence(), PacketSeq::MAX);
    cookie.0[..4].copy_from_slice(&[0x00, 0x40, 0x01, 0xc0]);
    assert_eq!(cookie.server_sequence().value(), 0);
    assert_eq!(cookie.client_sequence().value(), 1);
}
