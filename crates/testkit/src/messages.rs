//! The books of a life's messages in one direction: what was sent, what was heard, what was
//! reported, and what contradicts that.

use std::collections::{BTreeMap, VecDeque};

use super::letter::{LETTER_BYTES, Letter};
use super::random::Random;
use ringgate_core::delivery::{Channel, Report};

/// Messages of a life in one direction.
#[derive(Debug, Default)]
pub struct Messages {
    /// By number, from 1 on.
    sent: Vec<Message>,
    /// Reliable messages that were not heard, in order.
    expected: BTreeMap<Channel, VecDeque<u64>>,
    /// The newest that was heard on each other channel.
    newest: BTreeMap<Channel, u64>,
    heard: u64,
    reported: u64,
    /// What is true of a connection that is over only: a reliable message that is reported as not
    /// delivered, or one that was heard all the same.
    doubtful: u64,
    is_over: bool,
    /// Some may be missing: a game process has said them to a player whom it had lost, or has died
    /// with them unread.
    may_lack: bool,
}

#[derive(Debug)]
struct Message {
    channel: Channel,
    bytes: usize,
    is_heard: bool,
    report: Option<bool>,
}

impl Messages {
    /// The next message.
    pub fn write(&mut self, life: u64, channel: Channel, bytes: usize) -> (u64, Vec<u8>) {
        let number = self.sent.len() as u64 + 1;
        let message = Letter { life, number }.write(bytes);
        let bytes = message.len();
        self.sent.push(Message { channel, bytes, is_heard: false, report: None });
        if let Channel::Reliable(_) = channel {
            self.expected.entry(channel).or_default().push_back(number);
        }
        (number, message)
    }

    /// The last message was refused: it was never sent.
    pub fn take_back(&mut self) {
        let Some(message) = self.sent.pop() else { return };
        if let Some(queue) = self.expected.get_mut(&message.channel) {
            queue.pop_back();
        }
    }

    /// A message was heard.
    pub fn hear(&mut self, channel: Channel, number: u64, bytes: usize) -> Result<(), String> {
        let found = self.sent.get_mut((number as usize).wrapping_sub(1));
        let message = found.ok_or_else(|| format!("message {number} was never sent"))?;
        let is_same = message.channel == channel && message.bytes == bytes;
        if !is_same || std::mem::replace(&mut message.is_heard, true) {
            return Err(format!("message {number} came on {channel:?}: {message:?}"));
        }
        self.doubtful += u64::from(message.report == Some(false));
        self.heard += 1;
        if let Channel::Reliable(_) = channel {
            let expected = self.expected.entry(channel).or_default();
            while self.may_lack && expected.front().is_some_and(|next| *next < number) {
                expected.pop_front();
            }
            let next = expected.pop_front();
            return match next {
                Some(next) if next == number => Ok(()),
                next => Err(format!("{channel:?}: message {number} came, and not {next:?}")),
            };
        }
        match self.newest.insert(channel, number) {
            Some(newer) if newer > number => {
                Err(format!("{channel:?}: message {number} came behind {newer}"))
            }
            _ => Ok(()),
        }
    }

    /// A message was reported.
    pub fn report(&mut self, report: Report) -> Result<(), String> {
        let Report { token, is_delivered } = report;
        let found = self.sent.get_mut((token as usize).wrapping_sub(1));
        let message = found.ok_or_else(|| format!("{report:?} of what was never sent"))?;
        if message.report.replace(is_delivered).is_some() {
            return Err(format!("a second {report:?}"));
        }
        let must_arrive = matches!(message.channel, Channel::Reliable(_));
        self.doubtful += u64::from(!is_delivered && (must_arrive || message.is_heard));
        self.reported += 1;
        Ok(())
    }

    /// The connection is over: what has not arrived never does.
    pub fn end(&mut self) {
        (self.is_over, self.doubtful) = (true, 0);
    }

    /// From now on some may be missing: not twice, and in order all the same.
    pub fn may_lack(&mut self) {
        self.may_lack = true;
    }

    /// Whether everything has been heard that had to, and everything was reported.
    pub fn is_settled(&self) -> bool {
        let has_arrived = self.expected.values().all(VecDeque::is_empty);
        self.is_over || self.may_lack || has_arrived && self.unreported() == 0
    }

