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

/// All of them. Those whose players have left come last.
pub(crate) struct Overs {
    pub(crate) waiting: BTreeMap<Name, Over>,
    pub(crate) due_ns: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Over {
    pub(crate) backend: BackendId,
    /// As whom this gateway has had it.
    pub(crate) tenure: Tenure,
}

/// What the player of a session that has ended does where that goes on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Player {
    /// It may play on: it did not want the end, and may not have heard of it.
    MayPlayOn,
    /// It says nothing more, so the session times out wherever it goes on.
    HasLeft,
}

type Name = (Player, SessionId);

/// An end that no arbiter hears of from here.
pub(crate) struct Forgotten;

impl Overs {
    pub(crate) fn new() -> Self {
        Self { waiting: BTreeMap::new(), due_ns: u64::MAX }
    }

    /// A session is over. Where there is no room, the end of one whose player has left is
    /// forgotten first, because that session ends by itself. Otherwise the new end is: so players
    /// who have many sessions end push out no end that waits.
    pub(crate) fn note(&mut self, (player, session): Name, over: Over) -> Result<(), Forgotten> {
        self.waiting.insert((player, session), over);
        self.due_ns = 0;
        if self.waiting.len() <= WAITING_MAX {
            return Ok(());
        }
        let last = self.waiting.keys().next_back().copied();
        let left = last.filter(|(player, _)| *player == Player::HasLeft);
        self.waiting.remove(&left.unwrap_or((player, session)));
        Err(Forgotten)
    }

    /// An arbiter says that a session has ended.
    pub(crate) fn hear_ended(&mut self, session: SessionId) {
        for player in [Player::MayPlayOn, Player::HasLeft] {
            self.waiting.remove(&(player, session));
        }
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
        for ((player, session), over) in waiting.iter().skip(some.start).take(some.len()) {
            let Over { backend, tenure } = over;
            (*player == Player::HasLeft).write(out);
            session.write(out);
            tenure.write(out);
            backend.write(out);
        }
    }

    /// Reads the next one that was written.
    pub(crate) fn read(from: &mut Reader<'_>) -> Result<(Name, Over), Broken> {
        let player = if bool::read(from)? { Player::HasLeft } else { Player::MayPlayOn };
        let (session, tenure) = (SessionId::read(from)?, Tenure::read(from)?);
        Ok(((player, session), Over { backend: BackendId::read(from)?, tenure }))
    }
}

impl Player {
    /// Of a session that has ended so.
    pub(crate) const fn of(why: Ended) -> Self {
        match why {
            Ended::ByPlayer | Ended::NewerLogin | Ended::Replaced => Self::HasLeft,
            _ => Self::MayPlayOn,
        }
    }
}

/// Whether a session that ends so is over for its player, wherever that may be heard. Its gateway
/// may be the only one that thinks otherwise where it hears nothing, or where packets have come to
/// another one for a while and those that come again have other numbers than it expects.
pub(crate) const fn is_for_good(why: Ended) -> bool {
    !matches!(
        why,
        Ended::BackendGone
            | Ended::ByArbiter
            | Ended::Fenced
            | Ended::NotCarried
            | Ended::SequenceGap
            | Ended::TimedOut
    )
}

/// Sessions whose ends an arbiter has not heard of, of a worker.
pub(crate) const WAITING_MAX: usize = 1 << 14;
