//! What a gate asks of its fronts: one function for each question, and in it one arm for each of
//! them. Whoever adds a front is led here by the compiler.
//!
//! Datagrams come in runs: neighbours in a batch that one socket has brought. A front is chosen
//! once for a run.

use std::ops::Range;

use crate::arrivals::{NOBODY, Origin, Run, Source, find_runs};
use crate::front::protocol::Front;
use crate::gate::Gate;
use crate::info::SessionInfo;
use crate::roles::Role;
use crate::store::table::Address;
use crate::turn::{Now, Turn};
use ringgate_batch::{LocalIp, RxBatch, RxMeta};
use ringgate_core::drops::DropReason;

impl Gate {
    /// What is spoken at a listener.
    #[inline]
    pub(crate) fn front(&self, listener: u16) -> Front {
        self.listeners[usize::from(listener)].front
    }

    /// What the server behind a udp link speaks.
    pub(crate) fn server_front(&self, backend: usize) -> Front {
        self.links.backends[backend].front
    }

    /// First look: whom each datagram concerns, as far as it can be known without decrypting.
    pub(crate) fn classify(&mut self, now: Now, rx: &RxBatch) {
        self.fetch_sources(rx);
        self.netcode.arrivals.clear();
        for at in 0..self.runs.len() {
            let Run { role: Role::Player { listener, .. }, range } = self.runs[at].clone() else {
                continue;
            };
            self.counters.datagrams_in += range.len() as u64;
            let bytes = range.clone().map(|at| rx.bytes(at).len() as u64);
            self.counters.bytes_in += bytes.sum::<u64>();
            match self.front(listener) {
                Front::Netcode => self.classify_netcode(now, listener, range, rx),
                // Nothing is decrypted, so everything is looked at in its step.
                Front::Unreal => {}
                #[cfg(test)]
                Front::Plain => {}
            }
        }
    }

    /// Second look: the cipher, over everything that deserves it.
    pub(crate) fn open(&mut self, rx: &mut RxBatch) {
        self.open_netcode(rx);
    }

    /// Third look: state machines and payloads, in the order of arrival.
    pub(crate) fn step(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        self.begin_netcode_steps(turn);
        for at in 0..self.runs.len() {
            let Run { role, range } = self.runs[at].clone();
            let Role::Player { listener, .. } = role else {
                range.for_each(|at| {
                    let meta = rx.metas()[at];
                    self.handle_link_datagram(turn, &meta, rx.bytes(at));
                });
                continue;
            };
            match self.front(listener) {
                Front::Netcode => self.step_netcode(turn, range, rx),
                Front::Unreal => self.step_unreal(turn, range, rx),
                #[cfg(test)]
                Front::Plain => self.step_plain(turn, range, rx),
            }
        }
        self.netcode.port_switches.trials.clear();
    }

    /// A datagram that another worker received.
    pub(crate) fn step_front_forwarded(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        (from_worker, is_lost): (u16, bool),
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        match self.front(origin.address.listener) {
            Front::Netcode => {
                self.step_netcode_forwarded(turn, origin, from_worker, is_lost, bytes)
            }
            Front::Unreal => self.step_unreal_forwarded(turn, origin, from_worker, is_lost, bytes),
            #[cfg(test)]
            Front::Plain => Err(DropReason::UnknownSource),
        }
    }

