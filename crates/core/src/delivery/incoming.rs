//! All reliable channels on their way in: parts wait for their turn, messages for their parts.
//!
//! Parts that come in order are handed over from the packet that they came in, or added to the
//! message that is being put together. Others wait. A part that has come before is dropped. So in
//! whatever order parts come, and however messages are mixed, they only wait.
//!
//! An honest end never has more under way than this end holds, because it counts at least as much
//! for every message that has begun and not arrived.

use std::collections::VecDeque;

use super::buffers::{Buffers, cost_of_part};
use super::channels::{Channels, Numbered};
use super::parts::WINDOW_PARTS;
use super::types::Fault;
use crate::proto::delivery::{MESSAGE_BYTES_MAX, Part, PartSeq};

/// What an end holds for its peer: parts that wait, and messages that are not complete, over all
/// channels. Each part counts as 64, 128, 256, 512 or 1200 bytes, whichever it fits into, and 48
/// more.
pub const RECEIVE_BYTES_MAX: usize = 768 * 1024;

/// What an end takes at most before it gives back everything that is kept for the next messages:
/// memory grows in steps, the largest of which are two lengths of a message.
const HEAP_BYTES_MAX: usize = RECEIVE_BYTES_MAX + 2 * MESSAGE_BYTES_MAX;

/// Reliable channels on their way in.
#[derive(Debug)]
pub(super) struct Incoming {
    channels: Channels<InChannel>,
    shared: Shared,
}

/// What channels have in common.
#[derive(Debug, Default)]
struct Shared {
    /// What is held at the moment.
    held: usize,
    /// What queues and messages of all channels take, in use or kept for the next ones.
    channel_bytes: usize,
    buffers: Buffers,
    /// Memory of the last message that was put together, for the next one.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct InChannel {
    number: u8,
    /// The part whose turn it is.
    expected: PartSeq,
    /// Parts that wait for it, in order.
    waiting: VecDeque<Waiting>,
    /// The message that is being put together; empty where none is.
    message: Vec<u8>,
    /// What is held of that message.
    message_cost: usize,
}

#[derive(Debug)]
struct Waiting {
    sequence: PartSeq,
    is_first: bool,
    is_last: bool,
    bytes: Vec<u8>,
}

impl Numbered for InChannel {
    fn resting(channel: u8, next: PartSeq) -> Self {
        Self {
            number: channel,
            expected: next,
            waiting: VecDeque::new(),
            message: Vec::new(),
            message_cost: 0,
        }
    }

    fn number(&self) -> u8 {
        self.number
    }

    fn rests_at(&self) -> Option<PartSeq> {
        (self.waiting.is_empty() && self.message.is_empty()).then_some(self.expected)
    }
}

impl Incoming {
    pub(super) fn new() -> Self {
        let shared = Shared::default();
        Self { channels: Channels::new(), shared }
    }

    /// Takes a part in, and hands over every message that is complete now.
    pub(super) fn handle_part(
        &mut self,
        part: &Part<'_>,
        mut on_message: impl FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let channel = self.channels.open(part.channel);
        let before = channel.heap_bytes();
        let ahead = part.sequence.distance_from(channel.expected);
        match ahead {
            0 => {
                channel.take(part, &mut self.shared, &mut on_message)?;
                channel.take_waiting(&mut self.shared, &mut on_message)?;
            }
            ..0 => return Ok(()),
            _ if ahead >= WINDOW_PARTS as i64 => return Err(Fault::Window),
            _ => channel.hold(part, &mut self.shared)?,
        }
        let after = channel.heap_bytes();
        self.shared.channel_bytes = self.shared.channel_bytes + after - before;
        if self.shared.heap_bytes() > HEAP_BYTES_MAX {
            self.shrink();
        }
        Ok(())
    }

    /// Gives back what nothing lies in. What is left is what is held.
    #[cold]
    fn shrink(&mut self) {
        self.shared.buffers.trim();
        self.shared.spare = Vec::new();
        self.channels.iter_mut().for_each(InChannel::trim);
        self.count_channels();
    }

