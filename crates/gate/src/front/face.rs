//! What a gate asks of its fronts: each question goes to the one whose protocol it is about, or to
//! all. The compiler leads here when a front is added: its type has to be a field, and to have an
//! arm in [`ask`].
//!
//! Datagrams come in runs: neighbours in a batch that one socket has brought. A front is chosen
//! once for a run.

use std::ops::Range;
use std::sync::Arc;

use crate::arrivals::{Run, Source, find_runs};
use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::state::NetcodeFront;
use crate::front::plain::state::PlainFront;
use crate::front::protocol::Front;
use crate::front::room::Room;
use crate::front::rules::{Answers, Datagrams, Rules};
use crate::front::unreal::state::UnrealFront;
use crate::ids::{BackendId, ListenerId, WorkerId};
use crate::info::{ServerInfo, SessionInfo};
use crate::mail::Steering;
use crate::roles::Role;
use crate::setup::Setup;
use crate::shared::buckets::{Buckets, Share};
use crate::store::entry::Entry;
use crate::store::table::{Address, Guess, Place, Told};
use crate::turn::Turn;
use ringgate_batch::{LocalIp, RxBatch};

/// The protocols of one worker, each with its sessions.
pub(crate) struct Fronts {
    pub(crate) netcode: NetcodeFront,
    pub(crate) unreal: UnrealFront,
    pub(crate) plain: PlainFront,
    #[cfg(test)]
    pub(crate) third: crate::tests::third::front::ThirdFront,
}

/// Asks one of the fronts, whichever it is, or every one, one after the other:
/// `ask!(fronts, front, .due_ns(common))`, `ask!(every fronts, .handle_timers(turn))`.
macro_rules! ask {
    (every $fronts:expr, $($question:tt)+) => {
        for front in Front::ALL {
            ask!($fronts, front, $($question)+);
        }
    };
    ($fronts:expr, $front:expr, $($question:tt)+) => {
        match $front {
            Front::Netcode => $fronts.netcode $($question)+,
            Front::Unreal => $fronts.unreal $($question)+,
            Front::Plain => $fronts.plain $($question)+,
            #[cfg(test)]
            Front::Third => $fronts.third $($question)+,
        }
    };
}

/// The same of a front whose sessions may go on at other gateways; of another one nothing is asked.
macro_rules! ask_clustered {
    ($fronts:expr, $front:expr, $($question:tt)+) => {
        match $front {
            Front::Netcode => $fronts.netcode $($question)+,
            Front::Plain => $fronts.plain $($question)+,
            Front::Unreal => $fronts.unreal $($question)+,
            #[cfg(test)]
            Front::Third => {}
        }
    };
}

pub(crate) use {ask, ask_clustered};

