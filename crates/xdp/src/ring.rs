//! The rings that a process and the kernel pass frames through: one of them writes, the other
//! reads, and each tells the other how far it has come.
//!
//! A ring lies in memory that both have mapped: two positions that only grow and wrap with their 32
//! bits, and a power of two of entries. The writer's position is stored after the entries are
//! written (release) and loaded before they are read (acquire); the reader's is stored after they
//! were read and loaded before they are written again.
#![allow(unsafe_code, reason = "memory that the kernel shares with us is raw pointers")]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use ringgate_os::mapping::Mapping;

/// Where the parts of a ring lie in its mapping, as the kernel says.
pub(crate) type Offsets = libc::xdp_ring_offset;

/// A ring of entries `T`, for either side.
#[derive(Debug)]
struct Ring<T> {
    written: NonNull<AtomicU32>,
    read: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps what is pointed to.
    _mapping: Mapping,
    of: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping, which moves along and belongs to no thread. A ring
// has one side of ours, which is used through `&mut` only.
unsafe impl<T: Send> Send for Ring<T> {}

/// What the kernel reads or writes as an entry: plain numbers, for which any bits are valid.
///
/// # Safety
/// Any bits must be a valid value.
pub(crate) unsafe trait Entry: Copy {}

// SAFETY: a number.
unsafe impl Entry for u64 {}
// SAFETY: three numbers.
unsafe impl Entry for libc::xdp_desc {}

impl<T: Entry> Ring<T> {
    /// A ring of so many entries, a power of two, in memory that the kernel has laid out for it.
    fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> Self {
        assert!(size.is_power_of_two(), "the kernel makes no other rings");
        let last = offsets.desc + u64::from(size - 1) * size_of::<T>() as u64;
        let _ = mapping.at::<T>(last);
        Self {
            written: mapping.at(offsets.producer),
            read: mapping.at(offsets.consumer),
            flags: mapping.at(offsets.flags),
            entries: mapping.at(offsets.desc),
            size,
            _mapping: mapping,
            of: PhantomData,
        }
    }

    const fn written(&self) -> &AtomicU32 {
        // SAFETY: it lies in our mapping, which lives as long as `self`, and both sides use it as
        // an atomic only.
        unsafe { self.written.as_ref() }
    }

    const fn read(&self) -> &AtomicU32 {
        // SAFETY: as for `written`.
        unsafe { self.read.as_ref() }
    }

    fn wants_wake_up(&self) -> bool {
        // SAFETY: as for `written`.
        let flags = unsafe { self.flags.as_ref() };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        let place = (position & (self.size - 1)) as usize;
        // SAFETY: there are `size` entries, as was asked when the ring was made.
        unsafe { self.entries.add(place) }
    }
}

/// The side that writes.
#[derive(Debug)]
pub(crate) struct Writer<T> {
    ring: Ring<T>,
    /// Where the next entry is written; what the kernel knows is behind it.
    position: u32,
    /// How far the kernel had read when it was last asked.
    read: u32,
}

impl<T: Entry> Writer<T> {
    /// The writing side of a ring, which goes on where the ring is.
    pub(crate) fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> Self {
        let ring = Ring::new(mapping, offsets, size);
        let position = ring.written().load(Ordering::Relaxed);
        let read = ring.read().load(Ordering::Acquire);
        Self { ring, position, read }
    }

    /// Goes on where the ring is now: somebody else has written meanwhile.
    pub(crate) fn resume(&mut self) {
        self.position = self.ring.written().load(Ordering::Acquire);
        self.read = self.ring.read().load(Ordering::Acquire);
    }

    /// How many entries can be written.
    pub(crate) fn room(&mut self) -> u32 {
        self.read = self.ring.read().load(Ordering::Acquire);
        self.ring.size - self.position.wrapping_sub(self.read)
    }

    /// Writes an entry, if there is room. The kernel sees it after [`publish`](Self::publish).
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.position.wrapping_sub(self.read) == self.ring.size && self.room() == 0 {
            return false;
        }
        // SAFETY: the kernel has read what was there (`room`), and reads it again only when it is
        // told that there is something new.
        unsafe { self.ring.entry(self.position).write(entry) };
        self.position = self.position.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    pub(crate) fn publish(&self) {
        self.ring.written().store(self.position, Ordering::Release);
    }

