//! Says to arbiters that sessions of a cluster are over, until they answer.

use crate::front::netcode::overs::Over;
use crate::front::netcode::state::NetcodeFront;
use crate::front::netcode::takeovers::{ASK_EVERY_NS, arbiter_of};
use crate::links::state::Load;
use crate::turn::Turn;

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
