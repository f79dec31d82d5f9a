//! How the parts that all fronts share are made, and how they take a new setup in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::captures::Captures;
use crate::common::{Common, Life, Neighbours, Newcomers};
use crate::counters::{Counters, Stamps};
use crate::front::Front;
use crate::ids::{BackendId, IdVec};
use crate::links::state::BackendState;
use crate::links::table::Links;
use crate::listeners::ListenerState;
use crate::moves::Moves;
use crate::now::Now;
use crate::roles::Roles;
use crate::sealing::Sealing;
use crate::seed::WorkerIndex;
use crate::setup::{Allowed, Backend, LinkKind, Listener, Setup};
use crate::shared::claims::Claims;
use crate::store::admission::Admission;
use crate::store::census::Census;
use crate::store::hash::HashKey;
use crate::taps::Taps;
use ringgate_core::crypto::Aead;

impl Common {
    /// Without sockets, and without a setup.
    pub(crate) fn new(
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        (hash_key, handshakes_max, places): (HashKey, usize, usize),
        now_ns: u64,
    ) -> Self {
        Self {
            worker,
            listeners: IdVec::new(),
            roles: Roles::new(),
            newcomers: Newcomers {
                admission: Admission::new(ADMISSION_BUCKETS, hash_key, now_ns),
                handshakes: Census::new(handshakes_max, hash_key),
            },
            links: Links::new(places),
            moves: Moves::new(now_ns),
            claims,
            neighbours: Neighbours {
                steered: HashMap::new(),
                mail_out: Vec::new(),
                members_out: Vec::new(),
            },
            aead,
            sealing: Sealing::new(),
            hash_key,
            sources: Vec::new(),
            runs: Vec::new(),
            counters: Counters::default(),
            stamps: Stamps::default(),
            requests: VecDeque::new(),
            surveys: Vec::new(),
            captures: Captures::new(),
            taps: Taps::new(worker.id),
            life: Life {
                in_turn: false,
                turned_ns: now_ns,
                started_ns: now_ns,
                begun_ns: now_ns,
                draining_until_ns: None,
                taken_over: None,
                failed_hand_overs: 0,
                stopped: false,
            },
            setup: Arc::new(Setup::new(Vec::new(), Vec::new(), 0)),
        }
    }

    /// From now on the number means another backend.
    pub(crate) fn forget_replaced(&mut self, now: Now, backend: BackendId, by: &Backend) {
        if let Some(link) = self.links.backends[backend].link {
            self.lose_link(now, link);
        }
        self.links.backends[backend] = BackendState::new(by, now.mono_ns);
    }

    pub(crate) fn adopt(&mut self, setup: Arc<Setup>, now_ns: u64) {
        for listener in setup.listeners.iter().skip(self.listeners.len()) {
            self.listeners.push(ListenerState::new(listener));
        }
        self.claims.resize_backends(&setup.backend_slots());
        let in_use = setup.backends.iter().filter(|backend| !backend.retired);
        self.links.may_connect = Allowed::union(in_use.filter_map(|backend| match &backend.link {
            LinkKind::Bundle { allow } => Some(allow),
            LinkKind::Udp { .. } => None,
        }));
        self.await_named(&setup, now_ns);
        for backend in setup.backends.iter().skip(self.links.backends.len()) {
            self.links.backends.push(BackendState::new(backend, now_ns));
        }
        self.adopt_fronts(&setup);
        self.links.next_probe_ns = now_ns;
        self.setup = setup;
        self.moves.doubt();
    }

    /// What is spoken with each backend: what the first listener speaks that sends players there,
    /// but one that asks its servers goes before one that does not.
    fn adopt_fronts(&mut self, setup: &Setup) {
        for state in &mut self.links.backends {
            state.is_routed = false;
        }
        for rules in setup.listeners.iter().filter_map(Listener::netcode) {
            for &backend in &rules.moves {
                self.links.backends[backend].front = Front::Netcode;
            }
        }
        for asks in [false, true] {
            for listener in setup.listeners.iter().rev() {
                let front = Front::of(&listener.protocol);
                if asks && !front.asks_servers() {
                    continue;
                }
                for &backend in &listener.backends {
                    let state = &mut self.links.backends[backend];
                    (state.front, state.is_routed) = (front, true);
                }
            }
        }
    }

    /// A session has come from the process before. Where no listener sends players to its backend
    /// any more, what is spoken there is what such sessions speak.
    pub(crate) fn go_on_speaking(&mut self, backend: BackendId, front: Front) {
        self.claims.note_spoken(backend, front as u8);
        let state = &mut self.links.backends[backend];
        if !state.is_routed && !state.front.asks_servers() {
            state.front = front;
        }
    }
}

/// 8 bytes each.
const ADMISSION_BUCKETS: usize = 1 << 14;
