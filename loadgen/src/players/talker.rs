//! A player who sends messages: its end, and what has come of a packet.

use std::collections::VecDeque;

use ringgate_client::{Channel, Session};

/// On what kind of channel players send, and want their echoes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Delivery {
    /// All arrive, in order; up to 64 KiB long.
    #[default]
    Reliable,
    /// The newest counts.
    Sequenced,
    /// Once.
    Unreliable,
}

impl Delivery {
    const fn channel(self) -> Channel {
        match self {
            Self::Reliable => Channel::Reliable(0),
            Self::Sequenced => Channel::Sequenced(0),
            Self::Unreliable => Channel::Unreliable(0),
        }
    }

    /// The longest message.
    pub const fn bytes_max(self) -> u16 {
        match self {
            Self::Reliable => u16::MAX,
            Self::Sequenced | Self::Unreliable => PART_BYTES_MAX,
        }
    }
}

/// A player's end.
#[derive(Debug)]
pub(super) struct Talker {
    pub(super) session: Session,
    pub(super) channel: Channel,
    /// Messages that were last reported as lost.
    pub(super) lost: VecDeque<u32>,
}

/// Messages that have come with a packet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) bytes: Vec<u8>,
    pub(super) messages: Vec<(Channel, usize)>,
}

impl Talker {
    pub(super) const fn new(session: Session, delivery: Delivery) -> Self {
        Self { session, channel: delivery.channel(), lost: VecDeque::new() }
    }
}

impl Heard {
    pub(super) fn push(&mut self, channel: Channel, message: &[u8]) {
        self.bytes.extend_from_slice(message);
        self.messages.push((channel, message.len()));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
    }
}

/// What one packet holds of a message.
const PART_BYTES_MAX: u16 =
    ringgate_core::proto::delivery::part_bytes_max(ringgate_core::limits::PAYLOAD_BYTES_MAX) as u16;
