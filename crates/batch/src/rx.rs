//! What a driver has received: datagrams in slots of its arena, and events.
//!
//! The batch borrows slots from the driver: between a driver's `turn`, which fills the batch, and
//! its next one, which takes every slot back, the kernel does not touch a slot that the batch
//! names, and no two entries name overlapping bytes. That is what makes handing out one `&mut [u8]`
//! per entry sound; [`RxBatch::push`] states it as the driver's duty. Batch and driver share the
//! arena, so it lives until both are gone. What no kernel has written lies in an arena of the
//! batch's own ([`RxBatch::push_copy`]), and needs no promise.
#![allow(
    unsafe_code,
    reason = "disjoint mutable slices of one arena, argued at the one place that makes them"
)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Arena, Endpoint, LocalIp, SocketId};

/// One received datagram, apart from its bytes.
#[derive(Clone, Copy, Debug)]
pub struct RxMeta {
    /// The socket it arrived on.
    pub socket: SocketId,
    /// Who sent it; meaningless on a link, which has one peer.
    pub peer: Endpoint,
    /// The address it was sent to, where the socket is bound to more than one; else unspecified.
    pub local: LocalIp,
    /// When the kernel received it, in nanoseconds of the real-time clock; 0 where the socket is
    /// not asked.
    pub kernel_ns: u64,
    /// The datagram was longer than its slot: the rest is lost.
    pub truncated: bool,
    /// Which slot it lies in. The driver's own numbering.
    pub slot: u32,
    offset: u32,
    len: u32,
    /// It lies among the copies, not in a slot.
    is_copy: bool,
}

impl RxMeta {
    /// Describes a datagram of `len` bytes at `offset` of the arena. The rest starts empty.
    pub const fn new(socket: SocketId, peer: Endpoint, slot: u32, offset: u32, len: u32) -> Self {
        Self {
            socket,
            peer,
            local: LocalIp::UNSPECIFIED,
            kernel_ns: 0,
            truncated: false,
            slot,
            offset,
            len,
            is_copy: false,
        }
    }

    /// Bytes received.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the datagram carried nothing.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Who is at the other end of a local socket, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process, where it is known; else 0. Only to be told: it may be another's by now.
    pub pid: u32,
}

ringgate_core::carried!(Credentials { uid, gid, pid });

/// Something a driver has noticed that is not a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoEvent {
    /// A process connected to a listening link socket.
    Accepted {
        /// The listening socket.
        socket: SocketId,
        /// The new connection, already registered with the driver.
        connection: SocketId,
        /// Who has connected.
        peer: Credentials,
    },
    /// A link's peer hung up, or the socket failed for good. The driver has stopped reading from
    /// it.
    Closed {
        /// The socket.
        socket: SocketId,
    },
    /// The kernel reports that no one listens at `peer` (ICMP port unreachable), for a datagram we
    /// had sent there.
    Unreachable {
        /// The socket that had sent it.
        socket: SocketId,
        /// Where it was sent to.
        peer: Endpoint,
    },
    /// The driver's bell was rung (mail, a signal).
    Woken,
}

/// Datagrams and events of one turn.
#[derive(Debug)]
pub struct RxBatch {
    arena: Arc<Arena>,
    entries: Vec<RxMeta>,
    /// As many entries as there are slots.
    slots: usize,
    copies: Copies,
    /// Events of the turn, in the order in which they were seen.
    pub events: Vec<IoEvent>,
    /// Only links were looked at, because one has answered
    /// ([`Wait::GatherAnswers`](crate::Wait::GatherAnswers)).
    pub is_of_links: bool,
}

/// Memory for datagrams that no driver has received into a slot.
#[derive(Debug)]
struct Copies {
    /// Nobody else has it.
    arena: Arena,
    /// How much of it entries name.
    used: usize,
    /// So many entries more may there be.
    entries_max: usize,
    /// So many there are.
    entries: usize,
}

impl Copies {
    fn new(bytes: usize, entries_max: usize) -> Self {
        Self { arena: Arena::new(bytes), used: 0, entries_max, entries: 0 }
    }

    /// Where the next bytes lie, if there is room for so many. They are nobody's before.
    fn take(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        if bytes > self.arena.len() - self.used {
            return None;
        }
        let place = self.arena.pointer(self.used, bytes);
        self.used += bytes;
        Some(place)
    }
}

impl RxBatch {
    /// A batch over an arena, with room for `entries_max` datagrams without allocating again.
    pub fn new(arena: impl Into<Arc<Arena>>, entries_max: usize) -> Self {
        Self {
            arena: arena.into(),
            entries: Vec::with_capacity(entries_max),
            slots: entries_max,
            copies: Copies::new(0, 0),
            events: Vec::with_capacity(EVENTS_EXPECTED),
            is_of_links: false,
        }
    }

