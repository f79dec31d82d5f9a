//! What leaves in a turn: datagrams for players, datagrams and bundles for game processes.
//!
//! The gate asks for room, writes into it and says where it goes; the driver walks the entries in
//! order and sends them. Slots come in two sizes: small ones for single datagrams, and a few large
//! ones in which a bundle grows over the whole turn while small slots are being filled
//! beside it. A payload is copied once, into its slot, and sealed there. When slots run out, the
//! gate has the driver flush and goes on. Both the memory and when it is free again are the
//! driver's: it makes the batch, and its flush empties it.
//!
//! The memory is an arena. Large slots lie in it side by side; where each small one lies is told by
//! a list, because a driver may send from the memory itself and give the batch other places
//! meanwhile ([`TxBatch::over`]). No two slots overlap, and nobody else touches a place that is on
//! the list: that is what makes handing out `&mut [u8]` sound.
#![allow(
    unsafe_code,
    reason = "disjoint mutable slices of one arena, argued at the one place that makes them"
)]

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Arena, Endpoint, LocalIp, SocketId};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, TX_SLOT_BYTES};

/// Where an entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxTarget {
    /// The socket to send through.
    pub socket: SocketId,
    /// The destination; `None` on connected sockets and links.
    pub peer: Option<Endpoint>,
    /// The address to send from; unspecified where the socket's own will do.
    pub source: LocalIp,
}

/// One datagram that is ready to leave.
#[derive(Clone, Copy, Debug)]
pub struct TxEntry {
    /// Where it goes.
    pub target: TxTarget,
    /// Whatever the one who committed it wants to recognise it by when it fails.
    pub tag: u64,
    offset: u32,
    len: u16,
    /// Which small slot it lies in; [`LARGE`] in a large one.
    slot: u16,
    /// The driver has sent it in another way than its sockets.
    is_taken: bool,
}

/// Where another would have the number of its small slot.
const LARGE: u16 = u16::MAX;

impl TxEntry {
    /// Bytes to send.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is nothing to send (never true for a committed entry).
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes start in the batch's arena.
    #[inline]
    pub const fn offset(&self) -> usize {
        self.offset as usize
    }

    /// The number of its small slot, if it lies in one.
    #[inline]
    pub const fn small_slot(&self) -> Option<usize> {
        if self.slot == LARGE { None } else { Some(self.slot as usize) }
    }

    /// Whether [`TxBatch::take`] has been told of it.
    #[inline]
    pub const fn is_taken(&self) -> bool {
        self.is_taken
    }
}

/// Why an entry was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// The socket has no room now (EAGAIN, ENOBUFS).
    Full,
    /// The peer is gone or the socket is not usable any more (EPIPE, ECONNRESET, ENOTCONN).
    Gone,
    /// The kernel will not send this datagram (EPERM, ENETUNREACH, EMSGSIZE, EINVAL, …).
    Refused,
}

/// A large slot that its owner is still filling.
#[derive(Debug, PartialEq, Eq)]
pub struct LargeSlot {
    offset: u32,
}

/// Room for one datagram in the outgoing batch: write into it, then send it or leave it.
#[derive(Debug)]
pub struct Room<'a> {
    /// Where the datagram is written.
    pub slot: &'a mut [u8; TX_SLOT_BYTES],
    offset: u32,
    entries: &'a mut Vec<TxEntry>,
    used: &'a mut u32,
}

impl Room<'_> {
    /// Sends the first `len` bytes of the slot. Returns its position among
    /// [`TxBatch::small_slots_mut`].
    #[inline]
    pub fn send(self, len: usize, target: TxTarget, tag: u64) -> u32 {
        assert!(len <= TX_SLOT_BYTES, "a datagram past the end of its slot");
        let position = *self.used;
        *self.used += 1;
        let (offset, len, slot) = (self.offset, len as u16, position as u16);
        self.entries.push(TxEntry { target, tag, offset, len, slot, is_taken: false });
        position
    }

    /// Copies a datagram into the slot and sends it.
    #[inline]
    pub fn send_copy(self, bytes: &[u8], target: TxTarget, tag: u64) -> u32 {
        self.slot[..bytes.len()].copy_from_slice(bytes);
        self.send(bytes.len(), target, tag)
    }
}

