//! A response to one of our challenges, on its way through the checks.

use ringgate_core::proto::unreal::cookie::Proof;
use ringgate_core::proto::unreal::handshake::Handshake;

/// A response whose cookie has verified.
#[derive(Clone, Copy)]
pub(crate) struct Response<'a> {
    pub(crate) packet: &'a Handshake,
    /// What it proves.
    pub(crate) proof: Proof,
    /// The whole datagram.
    pub(crate) bytes: &'a [u8],
}
