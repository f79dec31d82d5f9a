//! Threads that wipe the memory which they give back: what others have written into a connection's
//! buffer may have been a secret, and buffers are their libraries' own.
#![allow(unsafe_code, reason = "an allocator is an unsafe trait; this one passes everything on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with memory wiped where [`wipe_from_now_on`] says so.
#[derive(Debug)]
pub struct Wiping;

thread_local! {
    static WIPES: Cell<bool> = const { Cell::new(false) };
}

/// What this thread gives back from now on is wiped before, where the program's allocator is
/// [`Wiping`].
pub fn wipe_from_now_on() {
    WIPES.set(true);
}

// SAFETY: the system's allocator does all of it; what is written is given back afterwards.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our own caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as our own caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if WIPES.get() {
            // SAFETY: these bytes are the caller's until they are given back.
            unsafe { at.write_bytes(0, layout.size()) };
            // Somebody might look: so it is not left out as what nobody reads.
            std::hint::black_box(at);
        }
        // SAFETY: as our own caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !WIPES.get() {
            // SAFETY: as our own caller promises.
            return unsafe { System.realloc(at, layout, size) };
        }
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: our own caller promises that the size is not 0.
        let to = unsafe { self.alloc(wanted) };
        if !to.is_null() {
            // SAFETY: both have so many bytes, and are different ones.
            unsafe { to.copy_from_nonoverlapping(at, layout.size().min(size)) };
            // SAFETY: they are the caller's no more.
            unsafe { self.dealloc(at, layout) };
        }
        to
    }
}
