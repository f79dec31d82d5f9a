//! Players on their way from one game process to another: what was offered to whom, and what is
//! said about it.
//!
//! The worker that has the session decides everything, in its own order: both processes have links
//! to it. So a player is with the one process up to the record in which the other one says yes, and
//! with the other from there on. What both believe may lag; what takes effect does not. Only the
//! slot that is kept meanwhile is agreed on with other workers, in the claims.
//!
//! ```text
//!               ask                       yes                          heard, gone, time
//!   (plays here) ──▶ Offered (plays here) ──▶ Unheard (plays nowhere) ──▶ (plays there)
//!                        │                       only if it was wanted
//!                        ▼ no, time, somebody is gone, somebody is taken away
//!                    (plays here)
//! ```
//!
//! What is said of it stands in `offering`, and what becomes of the session itself is its front's
//! business (`front/netcode/moving`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::ids::{BackendId, Slot};
use crate::now::NS_PER_MS;
use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};
use ringgate_link::bundle::{
    Channel, MOVE_MS_MAX, MoveRefusal, SHORT_MESSAGE_BYTES_MAX, SessionId,
};

/// All that are under way.
pub(crate) struct Moves {
    pub(crate) all: BTreeMap<SessionId, UnderWay>,
    /// The number of the last offer. Begins with the time, so that those of a process before are
    /// smaller.
    pub(crate) serial: u64,
    /// When the first of them has taken too long; `u64::MAX` where there is none.
    due_ns: u64,
    /// Something has changed that may end some of them.
    is_doubtful: bool,
}

/// A move that is under way.
pub(crate) struct UnderWay {
    pub(crate) from: Side,
    pub(crate) to: Side,
    /// The slot that is kept for the player there, until it is the player's.
    pub(crate) slot: Slot,
    /// Whether it is: not in a process that has found it taken.
    pub(crate) is_kept: bool,
    pub(crate) ticket: u64,
    pub(crate) offer: u64,
    pub(crate) confirms: bool,
    /// What the player is sent in between.
    pub(crate) message: Option<(Channel, Box<[u8]>)>,
    pub(crate) until_ns: u64,
    pub(crate) time_ns: u64,
    pub(crate) stage: Stage,
    pub(crate) asker: Asker,
}

/// One of the two game processes: its backend, and which of the links there have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) backend: BackendId,
    pub(crate) epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The other process was asked.
    Offered,
    /// The player has gone over, and the process that it has left is waited for.
    Unheard,
}

ringgate_core::carried_by_number!(Stage { Offered = 0, Unheard = 1 });

/// Who wants to know what becomes of it.
pub(crate) enum Asker {
    Process,
    Outside(Arc<MoveOrder>),
    /// One outside of the process before.
    Nobody,
}

/// An operator's wish that a player plays elsewhere, and what has become of it.
#[derive(Debug)]
pub struct MoveOrder {
    pub(crate) session: SessionId,
    pub(crate) to: BackendId,
    pub(crate) ticket: u64,
    pub(crate) time_ms: u32,
    pub(crate) confirms: bool,
    pub(crate) data: Box<[u8]>,
    outcome: Mutex<Option<Result<(), MoveRefusal>>>,
}

impl MoveOrder {
    /// A wish that the player of this session plays at that backend, whose process has so long to
    /// say yes.
    pub fn new(session: SessionId, to: BackendId, time_ms: u32) -> Self {
        let (ticket, confirms, data) = (0, false, Box::default());
        Self { session, to, ticket, time_ms, confirms, data, outcome: Mutex::new(None) }
    }

    /// With a ticket and some bytes for that process.
    #[must_use]
    pub fn with(self, ticket: u64, data: Box<[u8]>) -> Self {
        Self { ticket, data, ..self }
    }

    /// That process is told that it has the player when the other one has heard that it has not.
    #[must_use]
    pub fn confirmed(self) -> Self {
        Self { confirms: true, ..self }
    }

    /// What has become of it, once that is known.
    pub fn outcome(&self) -> Option<Result<(), MoveRefusal>> {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settle(&self, outcome: Result<(), MoveRefusal>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }
}

impl Moves {
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { all: BTreeMap::new(), serial: now_ns, due_ns: u64::MAX, is_doubtful: false }
    }

    /// Whether nobody is moved.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Slots that are kept for players who may come.
    pub(crate) fn slots_kept(&self) -> usize {
        self.all.values().filter(|it| it.stage == Stage::Offered && it.is_kept).count()
    }

    /// When to look after them.
    pub(crate) const fn due_ns(&self) -> u64 {
        if self.is_doubtful { 0 } else { self.due_ns }
    }

