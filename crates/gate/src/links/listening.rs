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
use ringgate_batch::Endpoint;

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

    /// Whether a backend that could be chosen has not been there since the gateway started, which
    /// was a moment ago: game processes are still connecting, and a denial would be final.
    pub(crate) fn is_still_starting(
        &self,
        mut candidates: impl Iterator<Item = BackendId>,
    ) -> bool {
        let is_awaited = |backend: BackendId| {
            !self.links.backends[backend].has_been_up && !self.setup.backends[backend].retired
        };
        self.life.turned_ns < self.life.started_ns + START_NS && candidates.any(is_awaited)
    }
}

/// A process that was started together with the gateway has connected by then, and a client asks
/// for longer.
const START_NS: u64 = 5_000_000_000;
