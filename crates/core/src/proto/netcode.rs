//! netcode 1.02: what its packets and tokens look like, what a client does, and by which rules a
//! server decides.
//!
//! The byte layouts and the order of checks are those of the reference implementation, because
//! unmodified clients follow it. AEAD work is only described here (key, nonce, associated data,
//! range): callers gather it into batches, do it with `crypto` and come back with the opened body.
//! So one thread can drive a hundred thousand clients, and a gateway can open everything that
//! arrived in a turn at once.
//!
//! - [`address`], [`token`], [`request`], [`challenge`], [`packet`]: codecs over the caller's
//!   buffers.
//! - [`client`]: the client as a state machine.
//! - [`destination`]: what user data says of a token's backend.
//! - [`server`]: the server's decisions, without its tables.
//! - [`timing`]: paces and timeouts that both sides share.
//!
//! All integers on the wire are little-endian. Nothing here allocates after a client has been made.

pub mod address;
pub mod challenge;
pub mod client;
pub mod destination;
pub mod packet;
pub mod request;
pub mod server;
pub mod timing;
pub mod token;
mod wire;

/// What requests, tokens and associated data begin with: the protocol's name and version, NUL
/// included.
pub const VERSION_INFO: &[u8; 13] = b"NETCODE 1.02\0";

/// Opaque bytes that the token service hands to the game server through the private token.
pub type UserData = [u8; USER_DATA_BYTES];

/// Length of [`UserData`].
pub const USER_DATA_BYTES: usize = 256;
