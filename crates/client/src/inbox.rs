//! What has happened and was not taken yet.

use std::collections::VecDeque;
use std::ops::Range;

use ringgate_core::delivery::Channel;

use crate::event::Event;

/// Events, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    entries: VecDeque<Entry>,
    /// The bytes of messages.
    bytes: Vec<u8>,
}

#[derive(Debug)]
enum Entry {
    Message(Channel, Range<usize>),
    Other(Event<'static>),
}

impl Inbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn push_message(&mut self, channel: Channel, message: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(message);
        self.entries.push_back(Entry::Message(channel, start..self.bytes.len()));
    }

    pub(crate) fn push(&mut self, event: Event<'static>) {
        self.entries.push_back(Entry::Other(event));
    }

    pub(crate) fn pop(&mut self) -> Option<Event<'_>> {
        Some(match self.entries.pop_front()? {
            Entry::Message(channel, range) => Event::Message(channel, &self.bytes[range]),
            Entry::Other(event) => event,
        })
    }

    /// Makes room for the next events, when all have been taken.
    pub(crate) fn reuse(&mut self) {
        debug_assert!(self.is_empty(), "they have been taken");
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
    }
}

/// As much memory is kept for messages; some large ones at once are rare.
const KEPT_BYTES: usize = 128 * 1024;
