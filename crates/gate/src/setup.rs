//! What a gate is told before it starts: plain data. The caller has checked it.
//!
//! Listeners and backends are numbered by their position, and keep their number over a reload: the
//! configuration's names are resolved by the caller. The number of a retired backend that no worker
//! and no player knows any more may become another's, and so may that of a listener that every
//! worker has closed.

mod made;
mod plain;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::denied::Denied;
use crate::ids::{BackendId, IdVec, ListenerId};
use crate::links::loopback::LOOPBACK_PLACES;
use crate::pace::BatchDelay;
use crate::shared::fleet_players::FleetPlayers;
use crate::shared::fleet_tokens::FleetTokens;
pub use plain::{Credit, Echo, Plain, Sequence, Token, TokenPlace, Tokens};
pub use ringgate_batch::Credentials;
use ringgate_core::proto::replay::Policy;
use ringgate_core::proto::unreal::front::Served;
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_core::secret::SharedKey;

/// Everything a worker's gate needs to know.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Public addresses with their protocol and rules.
    pub listeners: IdVec<ListenerId, Listener>,
    /// Game processes.
    pub backends: IdVec<BackendId, Backend>,
    /// Sessions one worker holds at most; memory for them is reserved, and touched as they come.
    pub worker_sessions_max: usize,
    /// Places, and so loopback addresses, that one worker has beyond its sessions, so that those of
    /// players who have left can rest. There are at least as many as sessions.
    pub worker_spare_places_min: usize,
    /// Unfinished handshakes one worker holds at most.
    pub worker_pending_max: usize,
    /// How long a busy worker may wait for more before it looks again.
    pub batch_delay: BatchDelay,
    /// Tells this run of the gateway from others, on links.
    pub incarnation: u64,
    /// Counts the setups of a run.
    pub revision: u64,
    /// Addresses and players that may not play.
    pub denied: Arc<Denied>,
    /// Whose tokens are that name other gateways as well; `None` for a gateway that is alone.
    pub fleet_tokens: Option<Arc<FleetTokens>>,
    /// Who is here of those who may be in one place of the fleet only; `None` likewise.
    pub fleet_players: Option<Arc<FleetPlayers>>,
    /// This process has not heard of its fleet yet, as the one before had: a backend that is
    /// retired may only be unknown.
    pub awaits_fleet: bool,
    /// Other gateways have the same public addresses, and each forwards what is another's: this is
    /// what they call themselves together.
    pub cluster: Option<String>,
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
    pub backends: Vec<BackendId>,
    /// How one of them is chosen.
    pub route: Route,
    /// Sessions over all workers.
    pub sessions_max: u32,
    /// Whether a session follows its player to another port.
    pub follow_port_switch: bool,
    /// What one source may take.
    pub limits: Limits,
    /// Whether it serves, or is about to go, or has gone.
    pub phase: Phase,
}

/// Where a listener is in its life. A number that is closed may serve again: as another listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Players come and play.
    Serving,
    /// Nobody is taken in; those who are here stay.
    Draining,
    /// It has no sockets and no sessions: what is left of them ends with the setup that says so.
    Closed,
}

/// What one source may take of a listener; 0 is no limit. Rates and handshakes are counted by each
/// worker, sessions over all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connection requests, a second.
    pub requests_per_block: u32,
    /// Unfinished handshakes, at a time.
    pub handshakes_per_block: u32,
    /// Sessions that follow their player to another port, a second.
    pub port_switches_per_block: u32,
    /// Players of Unreal games who are asked to restart their handshake, a second.
    pub restarts_per_block: u32,
    /// Sessions, at a time.
    pub sessions_per_address: u32,
    /// Sessions of an IPv6 /56, at a time.
    pub sessions_per_site: u32,
    /// Sessions, at a time.
    pub sessions_per_block: u32,
}

impl Limits {
    /// None at all: for players who all come from one address, as they do on loopback.
    pub const NONE: Self = Self {
        requests_per_block: 0,
        handshakes_per_block: 0,
        port_switches_per_block: 0,
        restarts_per_block: 0,
        sessions_per_address: 0,
        sessions_per_site: 0,
        sessions_per_block: 0,
    };

    /// What a netcode listener has where its configuration says nothing.
    pub const NETCODE: Self = Self {
        requests_per_block: 2000,
        handshakes_per_block: 2000,
        port_switches_per_block: 500,
        restarts_per_block: 200,
        ..Self::NONE
    };

    /// What an Unreal listener has where its configuration says nothing.
    pub const UNREAL: Self =
        Self { sessions_per_address: 32, sessions_per_site: 32, ..Self::NETCODE };

    /// What a plain listener has where its configuration says nothing.
    pub const PLAIN: Self = Self { sessions_per_address: 32, sessions_per_site: 32, ..Self::NONE };
}

