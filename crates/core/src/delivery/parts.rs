//! One reliable channel on its way out: messages in the order in which they were sent, cut into
//! numbered parts as they leave.
//!
//! A part keeps its number and its bytes, however often it is sent. The channel keeps a message
//! until all of it and all before it has arrived, which is as long as the other end may have to.
//! All parts of a message but the last are as long as a packet allows, so that it is known from
//! the beginning what that costs.
//!
//! A part that was lost leaves again, and where the channel is so fast that it would have to wait
//! for that part if it were lost once more, in two packets.

use std::collections::VecDeque;

use super::buffers::cost_of_part;
use super::channels::Numbered;
use crate::proto::delivery::{Part, PartSeq, part_bytes};
use crate::proto::notify::PacketSeq;

/// How many parts of a channel may be in flight: enough to fill the network while one of them has
/// to be sent again, and few enough that a part beyond them is not taken for an old one.
pub(super) const WINDOW_PARTS: usize = 504;

/// A channel on its way out.
#[derive(Debug)]
pub(super) struct OutChannel {
    number: u8,
    messages: VecDeque<Message>,
    /// The bytes of all messages.
    bytes: VecDeque<u8>,
    /// Parts that were sent, from the first that has not arrived on.
    parts: VecDeque<Sent>,
    /// The number of the first of `parts`.
    base: PartSeq,
    /// How many parts were in vain and have to be sent again.
    lost: usize,
    /// How many have been sent again, and leave in another packet too.
    doubled: usize,
    /// How many messages have been cut into parts completely.
    cut_messages: usize,
    /// How much has been cut of the message after them.
    cut_bytes: usize,
    /// Bytes of the queue, counted from the channel's beginning: where the first message begins,
    /// and where the next part does.
    released: u64,
    cut_to: u64,
}

#[derive(Debug)]
struct Message {
    len: u32,
    claim: Claim,
    token: Option<u64>,
}

/// What the other end may have to hold for a message, from its first part on until all of it has
/// arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) bytes: u32,
    /// The message is cut.
    pub(super) is_large: bool,
}

#[derive(Debug)]
struct Sent {
    /// Where its bytes are, as `cut_to` counts.
    at: u64,
    len: u16,
    /// The number of the packet that it was last sent in.
    packet: u16,
    is_first: bool,
    is_last: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Arrived,
    Lost,
    UnderWay,
    /// Under way, and to be sent in another packet too.
    Doubled,
}

/// A message that has arrived, and what it counted for.
pub(super) struct Done {
    pub(super) bytes: usize,
    pub(super) claim: Claim,
    pub(super) token: Option<u64>,
}

impl Numbered for OutChannel {
    fn resting(channel: u8, next: PartSeq) -> Self {
        Self {
            number: channel,
            messages: VecDeque::new(),
            bytes: VecDeque::new(),
            parts: VecDeque::new(),
            base: next,
            lost: 0,
            doubled: 0,
            cut_messages: 0,
            cut_bytes: 0,
            released: 0,
            cut_to: 0,
        }
    }

    fn number(&self) -> u8 {
        self.number
    }

    fn rests_at(&self) -> Option<PartSeq> {
        (self.messages.is_empty() && self.parts.is_empty()).then_some(self.base)
    }
}

impl OutChannel {
    /// Queues a message of which parts are at most `len_max` long.
    pub(super) fn push(&mut self, message: &[u8], len_max: usize, token: Option<u64>) {
        self.bytes.extend(message);
        let claim = Claim::of(message.len(), len_max);
        self.messages.push_back(Message { len: message.len() as u32, claim, token });
    }

    /// What the next message claims, if the next new part is its first.
    pub(super) fn next_claim(&self) -> Option<Claim> {
        let next = self.messages.get(self.cut_messages)?;
        (self.cut_bytes == 0).then_some(next.claim)
    }

    /// Whether a part could be sent now: one again, or a new one.
    pub(super) fn is_ready(&self) -> bool {
        self.lost + self.doubled > 0 || self.has_more() && self.parts.len() < WINDOW_PARTS
    }

    /// How many parts have to be sent again.
    pub(super) const fn lost(&self) -> usize {
        self.lost
    }

    /// A part that was lost, if one fits into `room`: it leaves in that packet.
    pub(super) fn repeat(&mut self, packet: PacketSeq, room: usize) -> Option<usize> {
        if self.lost == 0 {
            return None;
        }
        let fits = |part: &Sent| part_bytes(self.number, part.len.into()) <= room;
        let is_next = |part: &Sent| part.state == State::Lost && fits(part);
        let index = self.parts.iter().position(is_next)?;
        let is_pressing = self.is_pressing(index);
        let part = &mut self.parts[index];
        part.state = if is_pressing { State::Doubled } else { State::UnderWay };
        part.packet = packet.value() as u16;
        self.lost -= 1;
        self.doubled += usize::from(is_pressing);
        Some(index)
    }

    /// A part that has been sent again and leaves in another packet too, if one fits into `room`.
    pub(super) fn double(&mut self, packet: PacketSeq, room: usize) -> Option<usize> {
        if self.doubled == 0 {
            return None;
        }
        let number = packet.value() as u16;
        let fits = |part: &Sent| part_bytes(self.number, part.len.into()) <= room;
        let is_next =
            |part: &Sent| part.state == State::Doubled && part.packet != number && fits(part);
        let index = self.parts.iter().position(is_next)?;
        let part = &mut self.parts[index];
        part.state = State::UnderWay;
        part.packet = number;
        self.doubled -= 1;
        Some(index)
    }

