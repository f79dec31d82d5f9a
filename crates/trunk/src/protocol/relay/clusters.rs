//! What a relay knows of sessions that go from one gateway to another.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ringgate_cluster::{Player, Tenure};
use ringgate_link::bundle::{ClusterId, Frame, SessionId};

use crate::protocol::arbitration::Arbitration;
use crate::protocol::games::Game;

/// What a relay knows of sessions of clusters: nothing where no gateway has announced one.
#[derive(Debug, Default)]
pub(super) struct OfClusters {
    pub(super) arbitration: Option<Arc<Arbitration>>,
    /// The gateway of this worker has announced a session, which may be another one's since.
    pub(super) is_used: bool,
    /// Another process had the lane. It did not say which sources without a slot game processes
    /// know.
    pub(super) is_inherited: bool,
    /// What the gateway of this worker has announced, by this worker's numbers.
    pub(super) held: HashMap<SessionId, Held>,
    /// What it has moved from one game process here to another, by the link of the first, until its
    /// last word comes there: it may come behind the announcement on the other link.
    pub(super) moved: HashMap<(SessionId, u16), Held>,
    /// Those of which the gateway has said whose they are, and that are not held: sources without a
    /// slot, and sessions for which there was no room.
    pub(super) waiting: HashMap<SessionId, Waiting>,
    /// Those that a game process here knows.
    pub(super) homes: HashMap<SessionId, Homed>,
    /// Whose opening follows, and goes no further.
    pub(super) muted: Vec<SessionId>,
    /// What that gateway has given away, the oldest first: more of it may come.
    pub(super) left: VecDeque<SessionId>,
    /// Packets that were refused, by the arbiter's reasons.
    pub(super) refused: RefusedPackets,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) id: ClusterId,
    pub(super) tenure: Tenure,
    /// The link on which it was announced; none where that was to a process before this one.
    pub(super) link: Option<u16>,
}

#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) game: Game,
    pub(super) id: ClusterId,
    pub(super) tenure: Tenure,
    pub(super) player: Player,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Homed {
    pub(super) id: ClusterId,
    pub(super) game: Game,
}

/// Payloads of clustered sessions that went no further, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedPackets {
    /// Their gateway does not have the session any more. Its other records are counted as well.
    pub fenced: u64,
    /// They were handed over before.
    pub replayed: u64,
    /// The session has ended, or was never announced.
    pub session_over: u64,
}

/// What goes to another local worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed<'a> {
    /// A gateway has said this to a game process whose home is there.
    ForGame(Game, u8, Frame<'a>),
    /// The game process says this, whose link to that worker's gateway has this number.
    FromGame(u16, Frame<'a>),
    /// The game process has lost a link by which it knows sessions of the gateway there: the link
    /// with this number ends, and all sessions are announced again.
    HomeLost(u16),
    /// The gateway there does not have that session any more, and is told so.
    Fenced(u16, Option<SessionId>, Frame<'a>),
}

impl OfClusters {
    pub(super) fn is_empty(&self) -> bool {
        !self.is_used && self.homes.is_empty()
    }

    /// What a session is called that a game process here knows, and who decides about it.
    pub(super) fn known(&self, session: SessionId) -> Option<(ClusterId, &Arbitration)> {
        let home = self.homes.get(&session)?;
        Some((home.id, self.arbitration.as_deref()?))
    }

    /// What the gateway has announced under a number, and means on a link.
    pub(super) fn held_on(&self, link: u16, session: SessionId) -> Option<Held> {
        let held = self.held.get(&session).filter(|it| it.link.is_none_or(|own| own == link));
        held.or_else(|| self.moved.get(&(session, link))).copied()
    }

    /// The gateway has it no more. What it has announced under that number on another link is known
    /// again: that may have been announced first, too.
    pub(super) fn leave(&mut self, link: u16, session: SessionId) {
        if self.moved.remove(&(session, link)).is_none() {
            self.held.remove(&session);
            let other = self.moved.extract_if(|(it, _), _| *it == session).next();
            self.held.extend(other.map(|((session, _), held)| (session, held)));
        }
    }
}