impl Listener {
    /// The rules of a netcode listener.
    pub const fn netcode(&self) -> Option<&Netcode> {
        match &self.protocol {
            Protocol::Netcode(rules) => Some(rules),
            Protocol::Unreal(_) | Protocol::Plain(_) => None,
            #[cfg(test)]
            Protocol::Third => None,
        }
    }

    /// The rules of an Unreal listener.
    pub const fn unreal(&self) -> Option<&Unreal> {
        match &self.protocol {
            Protocol::Netcode(_) | Protocol::Plain(_) => None,
            #[cfg(test)]
            Protocol::Third => None,
            Protocol::Unreal(rules) => Some(rules),
        }
    }

    /// What is left of one that has gone: a number that means nothing, until it is another's.
    #[must_use]
    pub fn closed(&self) -> Self {
        let mut closed = Self { phase: Phase::Closed, ..self.clone() };
        closed.public.clear();
        closed.backends.clear();
        if let Protocol::Netcode(rules) = &mut closed.protocol {
            rules.keys.clear();
            rules.moves.clear();
        }
        closed
    }

    /// Whether what its players are sent may be too long for a path: the gateway does not know what
    /// games say.
    pub const fn may_fragment(&self) -> bool {
        self.plain().is_some()
    }

    /// The rules of a plain listener.
    pub const fn plain(&self) -> Option<&Plain> {
        match &self.protocol {
            Protocol::Netcode(_) | Protocol::Unreal(_) => None,
            #[cfg(test)]
            Protocol::Third => None,
            Protocol::Plain(rules) => Some(rules),
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
    /// Any other game's, over UDP.
    Plain(Plain),
    /// A test's.
    #[cfg(test)]
    Third,
}

/// The rules of a netcode listener.
#[derive(Clone, Debug)]
pub struct Netcode {
    /// What tokens and packets are bound to.
    pub protocol_id: u64,
    /// Private keys of connect tokens, the current one first.
    pub keys: Vec<SharedKey>,
    /// The replay window and the gap rule.
    pub replay: Policy,
    /// Players who are sent nothing else for so long are sent a keep-alive.
    pub keep_alive_ns: u64,
    /// Whether a token may have several sessions.
    pub token_reuse: TokenReuse,
    /// Players' payloads are packets of the delivery layer, and game processes get whole messages.
    /// All backends are on bundle links. For sessions that begin.
    pub delivers: bool,
    /// In which group of the fleet's listeners nobody else may have a player's id, if in any. For
    /// sessions that begin.
    pub unique_in: Option<Arc<str>>,
    /// Backends that game processes may move players of this listener to.
    pub moves: Vec<BackendId>,
    /// How long a session has to be silent for another login of its client id to replace it, where
    /// that is this gateway's to decide. 0: however lately it was heard.
    pub replace_after_ns: u64,
}

/// What becomes of a token whose session has taken something in from its player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenReuse {
    /// It opens another session. Packets that were recorded in the last one are taken for new
    /// there.
    Allow,
    /// It opens no other session.
    Deny,
}

/// The rules of an Unreal listener. All its backends are on a udp link, on this host's loopback.
#[derive(Clone, Debug)]
pub struct Unreal {
    /// How the game's packets begin. Where the base is learned, this is the long one.
    pub framing: Framing,
    /// Servers may also speak the same versions without network features; their answers tell.
    pub learns_base: bool,
    /// Handshake versions that are served, all with the same layout. Of no meaning in the original
    /// one.
    pub versions: RangeInclusive<u8>,
    /// Builds of the game that may connect; `None` for all.
    pub network_versions: Option<Vec<u32>>,
    /// How duplicates are told.
    pub duplicates: Duplicates,
    /// The furthest jump of a player's packet numbers that its session survives; 0 for what an
    /// engine survives. Only where duplicates are told by number.
    pub gap_limit: u16,
    /// Silence of a player after which it is given up.
    pub idle_timeout_ns: u64,
}

impl Unreal {
    /// Who may connect at all.
    pub(crate) fn served(&self) -> Served<'_> {
        let (versions, network_versions) = (self.versions.clone(), &self.network_versions);
        Served { versions, network_versions: network_versions.as_deref() }
    }
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
    /// The one that the datagram's token stands for.
    Token,
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
    /// An operator drains it: no new players either.
    pub drained: bool,
    /// Whom it says that it is for.
    pub intake: Intake,
}

/// Whom a game process is for, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Intake {
    /// For everybody.
    #[default]
    Anybody,
    /// For those who are sent to it by its name.
    Sent,
    /// For those who are there, and for others in a moment: it has not begun.
    NobodyYet,
    /// For those who are there: it is about to end.
    Nobody,
}

ringgate_core::carried_by_number!(Intake { Anybody = 0, Sent = 1, NobodyYet = 2, Nobody = 3 });

