//! The gate's side of the links: which backend is reachable, and the bundles that grow over a turn.
//!
//! Payloads go into a large slot of the outgoing batch, one bundle per link and turn; when it is
//! full another is opened. A link that has no room loses payloads, by name, but never the records
//! that a game process must not miss: those are kept aside and go first as soon as there is room,
//! and until then payloads are dropped so that nothing overtakes them.

use crate::front::protocol::Front;
use crate::ids::{BackendId, LinkId};
use crate::links::backlog::Backlog;
use crate::moves::BackendMoves;
use crate::setup::{Backend, LinkKind};
use crate::traffic::BackendTraffic;
use ringgate_batch::{Credentials, Endpoint, LargeSlot, LocalIp, SocketId, TxBatch, TxTarget};
use ringgate_core::carry::{self, Broken, Carry, Reader, maybe_time, time};
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{
    Arbitrated, Assembly, Frames, GoodbyeReason, MessagePart, OFFERED_RECORD_BYTES_MAX,
    PART_OVERHEAD_BYTES, SessionId, VERSION_MAX, VERSION_MIN, Writer,
};
use std::collections::HashMap;

/// A connection on the worker's link socket.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one process")]
pub(crate) struct Link {
    pub(crate) socket: SocketId,
    pub(crate) credentials: Credentials,
    /// How many have connected before; 0 where that was to another process.
    pub(crate) serial: u64,
    /// Why the process may not be here: it is told so in the turn in which it has connected, or in
    /// the first one of a successor that does not have its backend any more.
    pub(crate) barred: Option<GoodbyeReason>,
    /// The backend it is, once it has said hello and was let in.
    pub(crate) backend: Option<BackendId>,
    /// What is spoken with it.
    pub(crate) version: u16,
    /// By `Arbitrated`: it says which gateway of a cluster has each of such players.
    pub(crate) arbitrates: [bool; Arbitrated::ALL.len()],
    /// The agent that it is has too much waiting for the process to take messages for it.
    pub(crate) is_crowded: bool,
    /// The process is gone; what it has said in its last moments is still being read.
    pub(crate) hung_up: bool,
    /// Its socket has brought all of that.
    pub(crate) has_ended: bool,
    /// What it has said and was not looked at yet.
    pub(crate) backlog: Backlog,
    /// Its socket is not read.
    pub(crate) is_held: bool,
    /// What it may still ask for in the turn with this number.
    pub(crate) allowance: u32,
    pub(crate) allowed_in: u64,
    /// When it was first looked at without a name.
    unidentified_since_ns: Option<u64>,
    /// The bundle of this turn.
    bundle: Option<Bundle>,
    /// Records that must not be lost and that the socket had no room for, in the order in which
    /// they were written.
    deferred: Vec<u8>,
    /// How many bytes at the start of `deferred` have come back in the flush at hand.
    came_back_bytes: usize,
    /// How many bytes of `deferred` are messages.
    deferred_message_bytes: usize,
    /// The message for a player that comes in several parts.
    pub(crate) assembly: Assembly,
    /// Players who have gone to another process, and since when: this one may not have heard yet.
    pub(crate) departed: HashMap<SessionId, u64>,
}

struct Bundle {
    slot: LargeSlot,
    len: usize,
    load: Load,
}

/// What a record carries that is counted, and what a bundle does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) payloads: u64,
    pub(crate) messages: u64,
}

impl Load {
    pub(crate) const NONE: Self = Self { payloads: 0, messages: 0 };
    pub(crate) const PAYLOAD: Self = Self { payloads: 1, messages: 0 };
    pub(crate) const MESSAGE: Self = Self { payloads: 0, messages: 1 };

    const fn add(&mut self, other: Self) {
        self.payloads += other.payloads;
        self.messages += other.messages;
    }
}

impl Link {
    pub(crate) fn new(socket: SocketId, credentials: Credentials) -> Self {
        Self {
            socket,
            credentials,
            serial: 0,
            barred: None,
            backend: None,
            version: VERSION_MIN,
            arbitrates: [false; Arbitrated::ALL.len()],
            is_crowded: false,
            hung_up: false,
            has_ended: false,
            backlog: Backlog::default(),
            is_held: false,
            allowance: 0,
            allowed_in: 0,
            unidentified_since_ns: None,
            bundle: None,
            deferred: Vec::new(),
            came_back_bytes: 0,
            deferred_message_bytes: 0,
            assembly: Assembly::new(),
            departed: HashMap::new(),
        }
    }

