//! Memory that a descriptor stands for, mapped to be shared with the kernel or another process.
#![allow(unsafe_code, reason = "memory that the kernel shares with us is raw pointers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};

/// Memory that was mapped, until this is dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared one hands out raw pointers only; whoever dereferences one argues for it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes of a descriptor, to be shared with whoever else does. Pages are there
    /// before this returns.
    pub fn new(fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing of ours.
        let start =
            unsafe { libc::mmap(null_mut(), bytes, access, how, fd.as_raw_fd(), offset as i64) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at zero");
        Ok(Self { start, bytes })
    }

    /// The same behind so many bytes of new memory, which nobody else has.
    pub fn behind(head: usize, fd: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let new = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing of ours.
        let start = unsafe { libc::mmap(null_mut(), head + bytes, access, new, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).expect("the kernel maps nothing at zero");
        let mapping = Self { start, bytes: head + bytes };
        // SAFETY: `head` is within the mapping.
        let place = unsafe { start.add(head) }.as_ptr().cast();
        let how = libc::MAP_SHARED | libc::MAP_POPULATE | libc::MAP_FIXED;
        // SAFETY: what is replaced is the end of the mapping that was just made, and nobody has a
        // pointer there.
        let shared =
            unsafe { libc::mmap(place, bytes, access, how, fd.as_raw_fd(), offset as i64) };
        if shared == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(mapping) }
    }

    /// Where it begins.
    pub const fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// A pointer to a value inside.
    ///
    /// # Panics
    /// Where it does not lie inside, or not where such values may lie.
    pub fn at<T>(&self, offset: u64) -> NonNull<T> {
        let offset = offset as usize;
        let is_inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        assert!(is_inside && offset.is_multiple_of(align_of::<T>()), "it lies in its mapping");
        // SAFETY: it lies inside of the mapping, as was just asked.
        unsafe { self.start.add(offset) }.cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is our own mapping, and what points into it is gone before it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
