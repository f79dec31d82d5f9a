//! Sessions of clusters that have ended here for good, until their arbiters say that they know.
//!
//! The link may be lost when a session ends, and a standby may go on with the session before the
//! arbiter hears of its end. So that is said on each link anew, whichever gateway has the session by
//! then.

use std::collections::HashMap;

use crate::counters::Ended;
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::takeovers::{ASK_EVERY_NS, arbiter_of};
use crate::ids::BackendId;
use crate::links::state::Load;
use crate::turn::Turn;
use ringgate_cluster::{SessionId, Tenure};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// All of them.
pub(crate) struct Overs {
    waiting: HashMap<SessionId, Over>,
    due_ns: u64,
}

#[derive(Clone, Copy)]
struct Over {
    backend: BackendId,
    /// As whom this gateway has had it.
    tenure: Tenure,
}

impl Overs {
    pub(crate) fn new() -> Self {
        Self { waiting: HashMap::new(), due_ns: u64::MAX }
    }

    pub(crate) const fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// A session is over, whose arbiter is behind a backend.
    pub(crate) fn note(&mut self, session: SessionId, backend: BackendId, tenure: Tenure) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.insert(session, Over { backend, tenure });
            self.due_ns = 0;
        }
    }

    /// An arbiter says that a session has ended.
    pub(crate) fn hear_ended(&mut self, session: SessionId) {
        self.waiting.remove(&session);
        if self.waiting.is_empty() {
            self.due_ns = u64::MAX;
        }
    }

    /// Writes them for the next process.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { waiting, due_ns: _ } = self;
        (waiting.len() as u32).write(out);
        for (session, Over { backend, tenure }) in waiting {
            session.write(out);
            tenure.write(out);
            backend.write(out);
        }
    }

    /// Goes on with them, but for those of a backend that is not there any more.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        for _ in 0..u32::read(from)? {
            let (session, tenure) = (SessionId::read(from)?, Tenure::read(from)?);
            match BackendId::read(from) {
                Err(Broken::Foreign) => {}
                backend => self.note(session, backend?, tenure),
            }
        }
        Ok(())
    }
}

/// Whether a session that ends so is over for its player, wherever that may be heard. Its gateway
/// may be the only one that thinks otherwise where it hears nothing.
pub(crate) const fn is_for_good(why: Ended) -> bool {
    !matches!(
        why,
        Ended::BackendGone | Ended::ByArbiter | Ended::Fenced | Ended::NotCarried | Ended::TimedOut
    )
}

impl NetcodeFront {
    /// Tells arbiters of sessions that are over, until they answer.
    pub(crate) fn tell_overs(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now.mono_ns;
        if now_ns < self.clusters.overs.due_ns {
            return;
        }
        for (session, Over { backend, tenure }) in &self.clusters.overs.waiting {
            // Lost where there is no room: it is said again.
            if let Some(link) = arbiter_of(turn.common, *backend) {
                let (id, tenure) = (session.0, tenure.number());
                turn.append(link, Load::NONE, |writer| writer.over(&id, tenure));
            }
        }
        let is_over = self.clusters.overs.waiting.is_empty();
        self.clusters.overs.due_ns = if is_over { u64::MAX } else { now_ns + ASK_EVERY_NS };
    }
}

/// Sessions whose ends an arbiter has not heard of, of a worker. What is beyond that is lost, as it
/// is where this gateway dies.
const WAITING_MAX: usize = 1 << 14;
