//! Every reason for a drop that the gate can have, provoked: exactly that counter moves, by one.
//!
//! [`every_reason_is_provoked`] compares the cases with the list of all reasons, so a new reason
//! without a case fails.

use std::sync::Arc;

use super::clients::{Player, Scribe, forged};
use super::games::{Game, Heard};
use super::rig::{
    Fleet, OUR_USER, PROTOCOL, PUBLIC, Rig, bundle_backend, claims_for, endpoint, home, key,
    listener, netcode_rules, plain_setup, udp_backend,
};
use crate::denied::Denied;
use crate::ids::ListenerId;
use crate::mail::Mail;
use crate::setup::{ClaimLimits, Limits, Setup, TokenReuse};
use crate::shared::fleet_tokens::{FleetTokens, Whose};
use ringgate_batch::{Endpoint, IoEvent, SendFailure, SocketId};
use ringgate_core::crypto::{Aead, Job, token};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::DATAGRAM_BYTES_MAX;
use ringgate_core::netcode::{Client, TokenSpec};
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;
use ringgate_core::proto::netcode::token::{PRIVATE_TOKEN_BYTES, token_aad};
use ringgate_core::proto::replay::Policy;

macro_rules! provocations {
    ($( $reason:ident: $case:ident; )+) => {
        const PROVOKED: &[DropReason] = &[ $( DropReason::$reason ),+ ];

        mod provoked {
            use super::*;

            $( #[test]
            fn $case() {
                super::$case(DropReason::$reason);
            } )+
        }
    };
}

provocations! {
    Empty: empty;
    TooLong: too_long;
    UnknownSource: unknown_source;
    AddressDenied: address_denied;
    SessionEnded: session_ended;
    RequestRateLimited: request_rate_limited;
    RequestDeferred: request_deferred;
    RequestLength: request_length;
    RequestVersion: request_version;
    RequestProtocol: request_protocol;
    RequestExpired: request_expired;
    RequestForged: request_forged;
    TokenUnreadable: token_unreadable;
    TokenNotForUs: token_not_for_us;
    ClientDenied: client_denied;
    RequestAddressConnected: request_address_connected;
    RequestClientConnected: request_client_connected;
    TokenUsedElsewhere: token_used_elsewhere;
    TokenSpent: token_spent;
    TokenHistoryFull: token_history_full;
    TokenClaimed: token_claimed;
    TokenClaimPending: token_claim_pending;
    TokenUnclaimed: token_unclaimed;
    TokenClaimsFull: token_claims_full;
    RequestBackendFull: request_backend_full;
    RequestBackendDown: request_backend_down;
    BackendStarting: backend_starting;
    RequestSessionsFull: request_sessions_full;
    TokenSuperseded: token_superseded;
    AddressFull: address_full;
    BlockFull: block_full;
    BlockHandshakesFull: block_handshakes_full;
    PendingFull: pending_full;
    Draining: draining;
    PacketLength: packet_length;
    PacketType: packet_type;
    SequenceLength: sequence_length;
    PacketTruncated: packet_truncated;
    ReplayDuplicate: replay_duplicate;
    ReplayTooOld: replay_too_old;
    SequenceGap: sequence_gap;
    PacketForged: packet_forged;
    BodyLength: body_length;
    PacketUnexpected: packet_unexpected;
    ChallengeForged: challenge_forged;
    ChallengeForeign: challenge_foreign;
    ResponseClientConnected: response_client_connected;
    ResponseBackendFull: response_backend_full;
    ResponseBackendDown: response_backend_down;
    ResponseSessionsFull: response_sessions_full;
    PlacesResting: places_resting;
    PortSwitchRateLimited: port_switch_rate_limited;
    PortSwitchForged: port_switch_forged;
    PortSwitchStale: port_switch_stale;
    MailboxFull: mailbox_full;
    LinkFull: link_full;
    LinkDown: link_down;
    RecordInvalid: record_invalid;
    SessionUnknown: session_unknown;
    LinkStranger: link_stranger;
    MulticastDuplicate: multicast_duplicate;
    LinkEnded: link_ended;
    PayloadLength: payload_length;
    SequenceExhausted: sequence_exhausted;
    SendBufferFull: send_buffer_full;
    SendRefused: send_refused;
}

