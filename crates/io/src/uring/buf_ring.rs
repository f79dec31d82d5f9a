//! A ring of receive slots that the kernel picks from (Linux 5.19).
//!
//! A slot is in one of three hands: the kernel's, from [`provide`](BufRing::provide) until a
//! completion names it; the batch's, until the driver's next turn; then ours for the moment in
//! which we provide it again. We alone write the ring, the kernel alone reads it; the tail, which
//! both look at, lies in the last two bytes of the first entry.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::ring::Ring;
use crate::slots::{SlotSize, Slots};
use ringgate_batch::Arena;

#[derive(Debug)]
pub(super) struct BufRing {
    entries: Arc<Arena>,
    mask: u16,
    tail: u16,
    size: SlotSize,
}

impl BufRing {
    /// Registers a ring with all slots of one size. The group's number is [`group_of`] the size.
    pub(super) fn new(ring: &Ring, slots: &Slots, size: SlotSize) -> io::Result<Self> {
        let count = slots.count(size);
        assert!(count.is_power_of_two(), "the kernel masks the ring's index");
        let entries = Arc::new(Arena::new(usize::from(count) * ENTRY_BYTES));
        let address = entries.pointer(0, entries.len()).as_ptr() as u64;
        // SAFETY: the entries are `count` long and zeroed, page-aligned, and outlive the ring: the
        // driver drops its ring first.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(address, count, group_of(size), 0)
        }?;
        let mut all = Self { entries, mask: count - 1, tail: 0, size };
        for index in 0..count {
            all.provide(slots, index);
        }
        all.publish();
        Ok(all)
    }

    /// Never frees the ring's memory: for a kernel that may still read it.
    pub(super) fn leak(&self) {
        std::mem::forget(Arc::clone(&self.entries));
    }

    /// Puts a slot into the kernel's hands, from the next [`publish`](Self::publish) on. The slot
    /// must be in ours.
    #[inline]
    pub(super) fn provide(&mut self, slots: &Slots, index: u16) {
        let (slot, bytes) = slots.slot(self.size, index);
        let at = usize::from(self.tail & self.mask) * ENTRY_BYTES;
        let entry = self.entries.pointer(at, ENTRY_BYTES);
        // The last two bytes of an entry are reserved, and those of the first are the tail: they
        // stay as they are.
        let address = entry.cast::<u64>();
        // SAFETY: aligned and in bounds; the kernel does not read this entry before the tail has
        // passed it.
        unsafe { address.write(slot.as_ptr() as u64) };
        // SAFETY: 8 bytes into the same entry.
        let length = unsafe { address.add(1) }.cast::<u32>();
        // SAFETY: as for the address.
        unsafe { length.write(bytes as u32) };
        // SAFETY: 12 bytes into the same entry.
        let number = unsafe { length.add(1) }.cast::<u16>();
        // SAFETY: as for the address.
        unsafe { number.write(index) };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was provided.
    #[inline]
    pub(super) fn publish(&self) {
        let tail = self.entries.pointer(TAIL_OFFSET, size_of::<u16>()).cast::<AtomicU16>();
        // SAFETY: aligned, in bounds, alive as long as `self`, and accessed atomically by both
        // sides.
        let tail = unsafe { tail.as_ref() };
        tail.store(self.tail, Ordering::Release);
    }
}

/// The buffer group that holds slots of a size.
pub(super) const fn group_of(size: SlotSize) -> u16 {
    size as u16
}

/// `struct io_uring_buf`: address, length, number, reserved.
const ENTRY_BYTES: usize = 16;
const TAIL_OFFSET: usize = 14;
