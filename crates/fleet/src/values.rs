//! What stands at the keys: JSON with a version, because people and other programs read it too.
//!
//! Whatever is in etcd may have been written by anybody who may write there, and by later versions
//! of this program. So a value is bounded before it is parsed and checked behind it; fields that
//! are not known are left alone, and a version that is not known is refused as such.

pub mod agent;
pub mod backend;
pub mod ban;
pub mod claim;
pub mod confirm;
pub mod gateway;
pub mod joined;
pub mod key;
pub mod question;
pub mod service;
pub mod slots;

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use agent::Agent;
pub use backend::{Backend, Reach, State};
pub use ban::Ban;
pub use claim::{Incarnations, NameClaim, Ousted, PlayerClaim, PromiseClaim, TokenClaim};
pub use confirm::Confirmation;
pub use gateway::{Entrance, Gateway, Listener};
pub use joined::Joined;
pub use key::ListenerKey;
pub use question::{Piece, Question, SealedText, What};
pub use service::Service;
pub use slots::{Block, Guard};

/// The largest value that is read.
pub const VALUE_BYTES_MAX: usize = 32 << 10;
/// The longest text within a value.
pub const TEXT_BYTES_MAX: usize = 256;
/// The most elements of a list within a value.
pub const LIST_MAX: usize = 64;

ringgate_core::told! {
    /// Why a value is not taken.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Refused;
    /// It is larger than any of ours.
    TooLarge = "the value is too large",
    /// It is no JSON, or a field is missing or of another type.
    Malformed(why: String) = "the value is malformed: {why}",
    /// A later version has written it.
    Newer(version: u32) = "the value has version {version}, which is newer",
    /// A field holds what cannot be.
    Impossible(why: &'static str) = "{why}",
}

/// What can stand at a key.
pub trait Stored: Serialize + DeserializeOwned {
    /// The version that this program writes, and the newest that it reads.
    const VERSION: u32 = 1;

    /// Whether every field holds what can be.
    fn check(&self) -> Result<(), Refused>;

    /// Reads a value.
    fn decode(value: &[u8]) -> Result<Self, Refused> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        let malformed = |why: serde_json::Error| Refused::Malformed(short(&why.to_string()));
        let Versioned { v } = serde_json::from_slice(value).map_err(malformed)?;
        if v > Self::VERSION {
            return Err(Refused::Newer(v));
        }
        let found: Self = serde_json::from_slice(value).map_err(malformed)?;
        found.check()?;
        Ok(found)
    }

    /// Writes a value. Fails where it could not be read again.
    fn encode(&self) -> Result<Bytes, Refused> {
        self.check()?;
        let whole = Whole { v: Self::VERSION, rest: self };
        let bytes =
            serde_json::to_vec(&whole).map_err(|why| Refused::Malformed(why.to_string()))?;
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(Refused::TooLarge);
        }
        Ok(bytes.into())
    }
}

#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

#[derive(Serialize)]
struct Whole<'a, T> {
    v: u32,
    #[serde(flatten)]
    rest: &'a T,
}

/// Names and values for people and for choosing by: `map`, `mode`, `version`.
pub type Labels = BTreeMap<String, String>;

fn check_labels(labels: &Labels) -> Result<(), Refused> {
    if labels.len() > LIST_MAX {
        return Err(Refused::Impossible("there are too many labels"));
    }
    labels.iter().try_for_each(|(name, value)| {
        check_name(name, "a label's name is no name")?;
        check_text(value)
    })
}

fn check_name(text: &str, why: &'static str) -> Result<(), Refused> {
    crate::keyspace::Name::new(text).map(|_| ()).ok_or(Refused::Impossible(why))
}

/// Short, and without what would confuse a terminal or a log.
fn check_text(text: &str) -> Result<(), Refused> {
    if text.len() > TEXT_BYTES_MAX || text.chars().any(char::is_control) {
        return Err(Refused::Impossible("a text is too long, or holds what cannot be printed"));
    }
    Ok(())
}

/// What is held back of another history: everything that is not vouched for.
pub const HELD_ALL: &str = "all";

/// What a process holds back, in words.
fn check_held(held: &[String]) -> Result<(), Refused> {
    check(held.len() <= LIST_MAX, "too much is held back")?;
    held.iter().try_for_each(|it| check_text(it))
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "this is how serde asks")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn check(holds: bool, why: &'static str) -> Result<(), Refused> {
    if holds { Ok(()) } else { Err(Refused::Impossible(why)) }
}

fn short(text: &str) -> String {
    text.chars().filter(|it| !it.is_control()).take(TEXT_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests;