    /// How many were sent.
    pub fn sent(&self) -> u64 {
        self.sent.len() as u64
    }

    /// How many were heard.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// How many were sent of which nothing was said.
    pub fn unreported(&self) -> u64 {
        self.sent.len() as u64 - self.reported
    }

    /// How many reports are not true, unless the connection was over.
    pub fn doubtful(&self) -> u64 {
        if self.is_over || self.may_lack { 0 } else { self.doubtful }
    }

    /// How many were reported as delivered and not heard: on reliable channels, and on others.
    pub fn delivered_unheard(&self) -> [u64; 2] {
        let is_amiss = |message: &&Message| message.report == Some(true) && !message.is_heard;
        self.sent.iter().filter(is_amiss).fold([0; 2], |[reliable, others], message| {
            let is_reliable = matches!(message.channel, Channel::Reliable(_));
            [reliable + u64::from(is_reliable), others + u64::from(!is_reliable)]
        })
    }
}

/// Where the next message goes, and how long it is: mostly short ones, now and then a level.
pub(crate) fn next_shape(random: &mut Random) -> (Channel, usize) {
    let number = *random.pick(&[0, 1, 200]).unwrap_or(&0);
    let channel = match random.within(0..100) {
        0..50 => Channel::Reliable(number),
        50..75 => Channel::Sequenced(number),
        _ => Channel::Unreliable(number),
    };
    let bytes = match (channel, random.within(0..100)) {
        (Channel::Reliable(_), 0) => random.within(20_000..65_537),
        (Channel::Reliable(_), 1..8) => random.within(1160..10_000),
        (Channel::Reliable(_), _) => random.within(0..400),
        _ => random.within(LETTER_BYTES as u64..1160),
    };
    (channel, bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELIABLE: Channel = Channel::Reliable(1);
    const NEWEST: Channel = Channel::Sequenced(1);

    fn report(token: u64, is_delivered: bool) -> Report {
        Report { token, is_delivered }
    }

    /// Four messages: two on each channel.
    fn messages() -> Messages {
        let mut messages = Messages::default();
        for channel in [RELIABLE, RELIABLE, NEWEST, NEWEST] {
            messages.write(9, channel, 100);
        }
        messages
    }

    #[test]
    fn what_is_true_is_settled_in_the_end() {
        let mut messages = messages();
        for (channel, number) in [(RELIABLE, 1), (NEWEST, 4), (RELIABLE, 2)] {
            assert_eq!(messages.hear(channel, number, 100), Ok(()));
        }
        assert!(!messages.is_settled());
        for (token, is_delivered) in [(1, true), (2, true), (3, false), (4, true)] {
            assert_eq!(messages.report(report(token, is_delivered)), Ok(()));
        }
        assert!(messages.is_settled());
        assert_eq!((messages.doubtful(), messages.unreported(), messages.heard()), (0, 0, 3));
    }

    #[test]
    fn every_lie_is_found() {
        type Lie = fn(&mut Messages) -> Result<(), String>;
        let lies: [Lie; 8] = [
            |it| it.hear(RELIABLE, 2, 100),
            |it| it.hear(RELIABLE, 5, 100),
            |it| it.hear(RELIABLE, 1, 99),
            |it| it.hear(NEWEST, 1, 100),
            |it| it.hear(RELIABLE, 1, 100).and_then(|()| it.hear(RELIABLE, 1, 100)),
            |it| it.hear(NEWEST, 4, 100).and_then(|()| it.hear(NEWEST, 3, 100)),
            |it| it.report(report(3, true)).and_then(|()| it.report(report(3, true))),
            |it| it.report(report(5, false)),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            assert!(lie(&mut messages()).is_err(), "lie {number}");
        }
        let doubts: [Lie; 3] = [
            |it| it.report(report(1, false)),
            |it| it.hear(NEWEST, 3, 100).and_then(|()| it.report(report(3, false))),
            |it| it.report(report(3, false)).and_then(|()| it.hear(NEWEST, 3, 100)),
        ];
        for doubt in doubts {
            let mut messages = messages();
            assert_eq!(doubt(&mut messages), Ok(()));
            assert_eq!(messages.doubtful(), 1);
            messages.end();
            assert_eq!(messages.doubtful(), 0);
        }
    }
}
