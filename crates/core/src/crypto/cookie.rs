//! HMAC-SHA1 for the cookies of Unreal's handshake.
//!
//! SHA-1's collisions do not concern a MAC under a secret key, and 20 bytes are what the wire has
//! room for. The key's two blocks are hashed once per secret, so that a cookie costs two
//! compressions instead of four.

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::secret::{COOKIE_SECRET_BYTES, CookieSecret};

/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 20;

/// A secret, ready to make and to verify cookies. Wiped on drop.
#[derive(Clone)]
pub struct CookieMac(Hmac<Sha1>);

impl CookieMac {
    /// Hashes the secret's blocks.
    pub fn new(secret: &CookieSecret) -> Self {
        Self(keyed(secret.as_bytes()))
    }

    /// The cookie of an input.
    pub fn tag(&self, input: &[u8]) -> [u8; COOKIE_BYTES] {
        self.0.clone().chain_update(input).finalize().into_bytes().into()
    }

    /// The cookie of an input under a secret that is used this once: for stand-in servers.
    pub fn tag_once(secret: &[u8; COOKIE_SECRET_BYTES], input: &[u8]) -> [u8; COOKIE_BYTES] {
        Self(keyed(secret)).tag(input)
    }

    /// Whether a cookie is the one of an input, in a time that does not depend on where it differs.
    pub fn verify(&self, input: &[u8], cookie: &[u8; COOKIE_BYTES]) -> bool {
        self.0.clone().chain_update(input).verify(cookie.into()).is_ok()
    }
}

impl std::fmt::Debug for CookieMac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CookieMac(..)")
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha1> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests;
