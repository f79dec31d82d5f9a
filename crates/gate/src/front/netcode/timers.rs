//! What happens because time passes: keep-alives, timeouts, backends given up, handshakes
//! forgotten.

use arrayvec::ArrayVec;

use crate::common::Common;
use crate::counters::Ended;
use crate::front::netcode::session::Session;
use crate::front::netcode::state::NetcodeFront;
use crate::ids::ListenerId;
use crate::store::entry::Entry;
use crate::store::table::Address;
use crate::turn::Turn;
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;

impl NetcodeFront {
    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        loop {
            let mut due: ArrayVec<Entry<Session>, WAKE_BATCH> = ArrayVec::new();
            while let Some(index) = self.wheel.pop_due(turn.now.mono_ns) {
                due.push(index);
                if due.is_full() {
                    break;
                }
            }
            due.iter().for_each(|index| self.fetch_session(*index));
            due.iter().for_each(|index| self.wake(turn, *index));
            if !due.is_full() {
                break;
            }
        }
        self.arm_some(turn.common);
        self.sweep_pending(turn);
        self.handle_session_sockets(turn);
        self.look_after_connections(turn);
    }

    /// Looks after one session and arms it again.
    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let Some(session) = self.sessions.get(index) else { return };
        let backend = session.backend;
        if session.is_timed_out(turn.now.mono_ns) {
            return self.end_session(turn, index, Ended::TimedOut);
        }
        let is_delivered = self.connections.has(index);
        let needs_backend = !is_delivered || !self.is_lingering(index);
        if needs_backend
            && turn.common.links.backends[backend]
                .is_lost(&turn.common.setup.backends[backend], turn.now.mono_ns)
        {
            return self.end_session(turn, index, Ended::BackendGone);
        }
        if is_delivered && needs_backend && self.has_lost_its_link(turn, index) {
            return self.end_session(turn, index, Ended::BackendGone);
        }
        if session.keep_alive_at_ns(self.keep_alive_ns(turn.common, index)) <= turn.now.mono_ns {
            if is_delivered && session.is_confirmed() {
                // Its connection has a heartbeat.
                self.connections.touch(index);
            } else {
                self.keep_alive(turn, index);
            }
        }
        if needs_backend {
            self.announce(turn, index);
        }
        self.arm(turn, index);
    }

    /// A player who does not know yet that it is connected hears it when its socket is there.
    fn keep_alive(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.sessions.at(index).is_confirmed() && self.lacks_socket(turn, index) {
            self.sessions.at_mut(index).last_send_ns = turn.now.mono_ns;
        } else {
            self.emit_keep_alive(turn, index);
        }
    }

    /// Has a session looked at again when it needs to be.
    pub(crate) fn arm(&mut self, turn: &Turn<'_>, index: Entry<Session>) {
        let deadline_ns = self.deadline_ns(turn.common, index);
        self.wheel.arm(index, deadline_ns);
    }

    /// Arms the next few of those who have come from another process, and notes where they play.
    pub(crate) fn arm_some(&mut self, common: &Common) {
        for index in self.unarmed.take_some().map(Entry::numbered) {
            if self.sessions.is_live(index) {
                self.note_carried(common, index);
                let deadline_ns = self.deadline_ns(common, index);
                self.wheel.arm_among_many(index, deadline_ns);
            }
        }
    }

    fn deadline_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        self.sessions.at(index).deadline_ns(self.keep_alive_ns(common, index))
    }

    pub(crate) fn keep_alive_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        let listener = self.sessions.address(index).listener;
        let rules = common.setup.listeners[listener].netcode();
        rules.map_or(SEND_INTERVAL_NS, |rules| rules.keep_alive_ns)
    }

    /// Forgets the unfinished handshakes of a listener.
    pub(crate) fn forget_handshakes(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        for at in self.pending.entries() {
            if self.pending.is_live(at) && self.pending.address(at).listener == listener {
                self.forget_pending(turn, at);
            }
        }
    }

    /// Looks at a few unfinished handshakes, so that those that were never answered give their
    /// memory back.
    fn sweep_pending(&mut self, turn: &mut Turn<'_>) {
        let places = if self.pending.len() == 0 { 0 } else { self.pending.places() };
        for _ in 0..self.sweep.take_due(places, turn.now.mono_ns) {
            self.sweep.at = (self.sweep.at + 1) % places;
            let at = Entry::numbered(self.sweep.at);
            if self.pending.get(at).is_some_and(|pending| pending.expire_ns < turn.now.mono_ns) {
                self.forget_pending(turn, at);
            }
        }
    }

    /// Ends every session.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        self.end_all(turn, Ended::Shutdown, |_| true);
    }

    /// Ends every session at such an address.
    pub(crate) fn end_all(
        &mut self,
        turn: &mut Turn<'_>,
        why: Ended,
        is_meant: impl Fn(&Address) -> bool,
    ) {
        for index in self.sessions.entries() {
            if self.sessions.is_live(index) && is_meant(self.sessions.address(index)) {
                self.end_session(turn, index, why);
            }
        }
    }
}

/// Sessions that are woken together, so that their memory comes together.
const WAKE_BATCH: usize = 32;
