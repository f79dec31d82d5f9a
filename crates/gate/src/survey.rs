//! A question of the control thread about all sessions of all workers: which of them are like this?
//! Those may be shown, or ended. How workers answer stands in `answering`.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId, WorkerId};
use crate::info::SessionInfo;
use crate::prefix::Prefix;

/// Which sessions are meant. A session has to be like everything that is said here.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The id that its player has brought.
    pub client_id: Option<u64>,
    /// Its own id.
    pub session: Option<u64>,
    /// Where its player is, or the address that its udp server sees.
    pub address: Option<Prefix>,
    /// Its player's port there. Of what a udp server sees only the address is looked at.
    pub port: Option<u16>,
    /// Where its player plays.
    pub backend: Option<BackendId>,
    /// Where its player came in.
    pub listener: Option<ListenerId>,
    /// Its player's address or id is denied by the setup that the worker goes by.
    pub is_denied: bool,
}

/// A question, and what has been answered so far.
#[derive(Debug)]
pub struct Survey {
    pub(crate) wanted: Wanted,
    /// Why those sessions end, if they do.
    pub(crate) ends: Option<Ended>,
    /// How many are told in full.
    limit: usize,
    found: Mutex<Found>,
    workers_left: AtomicU32,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The first ones, with the worker that has them.
    pub sessions: Vec<(WorkerId, SessionInfo)>,
    /// How many there are.
    pub count: u64,
}

impl Survey {
    /// A question to so many workers.
    pub fn new(wanted: Wanted, ends: Option<Ended>, limit: usize, workers: u32) -> Self {
        let (found, workers_left) = (Mutex::default(), AtomicU32::new(workers));
        Self { wanted, ends, limit, found, workers_left }
    }

    /// Whether all workers have answered.
    pub fn is_done(&self) -> bool {
        self.workers_left.load(Ordering::Acquire) == 0
    }

    /// What has been found so far.
    pub fn found(&self) -> Found {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// One more worker has looked through all its tables.
    pub(crate) fn end_worker(&self) {
        self.workers_left.fetch_sub(1, Ordering::Release);
    }

    /// This session is one of them.
    pub(crate) fn note(&self, worker: WorkerId, info: SessionInfo) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.count += 1;
        if found.sessions.len() < self.limit {
            found.sessions.push((worker, info));
        }
    }
}

/// A question that this worker is answering.
pub(crate) struct Running {
    pub(crate) survey: Arc<Survey>,
    /// Which front's table, and from which place on.
    pub(crate) front: usize,
    pub(crate) next: u32,
}

impl Running {
    pub(crate) const fn new(survey: Arc<Survey>) -> Self {
        Self { survey, front: 0, next: 0 }
    }
}