/// The outgoing datagrams of one turn.
#[derive(Debug)]
pub struct TxBatch {
    arena: Arc<Arena>,
    /// Where each small slot lies.
    places: Vec<u32>,
    /// Where the large ones begin.
    large_base: u32,
    /// What of the arena there is for slots of either size.
    own: Range<usize>,
    entries: Vec<TxEntry>,
    /// The entries of the last flush.
    sent: Vec<TxEntry>,
    /// Those of the flush at hand that could not be sent.
    failing: Vec<(u32, SendFailure)>,
    /// Those of the last one.
    failed: Vec<(u32, SendFailure)>,
    small_used: u32,
    large_used: u32,
    large_max: u32,
}

impl TxBatch {
    /// A batch of `small` datagrams and `large` bundles.
    pub fn new(small: usize, large: usize) -> Self {
        let large_base = small * TX_SLOT_BYTES;
        let arena = Arc::new(Arena::new(large_base + large * BUNDLE_BYTES_MAX));
        let own = 0..arena.len();
        let places = (0..small).map(|slot| (slot * TX_SLOT_BYTES) as u32).collect();
        // SAFETY: the arena was made for it, and nobody else has it; the places lie side by side,
        // and the large slots behind them.
        unsafe { Self::over(arena, own, places, (large_base, large)) }
    }

    /// A batch over a part of an arena in which a driver has chosen the places: one for each small
    /// slot, and so many bundles from somewhere on.
    ///
    /// # Safety
    /// Nobody else may ever write to that part of the arena. As long as the batch has a place, none
    /// but the batch may read the [`TX_SLOT_BYTES`] there, nor those of the large slots, and none
    /// of them may overlap. A flush is an exception: what is to be sent may be read.
    ///
    /// # Panics
    /// Where something lies outside that part, or there are more slots than numbers for them.
    pub unsafe fn over(
        arena: Arc<Arena>,
        own: Range<usize>,
        places: Vec<u32>,
        (large_base, large): (usize, usize),
    ) -> Self {
        let small = places.len();
        assert!(small < usize::from(LARGE), "small slots have numbers of 16 bits");
        assert!(own.end <= arena.len(), "a part of the arena");
        assert!(is_within(&own, large_base, large * BUNDLE_BYTES_MAX), "bundles of our own");
        let mut all = places.iter();
        assert!(all.all(|place| is_within(&own, *place as usize, TX_SLOT_BYTES)), "slots too");
        Self {
            arena,
            places,
            large_base: large_base as u32,
            own,
            entries: Vec::with_capacity(small + large),
            sent: Vec::with_capacity(small + large),
            failing: Vec::with_capacity(small + large),
            failed: Vec::with_capacity(small + large),
            small_used: 0,
            large_used: 0,
            large_max: large as u32,
        }
    }

    /// How many small slots are free.
    #[inline]
    pub const fn small_left(&self) -> usize {
        self.places.len() - self.small_used as usize
    }

    /// How many large slots are free.
    #[inline]
    pub const fn large_left(&self) -> usize {
        (self.large_max - self.large_used) as usize
    }

