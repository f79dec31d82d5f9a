//! What a protocol has to say about its players, and what all fronts do alike because of it.
//!
//! A new front is a variant of [`Front`](super::Front) and a type that implements [`Rules`],
//! [`Datagrams`] and [`Answers`]: what these ask without an answer of their own is what no two
//! protocols have in common.

use arrayvec::ArrayVec;

use crate::arrivals::{Origin, PlayerRun, Source};
use crate::common::Common;
use crate::counters::{Ended, Ending};
use crate::ids::{BackendId, ListenerId};
use crate::info::SessionInfo;
use crate::links::players::PlayerOf;
use crate::mail::Mailed;
use crate::party::Party;
use crate::sessions::{Kept, Sessions};
use crate::setup::{Listener, Setup};
use crate::shared::claims::Claim;
use crate::store::entry::Entry;
use crate::store::table::{Address, Guess};
use crate::trace::Fact;
use crate::turn::Turn;
use ringgate_batch::{LINE_BYTES, LocalIp, RxBatch, RxMeta};
use ringgate_core::drops::DropReason;
use ringgate_link::bundle::{CloseAfter, CloseReason, MessagePart};

/// How sessions last and end.
pub(crate) trait Rules {
    /// What the front keeps of a session.
    type Session: Kept;

    /// Whether players bring ids of their own.
    const HAS_IDS: bool = false;

    fn sessions(&self) -> &Sessions<Self::Session>;

    fn sessions_mut(&mut self) -> &mut Sessions<Self::Session>;

    /// The session at a place as it looks from outside, where there is an open one.
    fn info(&self, common: &Common, index: Entry<Self::Session>) -> Option<SessionInfo>;

    /// When a session is to be looked after, which is when it ends if nothing is heard until then.
    fn deadline_ns(&self, common: &Common, index: Entry<Self::Session>) -> u64;

    /// Ends a session and gives back what it holds.
    fn end_like(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, ending: Ending);

    /// Takes a new setup in, before the gate itself does.
    fn adopt(&mut self, _setup: &Setup, _now_ns: u64) {}

    /// A listener closes: what is left of it beside sessions that hold a claim.
    fn close_listener(&mut self, _turn: &mut Turn<'_>, _listener: ListenerId) {}

    /// A number means this listener from now on.
    fn begin_listener(&mut self, _number: ListenerId, _listener: &Listener, _now_ns: u64) {}

    /// How many sessions are open, and how many players wait to have one.
    fn counts(&self) -> (usize, usize) {
        (self.sessions().len(), 0)
    }

    /// How many sessions hold a claim.
    fn session_count(&self) -> usize {
        self.sessions().len()
    }

    /// Gives up the places of what was removed in this turn.
    fn reclaim(&mut self, now_ns: u64) {
        self.sessions_mut().reclaim(now_ns);
    }

    /// The id that the player at an address has brought.
    fn client_at(&self, _address: &Address) -> Option<u64> {
        None
    }

    /// When the front wants to be called again; `u64::MAX` while nothing is due.
    fn due_ns(&self, _common: &Common) -> u64 {
        self.sessions().due_ns()
    }

    /// What is due beside sessions.
    fn handle_other_timers(&mut self, _turn: &mut Turn<'_>) {}

    /// Has everything fetched that looking after a session touches.
    fn fetch_session(&self, index: Entry<Self::Session>) {
        self.sessions().prefetch(index, 0..size_of::<Self::Session>().div_ceil(LINE_BYTES));
    }

    /// Looks after a session that is due.
    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        self.end_or_arm(turn, index);
    }

    /// A session that has come from another process has its deadline now.
    fn note_carried(&self, _common: &Common, _index: Entry<Self::Session>) {}

    /// What is due now.
    fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        loop {
            let mut due: ArrayVec<_, WAKE_BATCH> = ArrayVec::new();
            while !due.is_full()
                && let Some(index) = self.sessions_mut().pop_due(turn.now.mono_ns)
            {
                due.push(index);
            }
            due.iter().for_each(|index| self.fetch_session(*index));
            due.iter().for_each(|index| self.wake(turn, *index));
            if !due.is_full() {
                break;
            }
        }
        self.arm_some(turn.common);
        self.handle_other_timers(turn);
    }

