//! Keys: their own type, wiped on drop, never printed.
//!
//! A leaf module, because `proto` carries keys (tokens contain them) and `crypto` uses them, and
//! neither may know the other.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use zeroize::{Zeroize, ZeroizeOnDrop};

/// Bytes of every symmetric key in this project.
pub const KEY_BYTES: usize = 32;

/// A 32-byte symmetric key. `Debug` shows no byte of it, comparison is constant-time, and its
/// memory is wiped on drop.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Takes over bytes that are a key. The caller's own copy is the caller's to wipe.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// A key from the operating system's generator.
    #[cfg(feature = "random")]
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut key = Self([0; KEY_BYTES]);
        getrandom::fill(&mut key.0)?;
        Ok(key)
    }

    /// Reads 64 hex digits, surrounding white space allowed.
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut key = Self([0; KEY_BYTES]);
        read_hex(text, &mut key.0)?;
        Some(key)
    }

    /// The key as 64 lower-case hex digits, for `keygen`. The string is the caller's to wipe.
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(2 * KEY_BYTES);
        for byte in self.0 {
            text.push(DIGITS[usize::from(byte >> 4)] as char);
            text.push(DIGITS[usize::from(byte & 15)] as char);
        }
        text
    }

    /// The bytes, for ciphers and codecs.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Becomes another key. Unlike an assignment, this does not wipe what it writes over.
    #[inline]
    pub const fn overwrite(&mut self, with: &Self) {
        self.0 = with.0;
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        use subtle::ConstantTimeEq;
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

/// A key that lives as long as a config, or longer: it has one place in memory, however often what
/// holds it is cloned, moved and compared, and is wiped there when the last of its holders goes. A
/// [`Key`] leaves its bytes behind wherever it was moved from.
#[derive(Clone, PartialEq, Eq)]
pub struct SharedKey(Arc<Key>);

impl SharedKey {
    /// A key that is written where it stays. Nothing is left of one that cannot be written.
    pub fn written(write: impl FnOnce(&mut [u8; KEY_BYTES]) -> Option<()>) -> Option<Self> {
        let mut key = Arc::new(Key([0; KEY_BYTES]));
        write(&mut Arc::get_mut(&mut key)?.0)?;
        Some(Self(key))
    }

    /// Reads 64 hex digits, surrounding white space allowed.
    pub fn from_hex(text: &str) -> Option<Self> {
        Self::written(|bytes| read_hex(text, bytes))
    }
}

impl From<Key> for SharedKey {
    fn from(key: Key) -> Self {
        let mut shared = Arc::new(Key([0; KEY_BYTES]));
        // Written, not moved: `key` is wiped where it is.
        if let Some(to) = Arc::get_mut(&mut shared) {
            to.overwrite(&key);
        }
        Self(shared)
    }
}

impl Deref for SharedKey {
    type Target = Key;

    #[inline]
    fn deref(&self) -> &Key {
        &self.0
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A secret of Unreal's stateless cookies: exactly one block of SHA-1, so the MAC uses all of it as
/// it is. Unprintable, and wiped on drop.
#[derive(Clone)]
pub struct CookieSecret([u8; COOKIE_SECRET_BYTES]);

/// Bytes of a [`CookieSecret`].
pub const COOKIE_SECRET_BYTES: usize = 64;

impl CookieSecret {
    /// Takes over bytes that are a secret. The caller's own copy is the caller's to wipe.
    pub const fn from_bytes(bytes: [u8; COOKIE_SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// A secret from the operating system's generator.
    #[cfg(feature = "random")]
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = Self([0; COOKIE_SECRET_BYTES]);
        getrandom::fill(&mut secret.0)?;
        Ok(secret)
    }

    /// The bytes, for the MAC.
    #[inline]
    pub const fn as_bytes(&self) -> &[u8; COOKIE_SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for CookieSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CookieSecret(..)")
    }
}

crate::carried_alone!(Key, CookieSecret);

/// Writes what 64 hex digits say.
fn read_hex(text: &str, bytes: &mut [u8; KEY_BYTES]) -> Option<()> {
    let digits = text.trim().as_bytes();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
    }
    Some(())
}

/// What is wiped on demand, and when dropped.
macro_rules! wiped {
    ($($secret:ty),+) => {$(
        impl Zeroize for $secret {
            fn zeroize(&mut self) {
                self.0.zeroize();
            }
        }

        impl Drop for $secret {
            fn drop(&mut self) {
                self.zeroize();
            }
        }

        impl ZeroizeOnDrop for $secret {}
    )+};
}

wiped!(Key, CookieSecret);

fn hex_digit(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_key_byte() {
        let key = Key::from_bytes([0xab; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), "Key(..)");
        let secret = CookieSecret::from_bytes([0xab; COOKIE_SECRET_BYTES]);
        assert_eq!(format!("{secret:?}"), "CookieSecret(..)");
    }

    #[test]
    fn hex_round_trips_and_refuses_what_is_not_a_key() {
        let key = Key::generate().expect("the test machine has a random generator");
        assert_eq!(Key::from_hex(&format!(" {}\n", key.to_hex())), Some(key));
        assert_eq!(Key::from_hex("00"), None);
        assert_eq!(Key::from_hex(&"g0".repeat(32)), None);
        assert_eq!(Key::from_hex(&"é".repeat(32)), None);
    }
}
