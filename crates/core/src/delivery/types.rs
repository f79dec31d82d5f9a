//! What callers of an [`End`](super::End) say and hear.

use crate::carry::{Broken, Carry, Reader, Writer};
use crate::drops::DropReason;
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::proto::notify::PacketSeq;

/// Where a message goes, or comes from. Channels of different kinds have nothing to do with each
/// other, whatever their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Messages of 1 byte to 64 KiB that arrive once and in order.
    Reliable(u8),
    /// Messages of at most one packet, of which only the newest matters.
    Sequenced(u8),
    /// Messages of at most one packet, without promises.
    Unreliable(u8),
}

impl Channel {
    /// Its kind and its number, as links, hand-overs and C have them.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 2] {
        match self {
            Self::Reliable(number) => [1, number],
            Self::Sequenced(number) => [2, number],
            Self::Unreliable(number) => [3, number],
        }
    }

    /// The channel of a kind and a number.
    #[inline]
    pub const fn from_bytes([kind, number]: [u8; 2]) -> Option<Self> {
        match kind {
            1 => Some(Self::Reliable(number)),
            2 => Some(Self::Sequenced(number)),
            3 => Some(Self::Unreliable(number)),
            _ => None,
        }
    }
}

/// How an end behaves. The other end need not have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of our first packet.
    pub first_sent: PacketSeq,
    /// The number of the other end's first packet.
    pub first_received: PacketSeq,
    /// The longest packet that is sent: 200 to 1200 bytes.
    pub packet_bytes: usize,
    /// After how much silence of ours an empty packet leaves, so that the other end hears what
    /// arrived and networks do not forget us.
    pub keep_alive_ns: u64,
    /// How long an acknowledgement may wait for a packet that leaves anyhow.
    pub ack_delay_ns: u64,
    /// How long a packet may wait for up to three that are missing before it, where packets have
    /// come late before; 0 for not at all. Otherwise [`End::handle_held`](super::End::handle_held)
    /// has to be called when [`End::poll_timeout`](super::End::poll_timeout) says so.
    pub reorder_ns: u64,
    /// The other end may say why it ends, and is told that it may.
    pub takes_farewell: bool,
    /// The most that waits on all reliable channels, what is not acknowledged yet included: of each
    /// message its bytes, and of a shorter one 128.
    pub reliable_bytes_max: usize,
    /// The most that waits on all other channels. What is too much takes the place of the oldest.
    pub unreliable_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            first_sent: PacketSeq::new(0),
            first_received: PacketSeq::new(0),
            packet_bytes: PAYLOAD_BYTES_MAX,
            keep_alive_ns: 1_000_000_000,
            ack_delay_ns: 5_000_000,
            reorder_ns: 0,
            takes_farewell: false,
            reliable_bytes_max: 256 * 1024,
            unreliable_bytes_max: 32 * 1024,
        }
    }
}

/// How long gateways and our clients wait for packets that may only be late: a tick at 50 Hz.
pub const REORDER_NS: u64 = 20_000_000;

/// What became of a message that was sent with a token. Exactly one for each, as long as the
/// connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The token.
    pub token: u64,
    /// It arrived. (`false`: it is not known to have arrived, and never will be. A message on a
    /// reliable channel always arrives.)
    pub is_delivered: bool,
}

/// How good the connection is, as far as this end can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// The round trip, smoothed; 0 before the first one.
    pub round_trip_ns: u64,
    /// How far round trips differ from it, smoothed.
    pub variation_ns: u64,
    /// Lost packets out of a thousand, smoothed over some tens of them.
    pub loss_per_mille: u16,
    /// How many bytes may be in flight.
    pub window_bytes: u32,
    /// How many bytes are in flight.
    pub in_flight_bytes: u32,
    /// How many bytes wait on reliable channels, what is not acknowledged yet included; messages of
    /// less than 128 count as that.
    pub reliable_bytes: usize,
}

impl Quality {
    /// The round trip and how far round trips differ from it, in microseconds.
    pub fn round_trip_us(&self) -> [u32; 2] {
        let us = |ns: u64| u32::try_from(ns / NS_PER_US).unwrap_or(u32::MAX);
        [us(self.round_trip_ns), us(self.variation_ns)]
    }
}

impl Options {
    /// Of an end that speaks to a player for a game process.
    pub fn for_player(keep_alive_ns: u64) -> Self {
        Self { keep_alive_ns, reorder_ns: REORDER_NS, ..Self::default() }
    }
}

/// Whether a game process is to hear that no more should be sent to a player, or that more may be:
/// what it has heard last, and how much waits on reliable channels.
pub fn room_news(is_full: bool, waiting_bytes: usize) -> Option<bool> {
    let is_full_now = waiting_bytes > if is_full { ROOM_BYTES } else { FULL_BYTES };
    (is_full_now != is_full).then_some(is_full_now)
}

/// A game process is told that no more should be sent when so much waits for a player on reliable
/// channels: half of what an end keeps. What is on its way to us by then finds room.
const FULL_BYTES: usize = 128 * 1024;

/// And that more may be sent when so little does.
const ROOM_BYTES: usize = 64 * 1024;

const NS_PER_US: u64 = 1000;

/// What an end has done, beside what its caller counts. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that left, with frames or without.
    pub packets_sent: u64,
    /// Packets that nobody is known to have received, of those that asked for an acknowledgement.
    pub packets_lost: u64,
    /// Parts of reliable messages that left again.
    pub parts_repeated: u64,
    /// Messages on other channels that made room for newer ones before they left.
    pub messages_displaced: u64,
}

crate::carried!(Counts { packets_sent, packets_lost, parts_repeated, messages_displaced });

crate::told! {
    /// Why a message was not taken.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SendError;
    /// The connection is over.
    Closed = "there is no connection",
    /// A message has a byte at least.
    Empty = "a message has a byte at least",
    /// There is no room: it can be sent when others have been acknowledged.
    Full = "the queue is full until messages have been acknowledged",
    /// It is longer than a message of its kind may be.
    TooLong = "the message is longer than its channel takes",
}

/// Why a packet was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It was dropped, and the connection lives.
    Dropped(DropReason),
    /// It ends the connection, or has come after the end.
    Fault(Fault),
    /// It has come after this end was closed.
    Closed,
}

impl Carry for Channel {
    fn write(&self, out: &mut Writer<'_>) {
        self.to_bytes().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        Self::from_bytes(Carry::read(from)?).ok_or(Broken::Invalid("kind of a channel"))
    }
}

crate::carried!(Report { token, is_delivered });

crate::named! {
    /// Why a connection is over: the other end does what no honest one does. Their places are
    /// numbers of the C interface: a new one stands last.
    pub enum Fault;
    /// A packet that is too short or too long, or a frame that nobody writes.
    Malformed = "delivery_malformed",
    /// A packet's number is further ahead than packets can be in flight.
    Sequence = "delivery_sequence",
    /// What was not sent is acknowledged, or an acknowledgement is taken back.
    Acknowledgement = "delivery_acknowledgement",
    /// A part of a message is further ahead than its channel's window.
    Window = "delivery_window",
    /// A message begins in the middle of another, or goes on without a beginning.
    Marks = "delivery_marks",
    /// A message grows over 64 KiB.
    MessageLength = "delivery_message_length",
    /// More is waiting for its turn than an end has to keep.
    Memory = "delivery_memory",
    /// Nothing has been acknowledged as arrived for half a minute.
    Silence = "delivery_silence",
    /// A message on a channel that is not reliable is longer than 1159 bytes.
    Oversize = "delivery_oversize",
}
