//! What is refused of those who ask for a session, and of their tokens.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::super::clients::Scribe;
use super::super::games::Game;
use super::super::rig::{
    PROTOCOL, PUBLIC, Rig, bundle_backend, claims_for, endpoint, home, key, listener,
    netcode_rules, plain_setup,
};
use super::{playing, playing_with, ready, ready_with};
use crate::denied::Denied;
use crate::ids::{BackendId, ListenerId};
use crate::mail::Mail;
use crate::setup::{ClaimLimits, Limits, Setup, TokenReuse};
use crate::shared::buckets::Buckets;
use crate::shared::fleet_tokens::{FleetTokens, Whose};
use ringgate_batch::Endpoint;
use ringgate_batch::spread::{Bucket, SPREAD_WORDS, Spread, SpreadKey};
use ringgate_core::crypto::{Aead, Job, token};
use ringgate_core::drops::DropReason;
use ringgate_core::netcode::TokenSpec;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::REQUEST_BYTES;
use ringgate_core::proto::netcode::token::{PRIVATE_TOKEN_BYTES, token_aad};

pub(super) fn address_denied(reason: DropReason) {
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

pub(super) fn client_denied(reason: DropReason) {
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

pub(super) fn request_rate_limited(reason: DropReason) {
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

pub(super) fn request_deferred(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    (0..33).for_each(|_| rig.push(home(1), &scribe.request()));
    rig.provokes(reason, Rig::turn);
}

pub(super) fn bucket_moved(reason: DropReason) {
    let (mut rig, _) = ready();
    let words: Vec<_> = (0..SPREAD_WORDS).map(|_| AtomicU64::new(0)).collect();
    let spread = Spread::new(Box::new(words), SpreadKey::new([7; 6]), 2);
    let buckets = Arc::new(Buckets::new(spread));
    buckets.set_listener(ListenerId(0), true);
    rig.host.gate_mut().share(&buckets);
    let bucket = buckets.spread().key().bucket(&home(1));
    // Another worker has a player there by now.
    buckets.spread().set(bucket, Bucket { worker: 1, sessions: 1 });
    let request = Scribe::new(&rig.token(1)).request();
    rig.provokes(reason, |rig| rig.deliver(home(1), &request));
    assert_eq!(buckets.spread().bucket(bucket), Bucket { worker: 1, sessions: 1 });
    // That one has left: whoever gets the next request has the bucket.
    buckets.spread().leave(bucket);
    rig.deliver(home(1), &request);
    assert_eq!(buckets.spread().bucket(bucket), Bucket { worker: 0, sessions: 1 });
}

pub(super) fn request_length(reason: DropReason) {
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

pub(super) fn request_version(reason: DropReason) {
    damaged_request(reason, 1);
    damaged_request(reason, 13);
}

pub(super) fn request_protocol(reason: DropReason) {
    damaged_request(reason, 14);
}

pub(super) fn request_expired(reason: DropReason) {
    let (mut rig, _) = ready();
    let request = Scribe::new(&rig.token(1)).request();
    rig.jump(29_999);
    rig.deliver(home(1), &request);
    rig.jump(1);
    rig.provokes(reason, |rig| rig.deliver(home(1), &request));
}

pub(super) fn request_forged(reason: DropReason) {
    // The expiry and the nonce are authenticated, and so is every byte of the private part.
    for at in [22, 30, 54, 600, REQUEST_BYTES - 1] {
        damaged_request(reason, at);
    }
    let (mut rig, _) = ready();
    let spec = TokenSpec::new(PROTOCOL, 1, PUBLIC.parse().expect("literal"));
    let foreign = Scribe::new(&rig.token_under(&spec, &key(9)));
    rig.provokes(reason, |rig| rig.deliver(home(1), &foreign.request()));
}

pub(super) fn token_unreadable(reason: DropReason) {
    let (mut rig, _) = ready();
    let mut token = rig.token(1);
    // Authentic, with 0 addresses.
    token.private = [0; PRIVATE_TOKEN_BYTES];
    let (subkey, nonce) = token::derive(&key(1), &token.nonce);
    let aad = token_aad(PROTOCOL, token.expire_unix_s);
    Aead::detect().seal(&mut [Job::new(&subkey, nonce, &aad, &mut token.private)]);
    rig.provokes(reason, |rig| rig.deliver(home(1), &Scribe::new(&token).request()));
}

pub(super) fn token_not_for_us(reason: DropReason) {
    let (mut rig, _) = ready();
    for server in ["203.0.113.9:40001", "203.0.113.8:40000", "[2001:db8::1]:40000"] {
        let token = rig.token_with(1, |spec| spec.servers = server.parse().expect("literal"));
        rig.provokes(reason, |rig| rig.deliver(home(1), &Scribe::new(&token).request()));
    }
}

pub(super) fn request_address_connected(reason: DropReason) {
    let (mut rig, _, scribe) = playing();
    let other = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    rig.provokes(reason, |rig| rig.deliver(home(1), &other.request()));
}

pub(super) fn request_client_connected(reason: DropReason) {
    let (mut rig, ..) = playing();
    let again = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(2), &again.request()));
    assert!(rig.take_for(home(2)).is_empty(), "no takeover, and no denial either");
}

pub(super) fn token_used_elsewhere(reason: DropReason) {
    let (mut rig, _) = ready();
    let scribe = Scribe::new(&rig.token(1));
    rig.deliver(home(1), &scribe.request());
    rig.provokes(reason, |rig| rig.deliver(home(1).with_port(9), &scribe.request()));
    rig.provokes(reason, |rig| rig.deliver(home(2), &scribe.request()));
}

pub(super) fn token_spent(reason: DropReason) {
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

pub(super) fn token_claim_pending(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(rig.take_for(home(1)).is_empty(), "its client asks again");
    let asked = tokens.take_questions(9, 0);
    tokens.answer(&asked[0].mac, Whose::Ours);
    rig.deliver(home(1), &scribe.request());
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Challenge]);
    // A token of this gateway alone is nobody else's business.
    let own = Scribe::new(&rig.token(2));
    rig.deliver(home(2), &own.request());
    assert_eq!(own.kinds(&mut rig, home(2)), [PacketKind::Challenge]);
    assert_eq!(tokens.len(), 1);
}

pub(super) fn token_claimed(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.deliver(home(1), &scribe.request());
    let asked = tokens.take_questions(9, 0);
    tokens.answer(&asked[0].mac, Whose::Others);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
    token_claimed_in_a_cluster(reason);
}

/// One address is several gateways': none lets a token in that another one has.
fn token_claimed_in_a_cluster(reason: DropReason) {
    let tokens = Arc::new(FleetTokens::new(9));
    let fleet_tokens = Some(Arc::clone(&tokens));
    let mut rig = Rig::new(Setup { fleet_tokens, cluster: Some("fra".into()), ..plain_setup() });
    let _game = Game::join(&mut rig, "arena");
    let [own, others] = [1, 2].map(|client_id| Scribe::new(&rig.token(client_id)));
    for (scribe, from, whose) in [(&own, home(1), Whose::Ours), (&others, home(2), Whose::Others)] {
        rig.deliver(from, &scribe.request());
        assert!(rig.take_for(from).is_empty(), "its client asks again");
        let asked = tokens.take_questions(9, 0);
        tokens.answer(&asked[0].mac, whose);
    }
    rig.deliver(home(1), &own.request());
    assert_eq!(own.kinds(&mut rig, home(1)), [PacketKind::Challenge]);
    rig.provokes(reason, |rig| rig.deliver(home(2), &others.request()));
    assert!(rig.take_for(home(2)).is_empty(), "it may be in there, and is not told that it is not");
}

pub(super) fn token_unclaimed(reason: DropReason) {
    let (mut rig, _game, tokens) = in_fleet(9);
    let scribe = of_two(&mut rig, 1);
    rig.deliver(home(1), &scribe.request());
    let asked = tokens.take_questions(9, 0);
    tokens.no_answer(&asked[0].mac);
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(rig.take_for(home(1)).is_empty());
    tokens.accept_when_away(true);
    rig.deliver(home(1), &scribe.request());
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Challenge]);
}

