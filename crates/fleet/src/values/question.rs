//! What an operator asks gateways through etcd, and what they answer. Both stand there sealed, as
//! texts for their places.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, TEXT_BYTES_MAX, VALUE_BYTES_MAX, check, check_name, check_text};

/// A text that only holders of the fleet's key read or write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedText {
    /// The nonce, the sealed text and the code, in base64.
    pub sealed: String,
}

impl Stored for SealedText {
    fn check(&self) -> Result<(), Refused> {
        check(self.sealed.len() <= VALUE_BYTES_MAX, "a sealed text is too long")
    }
}

/// A request for one of a gateway's pages, on behalf of somebody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// When it was asked, in seconds since 1970.
    pub at: u64,
    /// Who asks, for people.
    pub by: String,
    /// Which page.
    pub what: What,
    /// What stands behind its `?`.
    pub query: String,
}

ringgate_core::named! {
    /// What a gateway can be asked so. The name is its page's path without the slash.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum What;
    /// Who is there.
    Sessions = "sessions",
    /// The end of sessions.
    Kick = "kick",
    /// Nobody new at the gateway, or at one backend.
    Drain = "drain",
    /// Players again.
    Undrain = "undrain",
    /// A player at another backend.
    Move = "sessions/move",
    /// What is decided about a player.
    Trace = "trace",
}

/// How many milliseconds a game process may take to answer a move, where nothing else is said.
pub const MOVE_MS: u32 = 2000;
/// How many it may take at most.
pub const MOVE_MS_MAX: u32 = 30_000;
/// How often a gateway offers a player, before it answers that nobody has taken it; and to others
/// of a group as long as that may take.
pub const MOVE_TRIES: u32 = 3;

impl What {
    /// Whether the gateway is another one afterwards.
    pub const fn changes(self) -> bool {
        matches!(self, Self::Kick | Self::Drain | Self::Undrain | Self::Move)
    }

    /// Of how many parts an answer may consist. One that goes on is read while it is made.
    pub const fn pieces_max(self) -> u32 {
        if matches!(self, Self::Trace) { 1024 } else { 64 }
    }
}

impl Stored for Question {
    fn check(&self) -> Result<(), Refused> {
        check_text(&self.by)?;
        let is_plain = |it: u8| it.is_ascii_graphic() && it != b'#';
        let is_query = self.query.len() <= TEXT_BYTES_MAX && self.query.bytes().all(is_plain);
        check(is_query, "a question is too long, or no part of an address")
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Which gateway answers.
    pub gateway: String,
    /// The page's status, as of HTTP.
    pub status: u16,
    /// Whether nothing follows.
    pub last: bool,
    /// Of the page.
    pub text: String,
}

impl Stored for Piece {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.gateway, "the gateway is no name")?;
        check(self.text.len() <= PIECE_BYTES, "a part of an answer is too long")
    }
}

/// Bytes of a page in one part. Twice as many, as all are escaped, fit into a value once they are
/// sealed.
pub const PIECE_BYTES: usize = 10 << 10;
