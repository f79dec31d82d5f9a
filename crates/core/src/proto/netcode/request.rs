//! The connection request: the one packet that is not encrypted, because it brings the keys.
//!
//! `00 | version | protocol id | expire | token nonce | private token`, 1078 bytes and never
//! another length. Its bytes 1 to 29 happen to be the associated data of the private token, so a
//! server opens a request in place without copying anything.

use std::ops::Range;

use super::VERSION_INFO;
use super::token::{ConnectToken, PRIVATE_TOKEN_BYTES, TOKEN_AAD_BYTES, TOKEN_NONCE_BYTES};
use super::wire::Writer;
use crate::drops::DropReason;

/// Length of every connection request.
pub const REQUEST_BYTES: usize = PRIVATE_RANGE.end;

/// Where the associated data of the private token lies in a request.
pub const AAD_RANGE: Range<usize> = 1..1 + TOKEN_AAD_BYTES;

/// Where the nonce of the private token lies in a request.
pub const NONCE_RANGE: Range<usize> = AAD_RANGE.end..AAD_RANGE.end + TOKEN_NONCE_BYTES;

/// Where the private token lies in a request, tag included.
pub const PRIVATE_RANGE: Range<usize> = NONCE_RANGE.end..NONCE_RANGE.end + PRIVATE_TOKEN_BYTES;

/// A request that has passed every check that costs no decryption.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    datagram: &'a [u8; REQUEST_BYTES],
}

impl<'a> Request<'a> {
    /// Whether a datagram claims to be a connection request: its first byte is 0, not merely the
    /// low half of it.
    #[inline]
    pub fn is_claimed_by(datagram: &[u8]) -> bool {
        datagram.first() == Some(&0)
    }

    /// Checks, in the reference's order: prefix, length, version, protocol, expiry.
    #[inline]
    pub fn inspect(
        datagram: &'a [u8],
        protocol_id: u64,
        now_unix_s: u64,
    ) -> Result<Self, DropReason> {
        if !Self::is_claimed_by(datagram) {
            return Err(DropReason::PacketType);
        }
        let datagram = datagram.try_into().map_err(|_| DropReason::RequestLength)?;
        let request = Self { datagram };
        if request.datagram[VERSION_RANGE] != *VERSION_INFO {
            return Err(DropReason::RequestVersion);
        }
        if request.datagram[PROTOCOL_RANGE] != protocol_id.to_le_bytes() {
            return Err(DropReason::RequestProtocol);
        }
        if request.expire_unix_s() <= now_unix_s {
            return Err(DropReason::RequestExpired);
        }
        Ok(request)
    }

    /// From when on the token is worthless. Claimed only, until the private token has opened.
    #[inline]
    pub fn expire_unix_s(self) -> u64 {
        let expire = self.datagram[EXPIRE_RANGE].first_chunk();
        u64::from_le_bytes(*expire.expect("the range has 8 bytes"))
    }
}

/// What a datagram says that has a request's length, before anything of it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The game that its token is for.
    pub protocol_id: u64,
    /// From when on its token is worthless.
    pub expire_unix_s: u64,
}

impl Claims {
    /// `None` for a datagram of another length.
    pub fn of(datagram: &[u8]) -> Option<Self> {
        let datagram: &[u8; REQUEST_BYTES] = datagram.try_into().ok()?;
        let number = |range: Range<usize>| {
            datagram[range].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
        };
        let (protocol_id, expire_unix_s) = (number(PROTOCOL_RANGE)?, number(EXPIRE_RANGE)?);
        Some(Self { protocol_id, expire_unix_s })
    }
}

/// The parts of a request that opening it in place needs, borrowed apart from each other.
#[derive(Debug)]
pub struct RequestParts<'a> {
    /// The nonce of the private token.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
    /// The associated data of the private token.
    pub aad: &'a [u8; TOKEN_AAD_BYTES],
    /// The sealed private token, and after opening the plain one.
    pub private: &'a mut [u8; PRIVATE_TOKEN_BYTES],
}

impl<'a> RequestParts<'a> {
    /// Splits an inspected request. `None` where the length is not that of a request.
    #[inline]
    pub fn split(datagram: &'a mut [u8]) -> Option<Self> {
        let datagram: &mut [u8; REQUEST_BYTES] = datagram.try_into().ok()?;
        let (head, private) = datagram.split_at_mut(PRIVATE_RANGE.start);
        Some(Self {
            nonce: head[NONCE_RANGE].first_chunk()?,
            aad: head[AAD_RANGE].first_chunk()?,
            private: private.first_chunk_mut()?,
        })
    }
}

/// Writes the request that a client sends for its token.
pub fn encode_request(token: &ConnectToken, out: &mut [u8; REQUEST_BYTES]) {
    let mut out = Writer::new(out);
    out.put(&[0]);
    out.put(VERSION_INFO);
    out.put(&token.protocol_id.to_le_bytes());
    out.put(&token.expire_unix_s.to_le_bytes());
    out.put(&token.nonce);
    out.put(&token.private);
}

const VERSION_RANGE: Range<usize> = 1..1 + VERSION_INFO.len();
const PROTOCOL_RANGE: Range<usize> = VERSION_RANGE.end..VERSION_RANGE.end + 8;
const EXPIRE_RANGE: Range<usize> = PROTOCOL_RANGE.end..PROTOCOL_RANGE.end + 8;

const _: () = assert!(REQUEST_BYTES == 1078 && EXPIRE_RANGE.end == AAD_RANGE.end);

#[cfg(test)]
mod tests;
