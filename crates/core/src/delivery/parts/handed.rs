//! A reliable channel on its way to the next process.
//!
//! Messages with their lengths, and parts with their lengths behind each other, say where
//! everything lies, so nothing is read that could contradict it.

use std::collections::VecDeque;

use super::{Claim, Message, OutChannel, Sent, State, WINDOW_PARTS, queued_bytes};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::proto::delivery::{MESSAGE_BYTES_MAX, PartSeq};

impl Carry for State {
    fn write(&self, out: &mut Writer<'_>) {
        let number: u8 = match self {
            Self::Arrived => 0,
            Self::Lost => 1,
            // It is under way once, which has to be enough.
            Self::UnderWay | Self::Doubled => 2,
        };
        number.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        match u8::read(from)? {
            0 => Ok(Self::Arrived),
            1 => Ok(Self::Lost),
            2 => Ok(Self::UnderWay),
            _ => Err(Broken::Invalid("state of a part")),
        }
    }
}

impl OutChannel {
    /// Writes what waits here and what is under way.
    pub(in crate::delivery) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            number,
            messages,
            bytes,
            parts,
            base,
            // All of it follows.
            lost: _,
            doubled: _,
            cut_messages,
            cut_bytes,
            released: _,
            cut_to: _,
        } = self;
        number.write(out);
        base.write(out);
        (messages.len() as u32).write(out);
        for Message { len, claim: _, token } in messages {
            len.write(out);
            token.write(out);
        }
        cut_messages.write(out);
        cut_bytes.write(out);
        let (front, back) = bytes.as_slices();
        out.bytes(front);
        out.bytes(back);
        (parts.len() as u32).write(out);
        for Sent { at: _, len, packet, is_first: _, is_last: _, state } in parts {
            len.write(out);
            packet.write(out);
            state.write(out);
        }
    }

    /// Reads a channel of which parts are at most `len_max` long.
    pub(in crate::delivery) fn take_over(
        len_max: usize,
        from: &mut Reader<'_>,
    ) -> Result<Self, Broken> {
        let (number, base) = (u8::read(from)?, PartSeq::read(from)?);
        let messages = read_messages(len_max, from)?;
        let (cut_messages, cut_bytes) = (usize::read(from)?, usize::read(from)?);
        let len_of = |at: usize| messages.get(at).map_or(0, |message| message.len as usize);
        let is_begun = cut_bytes == 0 || cut_bytes < len_of(cut_messages);
        if cut_messages > messages.len() || !is_begun {
            return Err(Broken::Invalid("place in a message"));
        }
        let cut_to = (0..cut_messages).map(len_of).sum::<usize>() + cut_bytes;
        let bytes = from.bytes(messages.iter().map(|message| message.len as usize).sum())?;
        let mut channel = Self {
            number,
            bytes: bytes.iter().copied().collect(),
            parts: VecDeque::new(),
            base,
            lost: 0,
            doubled: 0,
            cut_messages,
            cut_bytes,
            released: 0,
            cut_to: cut_to as u64,
            messages,
        };
        channel.read_parts(len_max, from)?;
        Ok(channel)
    }

    /// What messages claim that have begun: of those that are cut, and of others.
    pub(in crate::delivery) fn claims(&self) -> (usize, usize) {
        let begun = self.cut_messages + usize::from(self.cut_bytes > 0);
        self.messages.iter().take(begun).fold((0, 0), |(large, small), message| {
            let bytes = message.claim.bytes as usize;
            if message.claim.is_large { (large + bytes, small) } else { (large, small + bytes) }
        })
    }

    /// What all messages count for.
    pub(in crate::delivery) fn queued_bytes(&self) -> usize {
        self.messages.iter().map(|message| queued_bytes(message.len as usize)).sum()
    }

    /// The last parts that were cut, which may begin in the first message only.
    fn read_parts(&mut self, len_max: usize, from: &mut Reader<'_>) -> Result<(), Broken> {
        let invalid = Broken::Invalid("part of a message");
        let count = u32::read(from)? as usize;
        if count > WINDOW_PARTS {
            return Err(invalid);
        }
        let mut read = [(0_u16, 0_u16, State::Arrived); WINDOW_PARTS];
        let mut sum = 0;
        for part in &mut read[..count] {
            *part = (u16::read(from)?, u16::read(from)?, State::read(from)?);
            sum += u64::from(part.0);
            if part.0 == 0 || usize::from(part.0) > len_max {
                return Err(invalid);
            }
        }
        let mut at = self.cut_to.checked_sub(sum).ok_or(invalid)?;
        let mut ends = self.messages.iter().scan(0, |end, message| {
            *end += u64::from(message.len);
            Some(*end)
        });
        let (mut start, mut end) = (0, ends.next().unwrap_or(0));
        if at > 0 && at >= end {
            return Err(invalid);
        }
        for &(len, packet, state) in &read[..count] {
            if at == end {
                (start, end) = (end, ends.next().ok_or(invalid)?);
            }
            let next = at + u64::from(len);
            if next > end {
                return Err(invalid);
            }
            let (is_first, is_last) = (at == start, next == end);
            self.lost += usize::from(state == State::Lost);
            self.parts.push_back(Sent { at, len, packet, is_first, is_last, state });
            at = next;
        }
        Ok(())
    }
}

fn read_messages(len_max: usize, from: &mut Reader<'_>) -> Result<VecDeque<Message>, Broken> {
    let mut messages = VecDeque::new();
    for _ in 0..u32::read(from)? {
        let (len, token) = (u32::read(from)?, Option::read(from)?);
        if len == 0 || len as usize > MESSAGE_BYTES_MAX {
            return Err(Broken::Invalid("length of a message"));
        }
        messages.push_back(Message { len, claim: Claim::of(len as usize, len_max), token });
    }
    Ok(messages)
}
