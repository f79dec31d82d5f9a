//! One player: its end of the wire, its schedule, what it has received.

use ringgate_batch::{Endpoint, LINE_BYTES, prefetch_line};
use ringgate_core::proto::netcode::client::Client;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_os::memory;

use super::impair::Path;
use super::talker::Talker;
use super::unreal::UnrealPlayer;
use ringgate_bots::received::Received;

/// A player, or the place of one who is gone.
#[derive(Debug)]
pub(super) struct Player {
    pub(super) wire: Wire,
    pub(super) life: Life,
    pub(super) session: u32,
    /// When it last heard a payload, or its phase began, and its longest silence in that phase. 0
    /// before it was in.
    pub(super) heard_ns: u64,
    pub(super) silent_ns: u64,
    /// The next payload's number.
    pub(super) next_counter: u32,
    /// When the next payload is to leave. Means something while playing only.
    pub(super) next_due_ns: u64,
    /// When something has to be sent so that the session stays, where nothing else is. An end that
    /// sends messages sees to that by itself.
    pub(super) keep_alive_ns: u64,
    /// Payloads of this moment that have been sent already, where several leave at once.
    pub(super) sent_at_once: u32,
    /// When the player was to connect.
    pub(super) joined_ns: u64,
    pub(super) received: Received,
    /// The same for what the game server pushes, and what it last said it had heard.
    pub(super) pushed: Received,
    pub(super) heard: u32,
    /// Since when that server has known the session; 0 before any has spoken.
    pub(super) known_since: u32,
    pub(super) path: Path,
    /// What waits until the next packet has left.
    pub(super) held: Option<Box<Held>>,
    /// How often the port has changed.
    pub(super) port: u32,
    /// Tells the connections of this place, and so of one address, from each other. Outlives
    /// players.
    pub(super) client_id: u8,
}

/// Room for so many players before it has to grow, in huge pages where the kernel has some: players
/// are visited in no order that memory knows.
pub(super) fn room_for(count: u32) -> Vec<Player> {
    let players = Vec::<Player>::with_capacity(count as usize);
    let start = players.as_ptr().cast::<u8>();
    // Advice only: without it everything works, a little slower.
    let bytes = players.capacity() * size_of::<Player>();
    let _ = memory::prefer_huge_pages(&(start..start.wrapping_add(bytes)));
    players
}

/// Has the memory of players fetched who will be visited next: asked for together, they cost one
/// wait and not one each.
pub(super) fn fetch(players: &[Player], indices: impl Iterator<Item = u32>) {
    for player in indices.filter_map(|index| players.get(index as usize)) {
        (0..size_of::<Player>().div_ceil(LINE_BYTES)).for_each(|line| prefetch_line(player, line));
    }
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
#[expect(clippy::large_enum_variant, reason = "where it counts all are clients")]
pub(super) enum Wire {
    Plain(Endpoint),
    Netcode(Client),
    Messages(Box<Talker>),
    Unreal(Box<UnrealPlayer>),
}

impl Wire {
    /// Whom the player talks to.
    fn server(&self) -> Endpoint {
        match self {
            Self::Plain(to) => *to,
            Self::Netcode(client) => client.server(),
            Self::Messages(talker) => talker.session.machine().server(),
            Self::Unreal(player) => player.server(),
        }
    }

    /// When there is something to say or to decide, payloads and keep-alives aside.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Netcode(client) => client.poll_timeout(),
            Self::Messages(talker) => talker.session.poll_timeout(),
            Self::Unreal(player) => player.poll_timeout(),
        }
    }

    /// When that is, for a player who is in. netcode's clients do all they have to when a
    /// keep-alive is due.
    fn urgent_ns(&self) -> u64 {
        match self {
            Self::Plain(_) | Self::Netcode(_) => u64::MAX,
            Self::Messages(talker) => talker.session.poll_timeout().unwrap_or(u64::MAX),
            Self::Unreal(player) => player.poll_timeout().unwrap_or(u64::MAX),
        }
    }

    /// Until when a player who wants to leave waits on for what is certain to come.
    pub(super) fn waits_until(&mut self, now_ns: u64) -> Option<u64> {
        let Self::Messages(talker) = self else { return None };
        talker.waits_until(now_ns)
    }

    /// Says goodbye, as far as the protocol knows one.
    pub(super) fn leave(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Netcode(client) => client.disconnect(),
            Self::Messages(talker) => talker.session.disconnect(),
            Self::Unreal(player) => player.leave(),
        }
    }

    /// Whether a datagram for the player carries a payload.
    pub(super) fn is_payload(&self, datagram: &[u8]) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Netcode(_) | Self::Messages(_) => {
                datagram.first().is_some_and(|b| b & 15 == PacketKind::Payload as u8)
            }
            Self::Unreal(player) => player.has_payload(datagram),
        }
    }
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
            wire: Wire::Plain(Endpoint::v4([0; 4], 0)),
            life: Life::Free,
            session: 0,
            heard_ns: 0,
            silent_ns: 0,
            next_counter: 0,
            next_due_ns: u64::MAX,
            keep_alive_ns: u64::MAX,
            sent_at_once: 0,
            joined_ns: 0,
            received: Received::new(),
            pushed: Received::new(),
            heard: 0,
            known_since: 0,
            path: Path::new(0, 0),
            held: None,
            port: 0,
            client_id: 0,
        }
    }

    /// A payload has come for it, or its phase has ended.
    pub(super) fn hear(&mut self, at_ns: u64) {
        self.silent_ns = self.silent_ns.max(at_ns.saturating_sub(self.heard_ns));
        self.heard_ns = self.heard_ns.max(at_ns);
    }

    /// Its netcode client.
    pub(super) const fn client(&self) -> Option<&Client> {
        match &self.wire {
            Wire::Plain(_) | Wire::Unreal(_) => None,
            Wire::Netcode(client) => Some(client),
            Wire::Messages(talker) => Some(talker.session.machine()),
        }
    }

    /// Its netcode client, where nothing lies on it.
    pub(super) const fn client_mut(&mut self) -> Option<&mut Client> {
        match &mut self.wire {
            Wire::Plain(_) | Wire::Messages(_) | Wire::Unreal(_) => None,
            Wire::Netcode(client) => Some(client),
        }
    }

    /// Whom the player talks to.
    pub(super) fn server(&self) -> Endpoint {
        self.wire.server()
    }

    /// When the player has something to do, if nothing arrives before.
    pub(super) fn due_ns(&self) -> Option<u64> {
        let due_ns = match self.life {
            Life::Free => return None,
            Life::Playing => self.next_due_ns.min(self.keep_alive_ns).min(self.wire.urgent_ns()),
            Life::Lingering { until_ns } => {
                until_ns.min(self.keep_alive_ns).min(self.wire.urgent_ns())
            }
            Life::Connecting => self.wire.poll_timeout()?,
            // With nothing left to say, its place is to be cleared.
            Life::Leaving => self.wire.poll_timeout().unwrap_or(0),
        };
        (due_ns != u64::MAX).then_some(due_ns)
    }
}

const _: () = assert!(size_of::<Player>() <= 608);