    fn count_channels(&mut self) {
        self.shared.channel_bytes = self.channels.iter_mut().map(|it| it.heap_bytes()).sum();
    }

    /// What is held for the peer at the moment.
    #[cfg(test)]
    pub(super) const fn held(&self) -> usize {
        self.shared.held
    }

    pub(super) fn trim(&mut self) {
        self.channels.trim();
        self.shrink();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.shared.heap_bytes() + self.channels.heap_bytes(|_| 0)
    }
}

impl Shared {
    fn take(&mut self, cost: usize) -> Result<(), Fault> {
        self.held += cost;
        if self.held <= RECEIVE_BYTES_MAX { Ok(()) } else { Err(Fault::Memory) }
    }

    fn heap_bytes(&self) -> usize {
        self.channel_bytes + self.buffers.heap_bytes() + self.spare.capacity()
    }
}

impl InChannel {
    /// Keeps a part that comes too early, unless it is here.
    fn hold(&mut self, part: &Part<'_>, shared: &mut Shared) -> Result<(), Fault> {
        let ahead_of = |sequence: PartSeq| sequence.distance_from(self.expected);
        let ahead = ahead_of(part.sequence);
        let place = self.waiting.partition_point(|other| ahead_of(other.sequence) < ahead);
        if self.waiting.get(place).is_some_and(|other| other.sequence == part.sequence) {
            return Ok(());
        }
        shared.take(cost_of_part(part.bytes.len()))?;
        let bytes = shared.buffers.hold(part.bytes);
        let Part { sequence, is_first, is_last, .. } = *part;
        self.waiting.insert(place, Waiting { sequence, is_first, is_last, bytes });
        Ok(())
    }

    /// Takes every part whose turn has come.
    fn take_waiting(
        &mut self,
        shared: &mut Shared,
        on_message: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        let is_next = |channel: &Self| {
            channel.waiting.front().is_some_and(|part| part.sequence == channel.expected)
        };
        while is_next(self) {
            let Some(waiting) = self.waiting.pop_front() else { break };
            shared.held -= cost_of_part(waiting.bytes.len());
            let part = Part {
                channel: self.number,
                sequence: waiting.sequence,
                is_first: waiting.is_first,
                is_last: waiting.is_last,
                bytes: &waiting.bytes,
            };
            self.take(&part, shared, on_message)?;
            shared.buffers.release(waiting.bytes);
        }
        Ok(())
    }

    /// Takes the part whose turn it is.
    fn take(
        &mut self,
        part: &Part<'_>,
        shared: &mut Shared,
        on_message: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Fault> {
        if part.is_first != self.message.is_empty() {
            return Err(Fault::Marks);
        }
        // After a fault it still stands before all that waits: the end may be handed over.
        let next = self.expected.wrapping_add(1);
        if part.is_first && part.is_last {
            self.expected = next;
            on_message(part.bytes);
            return Ok(());
        }
        if self.message.len() + part.bytes.len() > MESSAGE_BYTES_MAX {
            return Err(Fault::MessageLength);
        }
        let cost = cost_of_part(part.bytes.len());
        shared.take(cost)?;
        self.expected = next;
        if part.is_first {
            self.message = std::mem::take(&mut shared.spare);
        }
        self.message.extend_from_slice(part.bytes);
        self.message_cost += cost;
        if part.is_last {
            on_message(&self.message);
            self.let_go(shared);
        }
        Ok(())
    }

    /// What its queue and its message take. The parts in the queue are buffers.
    fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Waiting>() + self.message.capacity()
    }

    fn trim(&mut self) {
        self.waiting.shrink_to_fit();
        self.message.shrink_to_fit();
    }

    /// The message has been handed over.
    fn let_go(&mut self, shared: &mut Shared) {
        shared.held -= std::mem::take(&mut self.message_cost);
        let mut memory = std::mem::take(&mut self.message);
        memory.clear();
        if memory.capacity() > shared.spare.capacity() {
            shared.spare = memory;
        }
    }
}

mod handed;
#[cfg(test)]
mod tests;
