//! How a driver cuts its arena into receive slots.
//!
//! Small slots come first, for datagrams; behind them large ones, for bundles on links. Each begins
//! with room for what the kernel writes in front of a multishot receive (a header, the sender's
//! name, control data); `recvmmsg` leaves it unused, so that both drivers cut off at the same
//! length. Both strides are odd multiples of a cache line: the first lines of all slots spread over
//! all cache sets instead of meeting in two of them, as they would at 2048 bytes.

use std::ptr::NonNull;
use std::sync::Arc;

use super::interface::SocketKind;
use super::options::DriverOptions;
use ringgate_batch::{Arena, RxBatch};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, RX_DATAGRAM_BYTES};
use ringgate_os::message::{CONTROL_BYTES, NAME_BYTES};

/// Which of the two sizes; also an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotSize {
    Small,
    Large,
}

/// The slots of one arena.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    arena: Arc<Arena>,
    small_count: u16,
    large_count: u16,
}

impl Slots {
    /// Slots, and the batch that shares their arena.
    pub(super) fn new(options: DriverOptions) -> (Self, RxBatch) {
        Self::over(Arc::new(Arena::new(Self::bytes(options))), options)
    }

    /// Bytes of all slots.
    pub(super) fn bytes(options: DriverOptions) -> usize {
        let (small, large) = (options.small_slots, options.large_slots);
        usize::from(small) * SMALL_STRIDE + usize::from(large) * LARGE_STRIDE
    }

    /// Slots at the beginning of an arena, and the batch that shares it.
    pub(super) fn over(arena: Arc<Arena>, options: DriverOptions) -> (Self, RxBatch) {
        assert!(arena.len() >= Self::bytes(options), "an arena has room for the slots");
        let (small_count, large_count) = (options.small_slots, options.large_slots);
        let entries_max = usize::from(small_count) + usize::from(large_count);
        let batch = RxBatch::new(Arc::clone(&arena), entries_max);
        (Self { arena, small_count, large_count }, batch)
    }

    pub(super) const fn count(&self, size: SlotSize) -> u16 {
        match size {
            SlotSize::Small => self.small_count,
            SlotSize::Large => self.large_count,
        }
    }

    /// Panics where `batch` belongs to another driver: its slots would be somebody else's memory.
    pub(super) fn assert_owns(&self, batch: &RxBatch) {
        assert!(batch.is_over(&self.arena), "a driver fills only the batch it was opened with");
    }

    /// Where slot `index` starts in the arena.
    #[inline]
    pub(super) fn offset(&self, size: SlotSize, index: u16) -> usize {
        debug_assert!(index < self.count(size), "slot index past the end");
        match size {
            SlotSize::Small => usize::from(index) * SMALL_STRIDE,
            SlotSize::Large => {
                usize::from(self.small_count) * SMALL_STRIDE + usize::from(index) * LARGE_STRIDE
            }
        }
    }

    /// The whole slot, header room included.
    #[inline]
    pub(super) fn slot(&self, size: SlotSize, index: u16) -> (NonNull<u8>, usize) {
        let bytes = size.header_bytes() + size.data_bytes();
        (self.arena.pointer(self.offset(size, index), bytes), bytes)
    }

    /// Where the datagram in slot `index` starts in the arena.
    #[inline]
    pub(super) fn data_offset(&self, size: SlotSize, index: u16) -> usize {
        self.offset(size, index) + size.header_bytes()
    }

    /// The slot behind the header room.
    #[inline]
    pub(super) fn data(&self, size: SlotSize, index: u16) -> (NonNull<u8>, usize) {
        let offset = self.data_offset(size, index);
        (self.arena.pointer(offset, size.data_bytes()), size.data_bytes())
    }
}

impl SlotSize {
    /// The size that a socket receives into.
    #[inline]
    pub(super) const fn of(kind: SocketKind) -> Self {
        match kind {
            SocketKind::Datagram | SocketKind::ConnectedDatagram => Self::Small,
            SocketKind::Link | SocketKind::LinkListener => Self::Large,
        }
    }

    /// Room in front of the datagram.
    #[inline]
    pub(super) const fn header_bytes(self) -> usize {
        match self {
            Self::Small => SMALL_HEADER_BYTES,
            Self::Large => RECVMSG_OUT_BYTES,
        }
    }

    /// Room for the datagram.
    #[inline]
    pub(super) const fn data_bytes(self) -> usize {
        match self {
            Self::Small => RX_DATAGRAM_BYTES,
            Self::Large => BUNDLE_BYTES_MAX,
        }
    }
}

/// `struct io_uring_recvmsg_out`: lengths of name, control data and payload, and flags.
pub(super) const RECVMSG_OUT_BYTES: usize = 16;

const SMALL_HEADER_BYTES: usize = RECVMSG_OUT_BYTES + NAME_BYTES + CONTROL_BYTES;
const SMALL_STRIDE: usize = stride(SMALL_HEADER_BYTES + RX_DATAGRAM_BYTES);
const LARGE_STRIDE: usize = stride(RECVMSG_OUT_BYTES + BUNDLE_BYTES_MAX);

const LINE_BYTES: usize = 64;

/// The next odd multiple of a cache line.
const fn stride(bytes: usize) -> usize {
    (bytes.div_ceil(LINE_BYTES) | 1) * LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_tile_the_arena_without_touching() {
        let options = DriverOptions { small_slots: 4, large_slots: 2, ..DriverOptions::default() };
        let (slots, batch) = Slots::new(options);
        let all = (0..4)
            .map(|i| (SlotSize::Small, i))
            .chain((0..2).map(|i| (SlotSize::Large, i)))
            .map(|(size, i)| (slots.offset(size, i), slots.slot(size, i).1));
        let mut end = 0;
        for (offset, len) in all {
            assert!(offset >= end && offset.is_multiple_of(LINE_BYTES));
            end = offset + len;
        }
        assert!(end <= batch.arena().len());
        slots.assert_owns(&batch);
    }

    #[test]
    #[should_panic(expected = "only the batch it was opened with")]
    fn another_drivers_batch_is_refused() {
        let (slots, _) = Slots::new(DriverOptions::default());
        let (_, other) = Slots::new(DriverOptions::default());
        slots.assert_owns(&other);
    }
}
