//! Says to arbiters that sessions of a cluster are over, until they answer.

use crate::common::Common;
use crate::front::cluster::overs::{Forgotten, Over, Overs, Player};
use crate::front::cluster::rules::Clustering;
use crate::front::cluster::takeovers::{ASK_EVERY_NS, arbiter_of};
use crate::links::state::Load;
use crate::turn::Turn;
use ringgate_cluster::SessionId;
use ringgate_core::carry::{Broken, Carry, Reader};

/// Sessions that are over, of whichever front.
pub(crate) trait Burying: Clustering {
    /// Tells arbiters of sessions that are over, until they answer.
    fn tell_overs(&mut self, turn: &mut Turn<'_>) {
        let now_ns = turn.now.mono_ns;
        if now_ns < self.clusters_mut().overs.due_ns {
            return;
        }
        for ((_, session), Over { backend, tenure }) in &self.clusters_mut().overs.waiting {
            // Lost where there is no room: it is said again.
            if let Some(link) = arbiter_of(turn.common, *backend) {
                let (id, tenure) = (session.0, tenure.number());
                turn.append(link, Load::NONE, |writer| writer.over(&id, tenure));
            }
        }
        let is_over = self.clusters_mut().overs.waiting.is_empty();
        self.clusters_mut().overs.due_ns = if is_over { u64::MAX } else { now_ns + ASK_EVERY_NS };
    }

    /// An arbiter is to hear that a session is over.
    fn note_over(&mut self, common: &Common, name: (Player, SessionId), over: Over) {
        let noted = self.clusters_mut().overs.note(name, over);
        if let (Err(Forgotten), Some(standbys)) = (noted, common.claims.standbys()) {
            standbys.note_end_untold();
        }
    }

    /// Goes on with what another process has noted, but for those of a backend that is not there
    /// any more.
    fn take_overs(&mut self, common: &Common, from: &mut Reader<'_>) -> Result<(), Broken> {
        for _ in 0..u32::read(from)? {
            match Overs::read(from) {
                Err(Broken::Foreign) => {}
                read => {
                    let (name, over) = read?;
                    self.note_over(common, name, over);
                }
            }
        }
        Ok(())
    }
}

impl<F: Clustering> Burying for F {}
