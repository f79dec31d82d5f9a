//! What all fronts share: links, claims, admission, counters. Each of these is a part of its own;
//! here they lie side by side, apart from the fronts, so that a front can change both at once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::arrivals::{Run, Source};
use crate::captures::Captures;
use crate::counters::{Counters, Stamps};
use crate::front::Front;
use crate::ids::{BackendId, IdVec, ListenerId, MemberId, WorkerId};
use crate::links::table::Links;
use crate::listeners::ListenerState;
use crate::mail::{ForwardedDatagram, Mail, Request};
use crate::moves::Moves;
use crate::now::Now;
use crate::party::Party;
use crate::roles::{Role, Roles};
use crate::sealing::Sealing;
use crate::seed::WorkerIndex;
use crate::setup::{Limits, Setup};
use crate::shared::claims::Claims;
use crate::store::admission::{Admission, Rate};
use crate::store::census::Census;
use crate::store::hash::HashKey;
use crate::store::table::Address;
use crate::survey::Running;
use crate::taps::Taps;
use crate::trace::Detail;
use ringgate_batch::{Endpoint, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_core::drops::DropReason;

/// The parts of a gate that belong to no front.
pub(crate) struct Common {
    pub(crate) setup: Arc<Setup>,
    pub(crate) worker: WorkerIndex,
    pub(crate) listeners: IdVec<ListenerId, ListenerState>,
    pub(crate) roles: Roles,
    pub(crate) claims: Arc<Claims>,
    pub(crate) newcomers: Newcomers,
    pub(crate) links: Links,
    /// Players on their way from one game process to another.
    pub(crate) moves: Moves,
    pub(crate) neighbours: Neighbours,
    pub(crate) aead: Aead,
    /// What was written in this turn and is not sealed yet.
    pub(crate) sealing: Sealing,
    /// Keys the hashes of addresses, in the tables of all fronts alike: so a datagram's source is
    /// hashed once.
    pub(crate) hash_key: HashKey,
    /// Where the datagrams of this turn come from.
    pub(crate) sources: Vec<Source>,
    pub(crate) runs: Vec<Run>,
    pub(crate) counters: Counters,
    pub(crate) stamps: Stamps,
    pub(crate) requests: VecDeque<Request>,
    /// Questions about all sessions.
    pub(crate) surveys: Vec<Running>,
    /// Who wants copies of datagrams.
    pub(crate) captures: Captures,
    /// Who watches what is decided here.
    pub(crate) taps: Taps,
    pub(crate) life: Life,
}

/// What newcomers may take of a worker, by block of addresses.
pub(crate) struct Newcomers {
    /// Requests.
    pub(crate) admission: Admission,
    /// Unfinished handshakes.
    pub(crate) handshakes: Census,
}

/// What is between this worker and the others, and other gateways.
pub(crate) struct Neighbours {
    /// Addresses whose datagrams we forward, and the worker that owns their session.
    pub(crate) steered: HashMap<(ListenerId, Endpoint), WorkerId>,
    /// What has to go to them.
    pub(crate) mail_out: Vec<(WorkerId, Mail)>,
    /// What has to go to other members of the cluster.
    pub(crate) members_out: Vec<(MemberId, ForwardedDatagram)>,
}

/// Whether a gate is in a turn, drains or has stopped, and since when it runs.
pub(crate) struct Life {
    /// Between the first mail of a turn and the turn's end.
    pub(crate) in_turn: bool,
    /// When the last turn was.
    pub(crate) turned_ns: u64,
    pub(crate) started_ns: u64,
    /// When this process began to have the gateway.
    pub(crate) begun_ns: u64,
    /// Until when players may stay, once no new ones are taken in.
    pub(crate) draining_until_ns: Option<u64>,
    /// The generation of a process that has just taken the gateway over: game processes are told.
    pub(crate) taken_over: Option<u32>,
    /// How often this process has gone on after a hand-over that has failed.
    pub(crate) failed_hand_overs: u16,
    pub(crate) stopped: bool,
}

impl Common {
    /// What is spoken at a listener.
    #[inline]
    pub(crate) fn front(&self, listener: ListenerId) -> Front {
        self.listeners[listener].front
    }

    /// What the server behind a udp link speaks.
    pub(crate) fn server_front(&self, backend: BackendId) -> Front {
        self.links.backends[backend].front
    }

    /// Whether a backend has been gone for longer than its players wait.
    pub(crate) fn is_lost(&self, backend: BackendId, now: Now) -> bool {
        self.links.backends[backend].is_lost(&self.setup.backends[backend], now.mono_ns)
    }

    /// What one source may take of a listener.
    #[inline]
    pub(crate) fn limits(&self, listener: ListenerId) -> &Limits {
        &self.setup.listeners[listener].limits
    }

    /// Whether a block of addresses may ask for one thing more that costs a cipher or a MAC.
    pub(crate) fn admit_request(&mut self, now: Now, address: &Address) -> Result<(), DropReason> {
        let rate = Rate::new(self.limits(address.listener).requests_per_block, 1);
        if self.newcomers.admission.admit(&address.block(), rate, now.mono_ns) {
            Ok(())
        } else {
            Err(DropReason::RequestRateLimited)
        }
    }

    /// Whether a block of addresses may have one more unfinished handshake.
    pub(crate) fn check_handshakes(&self, address: &Address) -> Result<(), DropReason> {
        let limit = match self.limits(address.listener).handshakes_per_block {
            0 => usize::MAX,
            limit => limit as usize,
        };
        // Whatever the limit is, the table keeps room for others.
        let share = (self.setup.worker_pending_max / BLOCKS_PER_TABLE).max(1);
        if self.newcomers.handshakes.of(&address.block()) as usize >= limit.min(share) {
            return Err(DropReason::BlockHandshakesFull);
        }
        Ok(())
    }

    /// Forgets a socket and has the worker close it.
    pub(crate) fn close_socket(&mut self, socket: SocketId) {
        self.roles.assign(socket, Role::Vacant);
        self.requests.push_back(Request::CloseSocket(socket));
    }

    /// Whether a source without a session may begin one. Asked before anything that costs more.
    #[inline]
    pub(crate) fn check_denied(&self, source: &Endpoint) -> Result<(), DropReason> {
        if self.setup.denied.holds(source) { Err(DropReason::AddressDenied) } else { Ok(()) }
    }

    /// A datagram that came in at a listener goes no further.
    pub(crate) fn drop_datagram(&mut self, address: &Address, why: DropReason) {
        self.count_drop(address.listener, why);
        if !self.taps.is_empty() {
            self.taps.note_drop(address, None, why, Detail::Nothing);
        }
    }

    /// Counts a datagram that goes no further, for who says so in more words.
    #[inline]
    pub(crate) fn count_drop(&mut self, listener: ListenerId, why: DropReason) {
        self.listeners[listener].drops.bump(why);
        self.counters.drops.bump(why);
        self.captures.note_drop(why);
    }

    /// A payload between a backend and one of its players goes no further.
    pub(crate) fn drop_payload(&mut self, backend: BackendId, why: DropReason) {
        self.links.backends[backend].traffic.drops += 1;
        self.counters.drops.bump(why);
        self.captures.note_drop(why);
    }

    /// A message for a player that is not there, or that gets no messages, goes no further.
    pub(crate) fn refuse_message(&mut self, backend: BackendId) {
        self.counters.messages_from_links += 1;
        self.drop_payload(backend, DropReason::MessageUnknown);
    }

    /// A player has completed its handshake.
    pub(crate) fn count_session(&mut self, listener: ListenerId, backend: BackendId) {
        self.listeners[listener].traffic.sessions_opened += 1;
        self.links.backends[backend].traffic.sessions_opened += 1;
        self.claims.note_spoken(backend, self.front(listener) as u8);
        self.counters.sessions_opened += 1;
    }

    /// A player's payload has been handed to its backend.
    #[inline]
    pub(crate) fn note_up(&mut self, backend: BackendId, bytes: usize, kernel_ns: u64) {
        self.counters.payloads_to_links += 1;
        self.links.backends[backend].traffic.note_up(bytes);
        self.stamps.uplink_kernel_ns.push(kernel_ns);
    }

    /// A backend's payload has been written for its player.
    #[inline]
    pub(crate) fn note_down(&mut self, listener: ListenerId, backend: BackendId, bytes: usize) {
        self.links.backends[backend].traffic.note_down(bytes);
        self.counters.payloads_down += 1;
        self.stamps.downlinks[Party::of(listener).index()] += 1;
    }

    /// Something came from a game process that goes no further.
    pub(crate) fn count_from_link(&mut self, backend: BackendId, why: DropReason) {
        self.counters.payloads_from_links += 1;
        self.drop_payload(backend, why);
    }

    /// The same where it is for nobody, or not for a player.
    pub(crate) fn count_from_nobody(&mut self, why: DropReason) {
        self.counters.payloads_from_links += 1;
        self.counters.drops.bump(why);
    }
}

/// A block of addresses can have this part of the table of unfinished handshakes at the most.
const BLOCKS_PER_TABLE: usize = 4;
