//! Rotation and the memory of used responses, on a clock that moves when a test says so.

use super::*;
use crate::ids::{ListenerId, WorkerId};
use crate::store::table::Place;
use ringgate_core::proto::unreal::cookie::SecretId;
use ringgate_core::proto::unreal::timing::{ROTATION_NS, ROTATION_SPREAD_NS};

const S: u64 = 1_000_000_000;
const START: u64 = 100 * S;
const LISTENER: ListenerId = ListenerId(2);
/// In cookies.
const CALLED: u16 = 2;
const HOME: Endpoint = Endpoint::v4([192, 0, 2, 1], 5000);
const LIMITS: ClaimLimits = ClaimLimits { sessions_max: 4, tokens_max: 24 };
const ELSEWHERE: Endpoint = Endpoint::v4([198, 51, 100, 1], 5000);
const SOMEBODY: By = By::Newcomer(HOME);

fn secrets(n: u8) -> [CookieSecret; 2] {
    [n, n + 100].map(|byte| CookieSecret::from_bytes([byte; 64]))
}

fn started() -> Cookies {
    let cookies = Cookies::new(HashKey::new([1, 2]));
    assert!(cookies.is_due(0), "there are no secrets");
    cookies.renew(START, secrets(1), 0, LIMITS);
    assert_eq!(cookies.due_ns(), START + ROTATION_NS);
    cookies
}

fn keyring(cookies: &Cookies) -> Keyring {
    let mut keyring = None;
    Keyring::refresh(&mut keyring, cookies);
    keyring.expect("there are secrets")
}

#[test]
fn a_worker_copies_the_secrets_when_they_have_changed() {
    let mut keyring = None;
    let cookies = Cookies::new(HashKey::new([1, 2]));
    Keyring::refresh(&mut keyring, &cookies);
    assert!(keyring.is_none());
    cookies.renew(START, secrets(1), 0, LIMITS);
    Keyring::refresh(&mut keyring, &cookies);
    let first = keyring.as_ref().map(|keyring| keyring.generation);
    cookies.renew(START + ROTATION_NS - 1, secrets(2), 0, LIMITS);
    Keyring::refresh(&mut keyring, &cookies);
    assert_eq!(keyring.as_ref().map(|keyring| keyring.generation), first, "not due yet");
    cookies.renew(START + ROTATION_NS, secrets(2), u64::MAX, LIMITS);
    Keyring::refresh(&mut keyring, &cookies);
    assert_ne!(keyring.as_ref().map(|keyring| keyring.generation), first);
    assert!(cookies.due_ns() <= START + 2 * ROTATION_NS + ROTATION_SPREAD_NS);
}

#[test]
fn one_workers_challenge_is_anothers_proof_until_its_secret_has_been_replaced() {
    let cookies = started();
    let proof = keyring(&cookies).challenge(START, HOME, 5, CALLED);
    let verify =
        |cookies: &Cookies, now_ns| keyring(cookies).verify(now_ns, &proof, HOME, 5, CALLED);
    assert_eq!(verify(&cookies, START), Ok(()));
    assert_eq!(verify(&cookies, START + 40 * S), Err(DropReason::CookieExpired));
    assert_eq!(verify(&cookies, START + 40 * S - 1), Ok(()), "as long as nothing rotates");
    cookies.renew(START + 15 * S, secrets(2), 0, LIMITS);
    assert_eq!(verify(&cookies, START + 15 * S), Ok(()), "the other secret is still there");
    cookies.renew(START + 30 * S, secrets(3), 0, LIMITS);
    assert_eq!(verify(&cookies, START + 30 * S), Err(DropReason::CookieSecret));
}

#[test]
fn both_secrets_are_there_from_the_start() {
    let keyring = keyring(&started());
    let other = SecretId::from_bit(!keyring.epoch.active().bit());
    let timestamp = Timestamp::from_ns(START - S);
    let input = MacInput::new(timestamp, HOME, 5, CALLED.into());
    let cookie = Cookie(keyring.macs[other.index()].tag(input.as_bytes()));
    let proof = Proof { secret_id: other, timestamp, cookie };
    assert_eq!(keyring.verify(START, &proof, HOME, 5, CALLED), Ok(()));
}