    /// Room for a datagram, `None` when all small slots are taken.
    #[inline]
    pub fn room(&mut self) -> Option<Room<'_>> {
        let offset = *self.places.get(self.small_used as usize)?;
        let place = self.arena.pointer(offset as usize, TX_SLOT_BYTES).cast();
        // SAFETY: it lies in the arena, whose bytes are all initialised, and is this batch's alone
        // (`over`); `&mut self` excludes every other reference into the batch.
        let slot = unsafe { &mut *place.as_ptr() };
        let (entries, used) = (&mut self.entries, &mut self.small_used);
        Some(Room { slot, offset, entries, used })
    }

    /// Takes a large slot to be filled over the turn, `None` when all are taken.
    pub fn open_large(&mut self) -> Option<LargeSlot> {
        if self.large_left() == 0 {
            return None;
        }
        let offset = self.large_base + self.large_used * BUNDLE_BYTES_MAX as u32;
        self.large_used += 1;
        Some(LargeSlot { offset })
    }

    /// The bytes of a large slot.
    #[inline]
    pub fn large_mut(&mut self, slot: &LargeSlot) -> &mut [u8; BUNDLE_BYTES_MAX] {
        let place = self.arena.pointer(slot.offset as usize, BUNDLE_BYTES_MAX).cast();
        // SAFETY: as in `room`; large slots overlap nothing (`over`).
        unsafe { &mut *place.as_ptr() }
    }

    /// Sends the first `len` bytes of a large slot, which is spent by that. Nothing leaves where
    /// there are none (`None`): who reads an empty bundle takes it for the link's end.
    #[expect(clippy::needless_pass_by_value, reason = "a slot can be committed once")]
    pub fn commit_large(
        &mut self,
        slot: LargeSlot,
        len: usize,
        target: TxTarget,
        tag: u64,
    ) -> Option<usize> {
        assert!(len <= BUNDLE_BYTES_MAX, "bundle past the end of its slot");
        if len == 0 {
            return None;
        }
        let (offset, len) = (slot.offset, len as u16);
        self.entries.push(TxEntry { target, tag, offset, len, slot: LARGE, is_taken: false });
        Some(self.entries.len() - 1)
    }

    /// What is to be sent, in order.
    #[inline]
    pub fn entries(&self) -> &[TxEntry] {
        &self.entries
    }

    /// Whether nothing is to be sent and no slot is taken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.large_used == 0
    }

    /// The bytes of an entry.
    #[inline]
    pub fn bytes(&self, entry: &TxEntry) -> &[u8] {
        assert!(is_within(&self.own, entry.offset(), entry.len()), "an entry of this batch");
        let place = self.arena.pointer(entry.offset(), entry.len());
        // SAFETY: it lies in our part of the arena, whose bytes are all initialised, and to which
        // nobody writes but by `&mut self` (`over`).
        unsafe { std::slice::from_raw_parts(place.as_ptr(), entry.len()) }
    }

    /// Driver's side: a small slot lies here from now on. What was written to the place that it had
    /// may still be read, until the next slot is.
    ///
    /// # Safety
    /// As [`over`](Self::over). To be called in a flush.
    ///
    /// # Panics
    /// Where it lies outside our part of the arena.
    #[inline]
    pub unsafe fn set_place(&mut self, slot: usize, place: u32) {
        assert!(is_within(&self.own, place as usize, TX_SLOT_BYTES), "a place of our own");
        self.places[slot] = place;
    }

    /// Driver's side: entry `index` is sent in another way than by its socket.
    #[inline]
    pub fn take(&mut self, index: usize) {
        self.entries[index].is_taken = true;
    }

    /// Driver's side: the bytes of entry `index`, of which a part is about to be sent in another
    /// way.
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let entry = self.entries[index];
        assert!(is_within(&self.own, entry.offset(), entry.len()), "an entry of this batch");
        let place = self.arena.pointer(entry.offset(), entry.len());
        // SAFETY: as in `bytes`, and `&mut self` excludes every other reference into the batch.
        unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), entry.len()) }
    }

    /// Driver's side: of entry `index`, only the first `len` bytes are for its socket; nothing of
    /// it is where that is none.
    pub fn shorten(&mut self, index: usize, len: usize) {
        let entry = &mut self.entries[index];
        assert!(len <= entry.len(), "no entry becomes longer");
        entry.len = len as u16;
        entry.is_taken |= len == 0;
    }

    /// The small slots of committed small entries, in the order of their commits, each slice its
    /// own, to be sealed in place. Large entries are passed over.
    pub fn small_slots_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let arena = &self.arena;
        self.places[..self.small_used as usize].iter().map(move |place| {
            let place: NonNull<u8> = arena.pointer(*place as usize, TX_SLOT_BYTES);
            // SAFETY: as in `room`; each place is visited once and places do not overlap, so the
            // slices that are alive together are disjoint. They live no longer than the `&mut self`
            // that this method holds.
            unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), TX_SLOT_BYTES) }
        })
    }

    /// What the last flush was to send.
    #[inline]
    pub fn sent(&self) -> &[TxEntry] {
        &self.sent
    }

    /// The entries that the last flush could not send, with their bytes, which last until something
    /// is written.
    pub fn failures(&self) -> impl Iterator<Item = (&TxEntry, &[u8], SendFailure)> {
        self.failed.iter().map(|&(index, why)| {
            let entry = &self.sent[index as usize];
            (entry, self.bytes(entry), why)
        })
    }

    /// Whether the last flush left something behind.
    #[inline]
    pub fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Driver's side: entry `index` was not sent.
    #[inline]
    pub fn fail(&mut self, index: usize, why: SendFailure) {
        self.failing.push((index as u32, why));
    }

    /// Driver's side: everything is sent or has failed, and the batch is empty. Large slots that
    /// were opened but not committed are taken back too.
    pub fn end_flush(&mut self) {
        std::mem::swap(&mut self.entries, &mut self.sent);
        std::mem::swap(&mut self.failing, &mut self.failed);
        self.entries.clear();
        self.failing.clear();
        self.small_used = 0;
        self.large_used = 0;
    }
}

