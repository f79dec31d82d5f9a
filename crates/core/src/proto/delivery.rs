//! The packets of the delivery layer: a header that acknowledges, and frames behind it. Bytewise
//! and little-endian; docs/PROTOCOLS.md has the tables.
//!
//! ```text
//! words - 1 (4) | acked (14) | sequence (14) | 1 to 8 x 32 of history | frames to the end
//! ```
//!
//! A packet without frames only acknowledges, and asks for no acknowledgement. There is one way to
//! write a frame, and any other is refused.

use crate::limits::PAYLOAD_BYTES_MAX;
use crate::proto::notify::{HISTORY_WORDS_MAX, Header, Notify, PacketSeq};
use crate::proto::seq::Seq;

/// The number of a part of a message on a reliable channel.
pub type PartSeq = Seq<10>;

/// The longest message on a reliable channel.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The longest header.
pub const HEADER_BYTES_MAX: usize = WORD_BYTES * (1 + HISTORY_WORDS_MAX);

/// The shortest packet: one word of history and no frame.
pub const HEADER_BYTES_MIN: usize = WORD_BYTES * 2;

/// The longest message on a channel that is not reliable: what fits behind the longest header of
/// the longest packet.
pub const SHORT_MESSAGE_BYTES_MAX: usize = part_bytes_max(PAYLOAD_BYTES_MAX);

/// The longest text of a farewell.
pub const FAREWELL_BYTES_MAX: usize = 200;

/// The most that a frame needs beside its bytes: head, channel, number, length.
pub const FRAME_HEAD_BYTES_MAX: usize = 1 + 1 + 1 + 2;

/// The longest message on a channel that is not reliable, and the longest part of one on a
/// reliable channel, in packets of so many bytes: what fits behind the longest header.
pub const fn part_bytes_max(packet_bytes: usize) -> usize {
    packet_bytes - HEADER_BYTES_MAX - FRAME_HEAD_BYTES_MAX
}

/// Reads the header of a packet; the rest are its frames. `None` where the packet is too short, or
/// announces a history that does not exist.
#[inline]
pub fn read_header(packet: &[u8]) -> Option<(Header, &[u8])> {
    let (fields, mut rest) = word(packet)?;
    let words = (fields & COUNT_MASK) as usize + 1;
    let mut history = [0; HISTORY_WORDS_MAX];
    for place in history.get_mut(..words)? {
        (*place, rest) = word(rest)?;
    }
    let acked = PacketSeq::new(u64::from(fields) >> ACKED_AT);
    let sequence = PacketSeq::new(u64::from(fields) >> SEQUENCE_AT);
    Some((Header { sequence, acked, history }, rest))
}

/// Writes the header of the next packet and returns its length.
///
/// # Panics
/// Where the buffer is shorter than the longest header.
#[inline]
pub fn write_header(end: &Notify, out: &mut [u8]) -> usize {
    let history = end.history();
    let acked = (end.latest().value() as u32) << ACKED_AT;
    let sequence = (end.next().value() as u32) << SEQUENCE_AT;
    let fields = (history.len() - 1) as u32 | acked | sequence;
    out[..WORD_BYTES].copy_from_slice(&fields.to_le_bytes());
    let places = out[WORD_BYTES..HEADER_BYTES_MAX].chunks_exact_mut(WORD_BYTES);
    for (place, word) in places.zip(history) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    WORD_BYTES * (1 + history.len())
}

/// One frame of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Why the connection is about to end. Only for an end that has said that it takes one.
    Farewell {
        /// A number that the layer gives no meaning to.
        reason: u8,
        /// At most 200 bytes, or none.
        text: &'a [u8],
    },
    /// Asks for an acknowledgement and says nothing. Two, one behind the other, say that their
    /// sender takes a farewell.
    Ping,
    /// A message, or a part of one, of a reliable channel.
    Reliable(Part<'a>),
    /// A message of a channel on which a newer message makes older ones worthless.
    Sequenced {
        /// The channel.
        channel: u8,
        /// The message. Invariant: not empty.
        bytes: &'a [u8],
    },
    /// A message of a channel without promises.
    Unreliable {
        /// The channel.
        channel: u8,
        /// The message. Invariant: not empty.
        bytes: &'a [u8],
    },
}

/// A part of a message on a reliable channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The channel.
    pub channel: u8,
    /// The number of the part, counted for each channel.
    pub sequence: PartSeq,
    /// A message begins here.
    pub is_first: bool,
    /// A message ends here.
    pub is_last: bool,
    /// The bytes of this part. Invariant: not empty.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// How many bytes the frame has.
    pub const fn wire_bytes(&self) -> usize {
        match self {
            Self::Farewell { text, .. } => FAREWELL_HEAD_BYTES + text.len(),
            Self::Ping => 1,
            Self::Reliable(part) => part_bytes(part.channel, part.bytes.len()),
            Self::Sequenced { channel, bytes } | Self::Unreliable { channel, bytes } => {
                message_bytes(*channel, bytes.len())
            }
        }
    }

    /// Writes the frame to the front of a buffer and returns its length.
    ///
    /// # Panics
    /// Where the buffer is too short.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> usize {
        let mut out = Writer { out, at: 0 };
        match *self {
            Self::Farewell { reason, text } => out.farewell(reason, text),
            Self::Ping => out.byte(PING),
            Self::Reliable(part) => out.part(&part),
            Self::Sequenced { channel, bytes } => out.message(SEQUENCED, channel, bytes),
            Self::Unreliable { channel, bytes } => out.message(UNRELIABLE, channel, bytes),
        }
        out.at
    }

    /// Takes a frame off the front of `rest`. `None` where there is none that could have been
    /// written.
    #[inline]
    pub fn read(rest: &mut &'a [u8]) -> Option<Self> {
        let head = byte(rest)?;
        let kind = head & KIND_MASK;
        match kind {
            PING if head == FAREWELL => farewell(rest),
            PING => (head == PING).then_some(Self::Ping),
            RELIABLE => Part::read(head, rest).map(Self::Reliable),
            _ if head & !(KIND_MASK | HAS_CHANNEL) != 0 => None,
            _ => {
                let channel = channel(head, rest)?;
                let bytes = bytes(rest)?;
                Some(match kind {
                    SEQUENCED => Self::Sequenced { channel, bytes },
                    _ => Self::Unreliable { channel, bytes },
                })
            }
        }
    }
}

