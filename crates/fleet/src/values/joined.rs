//! Whose players have come to a backend lately, as those who count them tell it beside `used`.

use std::fmt;
use std::sync::Arc;

pub use ringgate_core::netcode::destination::Join;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// The most of them.
pub const JOINED_MAX: usize = 256;

/// Tokens that were used there, the last one last: text of 16 hexadecimal digits for each. The
/// player of such a token is among those that the same value counts, or has left; the token opens
/// nothing any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joined(Arc<[Join]>);

impl Joined {
    /// Of these. Of more than there may be, the last ones.
    pub fn new(joins: &[Join]) -> Self {
        Self(joins[joins.len().saturating_sub(JOINED_MAX)..].into())
    }

    /// All of them.
    pub fn all(&self) -> &[Join] {
        &self.0
    }
}

impl Serialize for Joined {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use fmt::Write;
        let mut text = String::with_capacity(self.0.len() * DIGITS);
        for Join(number) in &*self.0 {
            write!(text, "{number:016x}").expect("a string takes everything");
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Joined {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Joined;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "joins: at most {JOINED_MAX} times {DIGITS} hexadecimal digits")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Joined, E> {
        let wrong = || E::invalid_value(de::Unexpected::Other("something else"), &self);
        let is_text = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_text || !text.len().is_multiple_of(DIGITS) || text.len() > JOINED_MAX * DIGITS {
            return Err(wrong());
        }
        let number = |at: usize| u64::from_str_radix(&text[at..at + DIGITS], 16).map(Join);
        let all = (0..text.len()).step_by(DIGITS).map(number).collect::<Result<_, _>>();
        all.map(Joined).map_err(|_| wrong())
    }
}

const DIGITS: usize = 16;
