//! In which order and in which messages a batch leaves.
//!
//! Entries are sorted into one queue per socket, so that each socket costs one `sendmmsg` however
//! its entries lie among the others. Within a queue, entries for the same peer and source that have
//! the same length become one message with several segments (UDP GSO); the last segment may be
//! shorter.
//!
//! Invariant: the entries of one target keep their order. A message takes entries only while it is
//! the newest of its target, and messages leave in the order of their first entries.
//!
//! Everything is indices into reused arrays; nothing is allocated once they have grown to the size
//! of the batch.

use super::super::table::index_of;
use ringgate_batch::{SocketId, TxEntry, TxTarget};

/// What leaves in one message: entries that are chained by index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    /// The first entry.
    pub(super) first: u32,
    last: u32,
    /// How many entries.
    pub(super) count: u16,
    /// Bytes of all entries.
    pub(super) bytes: u32,
    /// Bytes of each segment but the last.
    pub(super) segment_bytes: u16,
    /// A shorter segment has been added: nothing may follow it.
    closed: bool,
    next: u32,
}

impl Message {
    /// A message of one entry.
    pub(super) fn single(index: u32, entry: &TxEntry) -> Self {
        Self {
            first: index,
            last: index,
            count: 1,
            bytes: entry.len() as u32,
            segment_bytes: entry.len() as u16,
            closed: entry.is_empty(),
            next: END,
        }
    }
}

/// The messages of one socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    pub(super) socket: SocketId,
    head: u32,
    tail: u32,
}

/// What a socket can do, as far as planning has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ability {
    /// The id names no socket.
    Gone,
    /// One entry, one message.
    Plain,
    /// Segments may share a message.
    Segments,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// For each entry, the next one of its message.
    next_entry: Vec<u32>,
    messages: Vec<Message>,
    queues: Vec<Queue>,
    /// By index of a socket: its queue and one, or 0.
    queue_of: Vec<u32>,
    newest: Newest,
}

impl Plan {
    /// Plans the sending of `entries`. Those that were taken are passed over; those of unknown
    /// sockets are reported to `gone` and left out.
    pub(super) fn make(
        &mut self,
        entries: &[TxEntry],
        ability: impl Fn(SocketId) -> Ability,
        mut gone: impl FnMut(u32),
    ) {
        self.reset(entries.len());
        for (index, entry) in (0_u32..).zip(entries) {
            if entry.is_taken() {
                continue;
            }
            match ability(entry.target.socket) {
                Ability::Gone => gone(index),
                Ability::Plain => self.start_message(index, entry),
                Ability::Segments => self.join_or_start(index, entries),
            }
        }
    }

    pub(super) fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The messages of a queue, in order.
    pub(super) fn messages(&self, queue: &Queue) -> impl Iterator<Item = &Message> {
        let mut next = queue.head;
        std::iter::from_fn(move || {
            let message = self.messages.get(next as usize)?;
            next = message.next;
            Some(message)
        })
    }

    /// The indices of a message's entries, in order.
    pub(super) fn entries(&self, message: &Message) -> impl Iterator<Item = u32> {
        let mut next = message.first;
        (0..message.count).map(move |_| {
            let entry = next;
            next = self.next_entry[entry as usize];
            entry
        })
    }

    fn reset(&mut self, entries: usize) {
        for queue in self.queues.drain(..) {
            self.queue_of[index_of(queue.socket)] = 0;
        }
        self.messages.clear();
        self.next_entry.clear();
        self.next_entry.resize(entries, END);
        self.newest.reset(entries);
    }

    fn join_or_start(&mut self, index: u32, entries: &[TxEntry]) {
        let entry = &entries[index as usize];
        let same = |message: u32| {
            let first = self.messages[message as usize].first as usize;
            entries[first].target == entry.target
        };
        match self.newest.find(hash(&entry.target), same) {
            Found::Message(place, message) => {
                if !self.join(message, index, entry) {
                    self.newest.set(place, self.messages.len() as u32);
                    self.start_message(index, entry);
                }
            }
            Found::Free(place) => {
                self.newest.set(place, self.messages.len() as u32);
                self.start_message(index, entry);
            }
            Found::Crowded => self.start_message(index, entry),
        }
    }

