//! Encrypted packets: prefix, sequence, sealed body, tag.
//!
//! `prefix = sequence bytes << 4 | type`. The sequence is written in as few bytes as hold it, but
//! at least one; readers take any count from 1 to 8. The sequence is the nonce, and the prefix is
//! part of the associated data, so a packet's type cannot be changed on the way. Associated data is
//! made once per protocol id and prefix ([`AadTable`]), not per packet.

use std::ops::Range;

use super::VERSION_INFO;
use super::challenge::CHALLENGE_BODY_BYTES;
use super::wire::{Reader, Writer};
use crate::drops::DropReason;
use crate::limits::{DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX, TAG_BYTES};

/// Shortest encrypted packet: prefix, one sequence byte, no body, tag.
pub const PACKET_BYTES_MIN: usize = 1 + 1 + TAG_BYTES;

/// Bytes of associated data of an encrypted packet.
pub const PACKET_AAD_BYTES: usize = VERSION_INFO.len() + 8 + 1;

/// Body of a keep-alive.
pub const KEEP_ALIVE_BODY_BYTES: usize = 8;

/// The seven packets, by their number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketKind {
    /// Client: here is my token. Never encrypted.
    Request = 0,
    /// Server: no slot is free.
    Denied = 1,
    /// Server: prove that you receive at your address.
    Challenge = 2,
    /// Client: the challenge, echoed.
    Response = 3,
    /// Both: still here; from the server also: you are connected, in this slot.
    KeepAlive = 4,
    /// Both: bytes of the game.
    Payload = 5,
    /// Both: goodbye.
    Disconnect = 6,
}

impl PacketKind {
    /// The kind that the low half of a prefix names.
    #[inline]
    pub const fn of_prefix(prefix: u8) -> Option<Self> {
        Some(match prefix & 15 {
            0 => Self::Request,
            1 => Self::Denied,
            2 => Self::Challenge,
            3 => Self::Response,
            4 => Self::KeepAlive,
            5 => Self::Payload,
            6 => Self::Disconnect,
            _ => return None,
        })
    }

    /// Whether the replay window applies. Packets of the handshake are not covered: repeating them
    /// is harmless, and they come before there is a window.
    #[inline]
    pub const fn is_replay_protected(self) -> bool {
        self as u8 >= Self::KeepAlive as u8
    }

    /// The lengths that an opened body of this kind may have.
    pub const fn body_bytes(self) -> Range<usize> {
        match self {
            Self::Request => 0..0,
            Self::Denied | Self::Disconnect => 0..1,
            Self::Challenge | Self::Response => CHALLENGE_BODY_BYTES..CHALLENGE_BODY_BYTES + 1,
            Self::KeepAlive => KEEP_ALIVE_BODY_BYTES..KEEP_ALIVE_BODY_BYTES + 1,
            Self::Payload => 1..PAYLOAD_BYTES_MAX + 1,
        }
    }

    /// Checks the length of an opened body. An encrypted request has no valid body, so it is never
    /// right.
    #[inline]
    pub fn check_body(self, body_bytes: usize) -> Result<(), DropReason> {
        match self {
            Self::Request => Err(DropReason::PacketUnexpected),
            _ if self.body_bytes().contains(&body_bytes) => Ok(()),
            _ => Err(DropReason::BodyLength),
        }
    }

    /// Whether that side takes in packets of this kind at all.
    #[inline]
    const fn is_for(self, receiver: Receiver) -> bool {
        match receiver {
            Receiver::Client => !matches!(self, Self::Request | Self::Response),
            Receiver::Server => !matches!(self, Self::Denied | Self::Challenge),
        }
    }
}

/// Who receives a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// The client: takes denied, challenge, keep-alive, payload, disconnect.
    Client,
    /// The server: takes request, response, keep-alive, payload, disconnect.
    Server,
}

/// What stands in clear at the start of an encrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet claims to be, until its tag has verified.
    pub kind: PacketKind,
    /// The first byte, which is part of the associated data.
    pub prefix: u8,
    /// The packet's number, and its nonce.
    pub sequence: u64,
}

impl Header {
    /// Reads the header of a datagram that is not a connection request.
    ///
    /// The checks run in the reference's order: length, type, type for this receiver, sequence
    /// bytes, room for sequence and tag. Datagrams longer than any packet are refused first, which
    /// the reference does by the size of its buffer.
    #[inline]
    pub fn decode(datagram: &[u8], receiver: Receiver) -> Result<Self, DropReason> {
        Self::check(datagram, receiver)?;
        Ok(Self::read(datagram))
    }

    /// What [`decode`](Self::decode) checks. Apart from [`read`](Self::read), because a header
    /// inside a `Result` inside another is moved about byte by byte and then read as words, for
    /// which the CPU waits (ten nanoseconds of a packet).
    #[inline]
    pub fn check(datagram: &[u8], receiver: Receiver) -> Result<(), DropReason> {
        if datagram.len() > DATAGRAM_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        if datagram.len() < PACKET_BYTES_MIN {
            return Err(DropReason::PacketLength);
        }
        let prefix = datagram[0];
        if !PacketKind::of_prefix(prefix).is_some_and(|kind| kind.is_for(receiver)) {
            return Err(DropReason::PacketType);
        }
        let sequence_bytes = usize::from(prefix >> 4);
        if !(1..=8).contains(&sequence_bytes) {
            return Err(DropReason::SequenceLength);
        }
        if datagram.len() < 1 + sequence_bytes + TAG_BYTES {
            return Err(DropReason::PacketTruncated);
        }
        Ok(())
    }

