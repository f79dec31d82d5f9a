//! What a gate is told before it starts: plain data, checked by whoever made it.
//!
//! Listeners and backends are numbered by their position, and keep their number over a reload: the configuration's names are
//! resolved by the caller.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

use super::admission::Rate;
use super::claims::ClaimLimits;
use crate::proto::replay::Policy;
use crate::proto::unreal::prefix::Framing;
use crate::secret::Key;

/// Everything a worker's gate needs to know.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Public addresses with their protocol and rules.
    pub listeners: Vec<Listener>,
    /// Game processes.
    pub backends: Vec<Backend>,
    /// Sessions one worker holds at most; memory for them is reserved, and touched as they come.
    pub worker_sessions_max: usize,
    /// Unfinished handshakes one worker holds at most.
    pub worker_pending_max: usize,
    /// Connection requests each source prefix may make.
    pub request_rate: Rate,
    /// Packets from new ports each source prefix may have tried.
    pub port_switch_rate: Rate,
    /// Packets from new ports that one worker tries, over all sources.
    pub port_switch_total: Rate,
    /// Tells this run of the gateway from others, on links.
    pub incarnation: u64,
}

/// One public address, or several.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name in the configuration.
    pub name: String,
    /// What is spoken there.
    pub protocol: Protocol,
    /// The addresses that players know it by; a netcode token must name one of them.
    pub public: Vec<SocketAddr>,
    /// Backends that players may be sent to, by number.
    pub backends: Vec<u16>,
    /// How one of them is chosen.
    pub route: Route,
    /// Sessions over all workers.
    pub sessions_max: u32,
    /// Whether a session follows its player to another port.
    pub follow_port_switch: bool,
}

impl Listener {
    /// The rules of a netcode listener.
    pub const fn netcode(&self) -> Option<&Netcode> {
        match &self.protocol {
            Protocol::Netcode(rules) => Some(rules),
            Protocol::Unreal(_) => None,
        }
    }

    /// The rules of an Unreal listener.
    pub const fn unreal(&self) -> Option<&Unreal> {
        match &self.protocol {
            Protocol::Netcode(_) => None,
            Protocol::Unreal(rules) => Some(rules),
        }
    }
}

/// What a listener speaks, with the rules that only this protocol has.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// netcode 1.02.
    Netcode(Netcode),
    /// Unreal Engine's UDP protocol.
    Unreal(Unreal),
}

/// The rules of a netcode listener.
#[derive(Clone, Debug)]
pub struct Netcode {
    /// What tokens and packets are bound to.
    pub protocol_id: u64,
    /// Private keys of connect tokens, the current one first.
    pub keys: Vec<Key>,
    /// The replay window and the gap rule.
    pub replay: Policy,
    /// Players who are sent nothing else for so long are sent a keep-alive.
    pub keep_alive_ns: u64,
}

/// The rules of an Unreal listener. All its backends are on a udp link, on this host's loopback.
#[derive(Clone, Debug)]
pub struct Unreal {
    /// How the game's packets begin.
    pub framing: Framing,
    /// Handshake versions that are served. Of no meaning in the original layout.
    pub versions: RangeInclusive<u8>,
    /// Builds of the game that may connect; `None` for all.
    pub network_versions: Option<Vec<u32>>,
    /// How duplicates are told.
    pub duplicates: Duplicates,
    /// Silence of a player after which it is given up.
    pub idle_timeout_ns: u64,
    /// A request to restart may be longer than the packet that provoked it.
    pub restart_small: bool,
}

/// How the copies of a packet that has passed are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// By the number in its header, which is in the clear.
    Notify,
    /// Exact copies, within a second: the header is encrypted.
    Opaque,
    /// Not at all.
    Pass,
}

/// How a player's backend is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By client id, stable as long as the same backends are up.
    Hash,
    /// The one with the fewest players.
    LeastPlayers,
    /// The only one.
    Single,
    /// The one that the token's user data names.
    UserData,
}

/// One game process.
#[derive(Clone, Debug)]
pub struct Backend {
    /// Its name in the configuration; at most 31 bytes.
    pub name: String,
    /// How it is reached.
    pub link: LinkKind,
    /// Players it takes.
    pub slots: u32,
    /// How long its players stay when it is gone.
    pub grace_ns: u64,
    /// Not in the configuration any more: no new players.
    pub retired: bool,
}

/// How a backend is reached.
#[derive(Clone, Debug)]
pub enum LinkKind {
    /// It connects to the worker's socket and names itself.
    Bundle {
        /// Who may.
        allow: Allowed,
    },
    /// Plain UDP; every player has an address of its own.
    Udp {
        /// Where the backend listens.
        address: SocketAddr,
    },
}

/// Processes that may claim to be a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
    /// Group ids.
    pub gids: Vec<u32>,
}

impl Allowed {
    /// Whether a process with these credentials may connect.
    pub fn admits(&self, credentials: Credentials) -> bool {
        self.uids.contains(&credentials.uid) || self.gids.contains(&credentials.gid)
    }
}

/// Who is at the other end of a local socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Setup {
    /// Limits that suit `listeners` and `backends`.
    pub fn new(listeners: Vec<Listener>, backends: Vec<Backend>, incarnation: u64) -> Self {
        let sessions: usize = listeners.iter().map(|listener| listener.sessions_max as usize).sum();
        Self {
            listeners,
            backends,
            worker_sessions_max: sessions,
            worker_pending_max: (sessions / 4).clamp(1024, PENDING_MAX),
            request_rate: Rate { per_second: 2000, burst: 2000 },
            port_switch_rate: Rate { per_second: 8, burst: 32 },
            port_switch_total: Rate { per_second: 500, burst: 500 },
            incarnation,
        }
    }

    /// What all workers may claim together. Two generations of players' used tokens are remembered: a token is forgotten when
    /// it expires, which is within a minute as a rule, and no fleet changes all its players in that time.
    pub fn claim_limits(&self) -> ClaimLimits {
        let sessions_max = self.worker_sessions_max;
        ClaimLimits { sessions_max, tokens_max: (sessions_max * 2).max(TOKENS_MIN) }
    }

    /// Slots of each backend, for [`Claims`](super::Claims).
    pub fn backend_slots(&self) -> Vec<u32> {
        self.backends.iter().map(|backend| backend.slots).collect()
    }
}

/// A pending handshake takes about 250 bytes; this many take 16 MiB.
const PENDING_MAX: usize = 65_536;

/// Used tokens remembered by the smallest gateway.
const TOKENS_MIN: usize = 32_768;
