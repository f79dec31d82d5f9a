//! Players of Unreal games: what a worker remembers of them, and where each of their datagrams
//! goes.
//!
//! A datagram is looked at once, in **step**, because nothing in it is decrypted: [`classify`] says
//! what it is, and from there it is a stateless answer ([`stateless`]), a packet of a session to be
//! passed on ([`relay`]), or the end of a handshake. Only a response whose cookie verifies makes a
//! session: the gateway takes the player's place toward the game server, runs the handshake there
//! as a client ([`opening`]), and hands the server's own cookie to the player. From then on both
//! ends count from the same seeds, and the relay changes nothing but the five bits of the ids.
//!
//! Invariant: no session without a cookie that verified for its address and is in the set of used
//! ones. Invariant: to an address without a session never more bytes go than came from it. Nearly
//! every answer is no longer than the packet that it answers; a request to restart may also be paid
//! for by several small ones ([`credit`]).
//!
//! Left out: telling a game server that a player is gone. Only a packet inside the game's own
//! channels could, and those may be encrypted; the server notices the silence, as it does for a
//! player whose line is cut.

pub(crate) mod clustering;
pub(crate) mod credit;
pub(crate) mod datagrams;
pub(crate) mod filter;
pub(crate) mod guard;
pub(crate) mod handed;
pub(crate) mod kinds;
pub(crate) mod links;
pub(crate) mod loopback;
pub(crate) mod moves;
pub(crate) mod opening;
pub(crate) mod probe;
pub(crate) mod probed;
pub(crate) mod recent;
pub(crate) mod relay;
pub(crate) mod response;
pub(crate) mod servers;
pub(crate) mod session;
pub(crate) mod state;
pub(crate) mod stateless;
pub(crate) mod swaps;
pub(crate) mod takeover;
pub(crate) mod timers;