    /// Whether the kernel has read everything.
    pub(crate) fn is_read(&self) -> bool {
        self.ring.read().load(Ordering::Acquire) == self.position
    }

    /// Whether the kernel sleeps and has to be told that there is something.
    pub(crate) fn wants_wake_up(&self) -> bool {
        self.ring.wants_wake_up()
    }
}

/// The side that reads.
#[derive(Debug)]
pub(crate) struct Reader<T> {
    ring: Ring<T>,
    position: u32,
    /// How far the kernel had written when it was last asked.
    written: u32,
}

impl<T: Entry> Reader<T> {
    /// The reading side of a ring, which goes on where the ring is.
    pub(crate) fn new(mapping: Mapping, offsets: &Offsets, size: u32) -> Self {
        let ring = Ring::new(mapping, offsets, size);
        let position = ring.read().load(Ordering::Relaxed);
        Self { ring, position, written: position }
    }

    /// Goes on where the ring is now: somebody else has read meanwhile.
    pub(crate) fn resume(&mut self) {
        self.position = self.ring.read().load(Ordering::Acquire);
        self.written = self.position;
    }

    /// The next entry. Its place is the kernel's again after [`release`](Self::release).
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.position == self.written {
            self.written = self.ring.written().load(Ordering::Acquire);
            if self.position == self.written {
                return None;
            }
        }
        // SAFETY: the kernel has written it, and writes there again only when it is told that it
        // was read. Any bits are valid.
        let entry = unsafe { self.ring.entry(self.position).read() };
        self.position = self.position.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel the places of what was read.
    pub(crate) fn release(&self) {
        self.ring.read().store(self.position, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, desc: 192 };

    /// Memory that can be mapped twice, once for each side.
    fn memory() -> OwnedFd {
        let file = ringgate_os::shared::memory_file(c"ring").expect("memory");
        file.set_len(4096).expect("memory");
        file.into()
    }

    fn both_sides(fd: &OwnedFd) -> (Writer<u64>, Reader<u64>) {
        let map = || Mapping::new(fd.as_fd(), 0, 4096).expect("mapped");
        (Writer::new(map(), &OFFSETS, 8), Reader::new(map(), &OFFSETS, 8))
    }

    #[test]
    fn entries_arrive_in_order_and_never_more_than_fit() {
        let memory = memory();
        let (mut writer, mut reader) = both_sides(&memory);
        let (mut next, mut wanted) = (0, 0);
        for round in 0..100_u64 {
            let mut pushed = 0;
            while pushed < round % 11 && writer.push(next) {
                (next, pushed) = (next + 1, pushed + 1);
            }
            assert!(pushed <= 8);
            assert!(reader.pop().is_none(), "it was not published");
            writer.publish();
            while let Some(entry) = reader.pop() {
                assert_eq!(entry, wanted);
                wanted += 1;
            }
            reader.release();
            assert!(writer.is_read() && writer.room() == 8);
        }
        assert_eq!(next, wanted);
    }

    #[test]
    fn a_second_pair_goes_on_where_the_first_has_stopped() {
        let memory = memory();
        let (mut writer, mut reader) = both_sides(&memory);
        for number in 0..5 {
            assert!(writer.push(number));
        }
        writer.publish();
        assert_eq!((reader.pop(), reader.pop()), (Some(0), Some(1)));
        reader.release();
        drop((writer, reader));
        let (mut writer, mut reader) = both_sides(&memory);
        assert_eq!(writer.room(), 5);
        assert!(writer.push(5));
        writer.publish();
        let rest: Vec<_> = std::iter::from_fn(|| reader.pop()).collect();
        assert_eq!(rest, [2, 3, 4, 5]);
    }

    #[test]
    fn two_threads_lose_nothing() {
        let memory = memory();
        let (mut writer, mut reader) = both_sides(&memory);
        let count = 100_000;
        let writing = std::thread::spawn(move || {
            for number in 0..count {
                while !writer.push(number) {
                    std::thread::yield_now();
                }
                writer.publish();
            }
        });
        for number in 0..count {
            let entry = loop {
                match reader.pop() {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(entry, number);
            reader.release();
        }
        writing.join().expect("it ends");
    }
}
