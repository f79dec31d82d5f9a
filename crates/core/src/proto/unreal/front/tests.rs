//! The gateway's decisions, one by one.

use super::*;
use crate::proto::unreal::bits::BitWriter;
use crate::proto::unreal::cookie::{Rotation, SecretId, Timestamp};
use crate::proto::unreal::handshake::{HANDSHAKE_BYTES_MAX, TAIL_BYTES_MAX};
use crate::proto::unreal::prefix::{Layout, Prefix};
use crate::proto::unreal::tests::vectors::{
    BASE, IDS, ORIGINAL, VERSIONED, all_bodies, cookie, proof, tail,
};
use crate::secret::{COOKIE_SECRET_BYTES, CookieSecret};

fn packet(body: Body) -> Handshake {
    Handshake { ids: IDS, base: BASE, body }
}

fn initial() -> Handshake {
    packet(Body::Initial { is_restart: false })
}

const SERVER: Identity = Identity {
    session: 2,
    base: Base {
        version_min: 3,
        version: 4,
        sent_count: 0,
        network_version: 99,
        network_features: 3,
    },
};

/// The longest tail.
fn long_tail() -> Tail {
    Tail::draw(&[TAIL_BYTES_MAX as u8 - 8; TAIL_BYTES_MAX + 1])
}

#[test]
fn datagrams_are_of_the_handshake_or_of_the_game() {
    for (body, receiver) in all_bodies() {
        let mut buf = [0; HANDSHAKE_BYTES_MAX];
        let len = packet(body).encode(&VERSIONED, &tail(), &mut buf);
        let Ok(Classified::Handshake(read)) = classify(&buf[..len], &VERSIONED, receiver) else {
            panic!("not a handshake packet: {body:?}")
        };
        assert_eq!(read, packet(body));
    }
    for (framing, shortest) in [(VERSIONED, 10), (ORIGINAL, 9)] {
        for len in 2..20 {
            let mut buf = [0; 20];
            let mut out = BitWriter::new(&mut buf);
            framing.write(Prefix { ids: IDS, is_handshake: false }, &mut out);
            buf[len - 1] |= 0x80;
            let class = classify(&buf[..len], &framing, Receiver::Server);
            match class {
                Ok(Classified::Game(..)) => assert!(len >= shortest),
                Err(DropReason::UnrealSize) => assert!(len < shortest),
                other => panic!("{len}: {other:?}"),
            }
        }
    }
}

#[test]
fn versions_have_to_overlap() {
    let served = |versions: RangeInclusive<u8>, version_min, version| {
        let base = Base { version_min, version, ..BASE };
        Served { versions, network_versions: None }.check(&VERSIONED, &base).is_ok()
    };
    assert!(served(3..=4, 3, 4) && served(3..=4, 4, 4) && served(3..=4, 3, 3));
    assert!(served(3..=4, 4, 9) && served(3..=3, 0, 4));
    assert!(!served(3..=4, 5, 6) && !served(3..=4, 0, 2) && !served(3..=3, 4, 4));
    let refusal = Served { versions: 3..=4, network_versions: None };
    let old = Base { version: 2, ..BASE };
    assert_eq!(refusal.check(&VERSIONED, &old), Err(DropReason::UnrealVersion));
    assert_eq!(refusal.check(&ORIGINAL, &Base::default()), Ok(()));
}

#[test]
fn a_list_of_builds_is_kept_to() {
    let check = |list: &[u32]| {
        let served = Served { versions: 3..=4, network_versions: Some(list) };
        served.check(&VERSIONED, &BASE)
    };
    assert_eq!(check(&[1, 0x1234_5678]), Ok(()));
    assert_eq!(check(&[1, 2]), Err(DropReason::UnrealNetworkVersion));
    assert_eq!(check(&[]), Err(DropReason::UnrealNetworkVersion));
    // Version 1 does not say which build it is of.
    let early = Framing { layout: Layout::Early, ..Framing::default() };
    let served = Served { versions: 1..=2, network_versions: Some(&[7]) };
    let speaks = |version| Base { version_min: 1, version, ..BASE }.as_written(early.layout);
    assert_eq!(served.check(&early, &speaks(1)), Ok(()));
    assert_eq!(served.check(&early, &speaks(2)), Err(DropReason::UnrealNetworkVersion));
}

