//! What a netcode server decides, without the tables it decides over.
//!
//! The caller owns sessions, unfinished handshakes and used tokens; here are the rules in the
//! reference's order, and where the reference can be attacked, stricter ones that its clients do
//! not notice:
//!
//! - A response must answer a challenge of the handshake that its address is in, and name the same
//!   client ([`PendingBinding`]). The reference takes any challenge since its start, so a recorded
//!   handshake can be played again.
//! - No nonce is used twice under a key ([`SessionSequence`], [`GlobalSequence`]), also when a
//!   token is used again, and when several workers answer the same address. The reference starts
//!   both at a constant.
//! - Addresses are compared as [`Endpoint`]s, in which an IPv4-mapped IPv6 address is the IPv4 one.
//!
//! Every refusal is a [`DropReason`].

use std::net::SocketAddr;

use super::address::ServerAddresses;
use super::challenge::{CHALLENGE_TOKEN_BYTES, split_body};
use super::packet::PacketKind;
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;
use crate::endpoint::Endpoint;
use crate::limits::WORKERS_MAX;

/// An authentic packet of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPacket<'a> {
    /// The player left. Nothing is sent back.
    Disconnect,
    /// Proof of life: refreshes the timeout and confirms the session.
    KeepAlive,
    /// Bytes for the game; refreshes and confirms as well.
    Payload(&'a [u8]),
}

/// What an opened packet of a connected player means. To be called after the replay window has
/// taken its sequence: a body of the wrong size has consumed it.
///
/// A repeated response is unexpected here and must not refresh the timeout; a lost first keep-alive
/// is made good by the next.
#[inline]
pub fn session_packet(kind: PacketKind, body: &[u8]) -> Result<SessionPacket<'_>, DropReason> {
    kind.check_body(body.len())?;
    match kind {
        PacketKind::Disconnect => Ok(SessionPacket::Disconnect),
        PacketKind::KeepAlive => Ok(SessionPacket::KeepAlive),
        PacketKind::Payload => Ok(SessionPacket::Payload(body)),
        _ => Err(DropReason::PacketUnexpected),
    }
}

/// What an opened packet of a player in the handshake means: a response, given as its challenge
/// sequence and its sealed challenge token.
pub fn pending_packet(
    kind: PacketKind,
    body: &mut [u8],
) -> Result<(u64, &mut [u8; CHALLENGE_TOKEN_BYTES]), DropReason> {
    kind.check_body(body.len())?;
    match kind {
        PacketKind::Response => split_body(body),
        _ => Err(DropReason::PacketUnexpected),
    }
}

/// Whether a private token names one of our own addresses, port included.
///
/// Some token services write IPv6 addresses in network order instead of little-endian words, so
/// these are compared in both readings. The other reading of a foreign address can name us only if
/// all 128 bits and the port agree.
pub fn check_addressed_to(addresses: &ServerAddresses, own: &[Endpoint]) -> Result<(), DropReason> {
    let names_us = addresses.iter().any(|address| is_ours(address, own));
    if names_us { Ok(()) } else { Err(DropReason::TokenNotForUs) }
}

fn is_ours(address: &SocketAddr, own: &[Endpoint]) -> bool {
    let is_own =
        |ip: [u8; 16], port| own.iter().any(|own| *own.ip_bytes() == ip && own.port() == port);
    let endpoint = Endpoint::from(*address);
    is_own(*endpoint.ip_bytes(), endpoint.port())
        || address.is_ipv6() && is_own(swapped(*endpoint.ip_bytes()), endpoint.port())
}

/// Whether a token names other servers than this one.
pub fn names_others(addresses: &ServerAddresses, own: &[Endpoint]) -> bool {
    !addresses.iter().all(|address| is_ours(address, own))
}

/// An IPv6 address with the octets of each word exchanged.
fn swapped(mut ip: [u8; 16]) -> [u8; 16] {
    ip.as_chunks_mut::<2>().0.iter_mut().for_each(|word| word.reverse());
    ip
}

/// Ties a response to the request it follows from.
///
/// Kept with an unfinished handshake. A repeated request with the same token keeps the binding,
/// another token from the same address makes a new one; so every challenge that an honest client
/// can still answer is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingBinding {
    /// The first challenge that was sent for this handshake.
    pub first_challenge_sequence: u64,
    /// Whose token it was.
    pub client_id: u64,
}

impl PendingBinding {
    /// Checks an opened challenge token against the handshake that its sender is in.
    #[inline]
    pub fn check(&self, challenge_sequence: u64, client_id: u64) -> Result<(), DropReason> {
        let is_recent = challenge_sequence >= self.first_challenge_sequence;
        if is_recent && client_id == self.client_id {
            Ok(())
        } else {
            Err(DropReason::ChallengeForeign)
        }
    }
}