/// What is refused at Unreal's listeners only: provoked in `unreal`.
pub(super) const OF_UNREAL: &[DropReason] = &[
    DropReason::UnrealEnd,
    DropReason::UnrealMagic,
    DropReason::UnrealSize,
    DropReason::UnrealType,
    DropReason::UnrealFiller,
    DropReason::UnrealVersion,
    DropReason::UnrealNetworkVersion,
    DropReason::UnrealIds,
    DropReason::CookieExpired,
    DropReason::CookieSecret,
    DropReason::CookieForged,
    DropReason::CookieUnknown,
    DropReason::ResponseReplayed,
    DropReason::ResponseHistoryFull,
    DropReason::RestartRateLimited,
    DropReason::GapUnconfirmed,
    DropReason::AckImplausible,
    DropReason::ServerDuplicate,
    DropReason::ServerPacketInvalid,
];

/// What is refused at plain listeners only: provoked in `plain`.
pub(super) const OF_PLAIN: &[DropReason] = &[
    DropReason::PatternMissing,
    DropReason::TokenUnknown,
    DropReason::SequenceMissing,
    DropReason::AfterGap,
    DropReason::StartBlockLimited,
    DropReason::StartLimited,
    DropReason::HalfOpenFull,
    DropReason::AnswerLimited,
];

/// What is refused at listeners that deliver messages only: provoked in `delivery`.
pub(super) const OF_DELIVERY: &[DropReason] = &[
    DropReason::DeliveryDeferred,
    DropReason::DeliveryLate,
    DropReason::DeliveryFault,
    DropReason::MessageNotTaken,
    DropReason::MessageUnknown,
    DropReason::MessageOverflow,
];

#[test]
fn every_reason_is_provoked() {
    let elsewhere = [OF_UNREAL, OF_PLAIN, OF_DELIVERY].concat();
    let ours = DropReason::ALL.iter().filter(|reason| !elsewhere.contains(reason));
    assert!(PROVOKED.iter().eq(ours));
}

/// A gate with one game process on a bundle link.
fn ready() -> (Rig, Game) {
    ready_with(plain_setup())
}

fn ready_with(setup: Setup) -> (Rig, Game) {
    let mut rig = Rig::new(setup);
    let game = Game::join(&mut rig, "arena");
    (rig, game)
}

/// A gate with one player, who has written up to sequence 9.
fn playing() -> (Rig, Game, Scribe) {
    playing_with(plain_setup())
}

fn playing_with(setup: Setup) -> (Rig, Game, Scribe) {
    let (mut rig, game) = ready_with(setup);
    let scribe = Scribe::new(&rig.token(1));
    scribe.connect(&mut rig, home(1));
    rig.deliver(home(1), &scribe.keep_alive(9));
    assert_eq!(rig.sessions(), 1);
    (rig, game, scribe)
}

fn empty(reason: DropReason) {
    for datagram in [&[][..], &[0], &[5]] {
        ready().0.provokes(reason, |rig| rig.deliver(home(1), datagram));
        playing().0.provokes(reason, |rig| rig.deliver(home(1), datagram));
    }
}

fn too_long(reason: DropReason) {
    let (mut rig, ..) = playing();
    for datagram in [vec![0; DATAGRAM_BYTES_MAX + 1], vec![0x15; 40_000]] {
        for n in [1, 2] {
            rig.provokes(reason, |rig| rig.deliver(home(n), &datagram));
        }
    }
}

fn unknown_source(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    for datagram in [&[5, 0][..], &[0x15; 18], &[0x45; 18], &[0x95; 1000], &[0x10; REQUEST_BYTES]] {
        rig.provokes(reason, |rig| rig.deliver(home(2), datagram));
    }
    rig.provokes(reason, |rig| rig.deliver(home(2), &scribe.payload(10, b"from elsewhere")));
}

fn address_denied(reason: DropReason) {
    let (mut rig, _, player) = playing();
    let [early, late] = [rig.token(7), rig.token(8)].map(|token| Scribe::new(&token));
    rig.deliver(home(2), &early.request());
    let challenge = early.challenge(&mut rig, home(2));
    let mut setup = rig.host.gate().setup().clone();
    setup.denied = Arc::new(Denied::new([("10.0.0.0/8".parse().expect("a prefix"), true)]));
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
    rig.provokes(reason, |rig| rig.deliver(home(3), &late.request()));
    let response = early.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(home(2), &response));
    rig.provokes(reason, |rig| rig.deliver(home(3), &player.payload(9, b"from a new port")));
    // Whose session is to end is told by a survey.
    rig.deliver(home(1), &player.payload(10, b"still here"));
    assert_eq!(rig.drops(reason), 3);
}