    /// A batch that is filled by [`push_copy`](Self::push_copy) alone, with room for `bytes`: for
    /// simulators and tests.
    pub fn in_memory(bytes: usize, entries_max: usize) -> Self {
        let mut batch = Self::new(Arena::new(0), entries_max);
        batch.copies = Copies::new(bytes, entries_max);
        batch
    }

    /// Has room from now on for so many bytes in so many datagrams beside those of the driver's
    /// slots. To be called while it is empty.
    pub fn make_room_for_copies(&mut self, bytes: usize, entries: usize) {
        debug_assert!(self.entries.is_empty(), "what it names would be gone");
        self.copies = Copies::new(bytes, entries);
        self.entries.reserve(self.slots + entries);
    }

    /// How many bytes of copies there is room for.
    pub fn copies_left(&self) -> usize {
        self.copies.arena.len() - self.copies.used
    }

    /// And how many more of them there may be.
    pub const fn copy_entries_left(&self) -> usize {
        self.copies.entries_max - self.copies.entries
    }

    /// Whether as much came as fills at least half of the slots: more is waiting, as a rule.
    #[inline]
    pub const fn is_half_full(&self) -> bool {
        self.entries.len() * 2 >= self.slots
    }

    /// Copies a datagram in; what is left to say about it goes into the description that comes
    /// back. `None` where there is no room.
    pub fn push_copy(
        &mut self,
        socket: SocketId,
        peer: Endpoint,
        bytes: &[u8],
    ) -> Option<&mut RxMeta> {
        if self.copies.entries == self.copies.entries_max {
            return None;
        }
        let offset = self.copies.used as u32;
        self.copy(bytes)?;
        self.copies.entries += 1;
        let (slot, len) = (self.entries.len() as u32, bytes.len() as u32);
        let meta = RxMeta::new(socket, peer, slot, offset, len);
        self.entries.push(RxMeta { is_copy: true, ..meta });
        self.entries.last_mut()
    }

    /// Appends to the copy that came last, where that is this socket's and does not become longer
    /// than `longest`; otherwise it is the beginning of another. `false` where there is no room.
    #[inline]
    pub fn append_copy(&mut self, socket: SocketId, bytes: &[u8], longest: usize) -> bool {
        let last = self.entries.last().filter(|last| {
            last.is_copy && last.socket == socket && last.len() + bytes.len() <= longest
        });
        if last.is_none() {
            return self.push_copy(socket, NOBODY, bytes).is_some();
        }
        let is_copied = self.copy(bytes).is_some();
        if let Some(last) = self.entries.last_mut().filter(|_| is_copied) {
            last.len += bytes.len() as u32;
        }
        is_copied
    }

    #[inline]
    fn copy(&mut self, bytes: &[u8]) -> Option<()> {
        let place = self.copies.take(bytes.len())?;
        // SAFETY: `place` is valid for `bytes.len()` bytes by the arena's own check. Nobody else
        // has access to them: no entry reaches to where `take` has not been, and references into
        // this arena are made for entries only. So `bytes` does not overlap them either.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Some(())
    }

    /// The memory that the slots lie in, for drivers.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Whether the batch lies over this very arena. A driver asks before it lends slots: a batch of
    /// another driver would name bytes that are in use elsewhere.
    pub fn is_over(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(&self.arena, arena)
    }

    /// Adds a datagram.
    ///
    /// # Safety
    /// Until the entry is removed by [`clear`](Self::clear), nobody but this batch may read or
    /// write the `len` bytes at the entry's `offset` (the kernel included), and no other entry may
    /// overlap them.
    ///
    /// # Panics
    /// Where the entry lies outside the arena.
    #[inline]
    pub unsafe fn push(&mut self, meta: RxMeta) {
        let _ = self.arena.pointer(meta.offset as usize, meta.len as usize);
        self.entries.push(meta);
    }

