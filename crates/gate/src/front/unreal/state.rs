//! What a worker knows of the players of Unreal games, and of the servers behind them.

use crate::front::room::Room;
use crate::front::unreal::credit::Credits;
use crate::front::unreal::probed::{Face, Probed};
use crate::front::unreal::session::Session;
use crate::ids::{BackendId, IdVec, ListenerId, WorkerId};
use crate::seed::Random;
use crate::sessions::Sessions;
use crate::setup::Setup;
use crate::shared::cookies::Keyring;
use crate::store::admission::Admission;
use crate::store::hash::HashKey;
use crate::store::table::Resting;
use ringgate_core::proto::unreal::handshake::{TAIL_BYTES_MAX, Tail};

/// The players of one worker's Unreal listeners, and what it knows of the servers behind them.
pub(crate) struct UnrealFront {
    pub(crate) sessions: Sessions<Session>,
    /// How many sessions wait for their server.
    pub(crate) opening_count: usize,
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
    /// For each address that has sessions, once its block has had what it may: requests to restart,
    /// and handshake packets.
    pub(crate) own: [Admission; 2],
    /// Keys the hashes of datagrams.
    pub(crate) hash: HashKey,
    pub(crate) random: Random,
}

impl UnrealFront {
    pub(crate) fn new(
        setup: &Setup,
        room: Room,
        worker: WorkerId,
        key: HashKey,
        random: u64,
        now_ns: u64,
    ) -> Self {
        let sessions_max = room.unreal_sessions(setup);
        let resting = Resting { ns: PLACE_REST_NS, spare: setup.spare_places(sessions_max) };
        Self {
            sessions: Sessions::new(
                worker,
                sessions_max,
                resting,
                (random >> 32) as u32,
                key,
                now_ns,
            ),
            opening_count: 0,
            keyring: None,
            asked_for_secrets_ns: None,
            faces: IdVec::new(),
            probed: IdVec::new(),
            has_servers: false,
            next_probe_ns: now_ns,
            credits: Credits::new(sessions_max > 0, key),
            restarts: Admission::new(RESTART_BUCKETS, key, now_ns),
            own: [(); 2].map(|()| Admission::new(RESTART_BUCKETS, key, now_ns)),
            hash: key,
            random: Random(random),
        }
    }

    pub(crate) fn tail(&mut self) -> Tail {
        let mut bytes = [0; TAIL_BYTES_MAX + 1];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.random.next().to_le_bytes()[..chunk.len()]);
        }
        Tail::draw(&bytes)
    }
}

/// How long a loopback address is not given to another player. An engine keeps a connection that
/// has fallen silent for a minute or more, and takes another player at the same address for the
/// one before.
const PLACE_REST_NS: u64 = 120_000_000_000;

/// 8 bytes each.
const RESTART_BUCKETS: usize = 1 << 12;
