//! The routing tokens of plain listeners: derived from the fleet's key, so gateways and token
//! services agree on them without a word in etcd, and nobody else knows them.
//!
//! A token stands in every datagram of its player, so it does not rotate with a listener's keys: it
//! is the same for as long as the backend has its name.

use ringgate_core::crypto::cookie::{COOKIE_BYTES, CookieMac};

use crate::keyspace::Name;
use crate::seal::FleetKey;

/// Makes tokens. Has to be kept like the key that it is made of.
#[derive(Clone, Debug)]
pub struct RoutingTokens(CookieMac);

impl RoutingTokens {
    /// Those of a fleet.
    pub fn new(key: &FleetKey) -> Self {
        Self(key.derive(PURPOSE, CookieMac::new))
    }

    /// The token by which a listener leads to a backend.
    pub fn token(&self, listener: &Name, backend: &Name, bytes: usize) -> Vec<u8> {
        let mut token = Vec::with_capacity(bytes + COOKIE_BYTES);
        for part in 0_u8.. {
            if token.len() >= bytes {
                break;
            }
            // Names have no zero bytes, so no two inputs are alike.
            let input =
                [listener.as_str().as_bytes(), b"\0", backend.as_str().as_bytes(), &[0, part]];
            token.extend(self.0.tag(&input.concat()));
        }
        token.truncate(bytes);
        token
    }
}

const PURPOSE: &[u8; 24] = b"ringgate routing tokens\0";

#[cfg(test)]
mod tests {
    use ringgate_core::secret::Key;

    use super::*;

    fn tokens(byte: u8) -> RoutingTokens {
        RoutingTokens::new(&FleetKey::new(Key::from_bytes([byte; 32])))
    }

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    #[test]
    fn tokens_are_the_same_for_everybody_with_the_key_and_for_nobody_else() {
        let token = |byte, listener: &str, backend: &str| {
            tokens(byte).token(&name(listener), &name(backend), 16)
        };
        assert_eq!(token(1, "main", "a"), token(1, "main", "a"));
        for other in [token(2, "main", "a"), token(1, "other", "a"), token(1, "main", "b")] {
            assert_ne!(other, token(1, "main", "a"));
        }
        assert_ne!(token(1, "ab", "c"), token(1, "a", "bc"));
    }

    #[test]
    fn tokens_are_as_long_as_the_listener_wants_them() {
        let long = tokens(1).token(&name("main"), &name("a"), 64);
        assert_eq!(long.len(), 64);
        assert_ne!(long[..20], long[20..40], "no part stands twice");
        for bytes in [0, 1, 20, 21] {
            assert_eq!(tokens(1).token(&name("main"), &name("a"), bytes), long[..bytes]);
        }
    }
}
