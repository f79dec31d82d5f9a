//! Why a datagram went no further, and why a session ended, in words and with the numbers at hand:
//! what an operator can act on.

use ringgate_core::drops::DropReason;
use ringgate_gate::{Detail, Ended, ListenerId, Setup};
use ringgate_os::utc;

/// Why, at this listener.
pub(super) fn of(setup: &Setup, listener: ListenerId, why: DropReason, detail: Detail) -> String {
    let numbers = detailed(setup, listener, detail);
    let limit = limit(setup, listener, why);
    let words = in_general(why);
    match numbers.or(limit) {
        Some(numbers) => format!("{words}: {numbers}"),
        None => words.to_owned(),
    }
}

/// The numbers of this datagram.
fn detailed(setup: &Setup, listener: ListenerId, detail: Detail) -> Option<String> {
    Some(match detail {
        Detail::Nothing => return None,
        Detail::Expired { ago_s } => format!(
            "it expired {} ago by this host's clock; if it is fresh, compare the token service's clock with this host's",
            utc::span(ago_s)
        ),
        Detail::Length { bytes } => format!("it has {bytes} bytes"),
        Detail::Names { first, others } => {
            let ours = setup.listeners.get(listener).map(|it| &it.public[..]).unwrap_or_default();
            let ours: Vec<_> = ours.iter().map(ToString::to_string).collect();
            let more = match others {
                0 => String::new(),
                n => format!(" and {n} others"),
            };
            format!("it names {first}{more}, and we are {}", ours.join(", "))
        }
        Detail::Protocol { found, expected } => {
            format!("it says {found:#x}, and the listener has {expected:#x}")
        }
        Detail::Sequence { found, newest } => {
            format!("it has number {found}, and the newest taken is {newest}")
        }
    })
}

/// The limit that was reached.
fn limit(setup: &Setup, listener: ListenerId, why: DropReason) -> Option<String> {
    use DropReason as R;
    let rules = setup.listeners.get(listener)?;
    let limits = &rules.limits;
    let (name, value) = match why {
        R::RequestSessionsFull | R::ResponseSessionsFull => ("max_sessions", rules.sessions_max),
        R::RequestRateLimited => ("requests_per_block", limits.requests_per_block),
        R::BlockHandshakesFull => ("handshakes_per_block", limits.handshakes_per_block),
        R::AddressFull => ("sessions_per_address", limits.sessions_per_address),
        R::SiteFull => ("sessions_per_site", limits.sessions_per_site),
        R::BlockFull => ("sessions_per_block", limits.sessions_per_block),
        R::PortSwitchRateLimited => ("port_switches_per_block", limits.port_switches_per_block),
        R::RestartRateLimited => ("restarts_per_block", limits.restarts_per_block),
        R::StartBlockLimited => ("starts_per_block", rules.plain()?.starts_per_block),
        R::StartLimited => ("starts", rules.plain()?.starts_total),
        _ => return None,
    };
    (value > 0).then(|| format!("listener {} has {name} = {value}", rules.name))
}

/// Why a session ended.
pub(super) const fn ended(why: Ended) -> &'static str {
    match why {
        Ended::BackendGone => "its backend was gone for longer than its grace time",
        Ended::ByBackend => "the game process closed it",
        Ended::ByOperator => "an operator ended it (kick, or the end of a drain)",
        Ended::ByPlayer => "the player left",
        Ended::DeliveryAcknowledgement => "the player acknowledged what was never sent",
        Ended::DeliveryMalformed => "the player sent what is no packet of the delivery layer",
        Ended::DeliveryMarks => "a message of the player's began in the middle of another",
        Ended::DeliveryMemory => "more of the player's messages waited than is kept",
        Ended::DeliveryMessageLength => "a message of the player's grew over 64 KiB",
        Ended::DeliveryOverflow => "the game process sent more than the player took",
        Ended::DeliveryOversize => "the player sent 1160 bytes or more on an unreliable channel",
        Ended::DeliverySequence => "a packet of the player's was numbered too far ahead",
        Ended::DeliverySilence => "the player acknowledged nothing for half a minute",
        Ended::DeliveryWindow => "a part of a message of the player's was too far ahead",
        Ended::Denied => "an operator has denied the player's address or id",
        Ended::LingerExpired => "the game process closed it, and not all had arrived in time",
        Ended::ByArbiter => "its agent says that it has ended",
        Ended::Fenced => "another member of the cluster goes on with it",
        Ended::NumbersUsedUp => "its packets have no numbers left",
        Ended::NewerLogin => "the player has logged in again, here or at another gateway",
        Ended::NotCarried => "it could not be carried into the process that has taken over",
        Ended::Replaced => "another handshake from the same address took its place",
        Ended::Shutdown => "the gateway stops",
        Ended::SequenceGap => "its packet number jumped further than gap_limit",
        Ended::TimedOut => "nothing was heard from the player for the timeout",
    }
}

