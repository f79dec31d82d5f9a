//! Unreal Engine's UDP packets: the stateless handshake, and what of a game packet can be read
//! without knowing the game.
//!
//! Everything on this wire is one stream of bits ([`bits`]), and every packet begins with the same
//! few of them ([`prefix`]). From there the handshake ([`handshake`], [`cookie`]) and the packet
//! header ([`notify`]) are read and written in place; what follows the header belongs to the game
//! and is never looked at.
//!
//! - [`front`]: what a gateway decides about datagrams, without the tables it decides over.
//! - [`client`]: the engine's client side of the handshake as a state machine.
//! - [`bunch`]: how a player says on the control channel that it leaves.
//!
//! Checked against public captures of one UE5 server (version 4), never against an engine binary.
//! Handshake versions 0 to 4 are served; which fields versions 2 and 3 have depends on the engine's
//! build and is told, or learned from the server ([`prefix::Layout`]).

pub mod bits;
pub mod bunch;
pub mod client;
pub mod cookie;
pub mod front;
pub mod handshake;
pub mod notify;
pub mod prefix;

#[cfg(test)]
mod tests;

pub use crate::proto::notify::PacketSeq;

/// Paces of the handshake, and how long its parts live. Instants are nanoseconds of one monotonic
/// clock.
pub mod timing {
    /// A client repeats what was not answered after this long (`net.HandshakeResendInterval`).
    pub const RESEND_INTERVAL_NS: u64 = NS_PER_S;

    /// Between two rotations of the secrets there are at least this many nanoseconds…
    pub const ROTATION_NS: u64 = 15 * NS_PER_S;

    /// … and at most this many more, drawn anew for each.
    pub const ROTATION_SPREAD_NS: u64 = 5 * NS_PER_S;

    /// How long a challenge can be counted on: the shortest rotation. A client asks for another one
    /// after it.
    pub const COOKIE_LIFETIME_NS_MIN: u64 = ROTATION_NS;

    /// A cookie is not taken from this age on: both secrets have been replaced since, at the
    /// slowest.
    pub const COOKIE_LIFETIME_NS_MAX: u64 = 2 * (ROTATION_NS + ROTATION_SPREAD_NS);

    pub(super) const NS_PER_S: u64 = 1_000_000_000;
}