fn client_denied(reason: DropReason) {
    let (mut rig, ..) = playing();
    let [asked, late] = [rig.token(7), rig.token(7)].map(|token| Scribe::new(&token));
    rig.deliver(home(2), &asked.request());
    let challenge = asked.challenge(&mut rig, home(2));
    let mut setup = rig.host.gate().setup().clone();
    setup.denied = Arc::new(Denied::default().with_clients([7]));
    rig.mail(Mail::Setup(setup.into()));
    rig.turn();
    rig.provokes(reason, |rig| rig.deliver(home(3), &late.request()));
    assert_eq!(late.kinds(&mut rig, home(3)), [PacketKind::Denied]);
    let response = asked.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(home(2), &response));
    assert_eq!(asked.kinds(&mut rig, home(2)), [PacketKind::Denied]);
}

fn session_ended(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    rig.deliver(home(1), &scribe.disconnect(2));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.disconnect(3)));
}

fn request_rate_limited(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.requests_per_block = 2;
    let (mut rig, _) = ready_with(setup);
    let scribe = Scribe::new(&rig.token(1));
    (0..2).for_each(|_| rig.deliver(home(1), &scribe.request()));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    rig.jump(1000);
    rig.deliver(home(1), &scribe.request());
    assert_eq!(rig.counters().handled[PacketKind::Request as usize], 3);
}

fn request_deferred(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    (0..33).for_each(|_| rig.push(home(1), &scribe.request()));
    rig.provokes(reason, Rig::turn);
}

fn request_length(reason: DropReason) {
    let (mut rig, _) = ready();
    let request = Scribe::new(&rig.token(1)).request();
    rig.provokes(reason, |rig| rig.deliver(home(1), &request[..REQUEST_BYTES - 1]));
    rig.provokes(reason, |rig| rig.deliver(home(1), &[&request[..], &[0]].concat()));
}

/// A request with one byte changed.
fn damaged_request(reason: DropReason, at: usize) {
    let (mut rig, _) = ready();
    let mut request = Scribe::new(&rig.token(1)).request();
    request[at] ^= 1;
    rig.provokes(reason, |rig| rig.deliver(home(1), &request));
}

fn request_version(reason: DropReason) {
    damaged_request(reason, 1);
    damaged_request(reason, 13);
}

fn request_protocol(reason: DropReason) {
    damaged_request(reason, 14);
}

fn request_expired(reason: DropReason) {
    let (mut rig, _) = ready();
    let request = Scribe::new(&rig.token(1)).request();
    rig.jump(29_999);
    rig.deliver(home(1), &request);
    rig.jump(1);
    rig.provokes(reason, |rig| rig.deliver(home(1), &request));
}

fn request_forged(reason: DropReason) {
    // The expiry and the nonce are authenticated, and so is every byte of the private part.
    for at in [22, 30, 54, 600, REQUEST_BYTES - 1] {
        damaged_request(reason, at);
    }
    let (mut rig, _) = ready();
    let spec = TokenSpec::new(PROTOCOL, 1, PUBLIC.parse().expect("literal"));
    let foreign = Scribe::new(&rig.token_under(&spec, &key(9)));
    rig.provokes(reason, |rig| rig.deliver(home(1), &foreign.request()));
}

fn token_unreadable(reason: DropReason) {
    let (mut rig, _) = ready();
    let mut token = rig.token(1);
    // Authentic, with 0 addresses.
    token.private = [0; PRIVATE_TOKEN_BYTES];
    let (subkey, nonce) = token::derive(&key(1), &token.nonce);
    let aad = token_aad(PROTOCOL, token.expire_unix_s);
    Aead::detect().seal(&mut [Job::new(&subkey, nonce, &aad, &mut token.private)]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &Scribe::new(&token).request()));
}

fn token_not_for_us(reason: DropReason) {
    let (mut rig, _) = ready();
    for server in ["203.0.113.9:40001", "203.0.113.8:40000", "[2001:db8::1]:40000"] {
        let token = rig.token_with(1, |spec| spec.servers = server.parse().expect("literal"));
        rig.provokes(reason, |rig| rig.deliver(home(1), &Scribe::new(&token).request()));
    }
}