    /// A link has come or gone, or something else by which a move may end.
    pub(crate) fn doubt(&mut self) {
        self.is_doubtful |= !self.all.is_empty();
    }

    /// Whether a player has gone over to a process that is to be told later.
    pub(crate) fn is_unheard(&self, session: SessionId) -> bool {
        self.all.get(&session).is_some_and(|it| it.stage == Stage::Unheard)
    }

    /// What the player of a session is to be sent when it goes over.
    pub(crate) fn message_of(&self, session: SessionId) -> Option<(Channel, &[u8])> {
        let (channel, bytes) = self.all.get(&session)?.message.as_ref()?;
        Some((*channel, bytes))
    }

    /// The sessions whose moves have to be looked at, if any have.
    pub(crate) fn take_doubtful(&mut self, now_ns: u64) -> Vec<SessionId> {
        let is_due = now_ns >= self.due_ns;
        if !std::mem::take(&mut self.is_doubtful) && !is_due {
            return Vec::new();
        }
        self.all.keys().copied().collect()
    }

    pub(crate) fn insert(&mut self, session: SessionId, it: UnderWay) {
        self.due_ns = self.due_ns.min(it.until_ns);
        self.all.insert(session, it);
    }

    pub(crate) fn remove(&mut self, session: SessionId) -> Option<UnderWay> {
        let removed = self.all.remove(&session)?;
        self.due_ns = self.all.values().map(|it| it.until_ns).min().unwrap_or(u64::MAX);
        Some(removed)
    }
}

ringgate_core::numbered! {
    /// What was moved away from a backend and to it. Starts anew with the backend's number.
    pub struct BackendMoves;
    /// Players who have come from another game process.
    moved_in,
    /// Players who have gone to another.
    moved_out,
}

impl Moves {
    /// The sessions of all.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.all.keys().copied()
    }

    /// Writes one for the next process.
    pub(crate) fn hand_over(&self, session: SessionId, out: &mut Writer<'_>) {
        let Some(it) = self.all.get(&session) else { return };
        let UnderWay {
            from,
            to,
            slot,
            is_kept: _,
            ticket,
            offer,
            confirms,
            message,
            until_ns,
            time_ns,
            stage,
            asker,
        } = it;
        session.as_u64().write(out);
        from.write(out);
        to.write(out);
        slot.write(out);
        (*ticket, *offer).write(out);
        confirms.write(out);
        time::write(until_ns, out);
        time_ns.write(out);
        stage.write(out);
        matches!(asker, Asker::Process).write(out);
        message.is_some().write(out);
        if let Some((channel, bytes)) = message {
            channel.to_bytes().write(out);
            bytes.to_vec().write(out);
        }
    }

    /// Goes on with it, once the slots are known to be free (`Common::settle_moves`).
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let session = SessionId::from_u64(u64::read(from)?).ok_or(Broken::Invalid("session"))?;
        let (source, to) = (Side::read_known(from)?, Side::read_known(from)?);
        let slot = Slot::read(from)?;
        let (ticket, offer) = <(u64, u64)>::read(from)?;
        let confirms = bool::read(from)?;
        let (until_ns, time_ns) = (time::read(from)?, u64::read(from)?);
        let stage = Stage::read(from)?;
        let asker = if bool::read(from)? { Asker::Process } else { Asker::Nobody };
        let message = if bool::read(from)? {
            let channel = Channel::from_bytes(Carry::read(from)?);
            let channel = channel.map_err(|_| Broken::Invalid("channel"))?;
            let bytes = Vec::<u8>::read(from)?.into_boxed_slice();
            if bytes.is_empty() || bytes.len() > SHORT_MESSAGE_BYTES_MAX {
                return Err(Broken::Invalid("message"));
            }
            Some((channel, bytes))
        } else {
            None
        };
        if time_ns > u64::from(MOVE_MS_MAX) * NS_PER_MS {
            return Err(Broken::Invalid("time"));
        }
        self.serial = self.serial.max(offer);
        let it = UnderWay {
            from: source,
            to,
            slot,
            is_kept: false,
            ticket,
            offer,
            confirms,
            message,
            until_ns,
            time_ns,
            stage,
            asker,
        };
        self.insert(session, it);
        Ok(())
    }
}

impl Side {
    pub(crate) fn write(self, out: &mut Writer<'_>) {
        let Self { backend, epoch } = self;
        backend.write(out);
        epoch.write(out);
    }

    /// Nobody's, where this process does not have the backend.
    pub(crate) fn read_known(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let backend = match BackendId::read(from) {
            Err(Broken::Foreign) => BackendId::NOBODYS,
            backend => backend?,
        };
        Ok(Self { backend, epoch: u32::read(from)? })
    }
}
