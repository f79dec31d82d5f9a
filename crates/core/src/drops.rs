//! Why a datagram, packet or payload went no further: one name and one counter for each reason.
//!
//! Hostile and stale input is the normal case, so a refusal is a `Copy` enum without data: nothing
//! is allocated, formatted or logged for it. Every layer shares this one list, so that a reason has
//! the same name in code, metrics and documents, and so that the conservation check can sum over
//! it.

crate::named! {
    /// Why something was dropped. Grouped by the stage that decides it, in the order in which the
    /// checks run.
    #[derive(PartialOrd, Ord)]
    pub enum DropReason;
    // classify: any datagram
    /// Too short to be anything: no byte, or one byte of netcode.
    Empty = "empty" => "too short to be anything",
    /// Longer than any packet of the listener's protocol (or cut off by the receive buffer).
    TooLong = "too_long" => "longer than any packet of the protocol",
    /// Not a connection request, and nobody we know lives at the source address.
    UnknownSource = "unknown_source" => "no request, and no session has this address",

    /// An operator has denied the source's address.
    AddressDenied = "address_denied" =>
        "an operator has denied the address: `ringgate denied ADDRESS` says by which rule",

    /// Late from a netcode session that its address has had until a moment ago: a repeated goodbye,
    /// or sent before the player heard that it was over.
    SessionEnded = "session_ended" => "late, from a session that is over",

    // classify: connection requests, in the order of the checks
    /// The prefix's source address block asks too often.
    RequestRateLimited = "request_rate_limited" => "its block of addresses asks too often",
    /// A worker that is behind has looked at its share of connection requests in this turn; the
    /// client asks again.
    RequestDeferred = "request_deferred" => "a worker is behind; the client asks again",
    /// A connection request that is not exactly 1078 bytes.
    RequestLength = "request_length" => "no connection request has this length",
    /// A connection request of another protocol version.
    RequestVersion = "request_version" => "a request of another version of netcode than 1.02",
    /// A connection request for another protocol id.
    RequestProtocol = "request_protocol" =>
        "the protocol id is another one: another game, or another build of it",
    /// The connect token has expired.
    RequestExpired = "request_expired" => "the token has expired",
    /// The private part of the connect token does not open under any of the listener's keys.
    RequestForged = "request_forged" =>
        "the token does not open under any key of the listener: made under another key, for another protocol id, or changed",
    /// The private part opened, but is not a valid token (address count or address type).
    TokenUnreadable = "token_unreadable" =>
        "the token opens, and its inside is not valid: a faulty token service",
    /// The token does not name any address of this listener.
    TokenNotForUs = "token_not_for_us" => "the token names other servers than this listener",
    /// An operator has denied the client id of the token (the player was sent a denial).
    ClientDenied = "client_denied" => "an operator has denied the client id of the token",
    /// The source address already has a session.
    RequestAddressConnected = "request_address_connected" => "the address has a session already",
    /// The client id already has a session.
    RequestClientConnected = "request_client_connected" =>
        "the client id has a session already: `ringgate sessions --client` shows it",
    /// The token was used before, from another address.
    TokenUsedElsewhere = "token_used_elsewhere" => "the token was used from another address before",
    /// The token has had a session that took something in from its player, and may have no other
    /// (the player was sent a denial).
    TokenSpent = "token_spent" => "the token has had its session; the client needs a new one",
    /// The memory of used tokens is full of live entries.
    TokenHistoryFull = "token_history_full" =>
        "no more used tokens can be remembered: shorten their lifetime",
    /// The token names other gateways as well, and one of them has seen it first (the player was
    /// sent a denial).
    TokenClaimed = "token_claimed" => "another gateway of the fleet has seen the token first",
    /// The token names other gateways as well, and the fleet is asked whose it is; the client asks
    /// again.
    TokenClaimPending = "token_claim_pending" =>
        "the fleet is asked whether another gateway has seen the token; the client asks again",
    /// The token names other gateways as well, and the fleet cannot be asked (nothing was sent, so
    /// the client asks again, and then another gateway).
    TokenUnclaimed = "token_unclaimed" =>
        "the fleet cannot be asked whether another gateway has seen the token (fleet.when_away)",
    /// The memory of tokens that name other gateways as well is full.
    TokenClaimsFull = "token_claims_full" => "no more tokens of several gateways can be remembered",
    /// No slot is free at the backend (the player was sent a denial).
    RequestBackendFull = "request_backend_full" => "no free slot at the backend",
    /// The token's backend is unknown or down (the player was sent a denial).
    RequestBackendDown = "request_backend_down" =>
        "no backend for the player is up: `ringgate status` shows them",
    /// An operator has drained every backend that the player could be sent to (a netcode player was
    /// sent a denial).
    BackendDrained = "backend_drained" =>
        "an operator has drained every backend for the player: `ringgate undrain NAME` ends that",
    /// The backend for the player was named a moment ago (the gateway has just started, a reload or
    /// the fleet has brought it) and is not there yet, or is starting by its own word (nothing was
    /// sent, so the client asks again).
    BackendStarting = "backend_starting" =>
        "the backend for the player has just been named and is not there yet; the client asks again",
    /// The listener has `max_sessions` sessions (the player was sent a denial).
    RequestSessionsFull = "request_sessions_full" => "the listener is full",
    /// The token has had its session, and its address is in a handshake with another one: a
    /// recorded request. On a plain listener: a session with another token was just heard there.
    TokenSuperseded = "token_superseded" =>
        "an old token, while the address is in a handshake with another one",
    /// The source's address has as many sessions as one address may have (a netcode player was sent
    /// a denial).
    AddressFull = "address_full" => "the address has as many sessions as one may have",
    /// The source's IPv6 /56 has as many sessions as one may have (a netcode player was sent a
    /// denial).
    SiteFull = "site_full" => "the IPv6 /56 has as many sessions as one may have",
    /// The source's block of addresses has as many sessions as one block may have (a netcode player
    /// was sent a denial).
    BlockFull = "block_full" => "the block of addresses has as many sessions as one may have",
    /// The source's block of addresses has as many unfinished handshakes as one block may have.
    BlockHandshakesFull = "block_handshakes_full" =>
        "the block of addresses has too many unfinished handshakes",
    /// The table of unfinished handshakes is full.
    PendingFull = "pending_full" => "too many unfinished handshakes from everywhere",
    /// The first datagram of a session has waited while what comes from its source was given to
    /// another worker (`workers_awake`); the next one comes to that.
    BucketMoved = "bucket_moved" =>
        "another worker has its address since it came; the next one comes there",
    /// The gateway is draining and takes nobody in.
    Draining = "draining" => "the gateway drains and takes nobody in: `ringgate undrain` ends that",

    // classify: encrypted packets
    /// Shorter than the shortest encrypted packet.
    PacketLength = "packet_length" => "too short for a packet",
    /// A packet type that does not exist, or that only servers send.
    PacketType = "packet_type" => "no packet of a client has this type",
    /// The prefix does not announce 1 to 8 sequence bytes.
    SequenceLength = "sequence_length" => "its prefix is not that of a packet",
    /// The datagram ends before its sequence and tag do.
    PacketTruncated = "packet_truncated" => "it ends too early",
    /// The sequence was accepted before.
    ReplayDuplicate = "replay_duplicate" => "its number was taken before: a copy",
    /// The sequence is older than the replay window.
    ReplayTooOld = "replay_too_old" => "its number is older than the replay window",
    /// The sequence jumps further than the listener allows; this also ends the session.
    SequenceGap = "sequence_gap" =>
        "its number jumps further than gap_limit, which ends the session",

    // open and step
    /// The tag does not verify.
    PacketForged = "packet_forged" =>
        "it does not open under the session's key: damaged, forged, or of another session of the same address",
    /// Authentic, but with a body of the wrong size for its type.
    BodyLength = "body_length" => "authentic, with a body of the wrong size: a faulty client",
    /// An authentic packet whose type makes no sense now (a payload before the handshake is
    /// complete, a request with a sequence, a second response).
    PacketUnexpected = "packet_unexpected" => "authentic, and of a type that makes no sense now",
    /// The challenge token in a response does not open.
    ChallengeForged = "challenge_forged" => "a response whose challenge is not ours",
    /// The challenge answers an earlier request, or names another client than the request did.
    ChallengeForeign = "challenge_foreign" =>
        "a response to a challenge of an earlier request, or of another client",
    /// A response whose client id got a session in the meantime.
    ResponseClientConnected = "response_client_connected" =>
        "the client id has a session already: `ringgate sessions --client` shows it",
    /// A response that finds no free slot at the backend (the player was sent a denial).
    ResponseBackendFull = "response_backend_full" => "no free slot at the backend",
    /// A response whose backend went away meanwhile (the player was sent a denial).
    ResponseBackendDown = "response_backend_down" =>
        "no backend for the player is up: `ringgate status` shows them",
    /// A response that finds `max_sessions` sessions (the player was sent a denial).
    ResponseSessionsFull = "response_sessions_full" => "the listener is full",
    /// A response that finds every loopback address taken, or left so lately that a game server
    /// could take a newcomer for the player who has left (a netcode player was sent a denial).
    PlacesResting = "places_resting" => "every loopback address is in use, or was left too lately",

    // port switch
    /// A packet from a new port of an address with live sessions, over the rate at which we try
    /// such packets.
    PortSwitchRateLimited = "port_switch_rate_limited" =>
        "from a new port, and no more of those are tried now",
    /// A packet from a new port that opened under none of the address's sessions.
    PortSwitchForged = "port_switch_forged" =>
        "from a new port, and it opens for no session of the address",
    /// A packet from a new port that is not newer than everything the session has received:
    /// recorded, or late.
    PortSwitchStale = "port_switch_stale" =>
        "from a new port, and no session there can have sent that number",
    /// The mailbox of the worker that owns the session was full.
    MailboxFull = "mailbox_full" => "the worker that owns the session is too slow",

    // cluster
    /// The player is another member's, and more comes from its address here than that member has
    /// accepted of late.
    ForwardLimited = "forward_limit" =>
        "another member's player, and more than that member has accepted of it",
    /// The player is another member's, and more waits to go there than is kept.
    MemberQueueFull = "member_queue_full" =>
        "another member's player, and too much waits to go there",
    /// The member that has the player is gone, and the session's arbiter is asked whether this one
    /// may go on with it.
    TakeoverAwaited = "takeover_awaited" =>
        "the member that had the player is gone, and the agent is asked",
    /// The member that has the player is gone, and no more packets from its address are tried now.
    TakeoverLimited = "takeover_limit" =>
        "the member that had the player is gone, and too many packets come",
    /// The member that has the player is gone, and this one cannot go on with the session.
    TakeoverRefused = "takeover_refused" =>
        "the member that had the player is gone, and it cannot go on here",

    // Unreal: any datagram, in the order of the checks
    /// The last byte holds no termination bit, or a game packet lacks its second one.
    UnrealEnd = "unreal_end" => "not a packet of an Unreal game: no bit ends it",
    /// The packet does not begin with the listener's magic bits.
    UnrealMagic = "unreal_magic" => "it does not begin with the listener's magic bits",
    /// A handshake packet that does not have the size of its type, or a game packet that is too
    /// short to be one.
    UnrealSize = "unreal_size" => "no handshake packet of its type has this size",
    /// A handshake packet of a type that does not exist, or that only the other side sends.
    UnrealType = "unreal_type" => "no client sends handshake packets of its type",
    /// An initial connect whose filler is not zero.
    UnrealFiller = "unreal_filler" => "the filler of an initial packet is not zero",
    /// A handshake of a version that is not served.
    UnrealVersion = "unreal_version" => "a version of the handshake that is not served",
    /// A build of the game that may not connect.
    UnrealNetworkVersion = "unreal_network_version" => "a build of the game that may not connect",
    /// Session or client id are not those of the session.
    UnrealIds = "unreal_ids" => "session or client id are not those of the session",

    // Unreal: cookies
    /// The cookie is older than any that is taken, or from the future.
    CookieExpired = "cookie_expired" => "it answers a challenge too late",
    /// The cookie's time and secret do not go together: that secret was not in use then.
    CookieSecret = "cookie_secret" => "it answers a challenge that was not asked",
    /// The cookie does not verify.
    CookieForged = "cookie_forged" => "it answers a challenge that was not asked",
    /// No session has the cookie that a restart response wants to continue.
    CookieUnknown = "cookie_unknown" => "it wants to continue a session that is not there",
    /// The response was used before, or is older than what its address's session stands on.
    ResponseReplayed = "response_replayed" =>
        "this answer was used before, or a newer one was",
    /// The memory of used responses is full of live entries, or what a block may have of it.
    ResponseHistoryFull = "response_history_full" => "no more used answers can be remembered",
    /// A packet of an unknown source, over the rate at which such sources are asked to restart
    /// their handshake, or smaller than the request would be; or a session that has just moved.
    RestartRateLimited = "restart_rate_limited" =>
        "no more unknown sources are asked to begin again now, or it has just done so",

    // Unreal: game packets
    /// The packet jumps far ahead, and no other one has confirmed yet that so many were lost.
    GapUnconfirmed = "gap_unconfirmed" =>
        "its number jumps far ahead, and no other packet has confirmed that yet",
    /// The packet acknowledges what was never sent, or takes an acknowledgement back.
    AckImplausible = "ack_implausible" => "it acknowledges what was never sent",

    // plain: any datagram, in the order of the checks
    /// The datagram does not begin with the bytes that the listener demands.
    PatternMissing = "pattern_missing" =>
        "it does not begin with the bytes that the listener demands",
    /// The datagram's token stands for no backend, or the datagram is too short to have one.
    TokenUnknown = "token_unknown" => "its token stands for no backend",
    /// The datagram ends before its sequence number does.
    SequenceMissing = "sequence_missing" => "it ends before its number does",
    /// A gap has ended the session of the source, which may not begin again yet.
    AfterGap = "after_gap" =>
        "a gap has ended the session of its source, which may not begin again yet",
    /// The source's block of addresses begins sessions too often.
    StartBlockLimited = "start_block_limited" => "its block of addresses begins sessions too often",
    /// Too many sessions begin at the listener.
    StartLimited = "start_limited" => "too many sessions begin at the listener",
    /// The table of half-open sessions is full: a reload has raised its bound beyond what was set
    /// aside at the start.
    HalfOpenFull = "half_open_full" => "no room for another session that is not proven",
    /// The sources that no echo has proven hold as many of the server's slots as they may, or as
    /// many of the sessions of their address, site or block.
    UnprovenFull = "unproven_full" =>
        "sources that no echo has proven hold all slots that they may",

    // delivery: packets of players
    /// The game process's link has no room for messages, or is not there: the packet is not
    /// acknowledged, so the player sends again what it says.
    DeliveryDeferred = "delivery_deferred" =>
        "the game process takes no messages now; the player sends it again",
    /// A packet that newer ones have overtaken. Its sender is told that it is lost.
    DeliveryLate = "delivery_late" => "newer packets of the delivery layer have overtaken it",
    /// A packet that breaks the rules of the delivery layer. It ends the session.
    DeliveryFault = "delivery_fault" =>
        "it breaks the rules of the delivery layer, which ends the session",

    // messages
    /// A message for a game process whose link had no room for it or ended with it. None on a
    /// reliable channel, as long as the link lives.
    MessageNotTaken = "message_not_taken" =>
        "a message that the game process's link had no room for",
    /// A message for a session that is not there (any more), or whose listener delivers none.
    MessageUnknown = "message_unknown" =>
        "a message for a player who has left, or who gets no messages",
    /// A message for a player who has been moved to another game process.
    MessageAfterMove = "message_after_move" =>
        "a message for a player who has been moved to another game process",
    /// A message for a player for whom more waits than is kept. It ends the session.
    MessageOverflow = "message_overflow" =>
        "more waits for the player than is kept, which ends the session",

    // toward game processes
    /// The backend's link has no room.
    LinkFull = "link_full" => "the game process does not read fast enough",
    /// The backend is not connected or does not answer.
    LinkDown = "link_down" => "the backend is not there: `ringgate status` shows it",
    /// The player was moved, and the game process it has left has not heard of it yet.
    MoveUnconfirmed = "move_unconfirmed" =>
        "the player was moved, and the game process it has left has not heard of it yet",
    /// This gateway has slept, and asks the agent whether the session is still its own.
    OwnerUnconfirmed = "owner_unconfirmed" =>
        "the gateway has slept, and asks whether the session is still its own",

    // from game processes
    /// A record on a bundle link that breaks the format (this also closes the link).
    RecordInvalid = "record_invalid" => "the game process broke the format",
    /// An answer to an offer that does not stand, or that was another process's.
    OfferUnknown = "offer_unknown" => "an answer to an offer that does not stand any more",
    /// A payload for a session that is not there (any more).
    SessionUnknown = "session_unknown" => "for a player who has left",
    /// A payload for a player who has been moved to another game process.
    AfterMove = "after_move" => "for a player who has been moved to another game process",
    /// A datagram on the udp link from an address that is no backend's.
    LinkStranger = "link_stranger" => "from an address that is no backend's",
    /// A packet of an Unreal game's server, or a guarded one of another's, that has come before.
    ServerDuplicate = "server_duplicate" => "the server's packet has come before",
    /// A packet of an Unreal game's server that makes no sense for its player now, or a guarded one
    /// of a plain game's without a number.
    ServerPacketInvalid = "server_packet_invalid" =>
        "the server's packet makes no sense for its player now",
    /// A payload for a player whom the same multicast has named before.
    MulticastDuplicate = "multicast_duplicate" => "the same multicast has named the player before",
    /// A payload that waited for its link's turn when the link ended.
    LinkEnded = "link_ended" => "its link has ended",
    /// A payload of 0 or of more than 1200 bytes.
    PayloadLength = "payload_length" => "a payload that is too long, or empty",
    /// An answer that is more than a source may be sent that has not answered yet.
    AnswerLimited = "answer_limited" => "more than may be sent to a source that is not proven",
    /// The source of an open session has not been heard for a while, and nothing has proven where
    /// it is: it is sent nothing until it is heard. Or another player has the address of an Unreal
    /// player's session: that is sent nothing until its player has proven where it is.
    SourcePaused = "source_paused" =>
        "the player is silent or another one has its address, and it is sent nothing until it is heard",
    /// More than the source of an open session has earned by what was heard of it.
    CreditSpent = "credit_spent" => "more than the player has earned by what was heard of it",
    /// The player's session has used up its sequence numbers.
    SequenceExhausted = "sequence_exhausted" => "the session has used up its numbers",

    // toward players
    /// The socket's send buffer was full.
    SendBufferFull = "send_buffer_full" => "the kernel did not send it",
    /// The kernel refused to send to that address.
    SendRefused = "send_refused" => "the kernel did not send it",
}

/// One counter for each reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::COUNT]);

impl DropCounts {
    /// All zero.
    pub const fn new() -> Self {
        Self([0; DropReason::COUNT])
    }

    /// Counts one drop.
    #[inline]
    pub fn bump(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts several drops of the same reason.
    #[inline]
    pub fn add(&mut self, reason: DropReason, count: u64) {
        self.0[reason as usize] += count;
    }

    /// How often `reason` was counted.
    pub const fn of(&self, reason: DropReason) -> u64 {
        self.0[reason as usize]
    }

    /// The sum over all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another set of counters, such as another worker's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().copied().zip(self.0.iter().copied())
    }
}

impl Default for DropCounts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_fit_a_metric_label() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')));
    }

    #[test]
    fn counts_add_up() {
        let mut counts = DropCounts::new();
        counts.bump(DropReason::Empty);
        counts.add(DropReason::SendRefused, 3);
        let mut sum = counts.clone();
        sum.merge(&counts);
        assert_eq!(sum.of(DropReason::SendRefused), 6);
        assert_eq!(sum.total(), 8);
        assert_eq!(sum.iter().map(|(_, n)| n).sum::<u64>(), 8);
    }
}