impl<'a> Part<'a> {
    #[inline]
    fn read(head: u8, rest: &mut &'a [u8]) -> Option<Self> {
        if head & RESERVED != 0 {
            return None;
        }
        let channel = channel(head, rest)?;
        let sequence = u16::from(head >> SEQUENCE_HIGH_AT) << 8 | u16::from(byte(rest)?);
        Some(Self {
            channel,
            sequence: PartSeq::new(sequence.into()),
            is_first: head & FIRST != 0,
            is_last: head & LAST != 0,
            bytes: bytes(rest)?,
        })
    }
}

/// How many bytes a part of that length has as a frame.
#[inline]
pub const fn part_bytes(channel: u8, len: usize) -> usize {
    1 + message_bytes(channel, len)
}

/// How many bytes a message of that length on a channel that is not reliable has as a frame.
#[inline]
pub const fn message_bytes(channel: u8, len: usize) -> usize {
    let length_bytes = if len < SHORT { 1 } else { 2 };
    1 + (channel != 0) as usize + length_bytes + len
}

/// Puts the fields of a frame into a buffer.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn byte(&mut self, byte: u8) {
        self.out[self.at] = byte;
        self.at += 1;
    }

    fn head(&mut self, head: u8, channel: u8) {
        if channel == 0 {
            self.byte(head);
        } else {
            self.byte(head | HAS_CHANNEL);
            self.byte(channel);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        debug_assert!((1..=LENGTH_MAX).contains(&bytes.len()), "a length that can be written");
        if bytes.len() >= SHORT {
            self.byte((bytes.len() >> 8) as u8 | LONG);
        }
        self.byte(bytes.len() as u8);
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn farewell(&mut self, reason: u8, text: &[u8]) {
        debug_assert!(text.len() <= FAREWELL_BYTES_MAX, "a text that can be written");
        self.byte(FAREWELL);
        self.byte(reason);
        self.byte(text.len() as u8);
        self.out[self.at..self.at + text.len()].copy_from_slice(text);
        self.at += text.len();
    }

    fn message(&mut self, kind: u8, channel: u8, bytes: &[u8]) {
        self.head(kind, channel);
        self.bytes(bytes);
    }

    fn part(&mut self, part: &Part<'_>) {
        let sequence = part.sequence.value() as u16;
        let mut head = RELIABLE | ((sequence >> 8) as u8) << SEQUENCE_HIGH_AT;
        head |= if part.is_first { FIRST } else { 0 };
        head |= if part.is_last { LAST } else { 0 };
        self.head(head, part.channel);
        self.byte(sequence as u8);
        self.bytes(part.bytes);
    }
}

#[inline]
fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

#[inline]
fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, after) = rest.split_first()?;
    *rest = after;
    Some(*byte)
}

#[cold]
fn farewell<'a>(rest: &mut &'a [u8]) -> Option<Frame<'a>> {
    let (reason, len) = (byte(rest)?, usize::from(byte(rest)?));
    let (text, after) = rest.split_at_checked(len).filter(|_| len <= FAREWELL_BYTES_MAX)?;
    *rest = after;
    Some(Frame::Farewell { reason, text })
}

/// Channel 0 is not written.
#[inline]
fn channel(head: u8, rest: &mut &[u8]) -> Option<u8> {
    if head & HAS_CHANNEL == 0 { Some(0) } else { byte(rest).filter(|channel| *channel != 0) }
}

#[inline]
fn bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let first = byte(rest)?;
    let len = if first & LONG == 0 {
        usize::from(first)
    } else {
        let len = usize::from(first & !LONG) << 8 | usize::from(byte(rest)?);
        Some(len).filter(|len| *len >= SHORT)?
    };
    let (bytes, after) = rest.split_at_checked(len).filter(|_| len > 0)?;
    *rest = after;
    Some(bytes)
}

/// Head, reason and length.
const FAREWELL_HEAD_BYTES: usize = 3;

const WORD_BYTES: usize = 4;
const COUNT_MASK: u32 = 15;
const ACKED_AT: u32 = 4;
const SEQUENCE_AT: u32 = 18;

// The head of a frame: kind (2), first, last, channel follows, zero, upper bits of the number (2).
const KIND_MASK: u8 = 3;
const PING: u8 = 0;
const FAREWELL: u8 = PING | RESERVED;
const RELIABLE: u8 = 1;
const SEQUENCED: u8 = 2;
const UNRELIABLE: u8 = 3;
const FIRST: u8 = 1 << 2;
const LAST: u8 = 1 << 3;
const HAS_CHANNEL: u8 = 1 << 4;
const RESERVED: u8 = 1 << 5;
const SEQUENCE_HIGH_AT: u32 = 6;

/// The first of two bytes of a length.
const LONG: u8 = 1 << 7;

/// Lengths from here on have two bytes.
const SHORT: usize = 128;

const LENGTH_MAX: usize = (1 << 15) - 1;

const _: () = assert!(PAYLOAD_BYTES_MAX <= LENGTH_MAX);

#[cfg(test)]
mod tests;
