//! A worker's part in captures.
//!
//! While there is none, this costs a branch for each run of datagrams. While there is one, fronts
//! are handed their datagrams one by one, and the one at hand is known here: so a drop, wherever it
//! is decided, is the drop of that datagram, and no front has to say which.

use std::ops::Range;
use std::sync::Arc;

use crate::capture::{Capture, Captured, Seen, WorkerEnd};
use crate::ids::{BindId, ListenerId, WorkerId};
use crate::store::table::Address;
use ringgate_batch::RxMeta;
use ringgate_core::drops::DropReason;

/// The captures that a worker takes part in.
pub(crate) struct Captures {
    running: Vec<Running>,
    /// The datagram that is looked at, while anybody watches.
    at_hand: Option<AtHand>,
    /// What the first look has left for the next ones, by the position of a datagram in its batch.
    looks: Vec<Look>,
    /// Bytes that are written over before it is known what becomes of them.
    copies: Vec<u8>,
    /// Payloads that are about to be sealed: their places in `copies`, by the slot of the packet.
    unsealed: Vec<(u32, Range<usize>)>,
    /// Where the entries lie in the outgoing batch that could not be sent.
    pub(crate) unsent: Vec<usize>,
}

/// A capture that a worker takes part in.
struct Running {
    capture: Arc<Capture>,
    end: WorkerEnd,
    /// Where the player is, or was, that is meant by its id.
    homes: Vec<Address>,
}

/// A datagram that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtHand {
    pub(crate) address: Address,
    /// Its player, as far as that is known.
    pub(crate) client_id: Option<u64>,
    pub(crate) dropped: Option<DropReason>,
    /// It is decided later, or elsewhere.
    pub(crate) is_deferred: bool,
}

/// What a first look leaves.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) client_id: Option<u64>,
    /// Nothing further happens to it.
    pub(crate) is_settled: bool,
    /// In `copies`, where it may be opened in place.
    copy: Option<Range<usize>>,
}