impl Intake {
    /// Whether new players are let in now.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Anybody | Self::Sent)
    }
}

impl Backend {
    /// Whom it is for, as long as it is not retired.
    pub(crate) fn said(&self) -> Option<Intake> {
        (!self.retired).then_some(self.intake)
    }

    /// Where it listens; `None` where it connects to us.
    pub const fn address(&self) -> Option<SocketAddr> {
        match self.link {
            LinkKind::Udp { address } => Some(address),
            LinkKind::Bundle { .. } => None,
        }
    }

    /// Whether two entries mean the same game process.
    pub fn is_same(&self, other: &Self) -> bool {
        self.is(&other.name, other.address())
    }

    /// Whether it is this game process: the one at an address, or the one that says this name.
    pub fn is(&self, name: &str, address: Option<SocketAddr>) -> bool {
        self.address() == address && (address.is_some() || self.name == name)
    }
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

/// Processes that may claim to be a backend: by their effective user, or by their effective group
/// (supplementary groups do not count).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
    /// Group ids.
    pub gids: Vec<u32>,
}

impl Allowed {
    /// Everyone whom one of them allows.
    pub(crate) fn union<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut union = Self::default();
        for allowed in all {
            union.uids.extend(&allowed.uids);
            union.gids.extend(&allowed.gids);
        }
        for ids in [&mut union.uids, &mut union.gids] {
            ids.sort_unstable();
            ids.dedup();
        }
        union
    }

    /// Whether a process with these credentials may connect.
    pub fn admits(&self, credentials: Credentials) -> bool {
        self.uids.contains(&credentials.uid) || self.gids.contains(&credentials.gid)
    }
}

impl Setup {
    /// Limits that suit `listeners` and `backends`.
    pub fn new(listeners: Vec<Listener>, backends: Vec<Backend>, incarnation: u64) -> Self {
        let sessions: usize = listeners.iter().map(|listener| listener.sessions_max as usize).sum();
        Self {
            listeners: listeners.into(),
            backends: backends.into(),
            worker_sessions_max: sessions,
            worker_spare_places_min: SPARE_PLACES_MIN,
            worker_pending_max: (sessions / 4).clamp(PENDING_MIN, PENDING_MAX),
            batch_delay: BatchDelay::OFF,
            incarnation,
            revision: 0,
            denied: Arc::default(),
            fleet_tokens: None,
            fleet_players: None,
            awaits_fleet: false,
            cluster: None,
        }
    }

    /// Sets memory aside for so many sessions, where that is more than the listeners may have.
    pub fn reserve_sessions(&mut self, sessions: usize) {
        let sessions = sessions.max(self.worker_sessions_max);
        self.worker_sessions_max = sessions;
        self.worker_pending_max = (sessions / 4).clamp(PENDING_MIN, PENDING_MAX);
    }

    /// Places that one worker sets address space aside for: its sessions, and those that rest.
    pub fn worker_places(&self) -> usize {
        self.worker_sessions_max + self.spare_places(self.worker_sessions_max)
    }

    /// Places beyond so many sessions: enough for all of them to leave and for as many to come, as
    /// far as there are loopback addresses.
    pub(crate) fn spare_places(&self, sessions_max: usize) -> usize {
        let wanted = if sessions_max == 0 { 0 } else { self.worker_spare_places_min };
        wanted.max(sessions_max).min(LOOPBACK_PLACES.saturating_sub(sessions_max))
    }

    /// What all workers may claim together. Two generations of players' used tokens are remembered:
    /// a token is forgotten when it expires, which is within a minute as a rule, and no fleet
    /// changes all its players in that time.
    pub fn claim_limits(&self) -> ClaimLimits {
        let sessions_max = self.worker_sessions_max;
        ClaimLimits { sessions_max, tokens_max: (sessions_max * 2).max(TOKENS_MIN) }
    }

    /// Slots of each backend, for [`Claims`](crate::Claims).
    pub fn backend_slots(&self) -> Vec<u32> {
        self.backends.iter().map(|backend| backend.slots).collect()
    }
}

/// How much may be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimLimits {
    /// Sessions over all workers and listeners.
    pub sessions_max: usize,
    /// Used tokens that are remembered.
    pub tokens_max: usize,
}

/// A pending handshake takes about 250 bytes; this many take 16 MiB.
const PENDING_MAX: usize = 65_536;

/// What a table has room for however few sessions there may be: several blocks' worth, because a
/// block's share of it is bounded. It takes 4 MiB once it has been full.
const PENDING_MIN: usize = 16_384;

/// Where few may play, players who come and go all the time must not use up all places while they
/// rest. A place that was never used takes no memory.
const SPARE_PLACES_MIN: usize = 65_536;

/// Used tokens remembered by the smallest gateway.
const TOKENS_MIN: usize = 32_768;
