//! How long sessions last, and how they end.

use crate::common::Common;
use crate::counters::{Ended, Ending};
use crate::front::cluster::doubt::Doubting;
use crate::front::cluster::owning::Owning;
use crate::front::cluster::timers::look_after_cluster;
use crate::front::plain::datagrams::patience_ns;
use crate::front::plain::session::{Session, Stage};
use crate::front::plain::state::{PlainFront, PlainListener, begins_anew, rules_of};
use crate::front::rules::Rules;
use crate::ids::ListenerId;
use crate::info::SessionInfo;
use crate::links::loopback::loopback_of;
use crate::links::players::PlayerOf;
use crate::sessions::Sessions;
use crate::setup::{Listener, Setup};
use crate::store::entry::Entry;
use crate::store::table::Place;
use crate::turn::Turn;

impl Rules for PlainFront {
    type Session = Session;

    fn sessions(&self) -> &Sessions<Session> {
        &self.sessions
    }

    fn sessions_mut(&mut self) -> &mut Sessions<Session> {
        &mut self.sessions
    }

    fn info(&self, common: &Common, index: Entry<Session>) -> Option<SessionInfo> {
        let session = self.sessions.get(index).filter(|session| session.is_open())?;
        let address = self.sessions.address(index);
        let rules = rules_of(common, address.listener).ok()?;
        let (claim, timeout_ns) = (&session.claim, rules.idle_ns);
        let link_address = session.loopback.and_then(loopback_of);
        let names = (self.sessions.id(index).as_u64(), link_address);
        Some(SessionInfo::of_claim(claim, names, address.endpoint, session.heard_ns, timeout_ns))
    }

    fn counts(&self) -> (usize, usize) {
        (self.open_count, self.half_open_count)
    }

    fn session_count(&self) -> usize {
        self.open_count
    }

    fn adopt(&mut self, setup: &Setup, now_ns: u64) {
        for (id, listener) in setup.listeners.pairs() {
            let rules = listener.plain();
            let (sequence, max) = (
                rules.and_then(|rules| rules.sequence),
                rules.map_or(0, |rules| rules.half_open_max),
            );
            let Some(known) = self.listeners.get_mut(id) else {
                self.listeners.push(PlainListener::new(listener, now_ns));
                continue;
            };
            let before = std::mem::replace(&mut known.sequence, sequence);
            known.sequence_changes += u32::from(begins_anew(before, sequence));
            for place in known.unproven.resize(max) {
                self.forget_unproven(place);
            }
        }
    }

    fn begin_listener(&mut self, number: ListenerId, listener: &Listener, now_ns: u64) {
        self.listeners[number] = PlainListener::new(listener, now_ns);
    }

    /// Some half-open sessions may have no place among the unproven any more, after a reload.
    fn close_listener(&mut self, turn: &mut Turn<'_>, listener: ListenerId) {
        if self.listeners[listener].unproven.clear() {
            self.end_all(turn, Ended::ByOperator, |address| address.listener == listener);
        }
    }

    fn deadline_ns(&self, common: &Common, index: Entry<Session>) -> u64 {
        let session = self.sessions.at(index);
        let rules = rules_of(common, self.sessions.address(index).listener);
        // Its listener may have closed, and may be another now.
        session.heard_ns.saturating_add(rules.map_or(0, |rules| patience_ns(rules, session)))
    }

    fn due_ns(&self, _common: &Common) -> u64 {
        self.sessions.due_ns().min(self.sessions.clusters.due_ns())
    }

    fn handle_other_timers(&mut self, turn: &mut Turn<'_>) {
        look_after_cluster(self, turn);
    }

    fn wake(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        if !self.look_after_unsure(turn, index) {
            self.end_or_arm(turn, index);
        }
    }

    fn end_when_sure(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        self.end_once_sure(turn, index, ending);
    }

    fn end_like(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        self.release(turn, index, ending);
        self.sessions.remove(index);
    }
}

impl PlainFront {
    /// A gap ends the session, and its source may not begin again for a while.
    pub(crate) fn bar(&mut self, turn: &mut Turn<'_>, index: Entry<Session>) {
        let was_open = self.sessions.at(index).is_open();
        self.release(turn, index, Ended::SequenceGap.into());
        let session = self.sessions.at_mut(index);
        session.stage = Stage::Barred;
        session.heard_ns = turn.now.mono_ns;
        if was_open {
            self.make_room(turn, index);
        }
    }

    /// Gives back what a session holds.
    fn release(&mut self, turn: &mut Turn<'_>, index: Entry<Session>, ending: Ending) {
        let Ending { why, reason } = ending;
        let session = self.sessions.at(index);
        if !matches!(session.stage, Stage::Barred) {
            turn.common.trace_end(self.sessions.address(index), None, why);
        }
        let player = PlayerOf { backend: session.backend, session: self.sessions.id(index) };
        // The game process goes on with it elsewhere.
        if why != Ended::Fenced {
            turn.report_closed(player, session.announced, reason);
        }
        self.end_clustered(turn.common, index, why);
        let at = *self.sessions.address(index);
        let session = self.sessions.at_mut(index);
        session.announced = 0;
        let address = session.loopback.take();
        match session.stage {
            Stage::Open { is_proven } => {
                if !is_proven {
                    turn.common.claims.shares().leave(player.backend, &at);
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