#[test]
fn every_bit_of_a_proof_and_of_its_address_matters() {
    let keyring = keyring(&started());
    let proof = keyring.challenge(START, HOME, 5, CALLED);
    let is_refused = |proof: &Proof, source, client_id, listener| {
        keyring.verify(START, proof, source, client_id, listener).is_err()
    };
    assert!(!is_refused(&proof, HOME, 5, CALLED));
    for bit in 0..160 {
        let mut cookie = proof.cookie;
        cookie.0[bit / 8] ^= 1 << (bit % 8);
        assert!(is_refused(&Proof { cookie, ..proof }, HOME, 5, CALLED), "cookie bit {bit}");
    }
    for bit in 0..64 {
        let timestamp = Timestamp::from_wire(proof.timestamp.to_wire() ^ 1 << bit);
        assert!(is_refused(&Proof { timestamp, ..proof }, HOME, 5, CALLED), "time bit {bit}");
    }
    let secret_id = SecretId::from_bit(!proof.secret_id.bit());
    assert!(is_refused(&Proof { secret_id, ..proof }, HOME, 5, CALLED));
    for bit in 0..16 {
        assert!(
            is_refused(&proof, HOME.with_port(HOME.port() ^ 1 << bit), 5, CALLED),
            "port bit {bit}"
        );
        assert!(is_refused(&proof, HOME, 5, CALLED ^ 1 << bit), "listener bit {bit}");
    }
    for bit in 0..32 {
        let ip = u32::from_be_bytes([192, 0, 2, 1]) ^ 1 << bit;
        assert!(
            is_refused(&proof, Endpoint::v4(ip.to_be_bytes(), HOME.port()), 5, CALLED),
            "ip bit {bit}"
        );
    }
    (0..3).for_each(|bit| {
        assert!(is_refused(&proof, HOME, 5 ^ 1 << bit, CALLED), "client bit {bit}");
    });
}

#[test]
fn a_response_is_used_once_for_as_long_as_it_can_verify() {
    let cookies = started();
    let use_once = |n, now_ns| cookies.use_once(&Cookie([n; 20]), SOMEBODY, now_ns);
    assert_eq!(use_once(1, START), Ok(()));
    assert_eq!(use_once(1, START), Err(DropReason::ResponseReplayed));
    let last = START + COOKIE_LIFETIME_NS_MAX - 1;
    assert_eq!(use_once(1, last), Err(DropReason::ResponseReplayed));
    assert_eq!(use_once(1, last + 1), Ok(()), "by now it is too old anyway");
}

#[test]
fn a_full_memory_refuses_new_responses_and_keeps_the_old() {
    let cookies = started();
    let use_once = |n, now_ns| cookies.use_once(&Cookie([n; 20]), By::Mover, now_ns);
    (0..24).for_each(|n| assert_eq!(use_once(n, START + u64::from(n)), Ok(())));
    assert_eq!(use_once(99, START + S), Err(DropReason::ResponseHistoryFull));
    assert_eq!(use_once(0, START + S), Err(DropReason::ResponseReplayed));
    assert_eq!(use_once(99, START + COOKIE_LIFETIME_NS_MAX), Ok(()));
    let second = use_once(1, START + COOKIE_LIFETIME_NS_MAX);
    assert_eq!(second, Err(DropReason::ResponseReplayed), "only the oldest has gone");
}

#[test]
fn a_block_has_its_share_of_the_memory_and_newcomers_leave_room_for_movers() {
    let cookies = started();
    let use_once = |n, by, now_ns| cookies.use_once(&Cookie([n; 20]), by, now_ns);
    let full = Err(DropReason::ResponseHistoryFull);
    let neighbour = Endpoint::v4([192, 0, 2, 99], 7);
    (0..3).for_each(|n| assert_eq!(use_once(n, SOMEBODY, START), Ok(())));
    assert_eq!(use_once(3, By::Newcomer(neighbour), START), full);
    assert_eq!(use_once(3, By::Newcomer(ELSEWHERE), START), Ok(()));
    // What is taken back, or has expired, is room again.
    cookies.take_back_use(&Cookie([2; 20]));
    assert_eq!(use_once(2, By::Newcomer(neighbour), START + 1), Ok(()));
    assert_eq!(use_once(9, SOMEBODY, START + COOKIE_LIFETIME_NS_MAX), Ok(()));
    let now_ns = START + 2 * COOKIE_LIFETIME_NS_MAX;
    for n in 0..21 {
        let source = Endpoint::v4([10, n, 0, 1], 1);
        assert_eq!(use_once(n, By::Newcomer(source), now_ns), Ok(()), "{n}");
    }
    assert_eq!(use_once(21, By::Newcomer(ELSEWHERE), now_ns), full);
    (21..24).for_each(|n| assert_eq!(use_once(n, By::Mover, now_ns), Ok(())));
    assert_eq!(use_once(24, By::Mover, now_ns), full);
}

#[test]
fn a_cookie_names_its_session_until_that_is_over() {
    let cookies = started();
    let resident = |index| Resident {
        worker: WorkerId(1),
        listener: LISTENER,
        place: Place { index, generation: 1 },
    };
    let cookie = Cookie([7; 20]);
    let unknown = Err(DropReason::CookieUnknown);
    cookies.settle(&cookie, 5, resident(3));
    assert_eq!(cookies.owner(&cookie, 5, LISTENER), Ok(resident(3)));
    assert_eq!(cookies.owner(&cookie, 5, ListenerId(0)), unknown, "another listener's");
    assert_eq!(cookies.owner(&cookie, 4, LISTENER), Err(DropReason::UnrealIds), "another client's");
    cookies.unsettle(&cookie, &resident(4));
    assert_eq!(cookies.owner(&cookie, 5, LISTENER), Ok(resident(3)), "another session's");
    cookies.unsettle(&cookie, &resident(3));
    assert_eq!(cookies.owner(&cookie, 5, LISTENER), unknown);
}