    /// A player has gone to another process. It is remembered until this one says that it has
    /// heard, or half a minute.
    pub(crate) fn note_departed(&mut self, session: SessionId, now_ns: u64) {
        if self.departed.len() >= DEPARTED_MAX {
            self.departed.retain(|_, since_ns| now_ns < *since_ns + DEPARTED_NS);
        }
        if self.departed.len() < DEPARTED_MAX {
            self.departed.insert(session, now_ns);
        }
    }

    /// Whether the process may be a backend and has not said which.
    pub(crate) const fn is_waiting_for_hello(&self) -> bool {
        self.backend.is_none() && self.barred.is_none()
    }

    /// Whether the process has had enough time to say who it is.
    pub(crate) fn is_overdue(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.unidentified_since_ns.get_or_insert(now_ns);
        self.backend.is_none() && now_ns >= since_ns + HELLO_NS
    }

    /// When to look at this link again, after a turn at `turned_ns`.
    pub(crate) fn due_ns(&self, turned_ns: u64) -> Option<u64> {
        let hello = self.unidentified_since_ns.filter(|_| self.backend.is_none());
        let retry = self.has_deferred().then_some(turned_ns + RETRY_NS);
        hello.map(|since_ns| since_ns + HELLO_NS).into_iter().chain(retry).min()
    }

