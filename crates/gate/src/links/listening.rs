//! What is known from outside about udp backends: whether a process listens where they should. The
//! worker's host asks the kernel, for all workers at once, so that no payload of a player has to be
//! lost to find out.
//!
//! A worker also sees refusals itself, sooner than it is told. What it is told holds longer: while
//! no process listens, an unanswered probe does not mean that the backend is back.

use crate::common::Common;
use crate::ids::BackendId;
use crate::links::state::{BackendState, Seen};
use crate::mail::Listening;
use crate::now::Now;
use crate::setup::{Intake, Setup};
use ringgate_batch::Endpoint;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};

impl Common {
    /// Takes in what was found out about a udp backend. Returns whether it is gone.
    pub(crate) fn note_listening(&mut self, now: Now, news: Listening) -> bool {
        let (backend, address) = (news.backend, Some(Endpoint::from(news.address)));
        let is_meant = |state: &BackendState| state.address.is_some() && state.address == address;
        if !self.links.backends.get(backend).is_some_and(is_meant) {
            return false;
        }
        let state = &mut self.links.backends[backend];
        // Taken to be there until it was looked at.
        state.has_been_up &= state.seen != Seen::Never;
        state.seen = if news.is_there { Seen::There } else { Seen::Deserted };
        if !news.is_there {
            self.mark_gone(now, backend);
        } else if !self.server_front(backend).asks_servers() {
            self.links.backends[backend].come_back();
        }
        !news.is_there
    }

    /// Whether a backend may take players in a moment, so that a denial, which is final, would be
    /// too early: a moment ago it was begun to be waited for, and it has not been there since, or
    /// says itself that it is starting.
    pub(crate) fn is_awaited(&self, backend: BackendId) -> bool {
        let (state, rules) = (&self.links.backends[backend], &self.setup.backends[backend]);
        let may_come = match rules.intake {
            Intake::Anybody | Intake::Sent => !state.has_been_up,
            Intake::NobodyYet => true,
            Intake::Nobody => false,
        };
        let is_meant = may_come && !rules.retired && !rules.drained && !state.is_closed;
        is_meant && self.life.turned_ns < state.awaited_since_ns.saturating_add(AWAITED_NS)
    }

    /// The same for backends of a fleet that this process has not heard of yet.
    pub(crate) fn awaits_fleet(&self) -> bool {
        self.setup.awaits_fleet && self.life.turned_ns < self.life.begun_ns + AWAITED_NS
    }

    /// Waits for the backends that a new setup names anew, or says something else of.
    pub(crate) fn await_named(&mut self, next: &Setup, now_ns: u64) {
        for (backend, after) in next.backends.pairs() {
            let Some(before) = self.setup.backends.get(backend) else { return };
            if is_named_anew(before.said(), after.said()) {
                self.links.backends[backend].await_since(now_ns);
            }
        }
    }

    /// Writes since when a backend is waited for, and by which words of the setup.
    pub(crate) fn hand_over_wait(&self, backend: BackendId, out: &mut Writer<'_>) {
        backend.write(out);
        self.setup.backends[backend].said().write(out);
        time::write(&self.links.backends[backend].awaited_since_ns, out);
    }

    /// Goes on waiting for it, unless the setup that holds here names it anew.
    pub(crate) fn take_wait(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let backend = BackendId::read(from)?;
        let (before, since_ns) = (Option::<Intake>::read(from)?, time::read(from)?);
        let setup = self.setup.backends.get(backend).ok_or(Broken::Invalid("backend"))?;
        let state = &mut self.links.backends[backend];
        // Until then a successor waits from its own start.
        let start_ns = state.awaited_since_ns;
        if is_named_anew(before, setup.said()) {
            state.await_since(start_ns);
        } else {
            state.awaited_since_ns = since_ns.min(start_ns);
        }
        Ok(())
    }
}

/// Whether a setup says of a backend that somebody may come there, and the one before has not said
/// it so.
fn is_named_anew(before: Option<Intake>, after: Option<Intake>) -> bool {
    before != after && after.is_some_and(|intake| intake != Intake::Nobody)
}

/// A process that was started together with the gateway, or that has just registered itself, has
/// connected by then, and a client asks for longer.
const AWAITED_NS: u64 = 5_000_000_000;