pub(super) fn token_claims_full(reason: DropReason) {
    let (mut rig, _game, _tokens) = in_fleet(1);
    let [first, second] = [1, 2].map(|client_id| of_two(&mut rig, client_id));
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
}

pub(super) fn token_history_full(reason: DropReason) {
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

pub(super) fn request_backend_full(reason: DropReason) {
    let setup = Setup::new(vec![listener("eu", &[0])], vec![bundle_backend("arena", 1)], 1);
    let (mut rig, ..) = playing_with(setup);
    let second = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
    assert_eq!(second.kinds(&mut rig, home(2)), [PacketKind::Denied]);
}

pub(super) fn request_backend_down(reason: DropReason) {
    let mut rig = Rig::new(plain_setup());
    rig.pass(5000);
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

pub(super) fn backend_drained(reason: DropReason) {
    let mut drained = plain_setup();
    drained.backends[BackendId(0)].drained = true;
    let mut rig = Rig::new(drained);
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert_eq!(scribe.kinds(&mut rig, home(1)), [PacketKind::Denied]);
}

pub(super) fn backend_starting(reason: DropReason) {
    let mut rig = Rig::new(plain_setup());
    let scribe = Scribe::new(&rig.token(1));
    rig.provokes(reason, |rig| rig.deliver(home(1), &scribe.request()));
    assert!(scribe.kinds(&mut rig, home(1)).is_empty(), "it asks again");
}

pub(super) fn request_sessions_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.listeners[ListenerId(0)].sessions_max = 1;
    let (mut rig, ..) = playing_with(setup);
    let second = Scribe::new(&rig.token(2));
    rig.provokes(reason, |rig| rig.deliver(home(2), &second.request()));
    assert_eq!(second.kinds(&mut rig, home(2)), [PacketKind::Denied]);
}

pub(super) fn token_superseded(reason: DropReason) {
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

pub(super) fn pending_full(reason: DropReason) {
    let mut setup = plain_setup();
    setup.worker_pending_max = 1;
    let (mut rig, _) = ready_with(setup);
    let [first, second] = [rig.token(1), rig.token(2)].map(|token| Scribe::new(&token));
    let elsewhere = endpoint("198.51.100.1:9");
    rig.deliver(home(1), &first.request());
    rig.provokes(reason, |rig| rig.deliver(elsewhere, &second.request()));
    assert!(rig.take_for(elsewhere).is_empty());
}

pub(super) fn address_full(reason: DropReason) {
    full_source(reason, home(1).with_port(7), |limits| limits.sessions_per_address = 1);
}

pub(super) fn site_full(reason: DropReason) {
    let player = endpoint("[2001:db8:1:200::1]:9");
    let neighbour = endpoint("[2001:db8:1:2ff::1]:9");
    full_source_of(player, reason, neighbour, |limits| limits.sessions_per_site = 1);
}

pub(super) fn block_full(reason: DropReason) {
    full_source(reason, neighbour(), |limits| limits.sessions_per_block = 1);
}

/// A player is in; another one asks from `source`, and one who has asked before answers its
/// challenge.
fn full_source(reason: DropReason, source: Endpoint, change: impl FnOnce(&mut Limits)) {
    full_source_of(home(1), reason, source, change);
}

fn full_source_of(
    player: Endpoint,
    reason: DropReason,
    source: Endpoint,
    change: impl FnOnce(&mut Limits),
) {
    let mut setup = plain_setup();
    change(&mut setup.listeners[ListenerId(0)].limits);
    let (mut rig, _) = ready_with(setup);
    let [first, second, third] = [1, 2, 3].map(|id| Scribe::new(&rig.token(id)));
    let other = source.with_port(8);
    rig.deliver(other, &third.request());
    let challenge = third.challenge(&mut rig, other);
    first.connect(&mut rig, player);
    rig.provokes(reason, |rig| rig.deliver(source, &second.request()));
    assert_eq!(second.kinds(&mut rig, source), [PacketKind::Denied]);
    let response = third.packet(PacketKind::Response, 1, &challenge);
    rig.provokes(reason, |rig| rig.deliver(other, &response));
    assert_eq!(third.kinds(&mut rig, other), [PacketKind::Denied]);
    rig.deliver(player, &first.disconnect(2));
    rig.deliver(other, &third.request());
    let challenge = third.challenge(&mut rig, other);
    rig.deliver(other, &third.packet(PacketKind::Response, 2, &challenge));
    assert_eq!(rig.sessions(), 1, "there is room again");
}

/// Another address of the block that `home(1)` is in.
fn neighbour() -> Endpoint {
    endpoint("10.0.1.8:9")
}

pub(super) fn block_handshakes_full(reason: DropReason) {
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

pub(super) fn draining(reason: DropReason) {
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