    /// The header of a datagram that has passed [`check`](Self::check). Of any other it is any
    /// header.
    #[inline]
    pub fn read(datagram: &[u8]) -> Self {
        let prefix = datagram.first().copied().unwrap_or(0);
        let kind = PacketKind::of_prefix(prefix).unwrap_or(PacketKind::Request);
        // Eight bytes are there whatever the count, because a packet has at least 18; the surplus
        // ones are masked off.
        let wide = datagram.get(1..9).and_then(<[u8]>::first_chunk).copied();
        let surplus = 64_u32.wrapping_sub(8 * u32::from(prefix >> 4)) & 63;
        let sequence = wide.map_or(0, u64::from_le_bytes) & (u64::MAX >> surplus);
        Self { kind, prefix, sequence }
    }

    /// The header of a packet to be sent.
    #[inline]
    pub const fn new(kind: PacketKind, sequence: u64) -> Self {
        let bits = u64::BITS - (sequence | 1).leading_zeros();
        let sequence_bytes = bits.div_ceil(8) as u8;
        Self { kind, prefix: sequence_bytes << 4 | kind as u8, sequence }
    }

    /// Where the body begins: behind the prefix and the sequence.
    #[inline]
    pub const fn body_start(&self) -> usize {
        1 + (self.prefix >> 4) as usize
    }

    /// The nonce of the packet.
    #[inline]
    pub fn nonce(&self) -> [u8; 12] {
        nonce(self.sequence)
    }
}

/// The nonce that belongs to a sequence number: four zero bytes, then the number.
#[inline]
pub fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}

/// Writes prefix and sequence. Bytes of `out` behind the header, up to the ninth, may be
/// overwritten: write the body after the header.
///
/// # Panics
/// Where `out` is shorter than 9 bytes.
#[inline]
pub fn encode_header(kind: PacketKind, sequence: u64, out: &mut [u8]) -> Header {
    let header = Header::new(kind, sequence);
    out[0] = header.prefix;
    out[1..9].copy_from_slice(&sequence.to_le_bytes());
    header
}

/// Writes header and body, to be sealed in place. Returns the header and the packet's length, tag
/// included.
///
/// # Panics
/// Where `out` is too short for header, body and tag.
#[inline]
pub fn encode_packet(
    kind: PacketKind,
    sequence: u64,
    body: &[u8],
    out: &mut [u8],
) -> (Header, usize) {
    let header = encode_header(kind, sequence, out);
    let body_end = header.body_start() + body.len();
    out[header.body_start()..body_end].copy_from_slice(body);
    assert!(out.len() - body_end >= TAG_BYTES, "the packet's buffer ends with its tag");
    (header, body_end + TAG_BYTES)
}

/// The body of a keep-alive. Clients send zeros and servers do not look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// The player's index at the game server.
    pub slot: u32,
    /// How many slots the game server has.
    pub slots: u32,
}

impl KeepAlive {
    /// The body's bytes.
    pub fn encode(self) -> [u8; KEEP_ALIVE_BODY_BYTES] {
        let mut body = [0; KEEP_ALIVE_BODY_BYTES];
        let (slot, slots) = body.split_at_mut(4);
        slot.copy_from_slice(&self.slot.to_le_bytes());
        slots.copy_from_slice(&self.slots.to_le_bytes());
        body
    }

    /// Reads an opened body.
    pub fn decode(body: &[u8]) -> Result<Self, DropReason> {
        let mut input = Reader::new(body);
        match (input.u32(), input.u32(), body.len()) {
            (Some(slot), Some(slots), KEEP_ALIVE_BODY_BYTES) => Ok(Self { slot, slots }),
            _ => Err(DropReason::BodyLength),
        }
    }
}

/// The associated data of every prefix, so that jobs can borrow it.
#[derive(Clone, Debug)]
pub struct AadTable {
    /// By sequence bytes - 1, then by type.
    rows: [Row; 64],
}

/// A row never straddles a cache line, so the cipher fetches one line for it.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Row([u8; PACKET_AAD_BYTES]);

impl AadTable {
    /// The table of a protocol id.
    pub fn new(protocol_id: u64) -> Self {
        let mut rows = [Row([0; PACKET_AAD_BYTES]); 64];
        for prefix in
            (0x10..=0x80_u8).step_by(16).flat_map(|high| (0..8).map(move |low| high | low))
        {
            let mut out = Writer::new(&mut rows[row_index(prefix)].0);
            out.put(VERSION_INFO);
            out.put(&protocol_id.to_le_bytes());
            out.put(&[prefix]);
        }
        Self { rows }
    }

    /// The associated data of a packet with that prefix, which must come from a [`Header`].
    #[inline]
    pub fn of(&self, prefix: u8) -> &[u8; PACKET_AAD_BYTES] {
        let row = &self.rows[row_index(prefix)].0;
        debug_assert_eq!(row[PACKET_AAD_BYTES - 1], prefix, "no header has this prefix");
        row
    }
}

const fn row_index(prefix: u8) -> usize {
    ((prefix >> 4).wrapping_sub(1) & 7) as usize * 8 + (prefix & 7) as usize
}

#[cfg(test)]
mod tests;
