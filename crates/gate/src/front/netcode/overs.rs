//! Sessions of clusters that have ended here for good, until their arbiters say that they know.
//!
//! The link may be lost when a session ends, and a standby may go on with the session before the
//! arbiter hears of its end. So that is said on each link anew (`over`), whichever gateway has the
//! session by then.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::counters::Ended;
use crate::ids::BackendId;
use ringgate_cluster::{SessionId, Tenure};
use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// All of them.
pub(crate) struct Overs {
    pub(crate) waiting: BTreeMap<SessionId, Over>,
    pub(crate) due_ns: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Over {
    pub(crate) backend: BackendId,
    /// As whom this gateway has had it.
    pub(crate) tenure: Tenure,
}

impl Overs {
    pub(crate) fn new() -> Self {
        Self { waiting: BTreeMap::new(), due_ns: u64::MAX }
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

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Writes some for the next process.
    pub(crate) fn hand_over(&self, some: Range<usize>, out: &mut Writer<'_>) {
        let Self { waiting, due_ns: _ } = self;
        (some.len() as u32).write(out);
        for (session, Over { backend, tenure }) in waiting.iter().skip(some.start).take(some.len())
        {
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

/// Sessions whose ends an arbiter has not heard of, of a worker. What is beyond that is lost, as it
/// is where this gateway dies.
const WAITING_MAX: usize = 1 << 14;