    /// A datagram on the udp link, from the server that is this backend.
    pub(crate) fn handle_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: usize,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        match self.server_front(from) {
            Front::Netcode => self.handle_netcode_server(turn, from, meta, bytes),
            Front::Unreal => self.handle_unreal_server(turn, from, meta, bytes),
            #[cfg(test)]
            Front::Plain => self.handle_plain_server(turn, meta, bytes),
        }
    }

    /// The backends of the players who may have a loopback address, one of each front: looked for
    /// one after the other, because nearly always the first is the one.
    pub(crate) fn backends_of_loopback<'a>(
        &'a self,
        local: &'a LocalIp,
    ) -> impl Iterator<Item = usize> + 'a {
        let backend = move |front: &Front| match front {
            Front::Netcode => self.netcode.backend_of_loopback(local),
            Front::Unreal => self.unreal.backend_of_loopback(local),
            #[cfg(test)]
            Front::Plain => self.plain.backend_of_loopback(local),
        };
        Front::ALL.iter().filter_map(backend)
    }

    /// Whether a server that is gone is looked for by its front, in its own language.
    pub(crate) fn is_probed_by_front(&self, backend: usize) -> bool {
        match self.server_front(backend) {
            Front::Netcode => false,
            Front::Unreal => true,
            #[cfg(test)]
            Front::Plain => false,
        }
    }

    /// The kernel says that nobody listens where a server should.
    pub(crate) fn lose_server(&mut self, now: Now, backend: usize) {
        match self.server_front(backend) {
            Front::Netcode => {}
            Front::Unreal => self.lose_unreal_server(now, backend),
            #[cfg(test)]
            Front::Plain => {}
        }
    }

    /// Whether a server answers its front, as far as that asks it.
    pub(crate) fn is_answering(&self, backend: usize) -> bool {
        match self.server_front(backend) {
            Front::Netcode => true,
            Front::Unreal => self.unreal.is_answering(backend),
            #[cfg(test)]
            Front::Plain => true,
        }
    }

    /// Whether a listener may send players to a backend that is up.
    pub(crate) fn is_open_to(&self, listener: usize, backend: usize) -> bool {
        match self.listeners[listener].front {
            Front::Netcode => true,
            Front::Unreal => self.unreal.is_open_to(listener, backend),
            #[cfg(test)]
            Front::Plain => true,
        }
    }

    /// What is due now.
    pub(crate) fn handle_front_timers(&mut self, turn: &mut Turn<'_>) {
        for front in Front::ALL {
            match front {
                Front::Netcode => self.handle_netcode_timers(turn),
                Front::Unreal => self.handle_unreal_timers(turn),
                #[cfg(test)]
                Front::Plain => self.handle_plain_timers(turn),
            }
        }
    }

    /// When the next is due; `u64::MAX` while nothing is.
    pub(crate) fn fronts_due_ns(&self) -> u64 {
        let due_ns = |front: &Front| match front {
            Front::Netcode => self.netcode.due_ns(),
            Front::Unreal => self.unreal_due_ns().unwrap_or(u64::MAX),
            #[cfg(test)]
            Front::Plain => self.plain.due_ns(),
        };
        Front::ALL.iter().map(due_ns).fold(u64::MAX, u64::min)
    }

    /// Ends every session.
    pub(crate) fn stop_fronts(&mut self, turn: &mut Turn<'_>) {
        for front in Front::ALL {
            match front {
                Front::Netcode => self.stop_netcode(turn),
                Front::Unreal => self.stop_unreal(),
                #[cfg(test)]
                Front::Plain => self.stop_plain(),
            }
        }
    }

    /// The setup has another server at this number from now on.
    pub(crate) fn forget_server(&mut self, backend: usize) {
        self.unreal.forget_server(backend);
    }

    /// Gives up the places of what was removed in this turn, and counts what is left.
    pub(crate) fn reclaim(&mut self, now_ns: u64) {
        let (mut sessions, mut pending) = (0, 0);
        for front in Front::ALL {
            let (open, opening) = match front {
                Front::Netcode => self.netcode.reclaim(now_ns),
                Front::Unreal => self.unreal.reclaim(now_ns),
                #[cfg(test)]
                Front::Plain => self.plain.reclaim(now_ns),
            };
            sessions += open;
            pending += opening;
        }
        (self.counters.sessions, self.counters.pending) = (sessions, pending);
    }

    /// All sessions, one after the other: for inspection, not for every turn.
    pub fn sessions(&self) -> impl Iterator<Item = SessionInfo> + '_ {
        let sessions = self.netcode.sessions().chain(self.unreal_sessions());
        #[cfg(test)]
        let sessions = sessions.chain(self.plain.sessions());
        sessions
    }

    /// Sessions now, those included whose server is still asked.
    pub fn session_count(&self) -> usize {
        let count = |front: &Front| match front {
            Front::Netcode => self.netcode.sessions.len(),
            Front::Unreal => self.unreal.sessions.len(),
            #[cfg(test)]
            Front::Plain => self.plain.sessions.len(),
        };
        Front::ALL.iter().map(count).sum()
    }

    /// Where the tables lie that are large and touched at random, for advice to the operating
    /// system before they are used.
    pub fn large_tables(&self) -> impl Iterator<Item = Range<*const u8>> + use<> {
        self.netcode.sessions.memory().into_iter().chain(self.unreal.sessions.memory())
    }

    /// A number for an address, the same in the tables of all fronts.
    #[inline]
    pub(crate) fn hash_of(&self, address: &Address) -> u32 {
        self.netcode.sessions.hash(address)
    }

    /// Hashes the sources of what has arrived, and has their sessions fetched. While one is hashed,
    /// memory works on those before it.
    fn fetch_sources(&mut self, rx: &RxBatch) {
        let Self { sources, runs, netcode, unreal, listeners, roles, .. } = self;
        #[cfg(test)]
        let plain = &self.plain;
        let front = |listener: u16| listeners[usize::from(listener)].front;
        find_runs(runs, rx, roles);
        sources.clear();
        for Run { role, range } in runs.iter() {
            let metas = &rx.metas()[range.clone()];
            let Role::Player { listener, .. } = *role else {
                sources.extend(metas.iter().map(|meta| Source::link(role, &meta.local)));
                continue;
            };
            match front(listener) {
                Front::Netcode => {
                    netcode.sessions.hash_sources(listener, metas, |hash| {
                        sources.push(Source { role: *role, hash, guess: NOBODY });
                    });
                }
                Front::Unreal => {
                    unreal.sessions.hash_sources(listener, metas, |hash| {
                        sources.push(Source { role: *role, hash, guess: NOBODY });
                    });
                }
                #[cfg(test)]
                Front::Plain => {
                    plain.sessions.hash_sources(listener, metas, |hash| {
                        sources.push(Source { role: *role, hash, guess: NOBODY });
                    });
                }
            }
        }
        for Run { role, range } in runs.iter() {
            let sources = &mut sources[range.clone()];
            match *role {
                Role::Player { listener, .. } => match front(listener) {
                    Front::Netcode => netcode.fetch_players(sources),
                    Front::Unreal => unreal.fetch_players(sources),
                    #[cfg(test)]
                    Front::Plain => {}
                },
                Role::UdpLink => netcode.fetch_guessed(sources),
                _ => {}
            }
        }
    }
}
