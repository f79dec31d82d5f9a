//! A gate begins, and takes setups in.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::counters::{Counters, Stamps};
use crate::front::netcode::state::NetcodeFront;
use crate::front::protocol::Front;
use crate::front::unreal::state::UnrealFront;
use crate::gate::{Gate, Life, Neighbours, Newcomers};
use crate::links::state::BackendState;
use crate::links::table::Links;
use crate::listeners::ListenerState;
use crate::roles::Roles;
use crate::seed::{Seed, WorkerIndex};
use crate::setup::{Allowed, LinkKind, Setup};
use crate::shared::claims::Claims;
use crate::store::admission::Admission;
use crate::store::census::Census;
use crate::store::hash::HashKey;
use crate::turn::Now;
use ringgate_batch::Endpoint;
use ringgate_core::crypto::Aead;
use ringgate_core::proto::netcode::packet::AadTable;
use ringgate_core::proto::replay::Policy;

impl Gate {
    /// A gate without sockets.
    pub fn new(
        setup: Arc<Setup>,
        worker: WorkerIndex,
        claims: Arc<Claims>,
        aead: Aead,
        seed: Seed,
        now: Now,
    ) -> Self {
        let now_ns = now.mono_ns;
        let [_, session_starts, hash @ ..] = seed.random;
        let hash_key = HashKey::new(hash);
        let handshakes_max = setup.worker_pending_max + UnrealFront::sessions_max(&setup);
        let random = (seed, hash_key);
        let mut gate = Self {
            worker,
            listeners: Vec::new(),
            roles: Roles::new(),
            newcomers: Newcomers {
                admission: Admission::new(ADMISSION_BUCKETS, hash_key, now_ns),
                handshakes: Census::new(handshakes_max, hash_key),
            },
            links: Links::new(setup.worker_sessions_max),
            netcode: NetcodeFront::new(&setup, worker.index, &claims, random, now_ns),
            unreal: UnrealFront::new(&setup, hash_key, session_starts.rotate_left(32), now_ns),
            #[cfg(test)]
            plain: crate::tests::plain::front::PlainFront::new(&setup, hash_key),
            claims,
            neighbours: Neighbours { steered: HashMap::new(), mail_out: Vec::new() },
            aead,
            sources: Vec::new(),
            runs: Vec::new(),
            counters: Counters::default(),
            stamps: Stamps::default(),
            requests: VecDeque::new(),
            life: Life {
                in_turn: false,
                turned_ns: now_ns,
                started_ns: now_ns,
                draining_until_ns: None,
                stopped: false,
            },
            setup: Arc::new(Setup::new(Vec::new(), Vec::new(), 0)),
        };
        gate.adopt(setup, now_ns);
        gate
    }

    /// Forgets what is known of backends whose number is another's from now on. They have no
    /// players: those who hand numbers out have seen to it.
    pub(crate) fn forget_replaced(&mut self, now: Now, setup: &Setup) {
        for at in 0..self.links.backends.len() {
            if setup.backends[at].is_same(&self.setup.backends[at]) {
                continue;
            }
            if let Some(link) = self.links.backends[at].link {
                self.lose_link(now, link);
            }
            self.links.backends[at] = BackendState::new(&setup.backends[at], now.mono_ns);
            self.forget_server(at);
        }
    }

    pub(crate) fn adopt(&mut self, setup: Arc<Setup>, now_ns: u64) {
        for listener in &setup.listeners[self.listeners.len()..] {
            let rules = listener.netcode();
            self.listeners.push(ListenerState {
                front: Front::of(&listener.protocol),
                aads: AadTable::new(rules.map_or(0, |rules| rules.protocol_id)),
                own: Vec::new(),
                sockets: Vec::new(),
                replay: rules.map_or(Policy::NETCODE, |rules| rules.replay),
            });
        }
        for (state, listener) in self.listeners.iter_mut().zip(&setup.listeners) {
            state.own = listener.public.iter().copied().map(Endpoint::from).collect();
            let gap_limit = listener.netcode().map_or(0, |rules| rules.replay.gap_limit());
            state.replay = Policy::new(state.replay.size_bits(), gap_limit).unwrap_or(state.replay);
        }
        self.claims.resize_backends(&setup.backend_slots());
        let in_use = setup.backends.iter().filter(|backend| !backend.retired);
        self.links.may_connect = Allowed::union(in_use.filter_map(|backend| match &backend.link {
            LinkKind::Bundle { allow } => Some(allow),
            LinkKind::Udp { .. } => None,
        }));
        for backend in &setup.backends[self.links.backends.len()..] {
            self.links.backends.push(BackendState::new(backend, now_ns));
        }
        for listener in &setup.listeners {
            for &backend in &listener.backends {
                let front = Front::of(&listener.protocol);
                // A listener of netcode has no say about a server that another front asks.
                if front != Front::Netcode {
                    self.links.backends[usize::from(backend)].front = front;
                }
            }
        }
        self.links.next_probe_ns = now_ns;
        self.unreal.adopt(&setup, now_ns);
        self.setup = setup;
    }
}

/// 8 bytes each.
const ADMISSION_BUCKETS: usize = 1 << 14;