/// The sequence of what a server sends to one connected player, and so the nonces under that
/// player's key.
///
/// Invariant: below [`GLOBAL_SEQUENCE_START`], where the nonces of challenges and denials begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSequence(u64);

impl SessionSequence {
    /// The sequence of a new session.
    ///
    /// A token that was used before has already spent nonces under its key: the session begins
    /// where [`after`](Self::after) says. A new token starts at random below 2^48, so that a server
    /// which has lost its memory of used tokens does not repeat itself either, except with odds of
    /// about session length / 2^48.
    pub const fn begin(next: Option<Self>, random: u64) -> Self {
        match next {
            Some(next) => next,
            None => Self(random & (FIRST_SEQUENCE_END - 1)),
        }
    }

    /// The sequence that goes on with this number, whose tenure the caller has made; none is left
    /// from [`GLOBAL_SEQUENCE_START`] on.
    pub const fn at(number: u64) -> Self {
        Self(if number < GLOBAL_SEQUENCE_START { number } else { GLOBAL_SEQUENCE_START })
    }

    /// The number that comes next, where one is left.
    pub const fn peek(self) -> u64 {
        self.0
    }

    /// Where the next session of the same token begins: far enough behind the start of this one
    /// that the two cannot meet, also while both are live (a token may be good for several
    /// listeners). 2^40 packets are 35 years at a thousand a second.
    #[must_use]
    pub const fn after(self) -> Self {
        Self(if self.0 < GLOBAL_SEQUENCE_START { self.0 + SESSION_SPAN } else { self.0 })
    }

    /// The next number.
    #[inline]
    pub const fn take(&mut self) -> Result<u64, DropReason> {
        if self.0 >= GLOBAL_SEQUENCE_START {
            return Err(DropReason::SequenceExhausted);
        }
        self.0 += 1;
        Ok(self.0 - 1)
    }

    /// A sequence that has no number left.
    pub const EXHAUSTED: Self = Self(GLOBAL_SEQUENCE_START);
}

/// Where the numbers of challenges and denials begin.
pub const GLOBAL_SEQUENCE_START: u64 = 1 << 63;

/// The sequence of challenges and denials, which are sent under the keys of many tokens by every
/// worker.
///
/// `1 | worker (7 bits) | count (56 bits)`: disjoint from every session's sequence and from every
/// other worker's. The count starts at random, so that a restart does not repeat it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalSequence(u64);

impl GlobalSequence {
    /// A worker's sequence.
    ///
    /// # Panics
    /// Where there can be no worker with that index.
    pub const fn new(worker_index: usize, random: u64) -> Self {
        assert!(worker_index < WORKERS_MAX, "worker index out of range");
        let worker = (worker_index as u64) << GLOBAL_COUNT_BITS;
        Self(GLOBAL_SEQUENCE_START | worker | (random & GLOBAL_COUNT_MASK))
    }

    /// The next number. The count wraps inside the worker's range, after 2^56 packets.
    #[inline]
    pub const fn take(&mut self) -> u64 {
        let taken = self.0;
        self.0 = (taken & !GLOBAL_COUNT_MASK) | (taken.wrapping_add(1) & GLOBAL_COUNT_MASK);
        taken
    }
}

crate::carried!(PendingBinding { first_challenge_sequence, client_id });

impl SessionSequence {
    /// Leaves out so many numbers: a process that hands a session over and then goes on with it
    /// after all does not know which numbers the other one has used.
    pub fn skip(&mut self, count: u64) {
        self.0 = self.0.saturating_add(count).min(GLOBAL_SEQUENCE_START);
    }
}

impl Carry for SessionSequence {
    #[inline]
    fn write(&self, out: &mut Writer<'_>) {
        self.0.write(out);
    }

    #[inline]
    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let next = u64::read(from)?;
        if next <= GLOBAL_SEQUENCE_START {
            Ok(Self(next))
        } else {
            Err(Broken::Invalid("sequence"))
        }
    }
}

impl GlobalSequence {
    /// The same as [`SessionSequence::skip`].
    pub const fn skip(&mut self, count: u64) {
        let next = self.0.wrapping_add(count) & GLOBAL_COUNT_MASK;
        self.0 = (self.0 & !GLOBAL_COUNT_MASK) | next;
    }

    /// How far a worker's sequence has come.
    pub const fn count(self) -> u64 {
        self.0 & GLOBAL_COUNT_MASK
    }
}

const FIRST_SEQUENCE_END: u64 = 1 << 48;
const SESSION_SPAN: u64 = 1 << 40;
const GLOBAL_COUNT_BITS: u32 = 63 - WORKERS_MAX.ilog2();
const GLOBAL_COUNT_MASK: u64 = (1 << GLOBAL_COUNT_BITS) - 1;

const _: () = assert!(WORKERS_MAX.is_power_of_two());
const _: () = assert!(FIRST_SEQUENCE_END < GLOBAL_SEQUENCE_START);

#[cfg(test)]
mod tests;