    /// Whether the channel might come to a stop if a part that leaves again were lost once more. It
    /// would be missing for two more round trips, and in each of them, where packets leave in
    /// lumps, twice as much may follow as was sent after it until now.
    fn is_pressing(&self, index: usize) -> bool {
        self.has_more() && 5 * (self.parts.len() - index) > WINDOW_PARTS
    }

    /// A new part of at most `room` bytes as a frame and `len_max` by itself: it leaves in that
    /// packet. Its index.
    pub(super) fn cut(&mut self, packet: PacketSeq, room: usize, len_max: usize) -> Option<usize> {
        if !self.has_more() || self.parts.len() == WINDOW_PARTS {
            return None;
        }
        let message = &self.messages[self.cut_messages];
        let left = message.len as usize - self.cut_bytes;
        let len = left.min(len_max);
        if part_bytes(self.number, len) > room {
            return None;
        }
        self.parts.push_back(Sent {
            at: self.cut_to,
            len: len as u16,
            packet: packet.value() as u16,
            is_first: self.cut_bytes == 0,
            is_last: len == left,
            state: State::UnderWay,
        });
        self.cut_to += len as u64;
        self.cut_bytes += len;
        if len == left {
            self.cut_messages += 1;
            self.cut_bytes = 0;
        }
        Some(self.parts.len() - 1)
    }

    /// The part with that index, for a frame. Its bytes lie in `copy` if they do not lie in one
    /// piece.
    pub(super) fn part<'a>(&'a self, index: usize, copy: &'a mut Vec<u8>) -> Part<'a> {
        let part = &self.parts[index];
        let (start, len) = ((part.at - self.released) as usize, usize::from(part.len));
        let (front, back) = self.bytes.as_slices();
        let bytes = if start + len <= front.len() {
            &front[start..start + len]
        } else if start >= front.len() {
            &back[start - front.len()..][..len]
        } else {
            copy.clear();
            copy.extend(self.bytes.range(start..start + len));
            copy
        };
        Part {
            channel: self.number,
            sequence: self.base.wrapping_add(index as u64),
            is_first: part.is_first,
            is_last: part.is_last,
            bytes,
        }
    }

    /// A part has arrived. Messages that are done with it come out of [`done`](Self::done).
    pub(super) fn handle_arrived(&mut self, sequence: PartSeq) {
        let Some(part) = self.find(sequence) else { return };
        let before = std::mem::replace(&mut part.state, State::Arrived);
        self.lost -= usize::from(before == State::Lost);
        self.doubled -= usize::from(before == State::Doubled);
    }

    /// A packet with this part is lost. If it was not sent again meanwhile, it has to be.
    pub(super) fn handle_lost(&mut self, sequence: PartSeq, packet: PacketSeq) {
        let Some(part) = self.find(sequence) else { return };
        let is_out = matches!(part.state, State::UnderWay | State::Doubled);
        if is_out && u64::from(part.packet) == packet.value() {
            let before = std::mem::replace(&mut part.state, State::Lost);
            self.lost += 1;
            self.doubled -= usize::from(before == State::Doubled);
        }
    }

    /// Sends a part again, although nothing is known about it. Its length, if it was under way.
    pub(super) fn give_up(&mut self, sequence: PartSeq) -> Option<usize> {
        let part = self.find(sequence)?;
        if part.state != State::UnderWay {
            return None;
        }
        part.state = State::Lost;
        let len = part.len.into();
        self.lost += 1;
        Some(len)
    }

    /// The next message that has arrived, with all before it.
    pub(super) fn done(&mut self) -> Option<Done> {
        while self.parts.front()?.state == State::Arrived {
            let part = self.parts.pop_front()?;
            self.base = self.base.wrapping_add(1);
            if part.is_last {
                let message = self.messages.pop_front()?;
                self.cut_messages -= 1;
                self.bytes.drain(..message.len as usize);
                self.released += u64::from(message.len);
                let Message { len, claim, token } = message;
                return Some(Done { bytes: queued_bytes(len as usize), claim, token });
            }
        }
        None
    }

    /// How many messages are not done, and their bytes.
    pub(super) fn undelivered(&self) -> (usize, usize) {
        (self.messages.len(), self.bytes.len())
    }

    /// Tokens of messages that are not done, oldest first.
    pub(super) fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.messages.iter().filter_map(|message| message.token)
    }

    pub(super) fn tokens_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.messages.iter_mut().filter_map(|message| message.token.as_mut())
    }

    pub(super) fn trim(&mut self) {
        self.messages.shrink_to_fit();
        self.bytes.shrink_to_fit();
        self.parts.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.messages.capacity() * size_of::<Message>()
            + self.bytes.capacity()
            + self.parts.capacity() * size_of::<Sent>()
    }

    fn has_more(&self) -> bool {
        self.cut_messages < self.messages.len()
    }

    fn find(&mut self, sequence: PartSeq) -> Option<&mut Sent> {
        let index = usize::try_from(sequence.distance_from(self.base)).ok()?;
        self.parts.get_mut(index)
    }
}

/// What a message counts for while it waits: its bytes, and of a short one what it takes beside
/// them.
pub(super) const fn queued_bytes(len: usize) -> usize {
    if len < QUEUED_BYTES_MIN { QUEUED_BYTES_MIN } else { len }
}

/// What the shortest message counts for.
const QUEUED_BYTES_MIN: usize = 128;

impl Claim {
    const fn of(len: usize, len_max: usize) -> Self {
        let (whole, rest) = (len / len_max, len % len_max);
        let last = if rest > 0 { cost_of_part(rest) } else { 0 };
        Self { bytes: (whole * cost_of_part(len_max) + last) as u32, is_large: len > len_max }
    }
}

mod handed;
#[cfg(test)]
mod tests;