    /// Keeps a record for later that must not be lost and for which there is no room now.
    pub(crate) fn defer(&mut self, record: impl FnOnce(&mut Writer<'_>) -> bool) {
        let mut buf = [0; CONTROL_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        let written = record(&mut writer);
        debug_assert!(written, "only payloads are longer than the control records' buffer");
        self.deferred.extend_from_slice(writer.bytes());
    }

    /// The same for a message, or a part of one.
    pub(crate) fn defer_message(&mut self, part: &MessagePart<'_>) {
        let (start, len) = (self.deferred.len(), PART_OVERHEAD_BYTES + part.bytes.len());
        self.deferred.resize(start + len, 0);
        let written = Writer::new(&mut self.deferred[start..]).message(part);
        debug_assert!(written, "there is room for exactly that");
        if written {
            self.deferred_message_bytes += len;
        } else {
            self.deferred.truncate(start);
        }
    }

    /// Whether so much is deferred that the process cannot be reading its link. Messages do not
    /// count: while anything is deferred, no more of them are taken from players.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.deferred.len() - self.deferred_message_bytes > DEFERRED_BYTES_MAX
    }

    /// What will never be sent: a bundle that was begun, and messages that wait.
    pub(crate) fn unsent(&self) -> Load {
        let mut unsent = self.bundle.as_ref().map_or(Load::NONE, |bundle| bundle.load);
        unsent.messages += load_of(&self.deferred).messages;
        unsent
    }

    /// Whether messages find room, here and with the agent.
    pub(crate) fn has_room(&self) -> bool {
        self.deferred.is_empty() && !self.is_crowded
    }

    /// Whether records are waiting for room.
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Whether a bundle is being written.
    pub(crate) fn is_open(&self) -> bool {
        self.bundle.is_some()
    }

    /// Whether a bundle is being written that has a record.
    pub(crate) fn has_records(&self) -> bool {
        self.bundle.as_ref().is_some_and(|bundle| bundle.len > 0)
    }

    /// Appends a record to this turn's bundle. False when there is no room in it (commit it and try
    /// again) or no large slot is left (flush and try again).
    pub(crate) fn append(
        &mut self,
        tx: &mut TxBatch,
        load: Load,
        record: impl FnOnce(&mut Writer<'_>) -> bool,
    ) -> bool {
        if self.bundle.is_none() {
            let Some(slot) = tx.open_large() else { return false };
            self.bundle = Some(Bundle { slot, len: 0, load: Load::NONE });
        }
        let bundle = self.bundle.as_mut().expect("opened above");
        let mut writer = Writer::resume(tx.large_mut(&bundle.slot), bundle.len);
        let written = record(&mut writer);
        bundle.len = writer.len();
        if written {
            bundle.load.add(load);
        }
        written
    }

    /// Hands this turn's bundle over to be sent. Returns what is in it; `None` where there is
    /// nothing, and then a slot that was opened in vain goes back with the next flush.
    pub(crate) fn commit(&mut self, tx: &mut TxBatch, tag: u64) -> Option<Load> {
        let Bundle { slot, len, load } = self.bundle.take()?;
        let target = TxTarget { socket: self.socket, peer: None, source: LocalIp::UNSPECIFIED };
        tx.commit_large(slot, len, target, tag).map(|_| load)
    }

    /// Begins this turn's bundle with what is deferred, as far as it fits.
    pub(crate) fn write_deferred(&mut self, tx: &mut TxBatch) {
        if self.deferred.is_empty() || self.bundle.is_some() {
            return;
        }
        let deferred = std::mem::take(&mut self.deferred);
        let mut written = 0;
        for frame in Frames::new(&deferred).map_while(Result::ok) {
            let load = Load { payloads: 0, messages: frame.ends_message().into() };
            if !self.append(tx, load, |writer| writer.frame(frame)) {
                break;
            }
            let len = frame.bytes().len();
            written += len;
            self.deferred_message_bytes -= if frame.is_message() { len } else { 0 };
        }
        self.deferred = deferred;
        self.deferred.drain(..written);
    }

    /// Keeps the records of a refused bundle that must not be lost; returns what is lost of it.
    ///
    /// They go before everything that is deferred already, because that was written later (it did
    /// not fit, or had to wait), and behind what the bundles before this one have brought back. A
    /// socket that has refused a bundle takes no later one of the same flush (`Driver::flush`), so
    /// nothing has overtaken them.
    pub(crate) fn take_back(&mut self, bundle: &[u8]) -> Load {
        let (waiting, mut lost) = (self.deferred.len(), load_of(bundle));
        for frame in Frames::new(bundle).map_while(Result::ok) {
            if frame.may_be_lost() {
                continue;
            }
            self.deferred.extend_from_slice(frame.bytes());
            if frame.is_message() {
                self.deferred_message_bytes += frame.bytes().len();
                lost.messages -= u64::from(frame.ends_message());
            }
        }
        let kept = self.deferred.len() - waiting;
        self.deferred[self.came_back_bytes..].rotate_right(kept);
        self.came_back_bytes += kept;
        lost
    }

    /// What comes back from now on was written after everything that is deferred.
    pub(crate) fn end_flush(&mut self) {
        self.came_back_bytes = 0;
    }
}

/// What is in a bundle.
pub(crate) fn load_of(bundle: &[u8]) -> Load {
    let mut load = Load::NONE;
    for frame in Frames::new(bundle).map_while(Result::ok) {
        load.add(Load { payloads: frame.payloads(), messages: frame.ends_message().into() });
    }
    load
}

/// Whether a process listens where a udp backend should, as was found out from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Not looked at.
    Never,
    Deserted,
    There,
}

/// What this worker knows about a backend.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about one process")]
pub(crate) struct BackendState {
    /// What players speak with it.
    pub(crate) front: Front,
    /// A listener sends players there.
    pub(crate) is_routed: bool,
    /// The link that has said hello as this backend.
    pub(crate) link: Option<LinkId>,
    /// Counts the links there have been: a session that was announced on an earlier one has to be
    /// announced again.
    pub(crate) epoch: u32,
    /// How often it has become reachable; a udp backend is from the start.
    pub(crate) arrivals: u64,
    /// The process has said on its link that it takes nobody new.
    pub(crate) is_closed: bool,
    /// Since when it is gone; `None` while it is reachable.
    pub(crate) gone_since_ns: Option<u64>,
    /// When a udp backend that is gone was last probed, or last refused something.
    pub(crate) probed_ns: u64,
    /// A probe is out and has not been refused yet.
    pub(crate) probe_open: bool,
    /// What was found out about a udp backend from outside.
    pub(crate) seen: Seen,
    /// It was there at some time since it is waited for, as far as is known.
    pub(crate) has_been_up: bool,
    /// Since when it is waited for: since a setup named it, or said something else of it.
    pub(crate) awaited_since_ns: u64,
    /// Where a udp backend listens.
    pub(crate) address: Option<Endpoint>,
    pub(crate) traffic: BackendTraffic,
    pub(crate) moves: BackendMoves,
}

impl BackendState {
    pub(crate) fn new(setup: &Backend, now_ns: u64) -> Self {
        match &setup.link {
            // No process has said hello yet.
            LinkKind::Bundle { .. } => Self {
                front: Front::Netcode,
                is_routed: false,
                link: None,
                epoch: 0,
                arrivals: 0,
                is_closed: false,
                gone_since_ns: Some(now_ns),
                probed_ns: 0,
                probe_open: false,
                seen: Seen::Never,
                has_been_up: false,
                awaited_since_ns: now_ns,
                address: None,
                traffic: BackendTraffic::default(),
                moves: BackendMoves::default(),
            },
            // Taken to be there until the kernel says that it is not.
            LinkKind::Udp { address } => Self {
                front: Front::Netcode,
                is_routed: false,
                link: None,
                epoch: 1,
                arrivals: 1,
                is_closed: false,
                gone_since_ns: None,
                probed_ns: 0,
                probe_open: false,
                seen: Seen::Never,
                has_been_up: true,
                awaited_since_ns: now_ns,
                address: Some(Endpoint::from(*address)),
                traffic: BackendTraffic::default(),
                moves: BackendMoves::default(),
            },
        }
    }

