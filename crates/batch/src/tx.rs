//! What leaves in a turn: datagrams for players, datagrams and bundles for game processes.
//!
//! The gate asks for room, writes into it and says where it goes; the driver walks the entries in
//! order and sends them. Slots come in two sizes: small ones for single datagrams, and a few large
//! ones in which a bundle grows over the whole turn while small slots are being filled
//! beside it. A payload is copied once, into its slot, and sealed there. When slots run out, the
//! gate has the driver flush and goes on. Both the memory and when it is free again are the
//! driver's: it makes the batch, and its flush empties it.

use super::{Endpoint, LocalIp, SocketId};
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
    len: u32,
}

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

    /// Where the bytes start in [`TxBatch::memory`].
    #[inline]
    pub const fn offset(&self) -> usize {
        self.offset as usize
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
        self.entries.push(TxEntry { target, tag, offset: self.offset, len: len as u32 });
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
    memory: Box<[u8]>,
    entries: Vec<TxEntry>,
    /// The entries of the last flush.
    sent: Vec<TxEntry>,
    /// Those of the flush at hand that could not be sent.
    failing: Vec<(u32, SendFailure)>,
    /// Those of the last one.
    failed: Vec<(u32, SendFailure)>,
    small_used: u32,
    small_max: u32,
    large_used: u32,
    large_max: u32,
}

impl TxBatch {
    /// A batch of `small` datagrams and `large` bundles.
    pub fn new(small: usize, large: usize) -> Self {
        let bytes = small * TX_SLOT_BYTES + large * BUNDLE_BYTES_MAX;
        Self {
            memory: vec![0; bytes].into_boxed_slice(),
            entries: Vec::with_capacity(small + large),
            sent: Vec::with_capacity(small + large),
            failing: Vec::with_capacity(small + large),
            failed: Vec::with_capacity(small + large),
            small_used: 0,
            small_max: small as u32,
            large_used: 0,
            large_max: large as u32,
        }
    }

    /// How many small slots are free.
    #[inline]
    pub const fn small_left(&self) -> usize {
        (self.small_max - self.small_used) as usize
    }

    /// How many large slots are free.
    #[inline]
    pub const fn large_left(&self) -> usize {
        (self.large_max - self.large_used) as usize
    }

    /// Room for a datagram, `None` when all small slots are taken.
    #[inline]
    pub fn room(&mut self) -> Option<Room<'_>> {
        if self.small_left() == 0 {
            return None;
        }
        let offset = self.small_used * TX_SLOT_BYTES as u32;
        let slot = self.memory[offset as usize..].first_chunk_mut()?;
        let (entries, used) = (&mut self.entries, &mut self.small_used);
        Some(Room { slot, offset, entries, used })
    }

    /// Takes a large slot to be filled over the turn, `None` when all are taken.
    pub fn open_large(&mut self) -> Option<LargeSlot> {
        if self.large_left() == 0 {
            return None;
        }
        let offset =
            self.small_max * TX_SLOT_BYTES as u32 + self.large_used * BUNDLE_BYTES_MAX as u32;
        self.large_used += 1;
        Some(LargeSlot { offset })
    }

    /// The bytes of a large slot.
    #[inline]
    pub fn large_mut(&mut self, slot: &LargeSlot) -> &mut [u8; BUNDLE_BYTES_MAX] {
        self.memory[slot.offset as usize..]
            .first_chunk_mut()
            .expect("a large slot lies inside the batch")
    }

    /// Sends the first `len` bytes of a large slot, which is spent by that.
    #[expect(clippy::needless_pass_by_value, reason = "a slot can be committed once")]
    pub fn commit_large(
        &mut self,
        slot: LargeSlot,
        len: usize,
        target: TxTarget,
        tag: u64,
    ) -> usize {
        assert!(len <= BUNDLE_BYTES_MAX, "bundle past the end of its slot");
        self.entries.push(TxEntry { target, tag, offset: slot.offset, len: len as u32 });
        self.entries.len() - 1
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
        &self.memory[entry.offset()..][..entry.len()]
    }

    /// All bytes of the batch, for drivers that build their own scatter lists and for sealing in
    /// place.
    #[inline]
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// The small slots of committed small entries, in the order of their commits, each slice its
    /// own, to be sealed in place. Large entries are passed over.
    pub fn small_slots_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let used = self.small_used as usize;
        self.memory.chunks_exact_mut(TX_SLOT_BYTES).take(used)
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
        batch.commit_large(bundle, 30, TARGET, 9);

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
}
