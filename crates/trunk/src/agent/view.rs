//! What an agent says of itself: a picture of all its threads, for pages and metrics.

use serde::Serialize;

use crate::agent::counts::Counts;
pub use crate::protocol::datagram::{Refusal, Refusals};

/// What one thread shows, now and then.
#[derive(Clone, Debug, Default)]
pub struct DeskView {
    /// The gateway that it connects to; empty for the thread of worker 0.
    pub gateway: String,
    /// How far it has come.
    pub state: State,
    /// The address that it is connected to, or was last.
    pub address: Option<String>,
    /// How often the gateway has let the agent in.
    pub begun: u64,
    /// Why the last connection, or attempt, has ended, by name and in words.
    pub last_end: Option<(&'static str, String)>,
    /// The gateway is none of the agent's any more, and nobody new comes from it.
    pub is_leaving: bool,
    /// Nobody plays there any more, or the time for that is over.
    pub(crate) has_left: bool,
    /// Lanes, by their numbers at the gateway.
    pub lanes: Vec<LaneView>,
    /// What has been counted.
    pub counts: Counts,
    /// Each backend of the agent, by name.
    pub backends: Vec<(String, Seen)>,
}

/// How far a thread has come with its gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits before it tries again.
    #[default]
    Waiting,
    /// It connects.
    Connecting,
    /// The gateway has let it in.
    Up,
}

/// A lane.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneView {
    /// Its number at the gateway.
    pub lane: usize,
    /// The local worker that it is.
    pub worker: usize,
    /// Whether anything has come on it.
    pub is_up: bool,
    /// How long its datagrams may be.
    pub path_bytes: usize,
    /// There and back; 0 before the first was measured.
    pub round_trip_us: u64,
    /// Datagrams, bytes, payloads and records in pieces that have left.
    pub sent: [u64; 4],
    /// Datagrams that the gateway has received, and that were lost on the way there.
    pub received_there: [u64; 2],
    /// Datagrams that were received here, and that were lost on the way here.
    pub received_here: [u64; 2],
    /// Payloads that were handed on here.
    pub payloads_received: u64,
    /// Payloads for which there was no room.
    pub full: u64,
    /// How often the way became narrower.
    pub path_narrowed: u64,
    /// How often the own key and the gateway's have changed.
    pub epochs: [u64; 2],
    /// Datagrams and records that were refused, by name.
    #[serde(skip)]
    pub refusals: Refusals,
}

/// A backend, as one thread sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Links that a gateway has let in.
    pub links: usize,
    /// Players.
    pub players: usize,
    /// Whether it is there: its process is connected, or its server listens.
    pub is_there: bool,
}

impl Seen {
    /// What several threads see.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            links: self.links + other.links,
            players: self.players + other.players,
            is_there: self.is_there || other.is_there,
        }
    }
}

/// The whole agent.
#[derive(Clone, Debug)]
pub struct View {
    /// Local workers, the agent's own included.
    pub workers: usize,
    /// Sessions of gateways of a cluster, how many of those no gateway has at the moment, and how
    /// often one has gone on with another's.
    pub clustered: [u64; 3],
    /// One for each gateway.
    pub gateways: Vec<DeskView>,
    /// All backends, by name.
    pub backends: Vec<(String, Seen)>,
    /// Backends that the agent has no more, and that have players, by name.
    pub retired: Vec<(String, Seen)>,
    /// What all threads have counted.
    pub counts: Counts,
}

impl View {
    /// Players of all backends.
    pub fn players(&self) -> usize {
        self.backends.iter().chain(&self.retired).map(|(_, seen)| seen.players).sum()
    }

    /// Gateways that have let the agent in.
    pub fn up(&self) -> usize {
        self.gateways.iter().filter(|it| it.state == State::Up).count()
    }
}
