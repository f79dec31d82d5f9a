//! Packets that have come before their turn, for as long as those before them may only be late.
//!
//! A network whose delay varies by more than what lies between two packets changes their order.
//! Packets are taken by number, so one that is overtaken would count as lost, and what it says
//! would take a round trip more. Instead, what has overtaken it waits: for at most
//! [`MISSING_MAX`] packets, and for as long as [`Options::reorder_ns`] says. While no packet has
//! come late for half a minute, none waits: then a gap is a loss, and waiting is in vain.
//!
//! [`Options::reorder_ns`]: super::Options::reorder_ns

use super::buffers::Buffers;
use crate::proto::notify::PacketSeq;

/// Packets that wait, oldest number first.
#[derive(Debug, Default)]
pub(super) struct Held {
    packets: Vec<Early>,
    buffers: Buffers,
    /// When a packet came late the last time.
    late_ns: Option<u64>,
}

#[derive(Debug)]
struct Early {
    number: PacketSeq,
    since_ns: u64,
    bytes: Vec<u8>,
}

impl Held {
    /// A packet has come behind a later one.
    pub(super) const fn handle_late(&mut self, now_ns: u64) {
        self.late_ns = Some(now_ns);
    }

    /// Whether a packet has come behind one that was taken, or that waits for it.
    pub(super) fn is_behind(&self, latest: PacketSeq, number: PacketSeq) -> bool {
        let first = self.packets.first().map_or(latest, |first| first.number);
        first.is_newer_than(number)
    }

    /// Whether packets come late at times.
    pub(super) fn is_wanted(&self, now_ns: u64) -> bool {
        self.late_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < REMEMBERED_NS)
    }

    /// Keeps a packet. `false` where it is here.
    pub(super) fn keep(&mut self, now_ns: u64, number: PacketSeq, packet: &[u8]) -> bool {
        let is_before = |other: &Early| number.is_newer_than(other.number);
        let place = self.packets.partition_point(is_before);
        if self.packets.get(place).is_some_and(|other| other.number == number) {
            return false;
        }
        let bytes = self.buffers.hold(packet);
        self.packets.insert(place, Early { number, since_ns: now_ns, bytes });
        true
    }

    /// The first packet, if its turn has come: nothing is missing before it, or what is missing
    /// is given up.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        latest: PacketSeq,
        reorder_ns: u64,
    ) -> Option<Vec<u8>> {
        let (first, last) = (self.packets.first()?, self.packets.last()?);
        let missing = last.number.distance_from(latest) - self.packets.len() as i64;
        let is_next = first.number.distance_from(latest) <= 1;
        let is_too_much = missing > MISSING_MAX || self.packets.len() > PACKETS_MAX;
        let is_due = self.due_ns(reorder_ns).is_some_and(|due_ns| due_ns <= now_ns);
        (is_next || is_too_much || is_due).then(|| self.packets.remove(0).bytes)
    }

    /// Takes the memory of a packet back.
    pub(super) fn release(&mut self, packet: Vec<u8>) {
        self.buffers.release(packet);
    }

    /// Until when what is missing is waited for.
    pub(super) fn due_ns(&self, reorder_ns: u64) -> Option<u64> {
        self.packets.iter().map(|packet| packet.since_ns.saturating_add(reorder_ns)).min()
    }

    /// What waits, waits anew.
    pub(super) fn wait_longer(&mut self, now_ns: u64) {
        self.packets.iter_mut().for_each(|packet| packet.since_ns = now_ns);
    }

    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.buffers = Buffers::default();
    }

    pub(super) fn trim(&mut self) {
        self.buffers.trim();
        self.packets.shrink_to_fit();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.buffers.heap_bytes() + self.packets.capacity() * size_of::<Early>()
    }
}

/// So many packets may be missing before those that wait.
const MISSING_MAX: i64 = 3;

/// So many wait at most.
const PACKETS_MAX: usize = 32;

/// A network that has changed the order of packets is expected to do it again for so long.
const REMEMBERED_NS: u64 = 30_000_000_000;
