//! What a gateway decides about the datagrams of an Unreal game, without the tables it decides
//! over.
//!
//! The order is the cost of the check: length and end, magic, prefix, size and type, filler,
//! version, build ([`classify`], [`Served::check`]); then the timestamp of a cookie
//! ([`proof_input`]), and only then a MAC. Until a response has verified nothing is remembered, and
//! no answer is longer than what it answers ([`encode_within`]).
//!
//! The gateway shows players the face of the game server behind it ([`Identity`], learned from the
//! server's own challenge) and lets the server's cookie through. So both ends count packets and
//! reliable bunches from the same seeds, and nothing in the game's traffic has to be rewritten,
//! encrypted or not.

use std::ops::RangeInclusive;

use super::bits::BitReader;
use super::cookie::{Cookie, Epoch, MacInput, Proof};
use super::handshake::{Base, Body, Handshake, Receiver, Shape, Tail};
use super::notify::packet_bytes_min;
use super::prefix::{Framing, Ids};
use super::timing::NS_PER_S;
use crate::drops::DropReason;
use crate::endpoint::Endpoint;

/// What a datagram is.
#[derive(Clone, Copy, Debug)]
pub enum Classified<'a> {
    /// A packet of the game, with what follows its prefix: a
    /// [`notify::Header`](super::notify::Header) unless the game encrypts it.
    Game(Ids, BitReader<'a>),
    /// A packet of the handshake.
    Handshake(Handshake),
}

/// Decides what a datagram is, by everything that costs no MAC.
#[inline]
pub fn classify<'a>(
    datagram: &'a [u8],
    framing: &Framing,
    receiver: Receiver,
) -> Result<Classified<'a>, DropReason> {
    let (prefix, reader) = framing.read(datagram)?;
    if prefix.is_handshake {
        return Handshake::decode(framing, prefix, reader, receiver).map(Classified::Handshake);
    }
    if datagram.len() < packet_bytes_min(framing) {
        return Err(DropReason::UnrealSize);
    }
    Ok(Classified::Game(prefix.ids, reader))
}

/// Who may connect at all.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    /// Handshake versions. Of no meaning in the original layout.
    pub versions: RangeInclusive<u8>,
    /// Builds of the game; without a list the server judges.
    pub network_versions: Option<&'a [u32]>,
}

impl Served<'_> {
    /// Checks what a client says about itself. The original layout says nothing, and version 1 no
    /// build.
    pub fn check(&self, framing: &Framing, base: &Base) -> Result<(), DropReason> {
        if !framing.layout.has_versions() {
            return Ok(());
        }
        if base.version < *self.versions.start() || base.version_min > *self.versions.end() {
            return Err(DropReason::UnrealVersion);
        }
        let says_build = Shape::of(framing.layout, base.version).has_build();
        match self.network_versions {
            Some(list) if says_build && !list.contains(&base.network_version) => {
                Err(DropReason::UnrealNetworkVersion)
            }
            _ => Ok(()),
        }
    }
}

/// What a server says about itself, and a gateway on its behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its session number; zero in layouts without ids.
    pub session: u8,
    /// Its versions and its build. The counter is not used.
    pub base: Base,
}

crate::carried!(
    Identity { session, base }
    if |it| Ids::new(it.session, 0).session() == it.session,
    "session number"
);

impl Identity {
    /// The identity of the server that sent this challenge. An initial connect is all it takes to
    /// be sent one; that leaves no trace at the server, so it serves as a probe.
    pub const fn of_challenge(challenge: &Handshake) -> Self {
        Self { session: challenge.ids.session(), base: challenge.base }
    }

    /// An answer to a client's handshake packet: in the client's version where that is older, with
    /// its id and its count.
    pub fn answer(&self, request: &Handshake, body: Body) -> Handshake {
        let version = self.base.version.min(request.base.version);
        let base = Base { version, sent_count: request.base.sent_count, ..self.base };
        Handshake { ids: request.ids.with_session(self.session), base, body }
    }

    /// The request to restart, for a game packet from nowhere. In the oldest version that is
    /// served, because nothing says what the client speaks.
    pub fn restart_request(
        &self,
        game: Ids,
        served: &RangeInclusive<u8>,
    ) -> Result<Handshake, DropReason> {
        if game.session() != self.session {
            return Err(DropReason::UnrealIds);
        }
        let version = self.base.version_min.clamp(*served.start(), *served.end());
        let base = Base { version, sent_count: 0, ..self.base };
        Ok(Handshake { ids: game, base, body: Body::RestartRequest })
    }
}

/// Writes an answer that has at most `bytes_max` bytes; `None` where it cannot be that short.
///
/// # Panics
/// Where the buffer is shorter than [`HANDSHAKE_BYTES_MAX`](super::handshake::HANDSHAKE_BYTES_MAX).
pub fn encode_within(
    answer: &Handshake,
    framing: &Framing,
    tail: Tail,
    bytes_max: usize,
    out: &mut [u8],
) -> Option<usize> {
    let room = answer.body.kind().tail_room(framing, answer.base.version, bytes_max)?;
    Some(answer.encode(framing, &tail.at_most(room), out))
}

