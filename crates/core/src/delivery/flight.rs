//! What is under way: every packet that nothing is known about, and what it carries.
//!
//! Packets are reported in the order in which they left, so two queues are enough.

use std::collections::VecDeque;

use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::delivery::PartSeq;
use crate::proto::notify::HISTORY_PACKETS_MAX;

/// A packet under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) left_ns: u64,
    pub(super) bytes: u16,
    /// How many items it carries that something depends on.
    pub(super) items: u16,
    /// It asks for an acknowledgement.
    pub(super) asks: bool,
}

/// What a packet carries that something depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A part of a message on a reliable channel.
    Part {
        /// The channel.
        channel: u8,
        /// The part's number.
        sequence: u16,
    },
    /// A message whose sender wants to know what becomes of it.
    Token(u64),
}

impl Item {
    pub(super) const fn part(channel: u8, sequence: PartSeq) -> Self {
        Self::Part { channel, sequence: sequence.value() as u16 }
    }
}

/// Everything under way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    packets: VecDeque<Packet>,
    items: VecDeque<Item>,
    /// Items of the packet that is being written, at the end of the queue.
    unsent: u16,
    /// Packets that ask for an acknowledgement.
    asking: usize,
}

impl Flight {
    /// Packets under way that ask for an acknowledgement.
    pub(super) const fn asking(&self) -> usize {
        self.asking
    }

    /// The next packet carries this.
    pub(super) fn carry(&mut self, item: Item) {
        self.items.push_back(item);
        self.unsent += 1;
    }

    /// The packet has left, with everything that it carries.
    pub(super) fn handle_sent(&mut self, now_ns: u64, bytes: usize, asks: bool) {
        let items = std::mem::take(&mut self.unsent);
        self.packets.push_back(Packet { left_ns: now_ns, bytes: bytes as u16, items, asks });
        self.asking += usize::from(asks);
    }

    /// The oldest packet is under way no more. Its items come next out of
    /// [`take_item`](Self::take_item).
    pub(super) fn take_packet(&mut self) -> Option<Packet> {
        let packet = self.packets.pop_front()?;
        self.asking -= usize::from(packet.asks);
        Some(packet)
    }

    pub(super) fn take_item(&mut self) -> Option<Item> {
        self.items.pop_front()
    }

    /// Tokens of messages that are sent once and under way, oldest first; they are under way no
    /// more.
    pub(super) fn take_tokens(&mut self) -> impl Iterator<Item = u64> + '_ {
        let tokens = |item| match item {
            Item::Token(token) => Some(token),
            Item::Part { .. } => None,
        };
        self.packets.clear();
        (self.asking, self.unsent) = (0, 0);
        self.items.drain(..).filter_map(tokens)
    }

    /// The same tokens, which stay under way.
    pub(super) fn tokens_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.items.iter_mut().filter_map(|item| match item {
            Item::Token(token) => Some(token),
            Item::Part { .. } => None,
        })
    }

    /// Whether anything is under way that something depends on.
    pub(super) fn carries_anything(&self) -> bool {
        !self.items.is_empty()
    }

    /// Everything that is carried, oldest first.
    pub(super) fn items(&self) -> impl Iterator<Item = Item> + '_ {
        self.items.iter().copied()
    }

    /// Bytes of all packets under way that ask for an acknowledgement.
    pub(super) fn asking_bytes(&self) -> u64 {
        self.packets.iter().filter(|packet| packet.asks).map(|packet| u64::from(packet.bytes)).sum()
    }

    /// How many packets are under way.
    pub(super) fn packets(&self) -> usize {
        self.packets.len()
    }

    pub(super) fn trim(&mut self) {
        self.packets.shrink_to_fit();
        self.items.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.packets.capacity() * size_of::<Packet>() + self.items.capacity() * size_of::<Item>()
    }
}

/// How many packets may be in flight before only those leave that ask for an answer, one at a time.
/// What is left of a history is spread over half a minute.
pub(super) const DATA_PACKETS_MAX: usize = HISTORY_PACKETS_MAX - 14;

crate::carried!(Packet { left_ns as time, bytes, items, asks });

impl Carry for Item {
    fn write(&self, out: &mut Writer<'_>) {
        match *self {
            Self::Part { channel, sequence } => (1_u8, (channel, sequence)).write(out),
            Self::Token(token) => (2_u8, token).write(out),
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            1 => {
                let (channel, sequence) = <(u8, u16)>::read(from)?;
                Ok(Self::Part { channel, sequence })
            }
            2 => Ok(Self::Token(u64::read(from)?)),
            _ => Err(Broken::Invalid("kind of an item under way")),
        }
    }
}

impl Carry for Flight {
    fn write(&self, out: &mut Writer<'_>) {
        let Self {
            packets,
            items,
            // Nothing, while no packet is being written.
            unsent: _,
            // It follows from the packets.
            asking: _,
        } = self;
        packets.write(out);
        items.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let packets = VecDeque::<Packet>::read(from)?;
        let items = VecDeque::<Item>::read(from)?;
        let carried: usize = packets.iter().map(|packet| usize::from(packet.items)).sum();
        if carried != items.len() {
            return Err(Broken::Invalid("number of items under way"));
        }
        let asking = packets.iter().filter(|packet| packet.asks).count();
        Ok(Self { packets, items, unsent: 0, asking })
    }
}