    /// Arms the next few of those who have come from another process.
    fn arm_some(&mut self, common: &Common) {
        for index in self.sessions_mut().take_unarmed() {
            if self.sessions().is_live(index) {
                self.note_carried(common, index);
                let deadline_ns = self.deadline_ns(common, index);
                self.sessions_mut().arm_among_many(index, deadline_ns);
            }
        }
    }

    /// A session is open that a player has waited for since a moment.
    fn note_began(&self, turn: &mut Turn<'_>, index: Entry<Self::Session>, since_ns: u64) {
        let (sessions, address) = (self.sessions(), self.sessions().address(index));
        let Some(claim) = sessions.at(index).held(address) else { return };
        let Claim { listener, backend, slot, client_id, .. } = claim;
        turn.common.count_session(listener, backend);
        let took_ns = turn.now.mono_ns.saturating_sub(since_ns);
        turn.common.stamps.handshakes_ns.push((Party::of(listener), took_ns));
        let began = Fact::Began { session: sessions.id(index).as_u64(), backend, slot, took_ns };
        turn.common.trace(address, Self::HAS_IDS.then_some(client_id), began);
    }

    /// Ends a session whose time is up or whose backend is gone, and has any other looked after
    /// again.
    fn end_or_arm(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>) {
        let Some(session) = self.sessions().get(index) else { return };
        let deadline_ns = self.deadline_ns(turn.common, index);
        if turn.now.mono_ns >= deadline_ns {
            return self.end(turn, index, Ended::TimedOut);
        }
        let claim = session.held(self.sessions().address(index));
        if claim.is_some_and(|claim| turn.common.is_lost(claim.backend, turn.now)) {
            return self.end(turn, index, Ended::BackendGone);
        }
        self.sessions_mut().arm(index, deadline_ns);
    }

    /// Ends a session. Its game process is told what follows from why.
    fn end(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, why: Ended) {
        self.end_like(turn, index, why.into());
    }

    /// Ends a session for a game process or an operator, who can wait: not before it is sure that
    /// the session is this gateway's.
    fn end_when_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, ending: Ending) {
        self.end_like(turn, index, ending);
    }

    /// Ends every session at such an address.
    fn end_all(&mut self, turn: &mut Turn<'_>, why: Ended, is_meant: impl Fn(&Address) -> bool) {
        for index in self.sessions().entries() {
            if self.sessions().is_live(index) && is_meant(self.sessions().address(index)) {
                self.end(turn, index, why);
            }
        }
    }
}

/// What becomes of players' datagrams.
pub(crate) trait Datagrams: Rules {
    /// Looks at a run of datagrams of one listener: state machines and payloads.
    fn step(&mut self, turn: &mut Turn<'_>, run: PlayerRun, rx: &mut RxBatch);

    /// Looks at one datagram of a run after the other, and counts those that go no further.
    fn step_each(
        &mut self,
        turn: &mut Turn<'_>,
        PlayerRun { listener, range }: PlayerRun,
        rx: &RxBatch,
        step: impl Fn(&mut Self, &mut Turn<'_>, &Origin, &[u8]) -> Result<(), DropReason>,
    ) {
        for at in range {
            let meta = &rx.metas()[at];
            let outcome = match turn.common.sources[at].origin(meta) {
                _ if meta.truncated => Err(DropReason::TooLong),
                Some(origin) => step(self, turn, &origin, rx.bytes(at)),
                None => Err(DropReason::UnknownSource),
            };
            if let Err(why) = outcome {
                let address = Address { listener, endpoint: meta.peer };
                turn.common.drop_datagram(&address, why);
            }
        }
    }

    /// Has the sessions fetched of those who have sent a run of datagrams.
    fn fetch_players(&self, sources: &mut [Source]) {
        for source in sources {
            source.guess = Guess::of(self.sessions().guess(source.hash));
            self.fetch_session(source.guess.entry());
        }
    }

    /// Looks at a run where its datagrams are to be opened before anything else.
    fn classify(&mut self, _turn: &mut Turn<'_>, _run: PlayerRun, _rx: &RxBatch) {}

    /// A datagram that another worker has received, for a session of ours or one that may be.
    fn step_mailed(
        &mut self,
        _turn: &mut Turn<'_>,
        _origin: &Origin,
        _mailed: Mailed,
        _bytes: &mut [u8],
    ) -> Result<(), DropReason> {
        // A session never leaves its address, and so never its worker.
        Err(DropReason::UnknownSource)
    }

    /// An address has no session any more; another worker's player was there.
    fn note_departed(&mut self, _address: &Address, _sequence: u64, _now_ns: u64) {}

    /// Tells who watches of a run that has been looked at.
    fn note_seen(&self, common: &Common, PlayerRun { listener, range }: PlayerRun, rx: &RxBatch) {
        for meta in &rx.metas()[range] {
            common.taps.note_seen(&Address { listener, endpoint: meta.peer }, None);
        }
    }

    /// What a player says in a datagram of the batch, once that has been opened in place.
    fn payload_at<'a>(&self, _at: usize, _rx: &'a RxBatch) -> Option<&'a [u8]> {
        None
    }
}

/// What becomes of what game processes send and ask for.
pub(crate) trait Answers: Rules {
    /// The session whose player has a loopback address toward game servers.
    fn at_loopback(&self, local: &LocalIp) -> Option<Entry<Self::Session>>;