fn request_address_connected(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let other = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    rig.provokes(reason, |rig| rig.deliver(home(1), &other.request()));
}

fn request_client_connected(reason: DropReason) {
    let (mut rig, ..) = playing();
    let again = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(2), &again.request()));
    assert!(rig.take_for(home(2)).is_empty(), "no takeover, and no denial either");
}

fn token_used_elsewhere(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    rig.provokes(reason, |rig| rig.deliver(home(1).with_port(9), &scribe.request()));
    rig.provokes(reason, |rig| rig.deliver(home(2), &scribe.request()));
}

fn token_spent(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    rig.deliver(home(1), &scribe.disconnect(2));
    rig.take_for(home(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

/// A gateway in a fleet, and a token that names another one as well.
fn in_fleet(tokens_max: usize) -> (Rig, Game, Arc<FleetTokens>) {
    let tokens = Arc::new(FleetTokens::new(tokens_max));
    let mut rig = Rig::new(Setup { fleet_tokens: Some(Arc::clone(&tokens)), ..plain_setup() });
    let game = Game::join(&mut rig, "arena");
    (rig, game, tokens)
}

fn of_two(rig: &mut Rig, client_id: u64) -> Scribe {
    let servers = format!("{PUBLIC},192.0.2.77:7777").parse().expect("two addresses");
    Scribe::new(&rig.token_with(client_id, |spec| spec.servers = servers))
}

fn token_claim_pending(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(rig.take_for(home(1)).is_empty(), "its client asks again");
    let asked = tokens.take_questions(9);
    tokens.answer(&asked[0].mac, Whose::Ours);
    rig.deliver(home(1), &scribe.request());
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Challenge]);
    // A token of this gateway alone is nobody else's business.
    let own = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &own.request());
    assert_eq!(own.kinds(&mut rig, home(2)), [PacketKind::Challenge]);
    assert_eq!(tokens.len(), 1);
}

fn token_claimed(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.deliver(home(1), &scribe.request());
    let asked = tokens.take_questions(9);
    tokens.answer(&asked[0].mac, Whose::Others);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

fn token_unclaimed(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.deliver(home(1), &scribe.request());
    let asked = tokens.take_questions(9);
    tokens.no_answer(&asked[0].mac);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(rig.take_for(home(1)).is_empty());
    tokens.accept_when_away(true);
    rig.deliver(home(1), &scribe.request());
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Challenge]);
}

fn token_claims_full(reason: DropReason) {
    let (mut rig, _game, _tokens) = in_fleet(1);
    let [first, second] = [1, 2].map(|client_id| of_two(&mut rig, client_id));
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
}

fn token_history_full(reason: DropReason) {
    let setup = plain_setup();
    let claims = claims_for(&setup, ClaimLimits { sessions_max: 9, tokens_max: 1 });
    let mut rig = Rig::with_claims(setup, claims);
    let _game = Game::join(&mut rig, "arena");
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
    rig.deliver(home(1), &first.request());
    assert_eq!(rig.counters().handled[PacketKind::Request as usize], 2, "the old one still works");
}

fn request_backend_full(reason: DropReason) {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    let (mut rig, ..) = playing_with(setup);
    let second = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
    assert_eq!(second.kinds(&mut rig, home(2)), [PacketKind::Denied]);
}

fn request_backend_down(reason: DropReason) {
    let mut rig = Rig::new(plain_setup());
    rig.pass(5000);
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

fn backend_starting(reason: DropReason) {
    let mut rig = Rig::new(plain_setup());
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(scribe.kinds(&mut rig, home(1)).is_empty(), "it asks again");
}

fn request_sessions_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].sessions_max = 1;
    let (mut rig, ..) = playing_with(setup);
    let second = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
    assert_eq!(second.kinds(&mut rig, home(2)), [PacketKind::Denied]);
}

fn token_superseded(reason: DropReason) {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).token_reuse = TokenReuse::Allow;
    let (mut rig, _) = ready_with(setup);
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    first.connect(&mut rig, home(1));
    rig.deliver(home(1), &first.disconnect(2));
    rig.deliver(home(1), &second.request());
    let challenge = second.challenge(&mut rig, home(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &first.request()));
    rig.deliver(home(1), &second.packet(PacketKind::Response, 1, &challenge));
    assert_eq!(rig.sessions(), 1, "the recorded request has kept nobody out");
}