#[test]
fn answers_wear_the_face_of_the_server() {
    let answer = SERVER.answer(&initial(), Body::Challenge(proof()));
    assert_eq!(answer.ids, IDS.with_session(2));
    assert_eq!(answer.base, Base { sent_count: BASE.sent_count, ..SERVER.base });
    let mut old = initial();
    old.base.version = 3;
    assert_eq!(SERVER.answer(&old, Body::Ack(cookie(1))).base.version, 3);
    let mut newer = initial();
    newer.base.version = 9;
    assert_eq!(SERVER.answer(&newer, Body::Ack(cookie(1))).base.version, 4);
    let learned = Identity::of_challenge(&answer);
    assert_eq!(learned.session, SERVER.session);
    assert_eq!(learned.base.network_version, SERVER.base.network_version);
}

#[test]
fn a_restart_is_asked_of_players_of_this_session_only() {
    let ask = |session| SERVER.restart_request(Ids::new(session, 6), &(3..=4));
    let request = ask(2).expect("ours");
    assert_eq!((request.ids, request.body), (Ids::new(2, 6), Body::RestartRequest));
    assert_eq!((request.base.version_min, request.base.version), (3, 3));
    assert_eq!(ask(1), Err(DropReason::UnrealIds));
    // In a version that is served here, whatever the server could speak besides.
    let game = Ids::new(2, 6);
    let version = |served| SERVER.restart_request(game, &served).map(|it| it.base.version);
    assert_eq!((version(4..=4), version(1..=2)), (Ok(4), Ok(2)));
}

#[test]
fn no_answer_is_longer_than_allowed() {
    let mut buf = [0; HANDSHAKE_BYTES_MAX];
    let mut encode = |body, bytes_max| {
        encode_within(&packet(body), &VERSIONED, long_tail(), bytes_max, &mut buf)
    };
    for request_bytes in 48..=56 {
        assert_eq!(encode(Body::Challenge(proof()), request_bytes), Some(request_bytes));
        assert_eq!(encode(Body::Ack(cookie(1)), request_bytes), Some(request_bytes));
    }
    assert_eq!(encode(Body::Challenge(proof()), 47), None);
    assert_eq!(encode(Body::Ack(cookie(1)), 68), Some(56));
    assert_eq!(encode(Body::RestartRequest, 18), None);
    assert_eq!(encode(Body::RestartRequest, 19), Some(19));
    let original = encode_within(&packet(Body::RestartRequest), &ORIGINAL, tail(), 1, &mut buf);
    assert_eq!(original, Some(1));
}

#[test]
fn a_proof_is_judged_by_its_time_before_any_mac() {
    let secret = |byte| CookieSecret::from_bytes([byte; COOKIE_SECRET_BYTES]);
    let epoch = Rotation::new(1_000_000_000, [secret(1), secret(2)], 0).epoch();
    let source = Endpoint::v4([192, 0, 2, 1], 1);
    let input = |secret_id, made_ns, now_ns| {
        let timestamp = Timestamp::from_ns(made_ns);
        let proof = Proof { secret_id: SecretId::from_bit(secret_id), timestamp, ..proof() };
        proof_input(&epoch, &proof, now_ns, source, 5, 7)
    };
    let at = 2_000_000_000;
    assert_eq!(input(false, at, at), Ok(MacInput::new(Timestamp::from_ns(at), source, 5, 7)));
    assert_eq!(input(true, at, at), Err(DropReason::CookieSecret));
    assert_eq!(input(false, at, at + 40_000_000_000), Err(DropReason::CookieExpired));
}

