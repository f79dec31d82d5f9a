//! What a worker knows of the players of Unreal games, and of the servers behind them.

use crate::arrivals::Source;
use crate::front::room::Room;
use crate::front::unreal::credit::Credits;
use crate::front::unreal::loopback::entry_of_loopback;
use crate::front::unreal::probed::{Face, Probed};
use crate::front::unreal::session::Session;
use crate::ids::{BackendId, IdVec, ListenerId};
use crate::seed::Random;
use crate::setup::Setup;
use crate::shared::cookies::Keyring;
use crate::store::admission::Admission;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::table::{Guess, Resting, Table};
use crate::store::unarmed::Unarmed;
use crate::store::wheel::{TICK_NS, Wheel};
use ringgate_batch::{LINE_BYTES, LocalIp};
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};

/// The players of one worker's Unreal listeners, and what it knows of the servers behind them.
pub(crate) struct UnrealFront {
    /// Invariant: hashes with the same key as the gate's other tables, so that a datagram's source
    /// is hashed once.
    pub(crate) sessions: Table<Session>,
    pub(crate) wheel: Wheel<Entry<Session>, TICK_NS>,
    /// Those who have come from another process.
    pub(crate) unarmed: Unarmed,
    /// How many sessions wait for their server.
    pub(crate) opening_count: u64,
    pub(crate) keyring: Option<Keyring>,
    /// When we last asked for fresh secrets.
    pub(crate) asked_for_secrets_ns: Option<u64>,
    /// What the players of each listener are told about the server behind it.
    pub(crate) faces: IdVec<ListenerId, Face>,
    /// What is known of each server of an Unreal game.
    pub(crate) probed: IdVec<BackendId, Option<Probed>>,
    /// Some backend is one.
    pub(crate) has_servers: bool,
    /// When the next of them is asked.
    pub(crate) next_probe_ns: u64,
    /// What small packets of strangers have brought in.
    pub(crate) credits: Credits,
    /// Requests to restart a handshake, for each block.
    pub(crate) restarts: Admission,
    /// Keys the hashes of datagrams.
    pub(crate) hash: HashKey,
    pub(crate) random: Random,
    /// Numbers sessions, because players have no ids here.
    pub(crate) serial: u64,
}

impl UnrealFront {
    pub(crate) fn new(setup: &Setup, room: Room, key: HashKey, random: u64, now_ns: u64) -> Self {
        let sessions_max = room.unreal_sessions(setup);
        let resting = Resting { ns: PLACE_REST_NS, spare: setup.spare_places(sessions_max) };
        Self {
            sessions: Table::new(sessions_max, resting, (random >> 32) as u32, key),
            wheel: Wheel::new(sessions_max + resting.spare, now_ns),
            unarmed: Unarmed::NONE,
            opening_count: 0,
            keyring: None,
            asked_for_secrets_ns: None,
            faces: IdVec::new(),
            probed: IdVec::new(),
            has_servers: false,
            next_probe_ns: now_ns,
            credits: Credits::new(sessions_max > 0, key),
            restarts: Admission::new(RESTART_BUCKETS, key, now_ns),
            hash: key,
            random: Random(random),
            serial: 0,
        }
    }

    /// Has the sessions fetched of those who have sent a run of datagrams.
    pub(crate) fn fetch_players(&self, sources: &mut [Source]) {
        for source in sources {
            source.guess = Guess::of(self.sessions.guess(source.hash));
            self.sessions
                .prefetch(source.guess.entry(), 0..size_of::<Session>().div_ceil(LINE_BYTES));
        }
    }

    /// Gives up the places of what was removed in this turn. Returns how many open sessions there
    /// are, and how many that wait for their server.
    pub(crate) fn reclaim(&mut self, now_ns: u64) -> (u64, u64) {
        self.sessions.reclaim(now_ns);
        (self.sessions.len() as u64 - self.opening_count, self.opening_count)
    }

    pub(crate) fn tail(&mut self) -> Tail {
        let mut bytes = [0; TAIL_BYTES_MAX + 1];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next().to_le_bytes()[..chunk.len()]);
        }
        Tail::draw(&bytes)
    }

    /// The session whose player has that loopback address, if it is one of that backend's.
    pub(crate) fn session_of_loopback(
        &self,
        local: &LocalIp,
        backend: BackendId,
    ) -> Option<Entry<Session>> {
        entry_of_loopback(local).filter(|index| {
            let session = self.sessions.get(*index);
            session.is_some_and(|session| session.claim.backend == backend)
        })
    }

    /// The backend of the session that has a loopback address.
    pub(crate) fn backend_of_loopback(&self, local: &LocalIp) -> Option<BackendId> {
        let session = self.sessions.get(entry_of_loopback(local)?)?;
        Some(session.claim.backend)
    }
}

/// How long a loopback address is not given to another player. An engine keeps a connection that
/// has fallen silent for a minute or more, and takes another player at the same address for the
/// one before.
const PLACE_REST_NS: u64 = 120_000_000_000;

/// 8 bytes each.
const RESTART_BUCKETS: usize = 1 << 12;