/// Judges everything about a proof but the MAC, and returns what the MAC has to be verified over.
///
/// The caller verifies it with the secret that the proof names, and counts
/// [`DropReason::CookieForged`] where it does not.
pub fn proof_input(
    epoch: &Epoch,
    proof: &Proof,
    now_ns: u64,
    source: Endpoint,
    client_id: u8,
    listener: u32,
) -> Result<MacInput, DropReason> {
    epoch.check(proof.secret_id, proof.timestamp, now_ns)?;
    Ok(MacInput::new(proof.timestamp, source, client_id, listener))
}

/// What is to be done about a handshake packet from a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSession {
    /// The player has missed the acknowledgement: repeat it, seldom.
    Acknowledge,
    /// The player has answered more than one challenge: the same, if the proof holds.
    AcknowledgeProven(Proof),
    /// Challenge as if there were no session, which stays as it is.
    Challenge,
    /// A connection, if the proof holds: where the address has a session, it takes its place.
    Replace(Proof),
    /// A restart, if the proof holds: of this session (the address has not changed), or of another
    /// with that cookie.
    Restart(Proof, Cookie),
    /// The answer to a challenge from before the session: nothing, whether the proof holds or not.
    Stale(Proof),
}

/// What the handshake packets from the address of a session are judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What the player's packets begin with.
    pub ids: Ids,
    /// The cookie of the response that opened the session; zeros where that was elsewhere.
    pub accepted: Cookie,
    /// When the newest cookie was made with which the player has proven the address.
    pub proven_ns: u64,
    /// When the player was last heard or acknowledged.
    pub heard_ns: u64,
    /// Since when the session is over, as far as it can be told.
    pub over_ns: Option<u64>,
}

impl Standing {
    /// Whether a cookie was made before the session took this address; then nothing may follow from
    /// it any more. It may never have been used: somebody can have held it back.
    pub fn outdates(&self, proof: &Proof) -> bool {
        proof.timestamp.to_ns().is_none_or(|made_ns| made_ns < self.proven_ns)
    }

    /// Decides about a response that is not the one which opened the session.
    ///
    /// A client answers every challenge until it is acknowledged, and more than one comes where a
    /// request was repeated, by itself or by the network. It is one connection all the same, which
    /// counts from the acknowledgement's cookie, so its session must not be replaced while that is
    /// on the way. A game that was started again, with the same port and id by chance, is told by
    /// its cookie: that was made when the session had been silent for a while, or was over.
    fn judge(&self, ids: Ids, proof: Proof) -> InSession {
        let is_same_client = ids == self.ids;
        let made_ns = proof.timestamp.to_ns().unwrap_or(0);
        let is_in_session = match self.over_ns {
            Some(over_ns) => made_ns < over_ns,
            None => made_ns <= self.heard_ns.saturating_add(QUIET_NS),
        };
        let is_accepted = self.accepted != Cookie::ZERO && proof.cookie == self.accepted;
        if is_same_client && is_accepted {
            InSession::Acknowledge
        } else if is_same_client && is_in_session {
            InSession::AcknowledgeProven(proof)
        } else if self.outdates(&proof) {
            InSession::Stale(proof)
        } else {
            InSession::Replace(proof)
        }
    }
}

/// Decides about a player's handshake packet; `standing` is of the session that its address has.
/// The proof of a response is still to be verified, by [`proof_input`] and the MAC.
pub fn in_session(
    packet: &Handshake,
    standing: Option<&Standing>,
) -> Result<InSession, DropReason> {
    match packet.body {
        Body::Initial { .. } => Ok(InSession::Challenge),
        Body::Response(proof) => Ok(match standing {
            Some(standing) => standing.judge(packet.ids, proof),
            None => InSession::Replace(proof),
        }),
        Body::RestartResponse { proof, original } => Ok(InSession::Restart(proof, original)),
        _ => Err(DropReason::PacketUnexpected),
    }
}

/// How long a player must have been neither heard nor acknowledged for a cookie to be another
/// connection's. Engines send something every 0.2 s, and a response every second until it is
/// acknowledged.
const QUIET_NS: u64 = 2 * NS_PER_S;

/// What is to be done about a handshake packet from the server behind an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// The server repeats its acknowledgement, which the player has from us.
    Ignore,
    /// The server does not know this session any more.
    Lost,
}

/// Decides about a server's handshake packet while the session is open. Until then the packet
/// belongs to the [`client`](super::client) that opens it.
pub const fn from_server(packet: &Handshake) -> Result<FromServer, DropReason> {
    match packet.body {
        Body::Ack(_) => Ok(FromServer::Ignore),
        Body::RestartRequest => Ok(FromServer::Lost),
        _ => Err(DropReason::PacketUnexpected),
    }
}

#[cfg(test)]
mod tests;
