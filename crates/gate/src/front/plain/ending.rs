//! Sessions that end, and what happens because time passes.

use crate::common::Common;
use crate::counters::Ended;
use crate::front::plain::datagrams::patience_ns;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, rules_of};
use crate::ids::ListenerId;
use crate::store::entry::Entry;
use crate::store::table::{Address, Place};
use crate::turn::Turn;
use ringgate_link::bundle::CloseReason;

impl PlainFront {
    /// Looks after the sessions that are due.
    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        while let Some(index) = self.wheel.pop_due(turn.now.mono_ns) {
            self.wake(turn, index);
        }
        self.arm_some(turn.common);
    }

    /// Arms the next few of those who have come from another process.
    pub(crate) fn arm_some(&mut self, common: &Common) {
        for index in self.unarmed.take_some().map(Entry::numbered) {
            let Some(session) = self.sessions.get(index) else { continue };
            let listener = self.sessions.address(index).listener;
            let patience_ns = rules_of(common, listener).map_or(0, |it| patience_ns(it, session));
            let deadline_ns = session.heard_ns.saturating_add(patience_ns);
            self.wheel.arm_among_many(index, deadline_ns);
        }
    }

    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let Some(session) = self.sessions.get(index) else { return };
        let listener = self.sessions.address(index).listener;
        // Its listener has closed, and may be another now.
        let Ok(rules) = rules_of(turn.common, listener) else {
            return self.give_up(turn, index);
        };
        let deadline_ns = session.heard_ns + patience_ns(rules, session);
        if turn.now.mono_ns >= deadline_ns {
            return self.give_up(turn, index);
        }
        let backend = session.backend;
        let is_lost = turn.common.links.backends[backend]
            .is_lost(&turn.common.setup.backends[backend], turn.now.mono_ns);
        if is_lost && session.is_open() {
            return self.end(turn, index, Ended::BackendGone);
        }
        self.wheel.arm(index, deadline_ns);
    }

    /// Ends what has been silent for too long, or has to make room.
    pub(crate) fn give_up(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        self.end(turn, index, Ended::TimedOut);
    }

    /// Ends a session whose source begins another one.
    pub(crate) fn replace(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        self.end(turn, index, Ended::Replaced);
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
                self.end(turn, index, why);
            }
        }
    }

    /// Ends what is left of a listener that closes. Some half-open sessions may have no place among
    /// the unproven any more, after a reload.
    pub(crate) fn end_unproven(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        if self.listeners[listener].unproven.clear() {
            self.end_all(turn, Ended::ByOperator, |address| address.listener == listener);
        }
    }

    /// Ends whatever an entry is, and forgets its source.
    pub(crate) fn end(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, why: Ended) {
        self.end_because(turn, index, why, why.close_reason());
    }

    /// The same, with the reason that a game process on a bundle link is told.
    pub(crate) fn end_because(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        why: Ended,
        reason: CloseReason,
    ) {
        self.release(turn, index, why, reason);
        self.sessions.remove(index);
    }

    /// A gap ends the session, and its source may not begin again for a while.
    pub(crate) fn bar(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let was_open = self.sessions.at(index).is_open();
        self.release(turn, index, Ended::SequenceGap, CloseReason::SequenceGap);
        let session = self.sessions.at_mut(index);
        session.stage = Stage::Barred;
        session.heard_ns = turn.now.mono_ns;
        if was_open {
            self.make_room(turn, index);
        }
    }

    /// Gives back what a session holds.
    fn release(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        why: Ended,
        reason: CloseReason,
    ) {
        let session = self.sessions.at(index);
        if !matches!(session.stage, Stage::Barred) {
            turn.common.trace_end(self.sessions.address(index), None, why);
        }
        let told = (session.backend, session.announced);
        turn.report_closed(told, self.session_id(index), reason);
        let session = self.sessions.at_mut(index);
        session.announced = 0;
        let address = session.loopback.take();
        match session.stage {
            Stage::Open { is_proven } => {
                if !is_proven {
                    turn.common.claims.shares().leave(session.backend);
                }
                turn.common.claims.leave(&session.claim);
                turn.common.counters.sessions_closed[why as usize] += 1;
                self.open_count -= 1;
                if let Some(address) = address {
                    self.addresses.rest(address, turn.now.mono_ns);
                }
            }
            Stage::HalfOpen { .. } => {
                self.half_open_count -= 1;
                if let Some(address) = address {
                    self.addresses.give_back(address);
                }
            }
            Stage::Barred => {}
        }
    }

    /// Forgets who has no place among the unproven any more, after a reload.
    pub(crate) fn forget_unproven(&mut self, place: Place) {
        let Some(index) = self.sessions.live(place) else { return };
        // It is not heard any more, and so its timer ends it.
        if !self.sessions.at(index).is_open() {
            self.sessions.at_mut(index).heard_ns = 0;
        }
    }
}
