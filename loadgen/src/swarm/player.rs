//! One player: its client, its schedule, what it has received.

use ringgate::buf::Endpoint;
use ringgate::proto::netcode::client::Client;

use super::received::Received;
use crate::impair::Path;

/// A player, or the place of one who is gone.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) wire: Wire,
    pub(super) life: Life,
    pub(super) session: u32,
    /// The next payload's number.
    pub(super) next_counter: u32,
    /// When the next payload is to leave. Means something while playing only.
    pub(super) next_due_ns: u64,
    /// When something has to be sent so that the session stays, where nothing else is.
    pub(super) keep_alive_ns: u64,
    /// Payloads of this moment that have been sent already, where several leave at once.
    pub(super) sent_at_once: u32,
    /// When the player was to connect.
    pub(super) joined_ns: u64,
    pub(super) received: Received,
    pub(super) path: Path,
    /// What waits until the next packet has left.
    pub(super) held: Option<Box<Held>>,
    /// How often the port has changed.
    pub(super) port: u32,
}

/// A datagram that `PktOrder` holds back.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    pub(super) to: Endpoint,
    pub(super) tag: u64,
}

/// What a player speaks.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "in every run but `floor` all are clients")]
pub(super) enum Wire {
    Bare(Endpoint),
    Netcode(Client),
}

/// Where a player stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Free,
    Connecting,
    Playing,
    /// Sends nothing more, and waits for what is on its way until this moment.
    Lingering {
        until_ns: u64,
    },
    /// Says goodbye.
    Leaving,
}

impl Player {
    pub(super) const fn free() -> Self {
        Self {
            wire: Wire::Bare(Endpoint::v4([0; 4], 0)),
            life: Life::Free,
            session: 0,
            next_counter: 0,
            next_due_ns: u64::MAX,
            keep_alive_ns: u64::MAX,
            sent_at_once: 0,
            joined_ns: 0,
            received: Received::new(),
            path: Path::new(0, 0),
            held: None,
            port: 0,
        }
    }

    pub(super) const fn client(&self) -> Option<&Client> {
        match &self.wire {
            Wire::Bare(_) => None,
            Wire::Netcode(client) => Some(client),
        }
    }

    pub(super) const fn client_mut(&mut self) -> Option<&mut Client> {
        match &mut self.wire {
            Wire::Bare(_) => None,
            Wire::Netcode(client) => Some(client),
        }
    }

    /// Whom the player talks to.
    pub(super) fn server(&self) -> Endpoint {
        match &self.wire {
            Wire::Bare(to) => *to,
            Wire::Netcode(client) => client.server(),
        }
    }

    /// When the player has something to do, if nothing arrives before.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let due_ns = match self.life {
            Life::Free => return None,
            Life::Playing => self.next_due_ns.min(self.keep_alive_ns),
            Life::Lingering { until_ns } => until_ns.min(self.keep_alive_ns),
            Life::Connecting | Life::Leaving => self.client()?.poll_timeout()?,
        };
        (due_ns != u64::MAX).then_some(due_ns)
    }
}

const _: () = assert!(size_of::<Player>() <= 560);
