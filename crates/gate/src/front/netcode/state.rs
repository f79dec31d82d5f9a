//! One worker's netcode players, and what else it keeps for them.

use crate::front::netcode::arrival::Arrival;
use crate::front::netcode::connection::Connections;
use crate::front::netcode::departed::Departed;
use crate::front::netcode::listener::ListenerRules;
use crate::front::netcode::session::{Pending, Session};
use crate::front::netcode::socket_queue::SocketQueue;
use crate::front::netcode::spending::PortSwitches;
use crate::front::netcode::sweep::Sweep;
use crate::front::netcode::user_data::KeptUserData;
use crate::ids::{IdVec, ListenerId, WorkerId};
use crate::seed::{Random, Seed};
use crate::sessions::Sessions;
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::store::hash::HashKey;
use crate::store::table::{Resting, Table};
use ringgate_core::crypto::Verdict;
use ringgate_core::proto::netcode::server::GlobalSequence;
use ringgate_core::secret::Key;

pub(crate) struct NetcodeFront {
    pub(crate) listeners: IdVec<ListenerId, ListenerRules>,
    pub(crate) sessions: Sessions<Session>,
    /// Invariant: hashes with the same key as `sessions`, so that a datagram's source is hashed
    /// once.
    pub(crate) pending: Table<Pending>,
    pub(crate) sweep: Sweep,
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
            listeners: IdVec::new(),
            sessions: Sessions::new(
                worker,
                sessions_max,
                resting,
                first_generation,
                hash_key,
                now_ns,
            ),
            pending: Table::new(setup.worker_pending_max, Resting::NONE, 0, hash_key),
            sweep: Sweep::new(now_ns),
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
}

/// How long a session's place is not given to another player: longer than a game server that is not
/// told of departures waits for a silent player.
const PLACE_REST_NS: u64 = 30_000_000_000;
