//! What happens because time passes: keep-alives, timeouts, backends given up, handshakes
//! forgotten.

use arrayvec::ArrayVec;

use crate::counters::Ended;
use crate::turn::Turn;
use crate::{Gate, Now};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;

/// How far the search for forgotten handshakes has come: round the whole table once a second, a
/// little in each turn.
pub(crate) struct Sweep {
    /// The next place to be looked at.
    at: u32,
    /// When the last places were looked at.
    swept_ns: u64,
}

impl Sweep {
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { at: 0, swept_ns: now_ns }
    }

    /// When to go on at the latest.
    pub(crate) const fn due_ns(&self) -> u64 {
        self.swept_ns + SWEEP_STEP_NS
    }

    /// How many of so many places are due now.
    fn take_due(&mut self, places: u32, now_ns: u64) -> u32 {
        let elapsed_ns = now_ns.saturating_sub(self.swept_ns).min(SWEEP_NS);
        self.swept_ns = now_ns;
        (u64::from(places) * elapsed_ns).div_ceil(SWEEP_NS) as u32
    }
}

impl Gate {
    pub(crate) fn handle_timers(&mut self, turn: &mut Turn<'_>) {
        loop {
            let due: ArrayVec<u32, WAKE_BATCH> =
                std::iter::from_fn(|| self.wheel.pop_due(turn.now.mono_ns))
                    .take(WAKE_BATCH)
                    .collect();
            due.iter().for_each(|index| self.fetch_player(*index));
            due.iter().for_each(|index| self.wake(turn, *index));
            if !due.is_full() {
                break;
            }
        }
        self.handle_unreal_timers(turn);
        self.sweep_pending(turn.now);
        self.handle_session_sockets(turn);
        self.probe_backends(turn);
        self.close_unidentified_links(turn);
    }

    /// Looks after one session and arms it again.
    fn wake(&mut self, turn: &mut Turn<'_>, index: u32) {
        let Some(session) = self.sessions.get(index) else { return };
        let backend = usize::from(session.backend);
        if session.is_timed_out(turn.now.mono_ns) {
            return self.end_session(turn, index, Ended::TimedOut);
        }
        if self.backends[backend].is_lost(&self.setup.backends[backend], turn.now.mono_ns) {
            return self.end_session(turn, index, Ended::BackendGone);
        }
        if session.keep_alive_at_ns(self.keep_alive_ns(index)) <= turn.now.mono_ns {
            self.keep_alive(turn, index);
        }
        self.announce(turn, index);
        self.arm(index);
    }

    /// A player who does not know yet that it is connected hears it when its socket is there.
    fn keep_alive(&mut self, turn: &mut Turn<'_>, index: u32) {
        if !self.sessions.at(index).is_confirmed() && self.lacks_socket(index) {
            self.sessions.at_mut(index).last_send_ns = turn.now.mono_ns;
        } else {
            self.emit_keep_alive(turn, index);
        }
    }

    /// Has a session looked at again when it needs to be.
    pub(crate) fn arm(&mut self, index: u32) {
        let deadline_ns = self.sessions.at(index).deadline_ns(self.keep_alive_ns(index));
        self.wheel.arm(index, deadline_ns);
    }

    fn keep_alive_ns(&self, index: u32) -> u64 {
        let listener = usize::from(self.sessions.address(index).listener);
        let rules = self.setup.listeners[listener].netcode();
        rules.map_or(SEND_INTERVAL_NS, |rules| rules.keep_alive_ns)
    }

    /// Looks at a few unfinished handshakes, so that the memory of those who never answer comes
    /// back.
    fn sweep_pending(&mut self, now: Now) {
        let places = if self.pending.len() == 0 { 0 } else { self.pending.places() };
        for _ in 0..self.sweep.take_due(places, now.mono_ns) {
            self.sweep.at = (self.sweep.at + 1) % places;
            let at = self.sweep.at;
            if self.pending.get(at).is_some_and(|entry| entry.expire_ns < now.mono_ns) {
                self.forget_pending(at);
            }
        }
    }

    /// Takes no new players in and tells the backends.
    pub(crate) fn drain(&mut self, turn: &mut Turn<'_>, left_ms: u32) {
        self.draining_until_ns = Some(turn.now.mono_ns + u64::from(left_ms) * NS_PER_MS);
        for link in 0..self.links.len() as u16 {
            self.tell_draining(turn, link);
        }
    }

    /// Ends every session.
    pub(crate) fn stop(&mut self, turn: &mut Turn<'_>) {
        self.draining_until_ns.get_or_insert(turn.now.mono_ns);
        for index in 0..self.sessions.places() {
            if self.sessions.is_live(index) {
                self.end_session(turn, index, Ended::Shutdown);
            }
        }
        self.stop_unreal();
        self.drop_backlogs();
        self.say_goodbye(turn);
        self.stopped = true;
    }
}

/// Sessions that are woken together, so that their memory comes together.
const WAKE_BATCH: usize = 32;

/// A table full of handshakes that nobody will finish is free again a second after they have
/// expired.
const SWEEP_NS: u64 = 1_000_000_000;

/// An idle worker looks this often.
const SWEEP_STEP_NS: u64 = 100_000_000;

const NS_PER_MS: u64 = 1_000_000;