#[test]
fn a_player_with_a_session_is_acknowledged_challenged_replaced_or_restarted() {
    const S: u64 = 1_000_000_000;
    let made_at = |seconds: u64, byte| {
        let timestamp = Timestamp::from_ns(seconds * S);
        Proof { timestamp, cookie: cookie(byte), ..proof() }
    };
    let standing = Standing {
        ids: IDS,
        accepted: cookie(1),
        proven_ns: 100 * S,
        heard_ns: 110 * S,
        over_ns: None,
    };
    let decide = |body| in_session(&packet(body), Some(&standing));
    let from_other = |proof| {
        let ids = Ids::new(IDS.session(), IDS.client() ^ 1);
        in_session(&Handshake { ids, ..packet(Body::Response(proof)) }, Some(&standing))
    };
    assert_eq!(decide(Body::Initial { is_restart: true }), Ok(InSession::Challenge));
    // The response that opened the session; with another client id its MAC will not hold.
    assert_eq!(decide(Body::Response(made_at(100, 1))), Ok(InSession::Acknowledge));
    assert_eq!(from_other(made_at(100, 1)), Ok(InSession::Replace(made_at(100, 1))));
    // Of a session that was opened elsewhere nothing is known by heart.
    let elsewhere = Standing { accepted: Cookie::ZERO, ..standing };
    let zeros = Proof { cookie: Cookie::ZERO, ..made_at(100, 0) };
    assert_eq!(
        in_session(&packet(Body::Response(zeros)), Some(&elsewhere)),
        Ok(InSession::AcknowledgeProven(zeros))
    );
    // Another response of the same connection, to a challenge from before or since.
    for seconds in [99, 101, 110, 112] {
        let proof = made_at(seconds, 2);
        assert_eq!(decide(Body::Response(proof)), Ok(InSession::AcknowledgeProven(proof)));
    }
    // Another connection.
    let later = made_at(113, 2);
    assert_eq!(decide(Body::Response(later)), Ok(InSession::Replace(later)));
    for (seconds, is_stale) in [(0, true), (99, true), (100, false), (112, false)] {
        let proof = made_at(seconds, 2);
        let verdict = if is_stale { InSession::Stale(proof) } else { InSession::Replace(proof) };
        assert_eq!(from_other(proof), Ok(verdict), "{seconds}");
    }
    // A session that is over is not continued by what was asked for since.
    let over = Standing { over_ns: Some(105 * S), ..standing };
    for (seconds, is_old) in [(104, true), (105, false), (106, false)] {
        let proof = made_at(seconds, 2);
        let verdict = in_session(&packet(Body::Response(proof)), Some(&over));
        let old = InSession::AcknowledgeProven(proof);
        assert_eq!(verdict, Ok(if is_old { old } else { InSession::Replace(proof) }), "{seconds}");
    }
    // Nor is one by a response with the session number that another server has, or the same one
    // since.
    let elsewhere =
        Handshake { ids: IDS.with_session(3), ..packet(Body::Response(made_at(101, 2))) };
    assert_eq!(in_session(&elsewhere, Some(&standing)), Ok(InSession::Replace(made_at(101, 2))));
    let restart = Body::RestartResponse { proof: proof(), original: cookie(1) };
    assert_eq!(decide(restart), Ok(InSession::Restart(proof(), cookie(1))));
    assert_eq!(decide(Body::Ack(cookie(1))), Err(DropReason::PacketUnexpected));
    let response = packet(Body::Response(proof()));
    assert_eq!(in_session(&response, None), Ok(InSession::Replace(proof())));
    // What has no time stands for nothing.
    for seconds in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let timeless = Proof { timestamp: Timestamp::from_seconds(seconds), ..made_at(1, 2) };
        assert!(standing.outdates(&timeless));
    }
}

#[test]
fn a_server_repeats_itself_or_has_forgotten() {
    let decide = |body| from_server(&packet(body));
    assert_eq!(decide(Body::Ack(cookie(1))), Ok(FromServer::Ignore));
    assert_eq!(decide(Body::RestartRequest), Ok(FromServer::Lost));
    assert_eq!(decide(Body::Challenge(proof())), Err(DropReason::PacketUnexpected));
    assert_eq!(decide(Body::VersionUpgrade), Err(DropReason::PacketUnexpected));
}