    /// It has answered, or what looked for it was not refused.
    pub(crate) fn come_back(&mut self) {
        self.arrivals += u64::from(self.gone_since_ns.take().is_some());
        self.probe_open = false;
        self.has_been_up = true;
        if self.seen == Seen::Deserted {
            self.seen = Seen::There;
        }
    }

    /// It is waited for from now on.
    pub(crate) fn await_since(&mut self, now_ns: u64) {
        self.has_been_up = self.is_up();
        self.awaited_since_ns = now_ns;
    }

    /// When to look whether a udp backend that is gone is back: not while it is known from outside
    /// that no process listens.
    pub(crate) fn probe_due_ns(&self) -> Option<u64> {
        let wait_ns = if self.probe_open { PROBE_ANSWER_NS } else { PROBE_EVERY_NS };
        let can_be_back = !self.is_up() && self.seen != Seen::Deserted && self.address.is_some();
        can_be_back.then_some(self.probed_ns + wait_ns)
    }

    /// Whether players can be sent there.
    pub(crate) fn is_up(&self) -> bool {
        self.gone_since_ns.is_none()
    }

    /// Whether it has been gone for longer than its players wait.
    pub(crate) fn is_lost(&self, setup: &Backend, now_ns: u64) -> bool {
        self.gone_since_ns.is_some_and(|since| now_ns >= since.saturating_add(setup.grace_ns))
    }
}

ringgate_core::carried_by_number!(Seen { Never = 0, Deserted = 1, There = 2 });

impl Carry for Link {
    fn write(&self, out: &mut carry::Writer<'_>) {
        let Self {
            socket,
            credentials,
            serial: _,
            barred,
            backend,
            version,
            // In records of their own.
            arbitrates: _,
            // The agent says it again.
            is_crowded: _,
            hung_up,
            // Told again, unless it is held.
            has_ended: _,
            backlog,
            is_held: _,
            // Given anew in each turn.
            allowance: _,
            allowed_in: _,
            unidentified_since_ns,
            // Of one turn.
            bundle: _,
            deferred,
            came_back_bytes: _,
            // It follows.
            deferred_message_bytes: _,
            // In a record of its own.
            assembly: _,
            // It is for names of drops only.
            departed: _,
        } = self;
        socket.write(out);
        credentials.write(out);
        barred.is_some().write(out);
        backend.write(out);
        version.write(out);
        hung_up.write(out);
        backlog.write(out);
        unidentified_since_ns.write(out);
        deferred.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut link = Self::new(SocketId::read(from)?, Credentials::read(from)?);
        link.barred = bool::read(from)?.then_some(GoodbyeReason::Unauthorised);
        match Carry::read(from) {
            Err(Broken::Foreign) => link.barred = Some(GoodbyeReason::NameUnknown),
            backend => link.backend = backend?,
        }
        link.version = u16::read(from)?;
        if !(VERSION_MIN..=VERSION_MAX).contains(&link.version) {
            return Err(Broken::Invalid("version of a link"));
        }
        link.hung_up = bool::read(from)?;
        link.backlog = Backlog::read(from)?;
        link.is_held = !link.backlog.is_empty();
        link.has_ended = link.hung_up && link.is_held;
        link.unidentified_since_ns = maybe_time::read(from)?;
        link.deferred = Vec::read(from)?;
        let deferred = Frames::new(&link.deferred).map_while(Result::ok);
        let messages = deferred.filter(|frame| frame.is_message());
        link.deferred_message_bytes = messages.map(|frame| frame.bytes().len()).sum();
        Ok(link)
    }
}

impl BackendState {
    /// Writes what is known. What the setup says is known there.
    pub(crate) fn hand_over(&self, out: &mut carry::Writer<'_>) {
        let Self {
            // From the setup, or from the sessions.
            front: _,
            is_routed: _,
            link,
            epoch,
            arrivals,
            // In a record of its own.
            is_closed: _,
            gone_since_ns,
            probed_ns,
            probe_open,
            seen,
            has_been_up,
            // In a record of its own.
            awaited_since_ns: _,
            address: _,
            traffic,
            // In a record of its own.
            moves: _,
        } = self;
        link.write(out);
        epoch.write(out);
        arrivals.write(out);
        gone_since_ns.write(out);
        probed_ns.write(out);
        probe_open.write(out);
        seen.write(out);
        has_been_up.write(out);
        traffic.write(out);
    }

