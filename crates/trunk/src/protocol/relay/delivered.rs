//! What a relay knows of players whose messages are delivered here: nothing where there are none.

use std::collections::{BTreeSet, HashMap, HashSet};

use ringgate_core::delivery::{Counts, End, Fault, Traffic};
use ringgate_core::limits::PAYLOAD_BYTES_MAX;
use ringgate_link::bundle::{BUNDLE_BYTES_MAX, CloseReason, SessionId};

use crate::protocol::games::Game;

/// The ends of a local worker.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) now_ns: u64,
    pub(super) all: HashMap<SessionId, Box<Delivered>>,
    /// Those that are looked after at the end of the turn.
    pub(super) touched: Vec<SessionId>,
    /// When to look after others.
    pub(super) due: BTreeSet<(u64, SessionId)>,
    /// Game processes whose links have no room for what must arrive.
    pub(super) full: HashSet<Game>,
    /// Those for which so much waits that gateways are to send them no messages.
    pub(super) crowded: HashSet<Game>,
    /// Gateways know of all of those.
    pub(super) is_room_told: bool,
    pub(super) record: Vec<u8>,
    pub(super) packet: Vec<u8>,
    pub(super) counts: DeliveredCounts,
}

/// What a session has whose messages are delivered here.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) game: Game,
    pub(super) end: End,
    pub(super) keep_alive_ns: u64,
    /// What of its counts stands in the traffic already.
    pub(super) counted: Counts,
    /// The player has been heard since it was let in: until then it drops payloads.
    pub(super) is_there: bool,
    /// The game process was told that no more should be sent.
    pub(super) is_full: bool,
    /// The game process has closed the session: until when it goes on, and why it ends.
    pub(super) linger: Option<(u64, CloseReason)>,
    /// It ends for this reason: its gateway was asked to end it, at that time.
    pub(super) over: Option<(CloseReason, u64)>,
    /// Since when the agent does not know the session: it has ended, and that is about to be said.
    pub(super) forgotten_ns: Option<u64>,
    pub(super) is_touched: bool,
    pub(super) due_ns: Option<u64>,
}

/// What has been delivered here, and what went no further. All only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveredCounts {
    /// What has been said.
    pub traffic: Traffic,
    /// Packets of players whose game process had no room for what they say.
    pub deferred: u64,
    /// Packets that came late, or after the end.
    pub late: u64,
    /// Messages for players who have none, or are about to leave.
    pub unknown: u64,
    /// Payloads that are too long for a message.
    pub too_long: u64,
    /// Messages that found no room: their sessions have ended.
    pub overflow: u64,
    /// Sessions that were closed and whose time was up before everything had arrived.
    pub linger_expired: u64,
    /// Sessions whose players have broken a rule of the layer, by fault.
    pub faults: [u64; Fault::ALL.len()],
}

impl DeliveredCounts {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        let Self { traffic, deferred, late, unknown, too_long, overflow, .. } = other;
        self.traffic.merge(traffic);
        self.deferred += deferred;
        self.late += late;
        self.unknown += unknown;
        self.too_long += too_long;
        self.overflow += overflow;
        self.linger_expired += other.linger_expired;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
    }

    /// Sessions that were ended here, by name.
    pub fn ended(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let faults = Fault::ALL.iter().map(|fault| (fault.name(), self.faults[*fault as usize]));
        let others =
            [("delivery_overflow", self.overflow), ("linger_expired", self.linger_expired)];
        faults.chain(others)
    }
}

/// How long who was closed after delivery goes on at most when the next process is there. Players
/// who are there have acknowledged everything by then.
const HURRIED_NS: u64 = 3_000_000_000;

impl Ends {
    pub(super) fn touch(&mut self, session: SessionId) {
        let Some(it) = self.all.get_mut(&session) else { return };
        if !std::mem::replace(&mut it.is_touched, true) {
            self.touched.push(session);
        }
    }

    pub(super) fn set_due(&mut self, session: SessionId, due_ns: Option<u64>) {
        let Some(it) = self.all.get_mut(&session) else { return };
        if let Some(before_ns) = std::mem::replace(&mut it.due_ns, due_ns) {
            self.due.remove(&(before_ns, session));
        }
        if let Some(due_ns) = due_ns {
            self.due.insert((due_ns, session));
        }
    }

    /// The next process waits for the link of this one.
    pub(super) fn hurry(&mut self, game: Game) {
        let soon_ns = self.now_ns + HURRIED_NS;
        let of_it = self.all.iter_mut().filter(|(_, it)| it.game == game);
        let hurried = of_it.filter_map(|(session, it)| {
            let (until_ns, _) = it.linger.as_mut()?;
            *until_ns = soon_ns.min(*until_ns);
            Some(*session)
        });
        hurried.collect::<Vec<_>>().into_iter().for_each(|session| self.touch(session));
    }

    pub(super) fn put(&mut self, session: SessionId, it: Delivered) {
        if self.packet.is_empty() {
            (self.packet, self.record) = (vec![0; PAYLOAD_BYTES_MAX], vec![0; BUNDLE_BYTES_MAX]);
        }
        // A number may stand for another session by now.
        self.take(session);
        self.all.insert(session, Box::new(it));
        self.touch(session);
    }

    pub(super) fn take(&mut self, session: SessionId) -> Option<Box<Delivered>> {
        self.set_due(session, None);
        self.all.remove(&session)
    }
}

impl Delivered {
    pub(super) fn new(game: Game, keep_alive_ns: u64, end: End) -> Self {
        let counted = end.counts();
        Self {
            game,
            end,
            keep_alive_ns,
            counted,
            is_there: false,
            is_full: false,
            linger: None,
            over: None,
            forgotten_ns: None,
            is_touched: false,
            due_ns: None,
        }
    }
}