    /// Passes a game server's datagram or payload on to a player.
    fn send_to_player(&mut self, turn: &mut Turn<'_>, index: Entry<Self::Session>, payload: &[u8]);

    /// The backend of the session that has a loopback address.
    fn backend_of_loopback(&self, local: &LocalIp) -> Option<BackendId> {
        Some(self.sessions().get(self.at_loopback(local)?)?.at_backend())
    }

    /// A datagram on the udp link, from the server that is this backend.
    fn handle_server(&mut self, turn: &mut Turn<'_>, from: BackendId, meta: &RxMeta, bytes: &[u8]) {
        self.handle_players_server(turn, from, meta, bytes);
    }

    /// A datagram on the udp link for the player whose loopback address it was sent to.
    fn handle_players_server(
        &mut self,
        turn: &mut Turn<'_>,
        from: BackendId,
        meta: &RxMeta,
        bytes: &[u8],
    ) {
        let sessions = self.sessions();
        let plays_there =
            |index: &Entry<_>| sessions.get(*index).is_some_and(|session| session.plays_at(from));
        match self.at_loopback(&meta.local).filter(plays_there) {
            Some(_) if meta.truncated => {
                turn.common.count_from_link(from, DropReason::PayloadLength);
            }
            Some(index) => self.send_to_player(turn, index, bytes),
            None => turn.common.count_from_link(from, DropReason::SessionUnknown),
        }
    }

    /// The kernel says that no process listens where a server should.
    fn lose_server(&mut self, _turn: &mut Turn<'_>, _backend: BackendId) {}

    /// A number is another server's from now on.
    fn forget_server(&mut self, _backend: BackendId) {}

    /// Whether a server answers its front, as far as that asks it.
    fn is_answering(&self, _backend: BackendId) -> bool {
        true
    }

    /// The session of a player that a backend names on a bundle link.
    #[inline]
    fn session_for_backend(&self, player: PlayerOf) -> Option<Entry<Self::Session>> {
        let sessions = self.sessions();
        let plays_there = |index: &Entry<_>| sessions.at(*index).plays_at(player.backend);
        sessions.named(player.session).filter(plays_there)
    }

    /// Sends a payload to the player that a backend names.
    #[inline]
    fn send_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, payload: &[u8]) {
        match self.session_for_backend(player) {
            Some(index) => self.send_to_player(turn, index, payload),
            None => turn.common.count_for_nobody(player),
        }
    }

    /// Sends a whole message to the player that a backend names.
    fn send_message_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        _message: &MessagePart<'_>,
    ) {
        turn.common.refuse_message(backend);
    }

    /// Tells a backend how good the way to a player is that it names.
    fn tell_quality(&self, _turn: &mut Turn<'_>, _player: PlayerOf) {}

    /// Ends the session that a backend names, when what was sent to it has arrived.
    fn close_after_for_backend(
        &mut self,
        turn: &mut Turn<'_>,
        backend: BackendId,
        close: &CloseAfter<'_>,
    ) {
        // What was sent is under way, and nothing is known of it.
        self.close_for_backend(turn, PlayerOf { backend, session: close.session }, close.reason);
    }

    /// Ends the session that a backend names.
    fn close_for_backend(&mut self, turn: &mut Turn<'_>, player: PlayerOf, reason: CloseReason) {
        if let Some(index) = self.session_for_backend(player) {
            self.end_like(turn, index, Ending { why: Ended::ByBackend, reason });
        }
    }
}

/// Sessions that are woken together, so that their memory comes together.
const WAKE_BATCH: usize = 32;