fn pending_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.worker_pending_max = 1;
    let (mut rig, _) = ready_with(setup);
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    let elsewhere = endpoint("198.51.100.1:9");
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(elsewhere, &second.request()));
    assert!(rig.take_for(elsewhere).is_empty());
}

fn address_full(reason: DropReason) {
    full_source(reason, home(1).with_port(7), |limits| limits.sessions_per_address = 1);
}

fn block_full(reason: DropReason) {
    full_source(reason, neighbour(), |limits| limits.sessions_per_block = 1);
}

/// A player is in; another one asks from `source`, and one who has asked before answers its
/// challenge.
fn full_source(reason: DropReason, source: Endpoint, change: impl FnOnce(&mut Limits)) {
    let mut setup = plain_setup();
    change(&mut setup.listeners[ListenerId(0)].limits);
    let (mut rig, _) = ready_with(setup);
    let [first, second, third] = [1, 2, 3].map(|id| Scribe::new(&rig.token(id)));
    let other = source.with_port(8);
    rig.deliver(other, &third.request());
    let challenge = third.challenge(&mut rig, other);
    first.connect(&mut rig, home(1));
    rig.provokes(reason, |rig| rig.deliver(source, &second.request()));
    assert_eq!(second.kinds(&mut rig, source), [PacketKind::Denied]);
    let response = third.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(other, &response));
    assert_eq!(third.kinds(&mut rig, other), [PacketKind::Denied]);
    rig.deliver(home(1), &first.disconnect(2));
    rig.deliver(other, &third.request());
    let challenge = third.challenge(&mut rig, other);
    rig.deliver(other, &third.packet(PacketKind::Response, 2, &challenge));
    assert_eq!(rig.sessions(), 1, "there is room again");
}

/// Another address of the block that `home(1)` is in.
fn neighbour() -> Endpoint {
    endpoint("10.0.1.8:9")
}

fn block_handshakes_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.handshakes_per_block = 1;
    let (mut rig, _) = ready_with(setup);
    let [first, second, third] = [1, 2, 3].map(|id| Scribe::new(&rig.token(id)));
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(neighbour(), &second.request()));
    assert!(rig.take_for(neighbour()).is_empty());
    rig.deliver(home(1), &first.request());
    assert_eq!(first.kinds(&mut rig, home(1)).len(), 2, "one that is under way goes on");
    third.connect(&mut rig, endpoint("198.51.100.1:9"));
    first.connect(&mut rig, home(1));
    second.connect(&mut rig, neighbour());
}

fn draining(reason: DropReason) {
    let (mut rig, _) = ready();
    let [early, late] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    rig.deliver(home(1), &early.request());
    let challenge = early.challenge(&mut rig, home(1));
    rig.mail(Mail::Drain { left_ms: 1000 });
    rig.turn();
    rig.provokes(reason, |rig| rig.deliver(home(2), &late.request()));
    assert_eq!(late.kinds(&mut rig, home(2)), [PacketKind::Denied]);
    let response = early.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(home(1), &response));
    assert_eq!(early.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

fn packet_length(reason: DropReason) {
    let (mut rig, ..) = playing();
    // The length counts before the type.
    for datagram in [&[0x15; 17][..], &[0x99; 2]] {
        rig.provokes(reason, |rig| rig.deliver(home(1), datagram));
    }
}

fn packet_type(reason: DropReason) {
    let (mut rig, ..) = playing();
    for prefix in [0x11, 0x12, 0x17, 0x1f, 0x99] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[prefix; 40]));
    }
}

fn sequence_length(reason: DropReason) {
    let (mut rig, ..) = playing();
    for prefix in [0x05, 0x95, 0xf5] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[prefix; 40]));
    }
}

fn packet_truncated(reason: DropReason) {
    let (mut rig, ..) = playing();
    for len in 18..25 {
        rig.provokes(reason, |rig| rig.deliver(home(1), &[0x85; 24][..len.min(24)]));
    }
}

fn replay_duplicate(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    let packet = scribe.payload(10, b"once");
    rig.deliver(home(1), &packet);
    rig.provokes(reason, |rig| rig.deliver(home(1), &packet));
    // Both copies in one batch pass the first look; the second is caught after it was opened.
    let packet = scribe.payload(11, b"twice");
    rig.provokes(reason, |rig| {
        rig.push(home(1), &packet);
        rig.deliver(home(1), &packet);
    });
    assert_eq!(game.payloads(&mut rig), [&b"once"[..], b"twice"]);
}

