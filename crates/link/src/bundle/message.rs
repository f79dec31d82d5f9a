//! Whole messages on a link: the channels of a player, the parts that a long message is sent in,
//! and what puts them together again.

use super::{MESSAGE_BYTES_MAX, PART_BYTES_MAX, RecordError, SHORT_MESSAGE_BYTES_MAX, SessionId};

/// Where a message goes, or comes from. Channels of different kinds have nothing to do with each
/// other, whatever their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Messages of up to 64 KiB that arrive once and in order.
    Reliable(u8),
    /// Messages of up to 1159 bytes, of which only the newest matters.
    Sequenced(u8),
    /// Messages of up to 1159 bytes, without promises.
    Unreliable(u8),
}

impl Channel {
    /// The longest message that it takes.
    pub const fn message_bytes_max(self) -> usize {
        match self {
            Self::Reliable(_) => MESSAGE_BYTES_MAX,
            Self::Sequenced(_) | Self::Unreliable(_) => SHORT_MESSAGE_BYTES_MAX,
        }
    }

    /// Whether messages must arrive.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Reliable(_))
    }

    /// Its kind and its number, as records have them.
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Reliable(number) => [RELIABLE, number],
            Self::Sequenced(number) => [2, number],
            Self::Unreliable(number) => [3, number],
        }
    }

    /// The channel of a kind and a number.
    pub const fn from_bytes([kind, number]: [u8; 2]) -> Result<Self, RecordError> {
        match kind {
            RELIABLE => Ok(Self::Reliable(number)),
            2 => Ok(Self::Sequenced(number)),
            3 => Ok(Self::Unreliable(number)),
            _ => Err(RecordError::ChannelUnknown),
        }
    }
}

pub(super) const RELIABLE: u8 = 1;

/// A message, or a part of one on a reliable channel. Parts of a message follow one another on the
/// link, with no part of another one in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessagePart<'a> {
    /// Whose.
    pub session: SessionId,
    /// Where it goes, or comes from.
    pub channel: Channel,
    /// A message begins here.
    pub is_first: bool,
    /// A message ends here.
    pub is_last: bool,
    /// What the report is to be known by that the game process wants; 0 for none. Counts in the
    /// first part of a message for a player, and is 0 from the gateway.
    pub token: u64,
    /// 1 to 16,000 bytes.
    pub bytes: &'a [u8],
}

impl<'a> MessagePart<'a> {
    /// The parts that a message is sent in. None where it is empty.
    pub fn of(
        session: SessionId,
        channel: Channel,
        token: u64,
        message: &'a [u8],
    ) -> impl Iterator<Item = Self> + Clone {
        let last = message.len().div_ceil(PART_BYTES_MAX).saturating_sub(1);
        let parts = message.chunks(PART_BYTES_MAX).enumerate();
        parts.map(move |(at, bytes)| Self {
            session,
            channel,
            is_first: at == 0,
            is_last: at == last,
            token: if at == 0 { token } else { 0 },
            bytes,
        })
    }

    pub(super) const fn marks(&self) -> u8 {
        FIRST * self.is_first as u8 + LAST * self.is_last as u8
    }

    /// Whether the part is one that can be.
    pub(super) const fn check(&self) -> Result<(), RecordError> {
        let len = self.bytes.len();
        if self.channel.is_reliable() {
            if len == 0 || len > PART_BYTES_MAX {
                return Err(RecordError::MessageLength);
            }
            return Ok(());
        }
        if len == 0 || len > SHORT_MESSAGE_BYTES_MAX {
            return Err(RecordError::MessageLength);
        }
        if self.is_first && self.is_last { Ok(()) } else { Err(RecordError::MessageMarks) }
    }
}

pub(super) const FIRST: u8 = 1;
pub(super) const LAST: u8 = 2;

/// The message of a link that is being put together.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// Whose it is, where it goes and its token; `None` where no message has begun.
    begun: Option<(SessionId, Channel, u64)>,
    bytes: Vec<u8>,
}

impl Assembly {
    /// Nothing has begun.
    pub const fn new() -> Self {
        Self { begun: None, bytes: Vec::new() }
    }

    /// Whether a part is a whole message that this does not have to put together. A reliable one
    /// follows what has begun before it; others come beside a trunk's stream, and so between the
    /// parts of one.
    pub const fn is_passed_by(&self, part: &MessagePart<'_>) -> bool {
        part.is_first && part.is_last && !(part.channel.is_reliable() && self.is_open())
    }

    /// Takes the first or the next part of a message that has several. Returns whether the message
    /// is complete, and then [`message`](Self::message) has it.
    pub fn take(&mut self, part: &MessagePart<'_>) -> Result<bool, RecordError> {
        if part.is_first {
            if self.begun.is_some() {
                return Err(RecordError::MessageMarks);
            }
            self.begun = Some((part.session, part.channel, part.token));
            self.bytes.clear();
        }
        let is_next = |(session, channel, _)| session == part.session && channel == part.channel;
        if !self.begun.is_some_and(is_next) {
            return Err(RecordError::MessageMarks);
        }
        if self.bytes.len() + part.bytes.len() > MESSAGE_BYTES_MAX {
            return Err(RecordError::MessageLength);
        }
        self.bytes.extend_from_slice(part.bytes);
        if part.is_last {
            self.begun = None;
        }
        Ok(part.is_last)
    }

    /// The message that was completed last.
    pub fn message(&self) -> &[u8] {
        &self.bytes
    }

    /// What a message has begun with that is not complete: whose it is, its channel, its token and
    /// its first bytes.
    pub fn begun(&self) -> Option<(SessionId, Channel, u64, &[u8])> {
        self.begun.map(|(session, channel, token)| (session, channel, token, &self.bytes[..]))
    }

    /// The token that the message began with, which is to be asked before its last part.
    pub fn token(&self) -> u64 {
        self.begun.map_or(0, |(.., token)| token)
    }

    /// Whether a message has begun and is not complete.
    pub const fn is_open(&self) -> bool {
        self.begun.is_some()
    }

    /// A session is over, or another process's: nothing follows of what has begun for it.
    pub fn forget(&mut self, session: SessionId) {
        self.begun.take_if(|(begun, ..)| *begun == session);
    }

    /// Forgets what has begun, with its memory.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}