impl Fronts {
    /// Takes a new setup in, before the gate itself does.
    pub(crate) fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        ask!(every self, .adopt(setup, now_ns));
    }

    /// Has the others of a cluster told where players are.
    pub(crate) fn tell(&mut self, told: &Arc<dyn Told>) {
        ask!(every self, .sessions_mut().tell(Arc::clone(told)));
        self.netcode.pending.tell(Arc::clone(told));
    }

    /// Has all tables count their addresses in buckets from now on.
    pub(crate) fn share(&mut self, buckets: &Arc<Buckets>, worker: WorkerId) {
        ask!(every self, .sessions_mut().share(Share::of(buckets, worker)));
        self.netcode.pending.share(Share::of(buckets, worker));
    }

    /// The address of each session, and of each handshake of which something is kept.
    pub(crate) fn for_addresses(&mut self, mut handle: impl FnMut(&Address)) {
        ask!(every self, .sessions_mut().addresses().for_each(&mut handle));
        self.netcode.pending.addresses().for_each(handle);
    }

    /// The setup has another server at this number from now on.
    pub(crate) fn forget_server(&mut self, backend: BackendId) {
        ask!(every self, .forget_server(backend));
    }

    /// First look: whom each datagram concerns, as far as it can be known without decrypting.
    pub(crate) fn classify(&mut self, turn: &mut Turn<'_>, rx: &RxBatch) {
        self.fetch_sources(turn.common, rx);
        self.netcode.begin_looks(rx);
        for at in 0..turn.common.runs.len() {
            let Some(run) = turn.common.runs[at].of_players() else { continue };
            let (listener, range) = (run.listener, run.range.clone());
            let datagrams = range.len() as u64;
            let bytes = range.map(|at| rx.bytes(at).len() as u64).sum::<u64>();
            turn.common.counters.datagrams_in += datagrams;
            turn.common.counters.bytes_in += bytes;
            let traffic = &mut turn.common.listeners[listener].traffic;
            traffic.datagrams_in += datagrams;
            traffic.bytes_in += bytes;
            if turn.common.captures.is_empty() {
                ask!(self, turn.common.front(listener), .classify(turn, run, rx));
            } else {
                self.classify_watched(turn, run, rx);
            }
        }
        if !turn.common.taps.is_empty() {
            self.note_seen(turn, rx);
        }
    }

    /// Tells who watches of everything that has arrived from players.
    #[cold]
    fn note_seen(&self, turn: &mut Turn<'_>, rx: &RxBatch) {
        for run in turn.common.runs.iter().filter_map(Run::of_players) {
            ask!(self, turn.common.front(run.listener), .note_seen(turn.common, run, rx));
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
            let run = turn.common.runs[at].clone();
            let players = run.of_players();
            if let Some(run) = &players {
                turn.common.stamps.begin_uplinks(run.listener);
            }
            match players {
                None => run.range.for_each(|at| {
                    let meta = rx.metas()[at];
                    self.handle_link_datagram(turn, &meta, rx.bytes(at));
                }),
                Some(run) if turn.common.captures.is_empty() => {
                    ask!(self, turn.common.front(run.listener), .step(turn, run, rx));
                }
                Some(run) => self.step_watched(turn, run, rx),
            }
        }
        self.netcode.end_steps();
    }

    /// Another worker does not have an address any more that we forwarded.
    pub(crate) fn unsteer(&mut self, turn: &mut Turn<'_>, steering: &Steering) {
        let &Steering { address, worker, departed_at } = steering;
        turn.common.forget_owner(&address, worker);
        let Some(sequence) = departed_at else { return };
        let (front, now_ns) = (turn.common.front(address.listener), turn.now.mono_ns);
        ask!(self, front, .note_departed(&address, sequence, now_ns));
    }

    /// The backends of the players who may have a loopback address, one of each front: looked for
    /// one after the other, because nearly always the first is the one.
    pub(crate) fn backends_of_loopback<'a>(
        &'a self,
        local: &'a LocalIp,
    ) -> impl Iterator<Item = BackendId> + 'a {
        Front::ALL.iter().filter_map(|front| ask!(self, front, .backend_of_loopback(local)))
    }

    /// The backend of the session that has a socket of its own.
    pub(crate) fn backend_of_socket(&self, place: Place) -> Option<BackendId> {
        // Only netcode opens such sockets.
        let session = self.netcode.sessions.live(place).map(|at| self.netcode.sessions.at(at));
        session.map(|session| session.backend)
    }

    /// The kernel says that no process listens where a server should.
    pub(crate) fn lose_server(&mut self, turn: &mut Turn<'_>, backend: BackendId) {
        ask!(self, turn.common.server_front(backend), .lose_server(turn, backend));
    }

    /// Whether a server answers its front, as far as that asks it.
    pub(crate) fn is_answering(&self, common: &Common, backend: BackendId) -> bool {
        ask!(self, common.server_front(backend), .is_answering(backend))
    }

    /// What a server has said about itself, where its front asks it.
    pub(crate) fn server(&self, backend: BackendId) -> Option<ServerInfo> {
        self.unreal.server(backend)
    }

    /// What is due now.
    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        ask!(every self, .handle_timers(turn));
    }

    /// When the next is due; `u64::MAX` while nothing is.
    pub(crate) fn due_ns(&self, common: &Common) -> u64 {
        let due_ns = |front: &Front| ask!(self, front, .due_ns(common));
        Front::ALL.iter().map(due_ns).fold(u64::MAX, u64::min)
    }

    /// Ends every session.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        ask!(every self, .end_all(turn, Ended::Shutdown, |_| true));
    }

    /// Gives up the places of what was removed in this turn, and counts what is left.
    pub(crate) fn reclaim(&mut self, turn: &mut Turn<'_>) {
        let (mut sessions, mut pending) = (0, 0);
        for front in Front::ALL {
            ask!(self, front, .reclaim(turn.now.mono_ns));
            let (open, waiting) = ask!(self, front, .counts());
            sessions += open as u64;
            pending += waiting as u64;
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
        ask!(self, front, .sessions().places())
    }

    /// What there is room for.
    pub(crate) fn room(&self) -> Room {
        Room {
            has_unreal: self.unreal.sessions.places_max() > 0,
            plain_unproven: self.plain.unproven_max as u32,
        }
    }

    /// How many places there may be.
    pub(crate) fn places_max(&self, front: Front) -> usize {
        ask!(self, front, .sessions().places_max())
    }

    /// The session at one of them.
    pub(crate) fn session_at(
        &self,
        common: &Common,
        front: Front,
        place: u32,
    ) -> Option<SessionInfo> {
        ask!(self, front, .info(common, Entry::numbered(place)))
    }

    /// Ends the session at one of them.
    pub(crate) fn end_at(&mut self, turn: &mut Turn<'_>, front: Front, place: u32, why: Ended) {
        ask!(self, front, .end_when_sure(turn, Entry::numbered(place), why.into()));
    }

    /// Sessions now, those included whose server is still asked.
    pub(crate) fn session_count(&self) -> usize {
        Front::ALL.iter().map(|front| ask!(self, front, .session_count())).sum()
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
            ask!(self, front(listener), .sessions().hash_sources(listener, metas, found));
        }
        for Run { role, range } in runs.iter() {
            let sources = &mut sources[range.clone()];
            match *role {
                Role::Player { listener, .. } => {
                    ask!(self, front(listener), .fetch_players(sources));
                }
                Role::UdpLink => self.netcode.fetch_guessed(sources),
                _ => {}
            }
        }
    }
}
