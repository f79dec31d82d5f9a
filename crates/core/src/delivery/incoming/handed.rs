//! What has arrived and waits, on its way to the next process.

use std::collections::VecDeque;

use super::super::buffers::cost_of_part;
use super::super::channels::Channels;
use super::super::parts::WINDOW_PARTS;
use super::{InChannel, Incoming, RECEIVE_BYTES_MAX, Shared, Waiting};
use crate::carry::{Broken, Carry, Reader, Writer};
use crate::limits::PAYLOAD_BYTES_MAX;
use crate::proto::delivery::{MESSAGE_BYTES_MAX, PartSeq};

impl Incoming {
    /// Writes what waits.
    pub(in crate::delivery) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self {
            channels,
            shared:
                Shared {
                    // They follow from the channels.
                    held: _,
                    channel_bytes: _,
                    // Memory for the next ones.
                    buffers: _,
                    spare: _,
                },
        } = self;
        channels.hand_over(out, InChannel::hand_over);
    }

    /// Reads it.
    pub(in crate::delivery) fn take_over(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut read = Self::new();
        let shared = &mut read.shared;
        read.channels = Channels::take_over(from, |from| InChannel::take_over(shared, from))?;
        read.count_channels();
        if read.shared.held > RECEIVE_BYTES_MAX {
            return Err(Broken::Invalid("amount of messages that wait"));
        }
        Ok(read)
    }
}

impl InChannel {
    fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { number, expected, waiting, message, message_cost } = self;
        number.write(out);
        expected.write(out);
        message_cost.write(out);
        message.write(out);
        (waiting.len() as u32).write(out);
        for Waiting { sequence, is_first, is_last, bytes } in waiting {
            sequence.write(out);
            is_first.write(out);
            is_last.write(out);
            bytes.write(out);
        }
    }

    fn take_over(shared: &mut Shared, from: &mut Reader<'_>) -> Result<Self, Broken> {
        let (number, expected) = (u8::read(from)?, PartSeq::read(from)?);
        let (message_cost, message) = (usize::read(from)?, Vec::<u8>::read(from)?);
        let is_counted = (message.len()..=RECEIVE_BYTES_MAX).contains(&message_cost);
        if !is_counted || message.len() > MESSAGE_BYTES_MAX {
            return Err(Broken::Invalid("message that is not complete"));
        }
        shared.held += message_cost;
        let mut channel =
            Self { number, expected, waiting: VecDeque::new(), message, message_cost };
        let mut before = 0;
        for _ in 0..u32::read(from)? {
            let waiting = Waiting {
                sequence: PartSeq::read(from)?,
                is_first: bool::read(from)?,
                is_last: bool::read(from)?,
                bytes: Vec::read(from)?,
            };
            let ahead = waiting.sequence.distance_from(expected);
            let len = waiting.bytes.len();
            let is_in_window = before < ahead && ahead < WINDOW_PARTS as i64;
            if !is_in_window || len == 0 || len > PAYLOAD_BYTES_MAX {
                return Err(Broken::Invalid("part that waits"));
            }
            before = ahead;
            shared.held += cost_of_part(len);
            channel
                .waiting
                .push_back(Waiting { bytes: shared.buffers.hold(&waiting.bytes), ..waiting });
        }
        Ok(channel)
    }
}
