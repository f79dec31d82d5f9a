//! Messages that are sent once: the queue of all channels that are not reliable.
//!
//! Fresh is better than complete here. What is too much takes the place of the oldest, and on a
//! sequenced channel a newer message takes the place of an older one.

use std::collections::VecDeque;

use super::flight::{Flight, Item};
use super::outgoing::Filling;
use super::types::{Channel, Report};
use crate::proto::delivery::Frame;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Unreliable {
    messages: VecDeque<Message>,
    /// The bytes of all messages.
    bytes: VecDeque<u8>,
    /// How many messages are not stale.
    fresh: usize,
}

#[derive(Debug)]
struct Message {
    channel: Channel,
    len: u16,
    token: Option<u64>,
    /// A newer one has taken its place.
    is_stale: bool,
}

impl Unreliable {
    /// Whether there is anything to send.
    pub(super) const fn is_empty(&self) -> bool {
        self.fresh == 0
    }

    /// Puts a message at the end, and drops what must make room for it. Returns how many messages
    /// that were.
    pub(super) fn push(
        &mut self,
        channel: Channel,
        message: &[u8],
        token: Option<u64>,
        bytes_max: usize,
        reports: &mut VecDeque<Report>,
    ) -> u64 {
        let mut displaced = 0;
        if let Channel::Sequenced(_) = channel {
            let is_older = |queued: &&mut Message| queued.channel == channel && !queued.is_stale;
            if let Some(older) = self.messages.iter_mut().rev().find(is_older) {
                older.is_stale = true;
                self.fresh -= 1;
                displaced += 1;
                reports.extend(older.token.take().map(lost));
            }
        }
        let is_too_much = |queue: &Self| {
            queue.bytes.len() + message.len() > bytes_max || queue.messages.len() == MESSAGES_MAX
        };
        let fresh = self.fresh;
        while is_too_much(self) && self.drop_oldest(reports) {}
        displaced += (fresh - self.fresh) as u64;
        self.bytes.extend(message);
        let len = message.len() as u16;
        self.messages.push_back(Message { channel, len, token, is_stale: false });
        self.fresh += 1;
        displaced
    }

    /// Writes what fits into a packet, oldest first.
    pub(super) fn fill(&mut self, packet: &mut Filling<'_>, flight: &mut Flight) {
        while let Some(message) = self.messages.front() {
            let len = usize::from(message.len);
            if !message.is_stale {
                self.bytes.make_contiguous();
                let (bytes, _) = self.bytes.as_slices();
                let frame = message.frame(&bytes[..len]);
                if frame.wire_bytes() > packet.room() {
                    return;
                }
                packet.write(&frame);
                message.token.into_iter().for_each(|token| flight.carry(Item::Token(token)));
                self.fresh -= 1;
            }
            self.bytes.drain(..len);
            self.messages.pop_front();
        }
    }

    /// Drops everything, and says so of messages with a token.
    pub(super) fn give_up(&mut self, reports: &mut VecDeque<Report>) {
        while self.drop_oldest(reports) {}
    }

    /// Tokens of messages that have not left.
    pub(super) fn tokens_mut(&mut self) -> impl Iterator<Item = &mut u64> {
        self.messages.iter_mut().filter_map(|message| message.token.as_mut())
    }

    pub(super) fn trim(&mut self) {
        self.messages.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.messages.capacity() * size_of::<Message>() + self.bytes.capacity()
    }

    fn drop_oldest(&mut self, reports: &mut VecDeque<Report>) -> bool {
        let Some(oldest) = self.messages.pop_front() else { return false };
        self.bytes.drain(..usize::from(oldest.len));
        self.fresh -= usize::from(!oldest.is_stale);
        reports.extend(oldest.token.map(lost));
        true
    }
}

impl Message {
    fn frame<'a>(&self, bytes: &'a [u8]) -> Frame<'a> {
        match self.channel {
            Channel::Sequenced(channel) => Frame::Sequenced { channel, bytes },
            Channel::Reliable(channel) | Channel::Unreliable(channel) => {
                Frame::Unreliable { channel, bytes }
            }
        }
    }
}

const fn lost(token: u64) -> Report {
    Report { token, is_delivered: false }
}

/// Many small messages are bounded too.
const MESSAGES_MAX: usize = 1024;

mod handed;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::notify::PacketSeq;

    /// What a packet of that size takes: channel and first byte of each message.
    fn fill(queue: &mut Unreliable, bytes: usize) -> Vec<(Channel, u8)> {
        let (mut frames, mut flight) = (vec![0; bytes], Flight::default());
        let number = PacketSeq::new(0);
        let mut packet =
            Filling { number, frames: &mut frames, len: 0, part_bytes_max: 1159, repeated: 0 };
        queue.fill(&mut packet, &mut flight);
        let (mut rest, mut found) = (&packet.frames[..packet.len], Vec::new());
        while !rest.is_empty() {
            found.push(match Frame::read(&mut rest).expect("a frame") {
                Frame::Sequenced { channel, bytes } => (Channel::Sequenced(channel), bytes[0]),
                Frame::Unreliable { channel, bytes } => (Channel::Unreliable(channel), bytes[0]),
                frame => panic!("{frame:?}"),
            });
        }
        found
    }

    #[test]
    fn a_newer_message_takes_the_place_of_an_older_one_of_its_channel() {
        let (mut queue, mut reports) = (Unreliable::default(), VecDeque::new());
        let mut push = |queue: &mut Unreliable, channel, byte: u8| {
            queue.push(channel, &[byte; 10], Some(byte.into()), 1000, &mut reports);
        };
        let (a, b, c) = (Channel::Sequenced(1), Channel::Sequenced(2), Channel::Unreliable(1));
        for (channel, byte) in [(a, 1), (c, 2), (b, 3), (a, 4), (c, 5), (a, 6)] {
            push(&mut queue, channel, byte);
        }
        assert_eq!(fill(&mut queue, 1200), [(c, 2), (b, 3), (c, 5), (a, 6)]);
        assert!(queue.is_empty());
        push(&mut queue, a, 7);
        assert_eq!(fill(&mut queue, 1200), [(a, 7)]);
        assert!(reports.iter().eq(&[lost(1), lost(4)]));
    }

    #[test]
    fn what_is_too_much_takes_the_place_of_the_oldest() {
        let (mut queue, mut reports) = (Unreliable::default(), VecDeque::new());
        for byte in 1..=5 {
            let channel = Channel::Unreliable(0);
            queue.push(channel, &[byte; 300], Some(byte.into()), 1000, &mut reports);
        }
        assert!(reports.iter().eq(&[lost(1), lost(2)]));
        assert_eq!(fill(&mut queue, 700).len(), 2);
        assert_eq!((fill(&mut queue, 100).len(), queue.is_empty()), (0, false));
        assert_eq!(fill(&mut queue, 400), [(Channel::Unreliable(0), 5)]);
    }
}
