//! Datagrams of sources that have no session here, at a gateway of a cluster: another one may have
//! it, or has had it.
//!
//! ```text
//! early       its owner gives it to this gateway, and it is not here yet      waits for it
//! orphan      its owner is gone: is it believed to be the player's?           the arbiter is asked
//! elsewhere   another gateway has it                                          goes there
//! ```

use std::sync::Arc;

use crate::arrivals::Origin;
use crate::counters::Ended;
use crate::elsewhere::Elsewhere;
use crate::front::cluster::taking::Taking;
use crate::front::plain::clustering::tag_of;
use crate::front::plain::datagrams::{JUMP_SILENCE_NS, Parts};
use crate::front::plain::session::Session;
use crate::front::plain::state::PlainFront;
use crate::front::rules::Rules;
use crate::now::NS_PER_MS;
use crate::setup::Plain;
use crate::shared::standbys::{Found, TakeoverRefusal};
use crate::store::entry::Entry;
use crate::turn::Turn;
use ringgate_cluster::Record;
use ringgate_core::drops::DropReason;

impl PlainFront {
    /// A source has begun here before this gateway has heard that another one has its session, or
    /// is to go on with it here. What it has begun is over then, and whether it is.
    pub(crate) fn give_way(
        &mut self,
        turn: &mut Turn<'_>,
        index: Entry<Session>,
        origin: &Origin,
    ) -> bool {
        let Some(standbys) = turn.common.claims.standbys() else { return false };
        let address = &origin.address;
        let is_anothers = origin.forwarded_by.is_none()
            && matches!(turn.common.elsewhere(address), Some(Elsewhere::Member(_)));
        if !is_anothers && !standbys.awaits(address) {
            return false;
        }
        self.end(turn, index, Ended::Replaced);
        true
    }

    /// A datagram that looks as it should, of a source without a session here. Whether another one
    /// looks at it; else it begins a session.
    pub(crate) fn step_elsewhere(
        &mut self,
        turn: &mut Turn<'_>,
        rules: &Plain,
        origin: &Origin,
        (parts, bytes): (&Parts<'_>, &[u8]),
    ) -> Result<bool, DropReason> {
        let claims = Arc::clone(&turn.common.claims);
        let Some(standbys) = claims.standbys() else { return Ok(false) };
        if origin.forwarded_by.is_some() && self.wait_for_session(turn.common, origin, bytes) {
            return Ok(true);
        }
        match standbys.find(&origin.address, turn.now.mono_ns) {
            Some(Found::Try(record)) => {
                if !believe(rules, &record, parts)? {
                    if u64::from(record.silent_ms) * NS_PER_MS < JUMP_SILENCE_NS {
                        return Err(DropReason::TokenSuperseded);
                    }
                    standbys.give_up(record.session, TakeoverRefusal::TokenSuperseded);
                    return Ok(false);
                }
                let why = self.claim_orphan(turn, standbys, origin, record);
                let is_refused = why == DropReason::TakeoverRefused;
                let is_sent =
                    is_refused && turn.common.send_on_from_orphans(turn.now, origin, bytes)?;
                if is_sent { Ok(true) } else { Err(why) }
            }
            Some(Found::Claimed) => Err(DropReason::TakeoverAwaited),
            Some(Found::Limited) => Err(DropReason::TakeoverLimited),
            None => self.send_elsewhere(turn, origin, bytes),
        }
    }
}

/// Whether a datagram from the address of a session whose owner is gone is its player's, as far as
/// that can be known: not where it comes with another token. Its number is judged once the arbiter
/// has said which were handed over.
fn believe(rules: &Plain, record: &Record, parts: &Parts<'_>) -> Result<bool, DropReason> {
    record.proof.of_plain().ok_or(DropReason::UnknownSource)?;
    match &rules.token {
        Some(token) if token.backends.get(parts.token).is_none() => Err(DropReason::TokenUnknown),
        _ => Ok(tag_of(parts.token) == record.token),
    }
}