fn replay_too_old(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.deliver(home(1), &scribe.payload(300, b"newest"));
    rig.deliver(home(1), &scribe.payload(45, b"the oldest that is taken"));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(44, b"too old")));
    assert_eq!(game.payloads(&mut rig).len(), 2);
}

fn gap_setup() -> Setup {
    let mut setup = plain_setup();
    netcode_rules(&mut setup).replay = Policy::new(512, 512).expect("UNet's");
    setup
}

fn sequence_gap(reason: DropReason) {
    let (mut rig, game, scribe) = playing_with(gap_setup());
    rig.deliver(home(1), &scribe.payload(9 + 512, b"just in reach"));
    assert_eq!(game.payloads(&mut rig).len(), 1);
    let beyond = scribe.payload(9 + 512 + 513, b"beyond");
    rig.provokes(reason, |rig| rig.deliver(home(1), &beyond));
    assert_eq!(rig.sessions(), 0);
}

fn packet_forged(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    for packet in [scribe.payload(10, b"x"), scribe.disconnect(10), scribe.keep_alive(1 << 60)] {
        rig.provokes(reason, |rig| rig.deliver(home(1), &forged(packet)));
    }
    rig.deliver(home(1), &scribe.payload(10, b"x"));
    assert_eq!(game.payloads(&mut rig).len(), 1);

    let waiting = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &waiting.request());
    let challenge = waiting.challenge(&mut rig, home(2));
    let response = forged(waiting.packet(PacketKind::Response, 1, &challenge));
    rig.provokes(reason, |rig| rig.deliver(home(2), &response));
}

fn body_length(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let bodies = [
        (PacketKind::Payload, 0),
        (PacketKind::KeepAlive, 7),
        (PacketKind::KeepAlive, 9),
        (PacketKind::Disconnect, 1),
        (PacketKind::Response, 307),
    ];
    for (sequence, (kind, len)) in (10..).zip(bodies) {
        let packet = scribe.packet(kind, sequence, &vec![0; len]);
        rig.provokes(reason, |rig| rig.deliver(home(1), &packet));
    }
    assert_eq!(rig.sessions(), 1);
}

fn packet_unexpected(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let second_response = scribe.packet(PacketKind::Response, 10, &[0; 308]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &second_response));
    let request_with_sequence = scribe.packet(PacketKind::Request, 11, &[]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &request_with_sequence));

    let waiting = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &waiting.request());
    rig.provokes(reason, |rig| rig.deliver(home(2), &waiting.payload(1, b"too early")));
    // The second of two responses in one batch finds the handshake completed by the first.
    let challenge = waiting.challenge(&mut rig, home(2));
    rig.provokes(reason, |rig| {
        for sequence in [2, 3] {
            rig.push(home(2), &waiting.packet(PacketKind::Response, sequence, &challenge));
        }
        rig.turn();
    });
    assert_eq!(rig.sessions(), 2);
}

fn challenge_forged(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    let challenge = scribe.challenge(&mut rig, home(1));
    for at in [0, 8, 307] {
        let mut damaged = challenge;
        damaged[at] ^= 1;
        let response = scribe.packet(PacketKind::Response, 1, &damaged);
        rig.provokes(reason, |rig| rig.deliver(home(1), &response));
    }
    rig.deliver(home(1), &scribe.packet(PacketKind::Response, 1, &challenge));
    assert_eq!(rig.sessions(), 1, "forged answers did no harm");
}

fn challenge_foreign(reason: DropReason) {
    let (mut rig, _) = ready();
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    rig.deliver(home(1), &first.request());
    let of_first = first.challenge(&mut rig, home(1));
    rig.deliver(home(1), &second.request());
    let of_second = second.challenge(&mut rig, home(1));
    // The challenge of token A under the keys of token B: the reference lets A in here.
    let mixed = second.packet(PacketKind::Response, 1, &of_first);
    rig.provokes(reason, |rig| rig.deliver(home(1), &mixed));
    rig.deliver(home(1), &second.packet(PacketKind::Response, 2, &of_second));
    assert_eq!(rig.sessions(), 1);
}

