//! The challenge: proof that a client receives at the address it sends from.
//!
//! The server seals the client's id and user data under a key of its own and has them echoed, so
//! that it need not store them. To the client all of it is opaque. Challenge and response packets
//! have the same body: `challenge sequence | sealed challenge token`.

use super::wire::Writer;
use super::{USER_DATA_BYTES, UserData};
use crate::drops::DropReason;

/// A sealed challenge token, tag included. Its nonce is [`packet::nonce`](super::packet::nonce) of
/// the challenge sequence; it has no associated data.
pub const CHALLENGE_TOKEN_BYTES: usize = 300;

/// Body of a challenge packet and of a response packet.
pub const CHALLENGE_BODY_BYTES: usize = 8 + CHALLENGE_TOKEN_BYTES;

/// What a server wants to be told again by the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChallengeToken {
    /// The client id from the private token.
    pub client_id: u64,
    /// The user data from the private token.
    pub user_data: UserData,
}

impl ChallengeToken {
    /// Writes the plain text, zero-padded. The last 16 bytes are left for the tag.
    pub fn encode(&self, out: &mut [u8; CHALLENGE_TOKEN_BYTES]) {
        let mut out = Writer::new(out);
        out.put(&self.client_id.to_le_bytes());
        out.put(&self.user_data);
        out.pad();
    }

    /// Reads an opened challenge token. Any bytes are one.
    pub fn decode(plain: &[u8; CHALLENGE_TOKEN_BYTES]) -> Self {
        let (client_id, rest) = plain.split_first_chunk().expect("300 bytes begin with 8");
        let user_data = rest.first_chunk::<USER_DATA_BYTES>().expect("292 bytes begin with 256");
        Self { client_id: u64::from_le_bytes(*client_id), user_data: *user_data }
    }
}

/// Writes a body's sequence at the start of `out` and returns the token's place, to be filled and
/// sealed there.
///
/// # Panics
/// Where `out` is shorter than [`CHALLENGE_BODY_BYTES`].
pub fn encode_body(challenge_sequence: u64, out: &mut [u8]) -> &mut [u8; CHALLENGE_TOKEN_BYTES] {
    let (head, token) = out.split_at_mut(8);
    head.copy_from_slice(&challenge_sequence.to_le_bytes());
    token.first_chunk_mut().expect("the caller's buffer holds a challenge body")
}

/// Splits an opened body into its sequence and its token, which can be opened in place.
pub fn split_body(body: &mut [u8]) -> Result<(u64, &mut [u8; CHALLENGE_TOKEN_BYTES]), DropReason> {
    let (sequence, token) = body.split_first_chunk_mut().ok_or(DropReason::BodyLength)?;
    let token = token.try_into().map_err(|_| DropReason::BodyLength)?;
    Ok((u64::from_le_bytes(*sequence), token))
}

#[cfg(test)]
mod tests;
