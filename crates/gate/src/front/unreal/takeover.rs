//! Datagrams of addresses that have no session here, at a gateway of a cluster: another one may
//! have it, or has had it.
//!
//! ```text
//! early       its owner gives it to this gateway, and it is not here yet      waits for it
//! orphan      its owner is gone: is it believed to be the player's?           the arbiter is asked
//! elsewhere   another gateway has it                                          goes there
//! ```

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::taking::Taking;
use crate::front::unreal::state::UnrealFront;
use crate::shared::standbys::Found;
use crate::turn::Turn;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::Classified;

impl UnrealFront {
    /// A datagram of an address without a session here. Whether another one looks at it.
    pub(crate) fn step_elsewhere(
        &mut self,
        turn: &mut Turn<'_>,
        origin: &Origin,
        classified: &Classified<'_>,
        bytes: &[u8],
    ) -> Result<bool, DropReason> {
        let claims = Arc::clone(&turn.common.claims);
        let Some(standbys) = claims.standbys() else {
            return turn.common.send_elsewhere(turn.now, origin, bytes);
        };
        let is_forwarded = origin.forwarded_by.is_some();
        if !self.sessions.clusters.takeovers.under_way.is_empty()
            && is_forwarded
            && self.wait_for_session(turn.common, origin, bytes)
        {
            return Ok(true);
        }
        // Whoever shakes hands begins a connection of its own.
        if let Classified::Game(ids, _) = classified {
            match standbys.find(&origin.address, turn.now.mono_ns) {
                Some(Found::Try(record)) => {
                    let proof = record.proof.of_unreal().ok_or(DropReason::UnknownSource)?;
                    if *ids != proof.player_ids {
                        return Err(DropReason::UnrealIds);
                    }
                    return Err(self.claim_orphan(turn, standbys, origin, record));
                }
                Some(Found::Claimed) => return Err(DropReason::TakeoverAwaited),
                Some(Found::Limited) => return Err(DropReason::TakeoverLimited),
                None => {}
            }
        }
        if !is_forwarded {
            self.take_offered(turn, origin);
            return turn.common.send_elsewhere(turn.now, origin, bytes);
        }
        // Who has forwarded it may not have heard yet where its session has gone.
        match turn.common.elsewhere(&origin.address) {
            Some(Elsewhere::Member(_)) => Err(DropReason::UnknownSource),
            _ => Ok(false),
        }
    }
}
