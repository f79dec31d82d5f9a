//! What a gate asks of its fronts: one function for each question, and in it one arm for each of
//! them. The compiler leads here when a front is added.
//!
//! Datagrams come in runs: neighbours in a batch that one socket has brought. A front is chosen
//! once for a run.

use std::ops::Range;

use crate::arrivals::{Origin, Run, Source, find_runs};
use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::state::NetcodeFront;
use crate::front::plain::state::PlainFront;
use crate::front::protocol::Front;
use crate::front::room::Room;
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, ListenerId, WorkerId};
use crate::info::{ServerInfo, SessionInfo};
use crate::mail::Steering;
use crate::roles::Role;
use crate::setup::Setup;
use crate::store::entry::Entry;
use crate::store::table::{Address, Guess, Place};
use crate::turn::Turn;
use ringgate_batch::{LocalIp, RxBatch, RxMeta};
use ringgate_core::drops::DropReason;

/// The protocols of one worker, each with its sessions.
pub(crate) struct Fronts {
    pub(crate) netcode: NetcodeFront,
    pub(crate) unreal: UnrealFront,
    pub(crate) plain: PlainFront,
    #[cfg(test)]
    pub(crate) third: crate::tests::third::front::ThirdFront,
}

impl Fronts {
    /// Takes a new setup in, before the gate itself does.
    pub(crate) fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        for front in Front::ALL {
            match front {
                Front::Netcode => self.netcode.adopt(setup),
                Front::Unreal => self.unreal.adopt(setup, now_ns),
                Front::Plain => self.plain.adopt(setup, now_ns),
                #[cfg(test)]
                Front::Third => {}
            }
        }
    }

    /// The setup has another server at this number from now on.
    pub(crate) fn forget_server(&mut self, backend: BackendId) {
        for front in Front::ALL {
            match front {
                Front::Netcode | Front::Plain => {}
                Front::Unreal => self.unreal.forget_server(backend),
                #[cfg(test)]
                Front::Third => {}
            }
        }
    }

    /// First look: whom each datagram concerns, as far as it can be known without decrypting.
    pub(crate) fn classify(&mut self, turn: &mut Turn<'_>, rx: &RxBatch) {
        self.fetch_sources(turn.common, rx);
        self.netcode.begin_looks(rx);
        for at in 0..turn.common.runs.len() {
            let Run { role: Role::Player { listener, .. }, range } = turn.common.runs[at].clone()
            else {
                continue;
            };
            let datagrams = range.len() as u64;
            let bytes = range.clone().map(|at| rx.bytes(at).len() as u64).sum::<u64>();
            turn.common.counters.datagrams_in += datagrams;
            turn.common.counters.bytes_in += bytes;
            let traffic = &mut turn.common.listeners[listener].traffic;
            traffic.datagrams_in += datagrams;
            traffic.bytes_in += bytes;
            if turn.common.captures.is_empty() {
                self.classify_run(turn, listener, range, rx);
            } else {
                self.classify_watched(turn, listener, range, rx);
            }
        }
        if !turn.common.taps.is_empty() {
            self.note_seen(turn, rx);
        }
    }

    /// Tells who watches of everything that has arrived from players.
    #[cold]
    fn note_seen(&self, turn: &mut Turn<'_>, rx: &RxBatch) {
        for Run { role, range } in &turn.common.runs {
            let Role::Player { listener, .. } = *role else { continue };
            match turn.common.front(listener) {
                Front::Netcode => self.netcode.note_seen(turn.common, listener, range.clone(), rx),
                Front::Unreal | Front::Plain => {
                    for meta in &rx.metas()[range.clone()] {
                        let address = Address { listener, endpoint: meta.peer };
                        turn.common.taps.note_seen(&address, None);
                    }
                }
                #[cfg(test)]
                Front::Third => {}
            }
        }
    }

    /// First look at a run of one listener.
    #[inline]
    pub(crate) fn classify_run(
        &mut self,
        turn: &mut Turn<'_>,
        listener: ListenerId,
        run: Range<usize>,
        rx: &RxBatch,
    ) {
        match turn.common.front(listener) {
            Front::Netcode => self.netcode.classify(turn.common, turn.now, listener, run, rx),
            // Nothing is decrypted, so everything is looked at in its step.
            Front::Unreal | Front::Plain => {}
            #[cfg(test)]
            Front::Third => {}
        }
    }

    /// Second look: the cipher, over everything that deserves it.
    pub(crate) fn open(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        self.netcode.open(turn, rx);
    }

    /// Third look: state machines and payloads, in the order of arrival.
    pub(crate) fn step(&mut self, turn: &mut Turn<'_>, rx: &mut RxBatch) {
        self.netcode.begin_steps(turn);
        for at in 0..turn.common.runs.len() {
            let Run { role, range } = turn.common.runs[at].clone();
            let Role::Player { listener, .. } = role else {
                range.for_each(|at| {
                    let meta = rx.metas()[at];
                    self.handle_link_datagram(turn, &meta, rx.bytes(at));
                });
                continue;
            };
            if turn.common.captures.is_empty() {
                self.step_run(turn, listener, range, rx);
            } else {
                self.step_watched(turn, listener, range, rx);
            }
        }
        self.netcode.end_steps();
    }

    /// Third look at a run of one listener.
    #[inline]
    pub(crate) fn step_run(
        &mut self,
        turn: &mut Turn<'_>,
        listener: ListenerId,
        run: Range<usize>,
        rx: &mut RxBatch,
    ) {
        match turn.common.front(listener) {
            Front::Netcode => self.netcode.step(turn, listener, run, rx),
            Front::Unreal => self.unreal.step(turn, listener, run, rx),
            Front::Plain => self.plain.step(turn, listener, run, rx),
            #[cfg(test)]
            Front::Third => self.third.step(turn, run, rx),
        }
    }

    /// A datagram that another worker received.
    pub(crate) fn step_mailed(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        (from_worker, is_lost): (WorkerId, bool),
        bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        match turn.common.front(origin.address.listener) {
            Front::Netcode => self.netcode.step_mailed(turn, origin, from_worker, is_lost, bytes),
            Front::Unreal => self.unreal.step_mailed(turn, origin, from_worker, is_lost, bytes),
            // A session never leaves its address, and so never its worker.
            Front::Plain => Err(DropReason::UnknownSource),
            #[cfg(test)]
            Front::Third => Err(DropReason::UnknownSource),
        }
    }

    /// Another worker does not have an address any more that we forwarded.
    pub(crate) fn unsteer(&mut self, turn: &mut Turn<'_>, steering: &Steering) {
        turn.common.forget_owner(&steering.address, steering.worker);
        let Some(sequence) = steering.departed_at else { return };
        match turn.common.front(steering.address.listener) {
            Front::Netcode => self.netcode.note_departed(turn.now, &steering.address, sequence),
            Front::Unreal | Front::Plain => {}
            #[cfg(test)]
            Front::Third => {}
        }
    }

    /// A datagram on the udp link, from the server that is this backend.
    pub(crate) fn handle_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: BackendId,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        match turn.common.server_front(from) {
            Front::Netcode => self.netcode.handle_server(turn, from, meta, bytes),
            Front::Unreal => self.unreal.handle_server(turn, from, meta, bytes),
            Front::Plain => self.plain.handle_server(turn, from, meta, bytes),
            #[cfg(test)]
            Front::Third => self.third.handle_server(turn, meta, bytes),
        }
    }

    /// The backends of the players who may have a loopback address, one of each front: looked for
    /// one after the other, because nearly always the first is the one.
    pub(crate) fn backends_of_loopback<'a>(
        &'a self,
        local: &'a LocalIp,
    ) -> impl Iterator<Item = BackendId> + 'a {
        let backend = move |front: &Front| match front {
            Front::Netcode => self.netcode.backend_of_loopback(local),
            Front::Unreal => self.unreal.backend_of_loopback(local),
            Front::Plain => self.plain.backend_of_loopback(local),
            #[cfg(test)]
            Front::Third => self.third.backend_of_loopback(local),
        };
        Front::ALL.iter().filter_map(backend)
    }

    /// The backend of the session that has a socket of its own.
    pub(crate) fn backend_of_socket(&self, place: Place) -> Option<BackendId> {
        // Only netcode opens such sockets.
        let session = self.netcode.sessions.live(place).map(|at| self.netcode.sessions.at(at));
        session.map(|session| session.backend)
    }

    /// The kernel says that no process listens where a server should.
    pub(crate) fn lose_server(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        match turn.common.server_front(backend) {
            Front::Netcode | Front::Plain => {}
            Front::Unreal => self.unreal.lose_server(turn, backend),
            #[cfg(test)]
            Front::Third => {}
        }
    }

    /// Whether a server answers its front, as far as that asks it.
    pub(crate) fn is_answering(&self, common: &Common, backend: BackendId) -> bool {
        match common.server_front(backend) {
            Front::Netcode | Front::Plain => true,
            Front::Unreal => self.unreal.is_answering(backend),
            #[cfg(test)]
            Front::Third => true,
        }
    }

    /// What a server has said about itself, where its front asks it.
    pub(crate) fn server(&self, backend: BackendId) -> Option<ServerInfo> {
        self.unreal.server(backend)
    }

    /// What is due now.
    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        for front in Front::ALL {
            match front {
                Front::Netcode => self.netcode.handle_timers(turn),
                Front::Unreal => self.unreal.handle_timers(turn),
                Front::Plain => self.plain.handle_timers(turn),
                #[cfg(test)]
                Front::Third => self.third.handle_timers(turn),
            }
        }
    }

    /// When the next is due; `u64::MAX` while nothing is.
    pub(crate) fn due_ns(&self, common: &Common) -> u64 {
        let due_ns = |front: &Front| match front {
            Front::Netcode => self.netcode.due_ns(),
            Front::Unreal => self.unreal.due_ns(common).unwrap_or(u64::MAX),
            Front::Plain => self.plain.due_ns(),
            #[cfg(test)]
            Front::Third => self.third.due_ns(),
        };
        Front::ALL.iter().map(due_ns).fold(u64::MAX, u64::min)
    }

    /// Ends every session.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        for front in Front::ALL {
            match front {
                Front::Netcode => self.netcode.stop(turn),
                Front::Unreal => self.unreal.stop(turn),
                Front::Plain => self.plain.stop(turn),
                #[cfg(test)]
                Front::Third => self.third.stop(turn),
            }
        }
    }

    /// Gives up the places of what was removed in this turn, and counts what is left.
    pub(crate) fn reclaim(&mut self, turn: &mut Turn<'_>) {
        let (mut sessions, mut pending) = (0, 0);
        for front in Front::ALL {
            let now_ns = turn.now.mono_ns;
            let (open, opening) = match front {
                Front::Netcode => self.netcode.reclaim(now_ns),
                Front::Unreal => self.unreal.reclaim(now_ns),
                Front::Plain => self.plain.reclaim(now_ns),
                #[cfg(test)]
                Front::Third => self.third.reclaim(now_ns),
            };
            sessions += open;
            pending += opening;
        }
        let counters = &mut turn.common.counters;
        (counters.sessions, counters.pending) = (sessions, pending);
    }

    /// All sessions, one after the other: for inspection, not for every turn.
    pub(crate) fn sessions<'a>(
        &'a self,
        common: &'a Common,
    ) -> impl Iterator<Item = SessionInfo> + 'a {
        Front::ALL.iter().flat_map(move |front| {
            let places = 0..self.places(*front);
            places.filter_map(move |place| self.session_at(common, *front, place))
        })
    }

    /// How many places of a front's table have been used.
    pub(crate) fn places(&self, front: Front) -> u32 {
        match front {
            Front::Netcode => self.netcode.sessions.places(),
            Front::Unreal => self.unreal.sessions.places(),
            Front::Plain => self.plain.sessions.places(),
            #[cfg(test)]
            Front::Third => self.third.sessions.places(),
        }
    }

    /// What there is room for.
    pub(crate) fn room(&self) -> Room {
        Room {
            has_unreal: self.unreal.sessions.places_max() > 0,
            plain_unproven: self.plain.unproven_max as u32,
        }
    }

    /// How many places there may be.
    pub(crate) const fn places_max(&self, front: Front) -> usize {
        match front {
            Front::Netcode => self.netcode.sessions.places_max(),
            Front::Unreal => self.unreal.sessions.places_max(),
            Front::Plain => self.plain.sessions.places_max(),
            #[cfg(test)]
            Front::Third => self.third.sessions.places_max(),
        }
    }

    /// The session at one of them.
    pub(crate) fn session_at(
        &self,
        common: &Common,
        front: Front,
        place: u32,
    ) -> Option<SessionInfo> {
        match front {
            Front::Netcode => self.netcode.info(common, Entry::numbered(place)),
            Front::Unreal => self.unreal.info(common, Entry::numbered(place)),
            Front::Plain => self.plain.info(common, Entry::numbered(place)),
            #[cfg(test)]
            Front::Third => self.third.info(place),
        }
    }

    /// Ends the session at one of them.
    pub(crate) fn end_at(&mut self, turn: &mut Turn<'_>, front: Front, place: u32, why: Ended) {
        match front {
            Front::Netcode => self.netcode.end_session(turn, Entry::numbered(place), why),
            Front::Unreal => self.unreal.end_session(turn, Entry::numbered(place), why),
            Front::Plain => self.plain.end(turn, Entry::numbered(place), why),
            #[cfg(test)]
            Front::Third => {}
        }
    }

    /// Sessions now, those included whose server is still asked.
    pub(crate) fn session_count(&self) -> usize {
        let count = |front: &Front| match front {
            Front::Netcode => self.netcode.sessions.len(),
            Front::Unreal => self.unreal.sessions.len(),
            Front::Plain => self.plain.open_count,
            #[cfg(test)]
            Front::Third => self.third.sessions.len(),
        };
        Front::ALL.iter().map(count).sum()
    }

    /// Where the tables lie that are large and touched at random.
    pub(crate) fn large_tables(&self) -> impl Iterator<Item = Range<*const u8>> + use<> {
        let tables = self.netcode.sessions.memory().into_iter();
        tables.chain(self.unreal.sessions.memory()).chain(self.plain.sessions.memory())
    }

    /// Hashes the sources of what has arrived, and has their sessions fetched. While one is hashed,
    /// memory works on those before it.
    fn fetch_sources(&self, common: &mut Common, rx: &RxBatch) {
        let Common { sources, runs, listeners, roles, .. } = common;
        let front = |listener: ListenerId| listeners[listener].front;
        find_runs(runs, rx, roles);
        sources.clear();
        for Run { role, range } in runs.iter() {
            let metas = &rx.metas()[range.clone()];
            let Role::Player { listener, .. } = *role else {
                sources.extend(metas.iter().map(|meta| Source::link(role, &meta.local)));
                continue;
            };
            let found = |hash| sources.push(Source { role: *role, hash, guess: Guess::NOBODY });
            match front(listener) {
                Front::Netcode => self.netcode.sessions.hash_sources(listener, metas, found),
                Front::Unreal => self.unreal.sessions.hash_sources(listener, metas, found),
                Front::Plain => self.plain.sessions.hash_sources(listener, metas, found),
                #[cfg(test)]
                Front::Third => self.third.sessions.hash_sources(listener, metas, found),
            }
        }
        for Run { role, range } in runs.iter() {
            let sources = &mut sources[range.clone()];
            match *role {
                Role::Player { listener, .. } => match front(listener) {
                    Front::Netcode => self.netcode.fetch_players(sources),
                    Front::Unreal => self.unreal.fetch_players(sources),
                    Front::Plain => self.plain.fetch_players(sources),
                    #[cfg(test)]
                    Front::Third => {}
                },
                Role::UdpLink => self.netcode.fetch_guessed(sources),
                _ => {}
            }
        }
    }
}