#[expect(clippy::too_many_lines, reason = "one line for each reason")]
const fn in_general(why: DropReason) -> &'static str {
    use DropReason as R;
    match why {
        R::Empty => "too short to be anything",
        R::TooLong => "longer than any packet of the protocol",
        R::UnknownSource => "no request, and no session has this address",
        R::AddressDenied => {
            "an operator has denied the address: `ringgate denied ADDRESS` says by which rule"
        }
        R::SessionEnded => "late, from a session that is over",
        R::RequestRateLimited => "its block of addresses asks too often",
        R::RequestDeferred => "a worker is behind; the client asks again",
        R::BucketMoved => "another worker has its address since it came; the next one comes there",
        R::RequestLength => "no connection request has this length",
        R::RequestVersion => "a request of another version of netcode than 1.02",
        R::RequestProtocol => {
            "the protocol id is another one: another game, or another build of it"
        }
        R::RequestExpired => "the token has expired",
        R::RequestForged => {
            "the token does not open under any key of the listener: made under another key, for another protocol id, or changed"
        }
        R::TokenUnreadable => {
            "the token opens, and its inside is not valid: a faulty token service"
        }
        R::TokenNotForUs => "the token names other servers than this listener",
        R::ClientDenied => "an operator has denied the client id of the token",
        R::RequestAddressConnected => "the address has a session already",
        R::RequestClientConnected | R::ResponseClientConnected => {
            "the client id has a session already: `ringgate sessions --client` shows it"
        }
        R::TokenUsedElsewhere => "the token was used from another address before",
        R::TokenSpent => "the token has had its session; the client needs a new one",
        R::TokenClaimed => "another gateway of the fleet has seen the token first",
        R::TokenClaimPending => {
            "the fleet is asked whether another gateway has seen the token; the client asks again"
        }
        R::TokenUnclaimed => {
            "the fleet cannot be asked whether another gateway has seen the token (fleet.when_away)"
        }
        R::TokenClaimsFull => "no more tokens of several gateways can be remembered",
        R::TokenHistoryFull => "no more used tokens can be remembered: shorten their lifetime",
        R::RequestBackendFull | R::ResponseBackendFull => "no free slot at the backend",
        R::RequestBackendDown | R::ResponseBackendDown => {
            "no backend for the player is up: `ringgate status` shows them"
        }
        R::BackendDrained => {
            "an operator has drained every backend for the player: `ringgate undrain NAME` ends that"
        }
        R::BackendStarting => {
            "the backend for the player has just been named and is not there yet; the client asks again"
        }
        R::RequestSessionsFull | R::ResponseSessionsFull => "the listener is full",
        R::TokenSuperseded => "an old token, while the address is in a handshake with another one",
        R::AddressFull => "the address has as many sessions as one may have",
        R::SiteFull => "the IPv6 /56 has as many sessions as one may have",
        R::BlockFull => "the block of addresses has as many sessions as one may have",
        R::BlockHandshakesFull => "the block of addresses has too many unfinished handshakes",
        R::PendingFull => "too many unfinished handshakes from everywhere",
        R::Draining => "the gateway drains and takes nobody in: `ringgate undrain` ends that",
        R::PacketLength => "too short for a packet",
        R::PacketType => "no packet of a client has this type",
        R::SequenceLength => "its prefix is not that of a packet",
        R::PacketTruncated => "it ends too early",
        R::ReplayDuplicate => "its number was taken before: a copy",
        R::ReplayTooOld => "its number is older than the replay window",
        R::SequenceGap => "its number jumps further than gap_limit, which ends the session",
        R::PacketForged => {
            "it does not open under the session's key: damaged, forged, or of another session of the same address"
        }
        R::BodyLength => "authentic, with a body of the wrong size: a faulty client",
        R::PacketUnexpected => "authentic, and of a type that makes no sense now",
        R::ChallengeForged => "a response whose challenge is not ours",
        R::ChallengeForeign => {
            "a response to a challenge of an earlier request, or of another client"
        }
        R::PlacesResting => "every loopback address is in use, or was left too lately",
        R::PortSwitchRateLimited => "from a new port, and no more of those are tried now",
        R::PortSwitchForged => "from a new port, and it opens for no session of the address",
        R::PortSwitchStale => "from a new port, and no session there can have sent that number",
        R::MailboxFull => "the worker that owns the session is too slow",
        R::ForwardLimited => {
            "another member's player, and more than that member has accepted of it"
        }
        R::MemberQueueFull => "another member's player, and too much waits to go there",
        R::TakeoverAwaited => "the member that had the player is gone, and the agent is asked",
        R::TakeoverLimited => "the member that had the player is gone, and too many packets come",
        R::TakeoverRefused => "the member that had the player is gone, and it cannot go on here",
        R::UnrealEnd => "not a packet of an Unreal game: no bit ends it",
        R::UnrealMagic => "it does not begin with the listener's magic bits",
        R::UnrealSize => "no handshake packet of its type has this size",
        R::UnrealType => "no client sends handshake packets of its type",
        R::UnrealFiller => "the filler of an initial packet is not zero",
        R::UnrealVersion => "a version of the handshake that is not served",
        R::UnrealNetworkVersion => "a build of the game that may not connect",
        R::UnrealIds => "session or client id are not those of the session",
        R::CookieExpired => "it answers a challenge too late",
        R::CookieSecret | R::CookieForged => "it answers a challenge that was not asked",
        R::CookieUnknown => "it wants to continue a session that is not there",
        R::ResponseReplayed => "this answer has opened a session before",
        R::ResponseHistoryFull => "no more used answers can be remembered",
        R::RestartRateLimited => {
            "an unknown source, and no more of those are asked to begin again now"
        }
        R::GapUnconfirmed => {
            "its number jumps far ahead, and no other packet has confirmed that yet"
        }
        R::AckImplausible => "it acknowledges what was never sent",
        R::PatternMissing => "it does not begin with the bytes that the listener demands",
        R::TokenUnknown => "its token stands for no backend",
        R::SequenceMissing => "it ends before its number does",
        R::AfterGap => "a gap has ended the session of its source, which may not begin again yet",
        R::StartBlockLimited => "its block of addresses begins sessions too often",
        R::StartLimited => "too many sessions begin at the listener",
        R::HalfOpenFull => "no room for another session that is not proven",
        R::UnprovenFull => "sources that no echo has proven hold all slots that they may",
        R::DeliveryDeferred => "the game process takes no messages now; the player sends it again",
        R::DeliveryLate => "newer packets of the delivery layer have overtaken it",
        R::DeliveryFault => "it breaks the rules of the delivery layer, which ends the session",
        R::MessageNotTaken => "a message that the game process's link had no room for",
        R::MessageAfterMove => "a message for a player who has been moved to another game process",
        R::MessageUnknown => "a message for a player who has left, or who gets no messages",
        R::MessageOverflow => "more waits for the player than is kept, which ends the session",
        R::LinkFull => "the game process does not read fast enough",
        R::LinkDown => "the backend is not there: `ringgate status` shows it",
        R::MoveUnconfirmed => {
            "the player was moved, and the game process it has left has not heard of it yet"
        }
        R::OwnerUnconfirmed => {
            "the gateway has slept, and asks whether the session is still its own"
        }
        R::OfferUnknown => "an answer to an offer that does not stand any more",
        R::RecordInvalid => "the game process broke the format",
        R::AfterMove => "for a player who has been moved to another game process",
        R::SessionUnknown => "for a player who has left",
        R::LinkStranger => "from an address that is no backend's",
        R::ServerDuplicate => "the server's packet has come before",
        R::ServerPacketInvalid => "the server's packet makes no sense for its player now",
        R::MulticastDuplicate => "the same multicast has named the player before",
        R::LinkEnded => "its link has ended",
        R::PayloadLength => "a payload that is too long, or empty",
        R::AnswerLimited => "more than may be sent to a source that is not proven",
        R::SourcePaused => {
            "the player is silent or another one has its address, and it is sent nothing until it is heard"
        }
        R::CreditSpent => "more than the player has earned by what was heard of it",
        R::SequenceExhausted => "the session has used up its numbers",
        R::SendBufferFull | R::SendRefused => "the kernel did not send it",
    }
}