    /// Adds an entry as the next segment of a message, if it can be one.
    fn join(&mut self, message: u32, index: u32, entry: &TxEntry) -> bool {
        let message = &mut self.messages[message as usize];
        let segment_bytes = usize::from(message.segment_bytes);
        let fits = !message.closed
            && entry.len() <= segment_bytes
            && !entry.is_empty()
            && message.count < SEGMENTS_MAX
            && message.bytes as usize + entry.len() <= SEGMENTED_BYTES_MAX;
        if !fits {
            return false;
        }
        message.closed = entry.len() < segment_bytes;
        message.count += 1;
        message.bytes += entry.len() as u32;
        self.next_entry[message.last as usize] = index;
        message.last = index;
        true
    }

    fn start_message(&mut self, index: u32, entry: &TxEntry) {
        let number = self.messages.len() as u32;
        self.messages.push(Message::single(index, entry));
        let place = index_of(entry.target.socket);
        if place >= self.queue_of.len() {
            self.queue_of.resize(place + 1, 0);
        }
        match self.queue_of[place].checked_sub(1) {
            Some(queue) => {
                let queue = &mut self.queues[queue as usize];
                self.messages[queue.tail as usize].next = number;
                queue.tail = number;
            }
            None => {
                self.queues.push(Queue { socket: entry.target.socket, head: number, tail: number });
                self.queue_of[place] = self.queues.len() as u32;
            }
        }
    }
}

/// The newest message of each target: a hash table that is emptied by counting up a stamp. Probing
/// is bounded, because addresses are chosen by strangers; who finds no place in `PROBES_MAX` steps
/// is sent without company.
#[derive(Debug, Default)]
struct Newest {
    places: Vec<(u32, u32)>,
    stamp: u32,
}

enum Found {
    Message(usize, u32),
    Free(usize),
    Crowded,
}

impl Newest {
    fn reset(&mut self, entries: usize) {
        let wanted = (2 * entries).next_power_of_two();
        self.stamp = self.stamp.wrapping_add(1);
        if wanted > self.places.len() || self.stamp == 0 {
            let len = wanted.max(self.places.len());
            self.places.clear();
            self.places.resize(len, (0, 0));
            self.stamp = 1;
        }
    }

    fn find(&self, hash: u64, same: impl Fn(u32) -> bool) -> Found {
        let mask = self.places.len() - 1;
        for step in 0..PROBES_MAX {
            let place = (hash as usize).wrapping_add(step) & mask;
            match self.places[place] {
                (stamp, _) if stamp != self.stamp => return Found::Free(place),
                (_, message) if same(message) => return Found::Message(place, message),
                _ => {}
            }
        }
        Found::Crowded
    }

    fn set(&mut self, place: usize, message: u32) {
        self.places[place] = (self.stamp, message);
    }
}

