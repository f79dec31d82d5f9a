//! What a gateway decides about the datagrams of an Unreal game, without the tables it decides over.
//!
//! The order is the cost of the check: length and end, magic, prefix, size and type, filler, version, build ([`classify`],
//! [`Served::check`]); then the timestamp of a cookie ([`proof_input`]), and only then a MAC. Until a response has verified
//! nothing is remembered, and no answer is longer than what it answers ([`encode_within`]).
//!
//! The gateway shows players the face of the game server behind it ([`Identity`], learned from the server's own challenge) and
//! lets the server's cookie through. So both ends count packets and reliable bunches from the same seeds, and nothing in the
//! game's traffic has to be rewritten, encrypted or not.

use std::ops::RangeInclusive;

use super::bits::BitReader;
use super::cookie::{Cookie, Epoch, MacInput, Proof};
use super::handshake::{Base, Body, Handshake, Receiver, Tail};
use super::notify::packet_bytes_min;
use super::prefix::{Framing, Ids, Layout};
use crate::buf::Endpoint;
use crate::drops::DropReason;

/// What a datagram is.
#[derive(Clone, Copy, Debug)]
pub enum Classified<'a> {
    /// A packet of the game, with what follows its prefix: a [`notify::Header`](super::notify::Header) unless the game
    /// encrypts it.
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
    /// Checks what a client says about itself. The original layout says nothing.
    pub fn check(&self, framing: &Framing, base: &Base) -> Result<(), DropReason> {
        if framing.layout == Layout::Original {
            return Ok(());
        }
        if base.version < *self.versions.start() || base.version_min > *self.versions.end() {
            return Err(DropReason::UnrealVersion);
        }
        match self.network_versions {
            Some(list) if !list.contains(&base.network_version) => {
                Err(DropReason::UnrealNetworkVersion)
            }
            _ => Ok(()),
        }
    }
}

/// What a server says about itself, and a gateway on its behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its session number; zero in the original layout.
    pub session: u8,
    /// Its versions and its build. The counter is not used.
    pub base: Base,
}

impl Identity {
    /// The identity of the server that sent this challenge. An initial connect is all it takes to be sent one; that leaves
    /// no trace at the server, so it serves as a probe.
    pub const fn of_challenge(challenge: &Handshake) -> Self {
        Self { session: challenge.ids.session(), base: challenge.base }
    }

    /// An answer to a client's handshake packet: in the client's version where that is older, with its id and its count.
    pub fn answer(&self, request: &Handshake, body: Body) -> Handshake {
        let version = self.base.version.min(request.base.version);
        let base = Base { version, sent_count: request.base.sent_count, ..self.base };
        Handshake { ids: request.ids.with_session(self.session), base, body }
    }

    /// The request to restart, for a game packet from nowhere. In the oldest version, because nothing says what the client
    /// speaks.
    pub fn restart_request(&self, game: Ids) -> Result<Handshake, DropReason> {
        if game.session() != self.session {
            return Err(DropReason::UnrealIds);
        }
        let base = Base { version: self.base.version_min, sent_count: 0, ..self.base };
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
    let room = answer.body.kind().tail_room(framing, bytes_max)?;
    Some(answer.encode(framing, &tail.at_most(room), out))
}

/// Judges everything about a proof but the MAC, and returns what the MAC has to be verified over.
///
/// The caller verifies it with the secret that the proof names, and counts [`DropReason::CookieForged`] where it does not.
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

/// What is to be done about a handshake packet from a player who has a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InSession {
    /// The player has missed the acknowledgement: repeat it, seldom.
    Acknowledge,
    /// Challenge as if there were no session, which stays as it is.
    Challenge,
    /// Another connection from the same address, if the proof holds: it takes the session's place.
    Replace(Proof),
    /// A restart, if the proof holds: of this session (the address has not changed), or of another with that cookie.
    Restart(Proof, Cookie),
}

/// Decides about a player's handshake packet; `accepted` is the cookie of the response that opened the session.
pub fn in_session(packet: &Handshake, accepted: &Cookie) -> Result<InSession, DropReason> {
    match packet.body {
        Body::Initial { .. } => Ok(InSession::Challenge),
        Body::Response(proof) if proof.cookie == *accepted => Ok(InSession::Acknowledge),
        Body::Response(proof) => Ok(InSession::Replace(proof)),
        Body::RestartResponse { proof, original } => Ok(InSession::Restart(proof, original)),
        _ => Err(DropReason::PacketUnexpected),
    }
}

/// What is to be done about a handshake packet from the server behind an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// The server repeats its acknowledgement, which the player has from us.
    Ignore,
    /// The server does not know this session any more.
    Lost,
}

/// Decides about a server's handshake packet while the session is open. Until then the packet belongs to the
/// [`client`](super::client) that opens it.
pub const fn from_server(packet: &Handshake) -> Result<FromServer, DropReason> {
    match packet.body {
        Body::Ack(_) => Ok(FromServer::Ignore),
        Body::RestartRequest => Ok(FromServer::Lost),
        _ => Err(DropReason::PacketUnexpected),
    }
}

#[cfg(test)]
mod tests;
