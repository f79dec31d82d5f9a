//! One worker's netcode players, and what else it keeps for them.

use crate::common::Common;
use crate::front::netcode::arrival::Arrival;
use crate::front::netcode::connection::Connections;
use crate::front::netcode::departed::Departed;
use crate::front::netcode::listener::ListenerRules;
use crate::front::netcode::session::{Pending, Session};
use crate::front::netcode::socket_queue::SocketQueue;
use crate::front::netcode::spending::PortSwitches;
use crate::front::netcode::sweep::Sweep;
use crate::front::netcode::user_data::KeptUserData;
use crate::ids::{BackendId, IdVec, ListenerId, WorkerId};
use crate::info::SessionInfo;
use crate::links::loopback::{entry_of_loopback, is_shared_socket_backend, loopback_of};
use crate::now::Now;
use crate::seed::{Random, Seed};
use crate::setup::{LinkKind, Setup};
use crate::shared::claims::Claims;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::{Address, Resting, Table};
use crate::store::unarmed::Unarmed;
use crate::store::wheel::{TICK_NS, Wheel};
use ringgate_batch::LocalIp;
use ringgate_core::crypto::Verdict;
use ringgate_core::proto::netcode::server::GlobalSequence;
use ringgate_core::secret::Key;

pub(crate) struct NetcodeFront {
    /// Which worker's.
    pub(crate) worker: WorkerId,
    pub(crate) listeners: IdVec<ListenerId, ListenerRules>,
    pub(crate) sessions: Table<Session>,
    /// Invariant: hashes with the same key as `sessions`, so that a datagram's source is hashed
    /// once.
    pub(crate) pending: Table<Pending>,
    pub(crate) sweep: Sweep,
    pub(crate) wheel: Wheel<Entry<Session>, TICK_NS>,
    /// Those who have come from another process.
    pub(crate) unarmed: Unarmed,
    pub(crate) port_switches: PortSwitches,
    pub(crate) departed: Departed,
    pub(crate) session_sockets: SocketQueue,
    pub(crate) user_data: KeptUserData,
    pub(crate) connections: Connections,
    pub(crate) challenge_key: Key,
    pub(crate) challenge_sequence: u64,
    pub(crate) global_sequence: GlobalSequence,
    pub(crate) random: Random,
    /// By the position of a datagram in its batch.
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) verdicts: Vec<Verdict>,
    /// Connection requests that may still be looked at in this turn.
    pub(crate) requests_left: u32,
}

impl NetcodeFront {
    pub(crate) fn new(
        setup: &Setup,
        worker: WorkerId,
        claims: &Claims,
        (seed, hash_key): (Seed, HashKey),
        now_ns: u64,
    ) -> Self {
        let [global_start, session_starts, ..] = seed.random;
        let sessions_max = setup.worker_sessions_max;
        let resting = Resting { ns: PLACE_REST_NS, spare: setup.spare_places(sessions_max) };
        let places = sessions_max + resting.spare;
        let first_generation = (session_starts >> 32) as u32;
        Self {
            worker,
            listeners: IdVec::new(),
            sessions: Table::new(sessions_max, resting, first_generation, hash_key),
            pending: Table::new(setup.worker_pending_max, Resting::NONE, 0, hash_key),
            sweep: Sweep::new(now_ns),
            wheel: Wheel::new(places, now_ns),
            unarmed: Unarmed::NONE,
            port_switches: PortSwitches::new((worker, places), claims, hash_key, now_ns),
            departed: Departed::new(sessions_max),
            session_sockets: SocketQueue::new(),
            user_data: KeptUserData::new(places),
            connections: Connections::new(now_ns),
            challenge_key: seed.challenge_key,
            challenge_sequence: 0,
            global_sequence: GlobalSequence::new(worker.index(), global_start),
            random: Random(session_starts),
            arrivals: Vec::new(),
            verdicts: Vec::new(),
            requests_left: 0,
        }
    }

    /// Takes in what a new setup says about listeners.
    pub(crate) fn adopt(&mut self, setup: &Setup) {
        for listener in setup.listeners.iter().skip(self.listeners.len()) {
            self.listeners.push(ListenerRules::new(listener));
        }
        for (rules, listener) in self.listeners.iter_mut().zip(&setup.listeners) {
            rules.adopt(listener);
        }
    }

    /// When to look after sessions and handshakes again; `u64::MAX` while nothing is due.
    pub(crate) fn due_ns(&self) -> u64 {
        let session_ns = self.wheel.next_due().unwrap_or(u64::MAX);
        let socket_ns = self.session_sockets.due_ns().unwrap_or(u64::MAX);
        let sweep_ns = if self.pending.len() > 0 { self.sweep.due_ns() } else { u64::MAX };
        let alarm_ns = self.connections.alarms.next_due().unwrap_or(u64::MAX);
        session_ns.min(socket_ns).min(sweep_ns).min(alarm_ns).min(self.unarmed.due_ns())
    }

    /// The session at a place, where there is one.
    pub(crate) fn info(&self, common: &Common, index: Entry<Session>) -> Option<SessionInfo> {
        let session = self.sessions.get(index)?;
        let address = self.sessions.address(index);
        let is_shared = match &common.setup.backends[session.backend].link {
            LinkKind::Udp { address } => is_shared_socket_backend(address),
            LinkKind::Bundle { .. } => false,
        };
        Some(SessionInfo {
            id: self.session_id(index).as_u64(),
            client_id: session.client_id,
            listener: address.listener,
            address: address.endpoint,
            backend: session.backend,
            slot: session.slot,
            link_address: if is_shared { loopback_of(index) } else { None },
            heard_ns: session.last_receive_ns,
            timeout_ns: session.timeout_ns(),
        })
    }

    /// Bytes that one session takes in the tables.
    pub(crate) const fn session_bytes() -> usize {
        Table::<Session>::entry_bytes() + Wheel::<Entry<Session>, TICK_NS>::ENTRY_BYTES
    }

    /// Gives up the places of what was removed in this turn. Returns how many sessions there are,
    /// and how many unfinished handshakes.
    pub(crate) fn reclaim(&mut self, now_ns: u64) -> (u64, u64) {
        self.sessions.reclaim(now_ns);
        self.pending.reclaim(now_ns);
        (self.sessions.len() as u64, self.pending.len() as u64)
    }

    /// The third look is over.
    pub(crate) fn end_steps(&mut self) {
        self.port_switches.trials.clear();
    }

    /// An address has no session any more; another worker's player was there.
    pub(crate) fn note_departed(&mut self, now: Now, address: &Address, sequence: u64) {
        self.departed.leave(self.sessions.hash(address), sequence, now.mono_ns);
    }

    /// The backend of the session that has a loopback address.
    pub(crate) fn backend_of_loopback(&self, local: &LocalIp) -> Option<BackendId> {
        let session = self.sessions.get(entry_of_loopback(local)?)?;
        Some(session.backend)
    }

    /// The session whose player has that loopback address, if it is one of that backend's.
    pub(crate) fn session_of_loopback(
        &self,
        local: &LocalIp,
        backend: BackendId,
    ) -> Option<Entry<Session>> {
        entry_of_loopback(local).filter(|index| {
            let session = self.sessions.get(*index);
            session.is_some_and(|session| session.owner() == backend)
        })
    }
}

/// How long a session's place is not given to another player: longer than a game server that is not
/// told of departures waits for a silent player.
const PLACE_REST_NS: u64 = 30_000_000_000;