/// Whether so many bytes from somewhere on lie in a range.
#[inline]
const fn is_within(range: &Range<usize>, from: usize, bytes: usize) -> bool {
    from >= range.start && from <= range.end && bytes <= range.end - from
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: TxTarget =
        TxTarget { socket: SocketId(1), peer: None, source: LocalIp::UNSPECIFIED };

    #[test]
    fn small_and_large_slots_grow_side_by_side_and_never_overlap() {
        let mut batch = TxBatch::new(2, 1);
        let bundle = batch.open_large().expect("one large slot");
        assert!(batch.open_large().is_none());
        batch.room().expect("first").send_copy(&[1; 10], TARGET, 7);
        batch.large_mut(&bundle).fill(9);
        assert!(batch.room().is_some(), "room that is left stays");
        let room = batch.room().expect("second");
        room.slot.fill(2);
        assert_eq!(room.send(20, TARGET, 8), 1);
        assert!(batch.room().is_none());
        assert_eq!(batch.commit_large(bundle, 30, TARGET, 9), Some(2));

        let seen: Vec<_> =
            batch.entries().iter().map(|e| (e.tag, batch.bytes(e).to_vec())).collect();
        assert_eq!(seen, [(7, vec![1; 10]), (8, vec![2; 20]), (9, vec![9; 30])]);

        batch.fail(1, SendFailure::Full);
        batch.end_flush();
        let (entry, bytes, why) = batch.failures().next().expect("one failure");
        assert_eq!((entry.tag, bytes.len(), why), (8, 20, SendFailure::Full));
        assert_eq!((batch.sent().len(), batch.is_empty()), (3, true));
        assert_eq!((batch.small_left(), batch.large_left()), (2, 1));
        batch.end_flush();
        assert!(!batch.has_failures() && batch.sent().is_empty());
    }

    #[test]
    fn an_empty_bundle_never_leaves() {
        let mut batch = TxBatch::new(0, 1);
        let slot = batch.open_large().expect("a large slot");
        assert_eq!(batch.commit_large(slot, 0, TARGET, 7), None);
        assert!(batch.entries().is_empty() && batch.open_large().is_none());
        batch.end_flush();
        assert_eq!(batch.large_left(), 1);
    }

    #[test]
    fn a_part_of_an_entry_may_go_another_way() {
        let mut batch = TxBatch::new(0, 2);
        for fill in [1, 2] {
            let slot = batch.open_large().expect("a large slot");
            batch.large_mut(&slot)[..9].fill(fill);
            batch.commit_large(slot, 9, TARGET, 7);
        }
        batch.bytes_mut(1)[..3].fill(8);
        batch.shorten(1, 4);
        batch.shorten(0, 0);
        let [first, second] = [0, 1].map(|at| batch.entries()[at]);
        assert!(first.is_taken() && first.is_empty() && !second.is_taken());
        assert_eq!((batch.bytes(&first), batch.bytes(&second)), (&[][..], &[8, 8, 8, 2][..]));
    }
}