    /// Goes on with it.
    pub(crate) fn take_over(&mut self, from: &mut Reader<'_>) -> Result<(), Broken> {
        self.link = Carry::read(from)?;
        self.epoch = u32::read(from)?;
        self.arrivals = u64::read(from)?;
        self.gone_since_ns = maybe_time::read(from)?;
        self.probed_ns = time::read(from)?;
        self.probe_open = bool::read(from)?;
        self.seen = Seen::read(from)?;
        self.has_been_up = bool::read(from)?;
        self.traffic = Carry::read(from)?;
        Ok(())
    }
}

/// What to do about a udp backend that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// It can be taken to be back.
    Answered,
    /// Send an empty datagram and see whether the kernel refuses it.
    Due,
    /// Nothing yet.
    Wait,
}

impl Probe {
    /// `can_probe` is false for a backend off loopback, whose refusals come back to sessions'
    /// sockets only: there the next player's packets are the probe.
    pub(crate) fn next(state: &BackendState, can_probe: bool, now_ns: u64) -> Self {
        if state.probe_due_ns().is_none_or(|due_ns| now_ns < due_ns) {
            Self::Wait
        } else if state.probe_open || !can_probe {
            Self::Answered
        } else {
            Self::Due
        }
    }
}

/// Often enough that a restarted game server has its players back at once, rare enough that its log
/// does not fill.
pub(crate) const PROBE_EVERY_NS: u64 = 500_000_000;

/// On loopback the kernel refuses within microseconds; a busy worker reads it a few turns later.
const PROBE_ANSWER_NS: u64 = 250_000_000;

/// A process that has connected says hello within this time.
const HELLO_NS: u64 = 5_000_000_000;

/// How soon a link that had no room is tried again, where nothing else happens.
const RETRY_NS: u64 = 10_000_000;

/// Openings and closings that may pile up for a process that does not read: about 3,000 players'
/// worth.
const DEFERRED_BYTES_MAX: usize = 1 << 20;

/// Players who have gone to another process, of one link.
const DEPARTED_MAX: usize = 4096;
const DEPARTED_NS: u64 = 30_000_000_000;

/// The longest record that is not a payload: an offer with its data.
const CONTROL_BYTES_MAX: usize = OFFERED_RECORD_BYTES_MAX;

const _: () = assert!(DEFERRED_BYTES_MAX > BUNDLE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_link::bundle::CloseReason;

    const CREDENTIALS: Credentials = Credentials { uid: 0, gid: 0, pid: 0 };

    #[test]
    fn a_refused_bundle_loses_payloads_and_keeps_endings_in_order() {
        let mut tx = TxBatch::new(1, 2);
        let mut link = Link::new(SocketId(3), CREDENTIALS);
        let session = |serial| SessionId::new(0, serial);
        assert!(link.append(&mut tx, Load::PAYLOAD, |w| w.payload(session(1), b"lost")));
        assert!(
            link.append(&mut tx, Load::NONE, |w| w.closed(session(1), CloseReason::PlayerLeft))
        );
        assert!(link.append(&mut tx, Load::PAYLOAD, |w| w.payload(session(2), b"lost too")));
        let both = Load { payloads: 2, messages: 0 };
        assert_eq!(link.commit(&mut tx, 9), Some(both));

        let entry = tx.entries()[0];
        let bytes = tx.bytes(&entry).to_vec();
        assert_eq!(link.take_back(&bytes), both);
        assert!(link.has_deferred() && !link.is_unresponsive());

        tx.end_flush();
        link.write_deferred(&mut tx);
        assert!(!link.has_deferred() && link.is_open());
        link.commit(&mut tx, 9);
        let entry = tx.entries()[0];
        let kept: Vec<_> = Frames::new(tx.bytes(&entry)).map_while(Result::ok).collect();
        assert_eq!(kept.len(), 1);
        assert!(!kept[0].may_be_lost());
    }
}
