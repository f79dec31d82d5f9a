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
    Empty = "empty",
    /// Longer than any packet of the listener's protocol (or cut off by the receive buffer).
    TooLong = "too_long",
    /// Not a connection request, and nobody we know lives at the source address.
    UnknownSource = "unknown_source",

    /// An operator has denied the source's address.
    AddressDenied = "address_denied",

    /// Late from a netcode session that its address has had until a moment ago: a repeated goodbye,
    /// or sent before the player heard that it was over.
    SessionEnded = "session_ended",

    // classify: connection requests, in the order of the checks
    /// The prefix's source address block asks too often.
    RequestRateLimited = "request_rate_limited",
    /// A worker that is behind has looked at its share of connection requests in this turn; the
    /// client asks again.
    RequestDeferred = "request_deferred",
    /// A connection request that is not exactly 1078 bytes.
    RequestLength = "request_length",
    /// A connection request of another protocol version.
    RequestVersion = "request_version",
    /// A connection request for another protocol id.
    RequestProtocol = "request_protocol",
    /// The connect token has expired.
    RequestExpired = "request_expired",
    /// The private part of the connect token does not open under any of the listener's keys.
    RequestForged = "request_forged",
    /// The private part opened, but is not a valid token (address count or address type).
    TokenUnreadable = "token_unreadable",
    /// The token does not name any address of this listener.
    TokenNotForUs = "token_not_for_us",
    /// An operator has denied the client id of the token (the player was sent a denial).
    ClientDenied = "client_denied",
    /// The source address already has a session.
    RequestAddressConnected = "request_address_connected",
    /// The client id already has a session.
    RequestClientConnected = "request_client_connected",
    /// The token was used before, from another address.
    TokenUsedElsewhere = "token_used_elsewhere",
    /// The token has had a session that took something in from its player, and may have no other
    /// (the player was sent a denial).
    TokenSpent = "token_spent",
    /// The memory of used tokens is full of live entries.
    TokenHistoryFull = "token_history_full",
    /// The token names other gateways as well, and one of them has seen it first (the player was
    /// sent a denial).
    TokenClaimed = "token_claimed",
    /// The token names other gateways as well, and the fleet is asked whose it is; the client asks
    /// again.
    TokenClaimPending = "token_claim_pending",
    /// The token names other gateways as well, and the fleet cannot be asked (nothing was sent, so
    /// the client asks again, and then another gateway).
    TokenUnclaimed = "token_unclaimed",
    /// The memory of tokens that name other gateways as well is full.
    TokenClaimsFull = "token_claims_full",
    /// No slot is free at the backend (the player was sent a denial).
    RequestBackendFull = "request_backend_full",
    /// The token's backend is unknown or down (the player was sent a denial).
    RequestBackendDown = "request_backend_down",
    /// An operator has drained every backend that the player could be sent to (a netcode player was
    /// sent a denial).
    BackendDrained = "backend_drained",
    /// The backend for the player was named a moment ago (the gateway has just started, a reload or
    /// the fleet has brought it) and is not there yet, or is starting by its own word (nothing was
    /// sent, so the client asks again).
    BackendStarting = "backend_starting",
    /// The listener has `max_sessions` sessions (the player was sent a denial).
    RequestSessionsFull = "request_sessions_full",
    /// The token has had its session, and its address is in a handshake with another one: a
    /// recorded request. On a plain listener: a session with another token was just heard there.
    TokenSuperseded = "token_superseded",
    /// The source's address has as many sessions as one address may have (a netcode player was sent
    /// a denial).
    AddressFull = "address_full",
    /// The source's IPv6 /56 has as many sessions as one may have (a netcode player was sent a
    /// denial).
    SiteFull = "site_full",
    /// The source's block of addresses has as many sessions as one block may have (a netcode player
    /// was sent a denial).
    BlockFull = "block_full",
    /// The source's block of addresses has as many unfinished handshakes as one block may have.
    BlockHandshakesFull = "block_handshakes_full",
    /// The table of unfinished handshakes is full.
    PendingFull = "pending_full",
    /// The first datagram of a session has waited while what comes from its source was given to
    /// another worker (`workers_awake`); the next one comes to that.
    BucketMoved = "bucket_moved",
    /// The gateway is draining and takes nobody in.
    Draining = "draining",

    // classify: encrypted packets
    /// Shorter than the shortest encrypted packet.
    PacketLength = "packet_length",
    /// A packet type that does not exist, or that only servers send.
    PacketType = "packet_type",
    /// The prefix does not announce 1 to 8 sequence bytes.
    SequenceLength = "sequence_length",
    /// The datagram ends before its sequence and tag do.
    PacketTruncated = "packet_truncated",
    /// The sequence was accepted before.
    ReplayDuplicate = "replay_duplicate",
    /// The sequence is older than the replay window.
    ReplayTooOld = "replay_too_old",
    /// The sequence jumps further than the listener allows; this also ends the session.
    SequenceGap = "sequence_gap",

    // open and step
    /// The tag does not verify.
    PacketForged = "packet_forged",
    /// Authentic, but with a body of the wrong size for its type.
    BodyLength = "body_length",
    /// An authentic packet whose type makes no sense now (a payload before the handshake is
    /// complete, a request with a sequence, a second response).
    PacketUnexpected = "packet_unexpected",
    /// The challenge token in a response does not open.
    ChallengeForged = "challenge_forged",
    /// The challenge answers an earlier request, or names another client than the request did.
    ChallengeForeign = "challenge_foreign",
    /// A response whose client id got a session in the meantime.
    ResponseClientConnected = "response_client_connected",
    /// A response that finds no free slot at the backend (the player was sent a denial).
    ResponseBackendFull = "response_backend_full",
    /// A response whose backend went away meanwhile (the player was sent a denial).
    ResponseBackendDown = "response_backend_down",
    /// A response that finds `max_sessions` sessions (the player was sent a denial).
    ResponseSessionsFull = "response_sessions_full",
    /// A response that finds every loopback address taken, or left so lately that a game server
    /// could take a newcomer for the player who has left (a netcode player was sent a denial).
    PlacesResting = "places_resting",

    // port switch
    /// A packet from a new port of an address with live sessions, over the rate at which we try
    /// such packets.
    PortSwitchRateLimited = "port_switch_rate_limited",
    /// A packet from a new port that opened under none of the address's sessions.
    PortSwitchForged = "port_switch_forged",
    /// A packet from a new port that is not newer than everything the session has received:
    /// recorded, or late.
    PortSwitchStale = "port_switch_stale",
    /// The mailbox of the worker that owns the session was full.
    MailboxFull = "mailbox_full",

    // cluster
    /// The player is another member's, and more comes from its address here than that member has
    /// accepted of late.
    ForwardLimited = "forward_limit",
    /// The player is another member's, and more waits to go there than is kept.
    MemberQueueFull = "member_queue_full",
    /// The member that has the player is gone, and the session's arbiter is asked whether this one
    /// may go on with it.
    TakeoverAwaited = "takeover_awaited",
    /// The member that has the player is gone, and no more packets from its address are tried now.
    TakeoverLimited = "takeover_limit",
    /// The member that has the player is gone, and this one cannot go on with the session.
    TakeoverRefused = "takeover_refused",

    // Unreal: any datagram, in the order of the checks
    /// The last byte holds no termination bit, or a game packet lacks its second one.
    UnrealEnd = "unreal_end",
    /// The packet does not begin with the listener's magic bits.
    UnrealMagic = "unreal_magic",
    /// A handshake packet that does not have the size of its type, or a game packet that is too
    /// short to be one.
    UnrealSize = "unreal_size",
    /// A handshake packet of a type that does not exist, or that only the other side sends.
    UnrealType = "unreal_type",
    /// An initial connect whose filler is not zero.
    UnrealFiller = "unreal_filler",
    /// A handshake of a version that is not served.
    UnrealVersion = "unreal_version",
    /// A build of the game that may not connect.
    UnrealNetworkVersion = "unreal_network_version",
    /// Session or client id are not those of the session.
    UnrealIds = "unreal_ids",

    // Unreal: cookies
    /// The cookie is older than any that is taken, or from the future.
    CookieExpired = "cookie_expired",
    /// The cookie's time and secret do not go together: that secret was not in use then.
    CookieSecret = "cookie_secret",
    /// The cookie does not verify.
    CookieForged = "cookie_forged",
    /// No session has the cookie that a restart response wants to continue.
    CookieUnknown = "cookie_unknown",
    /// The response has opened a session before.
    ResponseReplayed = "response_replayed",
    /// The memory of used responses is full of live entries.
    ResponseHistoryFull = "response_history_full",
    /// A packet of an unknown source, over the rate at which such sources are asked to restart
    /// their handshake, or smaller than the request would be.
    RestartRateLimited = "restart_rate_limited",

    // Unreal: game packets
    /// The packet jumps far ahead, and no other one has confirmed yet that so many were lost.
    GapUnconfirmed = "gap_unconfirmed",
    /// The packet acknowledges what was never sent, or takes an acknowledgement back.
    AckImplausible = "ack_implausible",

    // plain: any datagram, in the order of the checks
    /// The datagram does not begin with the bytes that the listener demands.
    PatternMissing = "pattern_missing",
    /// The datagram's token stands for no backend, or the datagram is too short to have one.
    TokenUnknown = "token_unknown",
    /// The datagram ends before its sequence number does.
    SequenceMissing = "sequence_missing",
    /// A gap has ended the session of the source, which may not begin again yet.
    AfterGap = "after_gap",
    /// The source's block of addresses begins sessions too often.
    StartBlockLimited = "start_block_limited",
    /// Too many sessions begin at the listener.
    StartLimited = "start_limited",
    /// The table of half-open sessions is full: a reload has raised its bound beyond what was set
    /// aside at the start.
    HalfOpenFull = "half_open_full",
    /// The sources that no echo has proven hold as many of the server's slots as they may.
    UnprovenFull = "unproven_full",

    // delivery: packets of players
    /// The game process's link has no room for messages, or is not there: the packet is not
    /// acknowledged, so the player sends again what it says.
    DeliveryDeferred = "delivery_deferred",
    /// A packet that newer ones have overtaken. Its sender is told that it is lost.
    DeliveryLate = "delivery_late",
    /// A packet that breaks the rules of the delivery layer. It ends the session.
    DeliveryFault = "delivery_fault",

    // messages
    /// A message for a game process whose link had no room for it or ended with it. None on a
    /// reliable channel, as long as the link lives.
    MessageNotTaken = "message_not_taken",
    /// A message for a session that is not there (any more), or whose listener delivers none.
    MessageUnknown = "message_unknown",
    /// A message for a player who has been moved to another game process.
    MessageAfterMove = "message_after_move",
    /// A message for a player for whom more waits than is kept. It ends the session.
    MessageOverflow = "message_overflow",

    // toward game processes
    /// The backend's link has no room.
    LinkFull = "link_full",
    /// The backend is not connected or does not answer.
    LinkDown = "link_down",
    /// The player was moved, and the game process it has left has not heard of it yet.
    MoveUnconfirmed = "move_unconfirmed",
    /// This gateway has slept, and asks the agent whether the session is still its own.
    OwnerUnconfirmed = "owner_unconfirmed",

    // from game processes
    /// A record on a bundle link that breaks the format (this also closes the link).
    RecordInvalid = "record_invalid",
    /// An answer to an offer that does not stand, or that was another process's.
    OfferUnknown = "offer_unknown",
    /// A payload for a session that is not there (any more).
    SessionUnknown = "session_unknown",
    /// A payload for a player who has been moved to another game process.
    AfterMove = "after_move",
    /// A datagram on the udp link from an address that is no backend's.
    LinkStranger = "link_stranger",
    /// A packet of an Unreal game's server, or a guarded one of another's, that has come before.
    ServerDuplicate = "server_duplicate",
    /// A packet of an Unreal game's server that makes no sense for its player now, or a guarded one
    /// of a plain game's without a number.
    ServerPacketInvalid = "server_packet_invalid",
    /// A payload for a player whom the same multicast has named before.
    MulticastDuplicate = "multicast_duplicate",
    /// A payload that waited for its link's turn when the link ended.
    LinkEnded = "link_ended",
    /// A payload of 0 or of more than 1200 bytes.
    PayloadLength = "payload_length",
    /// An answer that is more than a source may be sent that has not answered yet.
    AnswerLimited = "answer_limited",
    /// The source of an open session has not been heard for a while, and nothing has proven where
    /// it is: it is sent nothing until it is heard. Or another player has the address of an Unreal
    /// player's session: that is sent nothing until its player has proven where it is.
    SourcePaused = "source_paused",
    /// More than the source of an open session has earned by what was heard of it.
    CreditSpent = "credit_spent",
    /// The player's session has used up its sequence numbers.
    SequenceExhausted = "sequence_exhausted",

    // toward players
    /// The socket's send buffer was full.
    SendBufferFull = "send_buffer_full",
    /// The kernel refused to send to that address.
    SendRefused = "send_refused",
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
