//! A player who sends messages: its end, and what has come of a packet.

use std::collections::VecDeque;

use ringgate_client::{Channel, Session, State};

use super::levels::{LEVELS, Levels};

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
    /// Reliable orders, each of which the bundle library's example messages.c answers with a level;
    /// levels and the snapshots beside them are judged.
    Levels,
}

impl Delivery {
    const fn channel(self) -> Channel {
        match self {
            Self::Reliable => Channel::Reliable(0),
            Self::Sequenced => Channel::Sequenced(0),
            Self::Unreliable => Channel::Unreliable(0),
            Self::Levels => LEVELS,
        }
    }

    /// The longest message.
    pub const fn bytes_max(self) -> u16 {
        match self {
            Self::Reliable | Self::Levels => u16::MAX,
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
    /// What it hears where its messages are orders, and are not echoed.
    pub(super) levels: Option<Levels>,
    /// When the last echo came, and whose it was.
    pub(super) last_echo: Option<(u64, u32)>,
    /// When a player who wants to leave gives up what has not come.
    gives_up_ns: Option<u64>,
}

/// Messages that have come with a packet.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub(super) bytes: Vec<u8>,
    pub(super) messages: Vec<(Channel, usize)>,
}

impl Talker {
    pub(super) fn new(session: Session, delivery: Delivery) -> Self {
        let levels = (delivery == Delivery::Levels).then(Levels::default);
        let channel = delivery.channel();
        let (lost, last_echo, gives_up_ns) = (VecDeque::new(), None, None);
        Self { session, channel, lost, levels, last_echo, gives_up_ns }
    }

    /// The session was lost, and with it what was to come in it.
    pub(super) fn start_anew(&mut self) {
        self.levels = self.levels.is_some().then(Levels::default);
        self.last_echo = None;
    }

    /// Until when a player who wants to leave waits on: what is reliable is here in the end, and
    /// books that are closed before would say that it is missing.
    pub(super) fn waits_until(&mut self, now_ns: u64) -> Option<u64> {
        let is_owed = self.levels.as_ref().is_some_and(Levels::are_due);
        let is_waiting = is_owed || !self.session.has_delivered_all();
        let gives_up_ns = *self.gives_up_ns.get_or_insert(now_ns + PATIENCE_NS);
        let is_here = self.session.state() == State::Connected;
        (is_waiting && is_here && now_ns < gives_up_ns).then_some(now_ns + LOOK_EVERY_NS)
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

/// Longer than anything takes that comes at all.
const PATIENCE_NS: u64 = 20_000_000_000;

const LOOK_EVERY_NS: u64 = 50_000_000;

/// What one packet holds of a message.
const PART_BYTES_MAX: u16 =
    ringgate_core::proto::delivery::part_bytes_max(ringgate_core::limits::PAYLOAD_BYTES_MAX) as u16;