/// Two handshakes that wait for their responses, and the responses.
fn two_waiting(rig: &mut Rig, ids: [u64; 2]) -> [Vec<u8>; 2] {
    [1, 2].map(|n| {
        let scribe = Scribe::new(&rig.token(ids[usize::from(n) - 1]));
        rig.deliver(home(n), &scribe.request());
        let challenge = scribe.challenge(rig, home(n));
        scribe.packet(PacketKind::Response, 1, &challenge)
    })
}

/// The second of two handshakes fails, because the first was completed before.
fn second_response(reason: DropReason, setup: Setup, ids: [u64; 2]) {
    let (mut rig, _) = ready_with(setup);
    let [first, second] = two_waiting(&mut rig, ids);
    rig.deliver(home(1), &first);
    rig.provokes(reason, |rig| rig.deliver(home(2), &second));
    assert_eq!(rig.sessions(), 1);
    let denials = rig.counters().packets_out[PacketKind::Denied as usize];
    assert_eq!(denials, u64::from(ids[0] != ids[1]));
}

fn response_client_connected(reason: DropReason) {
    second_response(reason, plain_setup(), [1, 1]);
}

fn response_backend_full(reason: DropReason) {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    second_response(reason, setup, [1, 2]);
}

fn response_sessions_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].sessions_max = 1;
    second_response(reason, setup, [1, 2]);
    // The worker's own table can be full too.
    let mut setup = plain_setup();
    setup.worker_sessions_max = 1;
    second_response(reason, setup, [1, 2]);
}

fn places_resting(reason: DropReason) {
    let mut setup = plain_setup();
    (setup.worker_sessions_max, setup.worker_spare_places_min) = (1, 0);
    let (mut rig, _) = ready_with(setup);
    for n in 1..3 {
        let scribe = Scribe::new(&rig.token(n));
        scribe.connect(&mut rig, home(1));
        rig.deliver(home(1), &scribe.disconnect(2));
    }
    let third = Scribe::new(&rig.token(3));
    rig.deliver(home(1), &third.request());
    let challenge = third.challenge(&mut rig, home(1));
    let response = third.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(home(1), &response));
    assert_eq!(third.kinds(&mut rig, home(1)), [PacketKind::Denied]);
    rig.jump(31_000);
    Scribe::new(&rig.token(4)).connect(&mut rig, home(1));
    assert_eq!(rig.sessions(), 1, "rested");
}

fn response_backend_down(reason: DropReason) {
    let (mut rig, game) = ready();
    let [response, _] = two_waiting(&mut rig, [1, 2]);
    game.crash(&mut rig);
    rig.provokes(reason, |rig| rig.deliver(home(1), &response));
}

fn port_switch_rate_limited(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].limits.port_switches_per_block = 1;
    let (mut rig, _, scribe) = playing_with(setup);
    for (sequence, port) in [(10, 6000), (11, 6001)] {
        rig.deliver(home(1).with_port(port), &scribe.payload(sequence, b"x"));
    }
    assert_eq!(rig.counters().port_switches, 2, "what may come at once");
    let moved = home(1).with_port(6002);
    rig.provokes(reason, |rig| rig.deliver(moved, &scribe.payload(12, b"x")));
}

fn port_switch_forged(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let moved = home(1).with_port(6000);
    rig.provokes(reason, |rig| rig.deliver(moved, &forged(scribe.payload(10, b"x"))));
}

fn port_switch_stale(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let moved = home(1).with_port(6000);
    for sequence in [2, 9] {
        rig.provokes(reason, |rig| rig.deliver(moved, &scribe.payload(sequence, b"x")));
    }
}

fn mailbox_full(reason: DropReason) {
    let mut fleet = Fleet::new(plain_setup(), 2);
    let [owner, other] = &mut fleet.rigs[..] else { panic!("two workers") };
    let _game = Game::join(owner, "arena");
    let scribe = Scribe::new(&owner.token(1));
    scribe.connect(owner, home(1));
    other.provokes(reason, |rig| {
        rig.deliver(home(1).with_port(6000), &scribe.payload(10, b"x"));
        rig.refuse_mail();
    });
}

fn link_full(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.obstacles.push((game.link, SendFailure::Full));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(10, b"x")));
}

fn link_down(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    rig.obstacles.push((game.link, SendFailure::Gone));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(10, b"x")));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.payload(11, b"x")));
}

