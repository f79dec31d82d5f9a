//! A model of one direction: it knows every message that was sent, and holds what arrives and what
//! is reported against that.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::random::Random;
use crate::delivery::{Channel, Report};

/// What was sent in one direction.
#[derive(Default)]
pub(super) struct Model {
    /// Messages by token, which is given to all of them.
    sent: HashMap<u64, Sent>,
    next_token: u64,
    /// Tokens of reliable messages that have not arrived, in order.
    expected: BTreeMap<Channel, VecDeque<u64>>,
    /// The newest message of each other channel.
    newest: HashMap<Channel, u64>,
    arrived: HashSet<u64>,
    reported: HashSet<u64>,
    /// The newest message of each channel that was reported as delivered.
    told: HashMap<Channel, u64>,
}

struct Sent {
    channel: Channel,
    len: usize,
}

impl Model {
    /// The next message: its token stands in its first bytes, as far as there is room, and the rest
    /// follows from it.
    pub(super) fn next(&mut self, channel: Channel, len: usize) -> (u64, Vec<u8>) {
        let token = self.next_token;
        self.next_token += 1;
        self.sent.insert(token, Sent { channel, len });
        if matches!(channel, Channel::Reliable(_)) {
            self.expected.entry(channel).or_default().push_back(token);
        }
        (token, content(token, len))
    }

    /// The message was refused: it was never sent.
    pub(super) fn take_back(&mut self, token: u64) {
        let Some(sent) = self.sent.remove(&token) else { return };
        if let Some(queue) = self.expected.get_mut(&sent.channel) {
            assert_eq!(queue.pop_back(), Some(token));
        }
    }

    pub(super) fn handle_message(&mut self, channel: Channel, message: &[u8]) {
        let token = if let Channel::Reliable(_) = channel {
            let queue = self.expected.get_mut(&channel).expect("a channel that was used");
            queue.pop_front().expect("nothing comes that was not sent")
        } else {
            token_of(message)
        };
        let sent = &self.sent[&token];
        assert_eq!((sent.channel, sent.len), (channel, message.len()), "{channel:?} {token}");
        assert!(message == content(token, sent.len), "{channel:?} {token} has changed");
        assert!(self.arrived.insert(token), "{channel:?} {token} comes twice");
        assert!(!self.reported.contains(&token), "{channel:?} {token} was reported before it came");
        let before = self.newest.insert(channel, token);
        assert!(before < Some(token), "{channel:?} goes back");
    }

    pub(super) fn handle_report(&mut self, report: Report) {
        let Report { token, is_delivered } = report;
        assert!(self.sent.contains_key(&token), "{token} was not sent");
        assert!(self.reported.insert(token), "{token} is reported twice");
        assert_eq!(is_delivered, self.arrived.contains(&token), "{token}: a wrong report");
        if is_delivered {
            let channel = self.sent[&token].channel;
            let before = self.told.insert(channel, token);
            assert!(before < Some(token), "{channel:?} {token} is reported out of order");
        }
    }

    /// Everything that had to arrive has, and everything is reported.
    pub(super) fn assert_complete(&self) {
        assert!(self.expected.values().all(VecDeque::is_empty), "{:?}", self.expected);
        assert_eq!(self.reported.len(), self.sent.len());
    }

    /// How many messages have arrived.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.len()
    }
}

/// Messages that are not reliable have room for their token.
pub(super) const TOKEN_BYTES: usize = 8;

fn content(token: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(token);
    let words = std::iter::once(token).chain(std::iter::repeat_with(|| random.word()));
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

fn token_of(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..TOKEN_BYTES].try_into().expect("a token"))
}