/// Spreads targets over the table. Not keyed: the bound on probing is what strangers meet.
fn hash(target: &TxTarget) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |ip: &[u8; 16], at: usize| {
        ip[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let source = word(target.source.ip_bytes(), 8);
    let peer = target.peer.map_or(0, |peer| {
        word(peer.ip_bytes(), 8) ^ word(peer.ip_bytes(), 0).rotate_left(24) ^ u64::from(peer.port())
    });
    let mixed = (peer ^ source.rotate_left(32) ^ u64::from(target.socket.0)).wrapping_mul(ODD);
    (mixed ^ mixed >> 32).wrapping_mul(ODD) >> 32
}

const END: u32 = u32::MAX;

/// `UDP_MAX_SEGMENTS` of the kernels that introduced GSO; newer ones take 128.
pub(super) const SEGMENTS_MAX: u16 = 64;

/// The most that one UDP send can carry over IPv4, cut up or not.
const SEGMENTED_BYTES_MAX: usize = 65_507;

const PROBES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use ringgate_batch::{Endpoint, LocalIp, TxBatch};

    fn batch_of(lens: &[(u32, u8, usize)]) -> TxBatch {
        let mut tx = TxBatch::new(lens.len(), 0);
        for (tag, &(socket, peer, len)) in (0..).zip(lens) {
            let target = TxTarget {
                socket: SocketId(socket),
                peer: Some(Endpoint::v4([127, 0, 0, peer], 9)),
                source: LocalIp::UNSPECIFIED,
            };
            tx.room().expect("as many as there are").send(len, target, tag);
        }
        tx
    }

    /// The plan as plain lists: for each queue its messages, for each message its entries.
    fn planned(plan: &Plan) -> Vec<(u32, Vec<Vec<u32>>)> {
        plan.queues()
            .iter()
            .map(|queue| {
                let messages = plan.messages(queue).map(|m| plan.entries(m).collect()).collect();
                (queue.socket.0, messages)
            })
            .collect()
    }

    #[test]
    fn equal_lengths_share_a_message_and_a_shorter_one_ends_it() {
        let tx =
            batch_of(&[(0, 1, 100), (0, 2, 70), (0, 1, 100), (0, 1, 40), (0, 1, 40), (0, 2, 71)]);
        let mut plan = Plan::default();
        plan.make(tx.entries(), |_| Ability::Segments, |_| panic!("all sockets are known"));
        assert_eq!(planned(&plan), [(0, vec![vec![0, 2, 3], vec![1], vec![4], vec![5]])]);
    }

    #[test]
    fn sockets_have_queues_of_their_own() {
        let tx = batch_of(&[(3, 1, 10), (1, 1, 10), (3, 1, 10), (7, 1, 10), (1, 2, 10)]);
        let mut plan = Plan::default();
        let mut gone = Vec::new();
        let ability = |id: SocketId| match id.0 {
            1 => Ability::Plain,
            3 => Ability::Segments,
            _ => Ability::Gone,
        };
        for _ in 0..2 {
            gone.clear();
            plan.make(tx.entries(), ability, |entry| gone.push(entry));
            assert_eq!(planned(&plan), [(3, vec![vec![0, 2]]), (1, vec![vec![1], vec![4]])]);
            assert_eq!(gone, [3]);
        }
    }

    #[test]
    fn a_message_is_no_larger_than_the_kernel_takes() {
        let tx = batch_of(&[(0, 1, 1500); 100]);
        let mut plan = Plan::default();
        plan.make(tx.entries(), |_| Ability::Segments, |_| {});
        let queue = plan.queues()[0];
        let counts: Vec<_> = plan.messages(&queue).map(|m| m.count).collect();
        assert_eq!(counts, [43, 43, 14]);
        let tx = batch_of(&[(0, 1, 10); 100]);
        plan.make(tx.entries(), |_| Ability::Segments, |_| {});
        let queue = plan.queues()[0];
        assert_eq!(plan.messages(&queue).map(|m| m.count).collect::<Vec<_>>(), [64, 36]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_doubled_or_overtaken(
            lens in prop::collection::vec((0..4_u32, 0..6_u8, prop::sample::select(vec![0_usize, 20, 30])), 0..300)
        ) {
            let tx = batch_of(&lens);
            let mut plan = Plan::default();
            plan.make(tx.entries(), |_| Ability::Segments, |_| {});
            let mut seen = 0;
            let mut last_of: HashMap<(u32, u8), u32> = HashMap::new();
            for (socket, messages) in planned(&plan) {
                for message in messages {
                    let segment = lens[message[0] as usize].2;
                    for (position, &entry) in message.iter().enumerate() {
                        let (s, peer, len) = lens[entry as usize];
                        prop_assert_eq!((s, peer), (socket, lens[message[0] as usize].1));
                        prop_assert!(len == segment || (len < segment && position + 1 == message.len()));
                        let before = last_of.insert((s, peer), entry);
                        prop_assert!(before.is_none_or(|before| before < entry));
                        seen += 1;
                    }
                }
            }
            prop_assert_eq!(seen, lens.len());
        }
    }
}
