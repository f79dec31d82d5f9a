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
use crate::counters::Ended;
use crate::front::cluster::taking::Taking;
use crate::front::rules::Rules;
use crate::front::unreal::session::Session;
use crate::front::unreal::state::UnrealFront;
use crate::shared::standbys::Found;
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_cluster::Record;
use ringgate_core::drops::DropReason;
use ringgate_core::proto::unreal::front::Classified;
use ringgate_core::proto::unreal::prefix::Ids;

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
        if origin.forwarded_by.is_some() && self.wait_for_session(turn.common, origin, bytes) {
            return Ok(true);
        }
        // Whoever shakes hands begins a connection of its own.
        if let Classified::Game(ids, _) = classified
            && let Some(found) = standbys.find(&origin.address, turn.now.mono_ns)
        {
            let why = match found {
                Found::Try(record) if is_players(&record, *ids) => {
                    match self.claim_orphan(turn, standbys, origin, record) {
                        why @ DropReason::TakeoverRefused => why,
                        why => return Err(why),
                    }
                }
                Found::Try(_) => DropReason::UnrealIds,
                Found::Claimed => return Err(DropReason::TakeoverAwaited),
                Found::Limited => DropReason::TakeoverLimited,
            };
            let is_sent = turn.common.send_on_from_orphans(turn.now, origin, bytes)?;
            return if is_sent { Ok(true) } else { Err(why) };
        }
        self.send_elsewhere(turn, origin, bytes)
    }

    /// A packet that the session of its address has refused, which has been silent for a while: its
    /// player may have had a later one elsewhere, whose owner is gone. That goes on here then, in
    /// the place of the one that the player has left. What becomes of the packet.
    pub(crate) fn claim_later(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
        ids: Ids,
    ) -> Option<DropReason> {
        let claims = Arc::clone(&turn.common.claims);
        let standbys = claims.standbys()?;
        let Found::Try(record) = standbys.find(&origin.address, turn.now.mono_ns)? else {
            return None;
        };
        if !is_players(&record, ids) {
            return None;
        }
        self.end(turn, index, Ended::Replaced);
        Some(self.claim_orphan(turn, standbys, origin, record))
    }
}

/// Whether the player of a session whose owner is gone has such ids.
fn is_players(record: &Record, ids: Ids) -> bool {
    record.proof.of_unreal().is_some_and(|proof| proof.player_ids == ids)
}
