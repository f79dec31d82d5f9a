//! The token that entitles to changes at the admin address: text that is sent as
//! `Authorization: Bearer TEXT`.
//!
//! It comes from the same sources as keys, under the same rules for files, and like a key it is
//! never printed, is compared in constant time, lies in one place and is wiped there when nothing
//! holds it any more.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::keys::{self, KeyError};

/// Text that nobody guesses.
#[derive(Clone)]
pub struct Token(Arc<Zeroizing<Vec<u8>>>);

impl Token {
    /// The token in a file that nobody but its owner may read.
    pub fn file(path: &Path) -> Result<Self, KeyError> {
        Self::opened(&mut keys::open_closed(path)?)
    }

    /// The token that an open file holds.
    pub(super) fn opened(file: &mut File) -> Result<Self, KeyError> {
        Self::text(&keys::read_short(file, EXPECTED)?)
    }

    /// This text, without the white space around it.
    pub(super) fn text(bytes: &[u8]) -> Result<Self, KeyError> {
        let text = bytes.trim_ascii();
        let count = text.len();
        if !(BYTES_MIN..=BYTES_MAX).contains(&count) {
            return Err(KeyError::new(format!("{count} characters"), EXPECTED));
        }
        // Whatever else a header cannot carry whole.
        if !text.iter().all(u8::is_ascii_graphic) {
            return Err(KeyError::new("white space or characters that are not ASCII", EXPECTED));
        }
        Ok(Self(Arc::new(Zeroizing::new(text.to_vec()))))
    }

    /// Hex digits, which are the token as they stand.
    pub(super) fn hex(text: &str) -> Result<Self, KeyError> {
        const EXPECTED: &str = "32 to 256 hex digits";
        let digits = text.trim();
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || digits.len() < 2 * BYTES_MIN || digits.len() > BYTES_MAX {
            return Err(KeyError::new(keys::shape(digits.as_bytes()), EXPECTED));
        }
        Self::text(digits.as_bytes())
    }

    /// Whether this is the token. Takes as long for every text of its length.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.as_slice().ct_eq(shown).into()
    }

    /// The text, to be sent.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("it is ASCII")
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// 16 random characters of any alphabet are out of reach for who has to ask over a network.
const BYTES_MIN: usize = 16;

/// What fits a header line with ease.
const BYTES_MAX: usize = 256;

const EXPECTED: &str = "16 to 256 printable characters without spaces";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_enough_and_fit_a_header() {
        let token = Token::text(b" 0123456789abcdef\n").expect("16 characters");
        assert!(token.is(b"0123456789abcdef") && !token.is(b"0123456789abcdeF"));
        assert!(!token.is(b"0123456789abcde") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token(..)");
        let why = Token::text(b"0123456789abcde").expect_err("15 characters").to_string();
        assert_eq!(why, format!("found 15 characters, expected {EXPECTED}"));
        for text in [&b"0123456789 abcdef"[..], b"0123456789\xffabcdef", &[b'x'; 257]] {
            assert!(Token::text(text).is_err());
        }
    }

    #[test]
    fn hex_has_to_be_as_long_in_bytes() {
        assert!(Token::hex(&"0a".repeat(16)).is_ok());
        for text in ["0a".repeat(15), "zz".repeat(16), "0a".repeat(129)] {
            assert!(Token::hex(&text).is_err(), "{text}");
        }
    }
}
