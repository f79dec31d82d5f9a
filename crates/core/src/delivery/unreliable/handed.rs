//! Messages that are sent once, on their way to the next process.

use std::collections::VecDeque;

use super::super::types::Channel;
use super::{MESSAGES_MAX, Message, Unreliable};
use crate::carry::{Broken, Carry, Reader, Writer};

impl Unreliable {
    /// Writes what waits.
    pub(in crate::delivery) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            messages,
            bytes,
            // It follows from the messages.
            fresh: _,
        } = self;
        (messages.len() as u32).write(out);
        for Message { channel, len, token, is_stale } in messages {
            channel.write(out);
            len.write(out);
            token.write(out);
            is_stale.write(out);
        }
        let (front, back) = bytes.as_slices();
        out.bytes(front);
        out.bytes(back);
    }

    /// Reads it. Messages are at most `len_max` long.
    pub(in crate::delivery) fn take_over(
        len_max: usize,
        from: &mut Reader<'_>,
    ) -> Result<Self, Broken> {
        let mut read = Self::default();
        let mut bytes = 0;
        let count = u32::read(from)?;
        for _ in 0..count {
            let message = Message {
                channel: Channel::read(from)?,
                len: u16::read(from)?,
                token: Option::read(from)?,
                is_stale: bool::read(from)?,
            };
            let is_long = message.len == 0 || usize::from(message.len) > len_max;
            let is_reliable = matches!(message.channel, Channel::Reliable(_));
            if is_long || is_reliable || read.messages.len() == MESSAGES_MAX {
                return Err(Broken::Invalid("message that waits"));
            }
            bytes += usize::from(message.len);
            read.fresh += usize::from(!message.is_stale);
            read.messages.push_back(message);
        }
        read.bytes = from.bytes(bytes)?.iter().copied().collect::<VecDeque<_>>();
        Ok(read)
    }
}
