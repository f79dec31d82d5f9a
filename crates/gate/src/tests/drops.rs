//! Every reason for a drop that the gate can have, provoked: exactly that counter moves, by one.
//!
//! [`every_reason_is_provoked`] compares the cases with the list of all reasons, so a new reason
//! without a case fails.

mod links;
mod packets;
mod requests;
mod responses;

use super::clients::Scribe;
use super::games::{Game, Heard};
use super::rig::{Rig, home, plain_setup};
use crate::setup::Setup;
use ringgate_core::drops::DropReason;

macro_rules! provocations {
    ($( $reason:ident: $file:ident::$case:ident; )+) => {
        const PROVOKED: &[DropReason] = &[ $( DropReason::$reason ),+ ];

        mod provoked {
            use super::*;

            $( #[test]
            fn $case() {
                super::$file::$case(DropReason::$reason);
            } )+
        }
    };
}

provocations! {
    Empty: packets::empty;
    TooLong: packets::too_long;
    UnknownSource: packets::unknown_source;
    AddressDenied: requests::address_denied;
    SessionEnded: packets::session_ended;
    RequestRateLimited: requests::request_rate_limited;
    RequestDeferred: requests::request_deferred;
    RequestLength: requests::request_length;
    RequestVersion: requests::request_version;
    RequestProtocol: requests::request_protocol;
    RequestExpired: requests::request_expired;
    RequestForged: requests::request_forged;
    TokenUnreadable: requests::token_unreadable;
    TokenNotForUs: requests::token_not_for_us;
    ClientDenied: requests::client_denied;
    RequestAddressConnected: requests::request_address_connected;
    RequestClientConnected: requests::request_client_connected;
    TokenUsedElsewhere: requests::token_used_elsewhere;
    TokenSpent: requests::token_spent;
    TokenHistoryFull: requests::token_history_full;
    TokenClaimed: requests::token_claimed;
    TokenClaimPending: requests::token_claim_pending;
    TokenUnclaimed: requests::token_unclaimed;
    TokenClaimsFull: requests::token_claims_full;
    RequestBackendFull: requests::request_backend_full;
    RequestBackendDown: requests::request_backend_down;
    BackendDrained: requests::backend_drained;
    BackendStarting: requests::backend_starting;
    RequestSessionsFull: requests::request_sessions_full;
    TokenSuperseded: requests::token_superseded;
    AddressFull: requests::address_full;
    SiteFull: requests::site_full;
    BlockFull: requests::block_full;
    BlockHandshakesFull: requests::block_handshakes_full;
    PendingFull: requests::pending_full;
    BucketMoved: requests::bucket_moved;
    Draining: requests::draining;
    PacketLength: packets::packet_length;
    PacketType: packets::packet_type;
    SequenceLength: packets::sequence_length;
    PacketTruncated: packets::packet_truncated;
    ReplayDuplicate: packets::replay_duplicate;
    ReplayTooOld: packets::replay_too_old;
    SequenceGap: packets::sequence_gap;
    PacketForged: packets::packet_forged;
    BodyLength: packets::body_length;
    PacketUnexpected: packets::packet_unexpected;
    ChallengeForged: responses::challenge_forged;
    ChallengeForeign: responses::challenge_foreign;
    ResponseClientConnected: responses::response_client_connected;
    ResponseBackendFull: responses::response_backend_full;
    ResponseBackendDown: responses::response_backend_down;
    ResponseSessionsFull: responses::response_sessions_full;
    PlacesResting: responses::places_resting;
    PortSwitchRateLimited: packets::port_switch_rate_limited;
    PortSwitchForged: packets::port_switch_forged;
    PortSwitchStale: packets::port_switch_stale;
    MailboxFull: links::mailbox_full;
    LinkFull: links::link_full;
    LinkDown: links::link_down;
    RecordInvalid: links::record_invalid;
    SessionUnknown: links::session_unknown;
    LinkStranger: links::link_stranger;
    MulticastDuplicate: links::multicast_duplicate;
    LinkEnded: links::link_ended;
    PayloadLength: links::payload_length;
    SequenceExhausted: links::sequence_exhausted;
    SendBufferFull: links::send_buffer_full;
    SendRefused: links::send_refused;
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
    DropReason::UnprovenFull,
    DropReason::AnswerLimited,
    DropReason::SourcePaused,
    DropReason::CreditSpent,
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

/// What is refused of other members' players only: provoked in `cluster`.
pub(super) const OF_CLUSTER: &[DropReason] = &[
    DropReason::ForwardLimited,
    DropReason::MemberQueueFull,
    DropReason::TakeoverAwaited,
    DropReason::TakeoverLimited,
    DropReason::TakeoverRefused,
    DropReason::OwnerUnconfirmed,
];

/// What is refused because a player was moved, or was to be: provoked in `moves`.
pub(super) const OF_MOVES: &[DropReason] = &[
    DropReason::MessageAfterMove,
    DropReason::MoveUnconfirmed,
    DropReason::OfferUnknown,
    DropReason::AfterMove,
];

#[test]
fn every_reason_is_provoked() {
    let elsewhere = [OF_UNREAL, OF_PLAIN, OF_DELIVERY, OF_MOVES, OF_CLUSTER].concat();
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
