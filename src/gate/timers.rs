//! What happens because time passes: keep-alives, timeouts, backends given up, handshakes forgotten.

use super::counters::Ended;
use super::output::Exit;
use super::table::Place;
use super::{Gate, Now};

impl Gate {
    pub(super) fn handle_timers(&mut self, now: Now, exit: &mut Exit<'_>) {
        let mut due = std::mem::take(&mut self.due);
        while self.wheel.take_due(now.mono_ns, &mut due) {
            for &place in &due {
                self.wake(now, place, exit);
            }
        }
        self.due = due;
        self.sweep_pending(now);
        self.probe_backends(now, exit);
    }

    /// Looks after one session and arms it again.
    fn wake(&mut self, now: Now, place: Place, exit: &mut Exit<'_>) {
        let Some(index) = self.sessions.live(place) else { return };
        let session = self.sessions.at(index);
        let backend = usize::from(session.claim.backend);
        if session.is_timed_out(now.mono_ns) {
            return self.end_session(now, index, Ended::TimedOut, exit);
        }
        if self.backends[backend].is_lost(&self.setup.backends[backend], now.mono_ns) {
            return self.end_session(now, index, Ended::BackendGone, exit);
        }
        if session.last_send_ns + super::session::KEEP_ALIVE_NS <= now.mono_ns {
            self.emit_keep_alive(now, index, exit);
        }
        self.announce(now, index, exit);
        let deadline_ns = self.sessions.at(index).deadline_ns();
        self.wheel.arm(place, deadline_ns);
    }

    /// Looks at a few unfinished handshakes a turn, so that the memory of those who never answer comes back.
    fn sweep_pending(&mut self, now: Now) {
        let places = self.pending.places();
        for _ in 0..SWEEP_PLACES.min(places) {
            self.pending_sweep = (self.pending_sweep + 1) % places;
            let at = self.pending_sweep;
            if self.pending.get(at).is_some_and(|entry| entry.expire_ns < now.mono_ns) {
                self.pending.remove(at);
            }
        }
    }

    /// Takes no new players in and tells the backends.
    pub(super) fn drain(&mut self, left_ms: u32, exit: &mut Exit<'_>) {
        self.draining = true;
        for link in 0..self.links.len() as u16 {
            self.tell_link(Now::default(), link, exit, |writer| writer.draining(left_ms));
        }
    }

    /// Ends every session.
    pub(super) fn stop(&mut self, now: Now, exit: &mut Exit<'_>) {
        self.draining = true;
        for index in 0..self.sessions.places() {
            if self.sessions.is_live(index) {
                self.end_session(now, index, Ended::Shutdown, exit);
            }
        }
        self.say_goodbye(now, exit);
        self.stopped = true;
    }
}

/// Places of the pending table looked at per turn.
const SWEEP_PLACES: u32 = 32;
