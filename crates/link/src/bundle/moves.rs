//! What is said when a player is moved from one game process to another.
//!
//! The process that has the player asks the gateway ([`Move`]), which asks the other one
//! ([`Offered`]); that one says yes or no ([`Answer`]). Then the gateway moves the player, and
//! tells both.

use std::net::SocketAddr;

use super::record::is_name_bytes;
use super::{
    Channel, MOVE_BYTES_MAX, RecordError, SHORT_MESSAGE_BYTES_MAX, SessionId, USER_DATA_BYTES,
};

/// Asks the gateway to move a player of this process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move<'a> {
    /// Whose.
    pub session: SessionId,
    /// The name of the other process in the gateway's configuration. Always [a
    /// name](super::is_name).
    pub backend: &'a str,
    /// What both processes know the move by; any number.
    pub ticket: u64,
    /// So long may the other process take to answer, in milliseconds; more than 30,000 counts as
    /// that.
    pub time_ms: u32,
    /// The other process is told that it has the player when this one has heard that it has lost
    /// it.
    pub confirms: bool,
    /// What the player is sent in between, where the gateway delivers messages to it: 1 to 1159
    /// bytes, on a reliable channel behind all that this process has sent there, and before all
    /// from the other there. Channels do not wait for each other.
    pub message: Option<(Channel, &'a [u8])>,
    /// For the other process: at most 1024 bytes.
    pub data: &'a [u8],
}

impl Move<'_> {
    /// Whether a reader takes it.
    pub(super) fn check(&self) -> Result<(), RecordError> {
        if !is_name_bytes(self.backend.as_bytes()) {
            return Err(RecordError::NameInvalid);
        }
        let len = self.message.map_or(1, |(_, message)| message.len());
        if len == 0 || len > SHORT_MESSAGE_BYTES_MAX {
            return Err(RecordError::MessageLength);
        }
        if self.data.len() > MOVE_BYTES_MAX {
            return Err(RecordError::MoveLength);
        }
        Ok(())
    }
}

/// A player of another game process may come to this one, which is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offered<'a> {
    /// The session: the same once it is opened here. Not this process's until then.
    pub session: SessionId,
    /// What the answer names.
    pub offer: u64,
    /// What the process that moves the player knows the move by.
    pub ticket: u64,
    /// Who the player is: the id in its connect token.
    pub client_id: u64,
    /// Where the player is.
    pub address: SocketAddr,
    /// The slot that is kept for the player.
    pub slot: u32,
    /// How many slots this backend has.
    pub slots_max: u32,
    /// How long the answer is waited for, in milliseconds.
    pub left_ms: u32,
    /// The gateway delivers whole messages to the player.
    pub delivers: bool,
    /// The user data of the connect token.
    pub user_data: &'a [u8; USER_DATA_BYTES],
    /// The listener that the player came in by. Always [a name](super::is_name).
    pub listener: &'a str,
    /// The backend where the player plays. Always [a name](super::is_name).
    pub from: &'a str,
    /// From that process: at most 1024 bytes.
    pub data: &'a [u8],
}

/// What is said to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Answer {
    /// The player may not come.
    No = 0,
    /// The player may come.
    Yes = 1,
    /// There is no slot: an agent says so, which counts the players of several gateways.
    Full = 2,
    /// Nobody can be asked: an agent says so, for a server that knows no gateway.
    Cannot = 3,
}

impl Answer {
    /// The number that records carry.
    pub const fn as_u8(self) -> u8 {
        self as u8
    }

    /// The answer with this number.
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::No),
            1 => Some(Self::Yes),
            2 => Some(Self::Full),
            3 => Some(Self::Cannot),
            _ => None,
        }
    }
}

/// Marks of a move: it confirms, it has a message.
pub(super) const CONFIRMS: u8 = 1;
pub(super) const HAS_MESSAGE: u8 = 2;