impl Captures {
    pub(crate) const fn new() -> Self {
        Self {
            running: Vec::new(),
            at_hand: None,
            looks: Vec::new(),
            copies: Vec::new(),
            unsealed: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Whether there is none.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether somebody captures payloads in clear.
    pub(crate) fn wants_clear(&self) -> bool {
        self.running.iter().any(|running| running.capture.in_clear)
    }

    /// Begins a turn of a worker: lets go of who has ended.
    #[inline]
    pub(crate) fn begin(&mut self, worker: WorkerId, now_ns: u64) {
        if !self.is_empty() {
            self.tidy(worker, now_ns);
        }
    }

    #[cold]
    fn tidy(&mut self, worker: WorkerId, now_ns: u64) {
        self.looks.clear();
        self.copies.clear();
        let is_over = |running: &mut Running| running.capture.is_over(now_ns);
        for running in self.running.extract_if(.., is_over) {
            running.capture.give_back(worker, running.end);
        }
    }

    /// Takes part in a capture.
    pub(crate) fn join(&mut self, worker: WorkerId, capture: Arc<Capture>) {
        let Some(end) = capture.lend(worker) else { return };
        let known = capture.homes.iter();
        let homes = known.map(|&(listener, endpoint)| Address { listener, endpoint }).collect();
        self.running.push(Running { capture, end, homes });
    }

    /// Who was at a listener is not at the one that has its number now.
    pub(crate) fn forget_homes(&mut self, listener: ListenerId) {
        for Running { homes, .. } in &mut self.running {
            homes.retain(|home| home.listener != listener);
        }
    }

    /// The datagram at hand from now on.
    pub(crate) fn take_up(&mut self, address: Address, client_id: Option<u64>) {
        self.at_hand = Some(AtHand { address, client_id, dropped: None, is_deferred: false });
    }

    /// It is done with for now.
    pub(crate) fn put_down(&mut self) -> Option<AtHand> {
        self.at_hand.take()
    }

    /// The datagram at hand goes no further.
    #[inline]
    pub(crate) fn note_drop(&mut self, why: DropReason) {
        if let Some(at_hand) = &mut self.at_hand {
            at_hand.dropped = Some(why);
        }
    }

    /// Whose it is, is known now.
    #[inline]
    pub(crate) fn identify(&mut self, client_id: u64) {
        if let Some(at_hand) = &mut self.at_hand {
            at_hand.client_id = Some(client_id);
        }
    }

    /// What becomes of it is decided later, or by another worker.
    #[inline]
    pub(crate) fn defer(&mut self) {
        if let Some(at_hand) = &mut self.at_hand {
            at_hand.is_deferred = true;
        }
    }

    /// Notes what the first look at a position has found, with a copy where one is wanted.
    pub(crate) fn keep(&mut self, at: usize, look: &AtHand, copy: Option<&[u8]>) {
        let settled = Look { client_id: None, is_settled: true, copy: None };
        self.looks.resize(at, settled);
        let copy = copy.map(|bytes| self.copy(bytes));
        let (client_id, is_settled) = (look.client_id, look.dropped.is_some());
        self.looks.push(Look { client_id, is_settled, copy });
    }

    /// What it has found.
    pub(crate) fn look(&self, at: usize) -> Option<&Look> {
        self.looks.get(at)
    }

    /// Keeps a payload that is about to be sealed in its slot.
    pub(crate) fn keep_unsealed(&mut self, slot: u32, payload: &[u8]) {
        let copy = self.copy(payload);
        self.unsealed.push((slot, copy));
    }

    /// What was sealed has left.
    pub(crate) fn forget_unsealed(&mut self) {
        if let Some((_, first)) = self.unsealed.first() {
            self.copies.truncate(first.start);
        }
        self.unsealed.clear();
    }

    /// Shows a datagram to whom it concerns.
    pub(crate) fn show(
        &mut self,
        worker: WorkerId,
        seen: &Seen,
        wire: &[u8],
        clear: Option<&[u8]>,
    ) {
        for running in &mut self.running {
            running.show(worker, seen, wire, clear);
        }
    }

    /// The same for one that was received, as it was before it was opened.
    pub(crate) fn show_kept(
        &mut self,
        worker: WorkerId,
        seen: &Seen,
        at: usize,
        (wire, clear): (&[u8], Option<&[u8]>),
    ) {
        let Self { running, looks, copies, .. } = self;
        let kept = looks.get(at).and_then(|look| copies.get(look.copy.clone()?));
        for running in running {
            running.show(worker, seen, kept.unwrap_or(wire), clear);
        }
    }

    /// The same for one that was sent out of a slot.
    pub(crate) fn show_sent(&mut self, worker: WorkerId, seen: &Seen, slot: u32, wire: &[u8]) {
        let Self { running, unsealed, copies, .. } = self;
        let at = unsealed.binary_search_by_key(&slot, |(slot, _)| *slot).ok();
        let clear = at.and_then(|at| copies.get(unsealed[at].1.clone()));
        for running in running {
            running.show(worker, seen, wire, clear);
        }
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.copies.len();
        self.copies.extend_from_slice(bytes);
        start..self.copies.len()
    }
}

impl Running {
    fn show(&mut self, worker: WorkerId, seen: &Seen, wire: &[u8], clear: Option<&[u8]>) {
        self.learn(seen);
        let Self { capture, end, homes } = self;
        let Address { listener, endpoint } = seen.address;
        let meant = &capture.meant;
        let is_his = |wanted: u64| match seen.client_id {
            Some(client_id) => client_id == wanted,
            None => homes.contains(&seen.address),
        };
        if !meant.is_of(listener, &endpoint)
            || !meant.is_for(seen.dropped)
            || !meant.client_id.is_none_or(is_his)
        {
            return;
        }
        let clear = clear.filter(|_| capture.in_clear);
        // Only what is sent is surely his: others may send from where he is.
        let receiver = || meant.client_id.filter(|_| seen.is_outbound);
        let client_id = seen.client_id.or_else(receiver);
        capture.offer(end, listener, |mut bytes| {
            let (taken, room) = (clear.unwrap_or(wire), bytes.capacity());
            bytes.clear();
            bytes.extend_from_slice(&taken[..taken.len().min(room)]);
            Captured { seen: Seen { client_id, ..*seen }, worker, is_clear: clear.is_some(), bytes }
        });
    }

    /// Where the player is who is meant.
    fn learn(&mut self, seen: &Seen) {
        let (Some(wanted), Some(client_id)) = (self.capture.meant.client_id, seen.client_id) else {
            return;
        };
        let known = self.homes.iter().position(|home| *home == seen.address);
        match known {
            Some(at) if client_id != wanted => drop(self.homes.remove(at)),
            None if client_id == wanted => {
                if self.homes.len() >= HOMES_MAX {
                    self.homes.remove(0);
                }
                self.homes.push(seen.address);
            }
            _ => {}
        }
    }
}

impl Seen {
    /// A datagram that has come in, with what is known of it after a look.
    pub(crate) const fn received(
        at_hand: &AtHand,
        bind: BindId,
        meta: &RxMeta,
        turn_ns: u64,
    ) -> Self {
        Self {
            address: at_hand.address,
            bind,
            local: meta.local,
            is_outbound: false,
            received_by: None,
            client_id: at_hand.client_id,
            dropped: at_hand.dropped,
            kernel_ns: meta.kernel_ns,
            turn_ns,
            is_cut: meta.truncated,
        }
    }
}

/// Addresses of one player that are remembered.
const HOMES_MAX: usize = 16;