fn record_invalid(reason: DropReason) {
    for bytes in [&[1][..], &[3, 0, 1, 0], &[255, 255, 1, 0], &[4, 0, 99, 0], &vec![0; 20_000]] {
        let (mut rig, game) = ready();
        rig.provokes(reason, |rig| {
            game.push_bytes(rig, bytes);
            rig.turn();
        });
    }
}

fn multicast_duplicate(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.provokes(reason, |rig| game.say(rig, |w| w.multicast(&[session, session], b"x")));
}

/// More than a turn takes, and the process is replaced before the next.
fn link_ended(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    let successor = Game::connect(&mut rig, OUR_USER);
    rig.turn();
    rig.provokes(reason, |rig| {
        rig.host.notice(IoEvent::Closed { socket: game.link });
        game.push(rig, |w| (0..257).all(|_| w.payload(session, b"x")));
        successor.hello(rig, "arena");
    });
}

fn session_unknown(reason: DropReason) {
    let (mut rig, game, scribe) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.deliver(home(1), &scribe.disconnect(10));
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"too late")));
    // One of another backend is as unknown as one that never was.
    let setup = Setup::new(
        vec![listener("eu", &[0, 1])],
        vec![bundle_backend("arena", 4), bundle_backend("other", 4)],
        1,
    );
    let (mut rig, game, _) = playing_with(setup);
    let session = game.guests(&mut rig)[0].session;
    let other = Game::join(&mut rig, "other");
    rig.provokes(reason, |rig| other.say(rig, |w| w.payload(session, b"not yours")));
}

fn link_stranger(reason: DropReason) {
    let setup =
        Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", "127.0.0.1:7777", 4)], 1);
    let mut rig = Rig::new(setup);
    let mut player = Player::<Client>::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"up");
    let (address, _) = rig.take_udp().remove(0);
    let stranger = endpoint("127.0.0.1:7778");
    rig.provokes(reason, |rig| rig.answer_udp(stranger, address, b"let me in"));
    rig.provokes(reason, |rig| {
        rig.push_at(SocketId(500), stranger, b"on a socket that nobody has");
        rig.turn();
    });
}

fn payload_length(reason: DropReason) {
    let setup =
        Setup::new(vec![listener("eu", &[0])], vec![udp_backend("box", "127.0.0.1:7777", 4)], 1);
    let mut rig = Rig::new(setup);
    let mut player = Player::<Client>::connected(&mut rig, home(1), 1);
    player.send(&mut rig, b"up");
    let (address, _) = rig.take_udp().remove(0);
    for len in [0, 1201, 5000] {
        let bytes = vec![0; len];
        rig.provokes(reason, |rig| rig.answer_udp(endpoint("127.0.0.1:7777"), address, &bytes));
    }
}

fn sequence_exhausted(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.host.gate_mut().exhaust_sequence(session);
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"one too many")));
    // A keep-alive that cannot be sent is no payload that was dropped.
    rig.pass(1000);
    assert_eq!(rig.drops(reason), 1);
}

fn send_buffer_full(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    rig.obstacles.push((SocketId(1), SendFailure::Full));
    rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"x")));
}

fn send_refused(reason: DropReason) {
    let (mut rig, game, _) = playing();
    let session = game.guests(&mut rig)[0].session;
    for why in [SendFailure::Refused, SendFailure::Gone] {
        rig.obstacles = vec![(SocketId(1), why)];
        rig.provokes(reason, |rig| game.say(rig, |w| w.payload(session, b"x")));
    }
}

#[test]
fn nothing_is_answered_that_has_no_valid_token() {
    let (mut rig, game, scribe) = playing();
    let before = rig.sent.len();
    for len in (0..1300).step_by(7) {
        for first in [0, 0x10, 0x14, 0x15, 0x16, 0x85, 0xff] {
            let mut junk = vec![0x5a; len];
            junk.iter_mut().take(1).for_each(|byte| *byte = first);
            rig.deliver(home(1), &junk);
            rig.deliver(home(2), &junk);
            rig.deliver(home(1).with_port(1), &junk);
        }
    }
    assert_eq!(rig.sent.len(), before);
    rig.deliver(home(1), &scribe.payload(10, b"still here"));
    let heard = game.hear(&mut rig);
    assert!(matches!(&heard[..], [.., Heard::Payload(_, bytes)] if bytes == b"still here"));
}