    /// Forgets all datagrams and events, and where was looked for them; the slots belong to the
    /// driver again.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.events.clear();
        self.is_of_links = false;
        (self.copies.used, self.copies.entries) = (0, 0);
    }

    /// How many datagrams there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is neither a datagram nor an event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.events.is_empty()
    }

    /// The descriptions of all datagrams.
    #[inline]
    pub fn metas(&self) -> &[RxMeta] {
        &self.entries
    }

    /// One datagram's bytes.
    #[inline]
    pub fn bytes(&self, index: usize) -> &[u8] {
        let meta = &self.entries[index];
        let pointer = self.arena_of(meta).pointer(meta.offset as usize, meta.len());
        // SAFETY: in bounds by `pointer`; initialised because the arena is zeroed at birth;
        // unaliased by writers because `push` promised that nobody else touches the bytes (those of
        // copies nobody else knows) and `&self` excludes our own writers.
        unsafe { std::slice::from_raw_parts(pointer.as_ptr(), meta.len()) }
    }

    /// One datagram's bytes, to be opened in place.
    #[inline]
    pub fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let meta = &self.entries[index];
        let pointer = self.arena_of(meta).pointer(meta.offset as usize, meta.len());
        // SAFETY: as in `bytes`, and `&mut self` excludes every other reference into the batch.
        unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), meta.len()) }
    }

    #[inline]
    fn arena_of(&self, meta: &RxMeta) -> &Arena {
        if meta.is_copy { &self.copies.arena } else { &self.arena }
    }

    /// All datagrams with their bytes, each slice its own, so that a whole batch can be opened in
    /// place at once.
    #[inline]
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&RxMeta, &mut [u8])> {
        let (arena, copies) = (&*self.arena, &self.copies.arena);
        self.entries.iter().map(move |meta| {
            let arena = if meta.is_copy { copies } else { arena };
            let pointer = arena.pointer(meta.offset as usize, meta.len());
            // SAFETY: as in `bytes_mut`; each entry is visited once and entries do not overlap
            // (`push`, `copy`), so the slices that are alive together are disjoint. They live no
            // longer than the `&mut self` that this method holds.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), meta.len()) };
            (meta, bytes)
        })
    }
}

/// The peer of a copy that nobody is said to have sent.
const NOBODY: Endpoint = Endpoint::v6([0; 16], 0, 0);

/// Events of a busy turn; more make the list grow, once.
const EVENTS_EXPECTED: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: SocketId = SocketId(1);
    const PEER: Endpoint = Endpoint::v4([192, 0, 2, 1], 5);

    #[test]
    fn copies_lie_side_by_side_until_the_batch_is_full() {
        let mut batch = RxBatch::in_memory(10, 3);
        batch.push_copy(SOCKET, PEER, b"four").expect("room").kernel_ns = 7;
        assert!(batch.push_copy(SOCKET, PEER, b"").is_some());
        assert!(batch.push_copy(SOCKET, PEER, b"seven b").is_none(), "six bytes are left");
        assert!(batch.push_copy(SOCKET, PEER, b"six by").is_some());
        assert!(batch.push_copy(SOCKET, PEER, b"").is_none(), "three entries at most");
        batch.bytes_mut(0).fill(b'x');
        let seen: Vec<_> =
            batch.iter_mut().map(|(meta, bytes)| (meta.kernel_ns, &*bytes)).collect();
        assert_eq!(seen, [(7, &b"xxxx"[..]), (0, b""), (0, b"six by")]);
        batch.clear();
        assert!(batch.push_copy(SOCKET, PEER, &[0; 10]).is_some());
    }

    #[test]
    fn copies_lie_beside_a_drivers_slots_and_grow_while_they_are_the_last() {
        let mut batch = RxBatch::new(Arena::new(8), 2);
        assert!(!batch.append_copy(SOCKET, b"x", 100), "there is no room for copies yet");
        batch.make_room_for_copies(10, 3);
        // SAFETY: nobody else has this arena, and the entries do not overlap.
        unsafe { batch.push(RxMeta::new(SOCKET, PEER, 0, 0, 4)) };
        assert!(batch.append_copy(SOCKET, b"abc", 5), "not to what a driver has received");
        assert!(batch.append_copy(SOCKET, b"de", 5));
        assert!(batch.append_copy(SOCKET, b"f", 5), "that one is as long as it may be");
        assert!(batch.append_copy(SocketId(2), b"gh", 5));
        assert!(!batch.append_copy(SocketId(3), b"i", 5), "three copies at most");
        assert!(!batch.append_copy(SocketId(2), b"ijk", 9), "two bytes are left");
        // SAFETY: as above.
        unsafe { batch.push(RxMeta::new(SOCKET, PEER, 1, 4, 4)) };
        batch.bytes_mut(0).fill(b's');
        let seen: Vec<_> =
            batch.iter_mut().map(|(meta, bytes)| (meta.socket.0, bytes.to_vec())).collect();
        let expected = [(1, &b"ssss"[..]), (1, b"abcde"), (1, b"f"), (2, b"gh"), (1, &[0; 4])];
        assert_eq!(seen, expected.map(|(socket, bytes)| (socket, bytes.to_vec())));
        assert_eq!((batch.bytes(1), batch.copies_left()), (&b"abcde"[..], 2));
        assert_eq!(batch.copy_entries_left(), 0);
        assert!(batch.is_half_full());
        batch.clear();
        assert_eq!((batch.copies_left(), batch.copy_entries_left()), (10, 3));
        assert!(!batch.is_half_full() && batch.append_copy(SOCKET, b"abc", 5));
    }
}
