//! One block of zeroed memory with a fixed address, cut into slots by its users.
//!
//! Receive slots are lent to the kernel while their owner keeps running, so the memory may never
//! move and must outlive every operation on it. `Arena` owns the block and hands out raw
//! bounds-checked pointers; who may touch which slot when is the business of
//! [`RxBatch`](super::RxBatch) and of the driver, and is argued there.
#![allow(
    unsafe_code,
    reason = "memory that the kernel writes while we hold its owner cannot be a plain slice"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt::Debug;
use std::ptr::NonNull;

/// A page-aligned, initialised block that never moves.
#[derive(Debug)]
pub struct Arena {
    base: NonNull<u8>,
    layout: Layout,
    /// Keeps memory that is not the allocator's.
    keeper: Option<Box<dyn Keeper>>,
}

/// Something that keeps memory where it is until it is dropped.
pub trait Keeper: Debug + Send + Sync {}

impl<T: Debug + Send + Sync> Keeper for T {}

// SAFETY: `Arena` owns its block exclusively, like a `Box<[u8]>`; nothing in it is tied to the
// thread that made it.
unsafe impl Send for Arena {}

// SAFETY: a shared `Arena` hands out nothing but raw pointers and its length; whoever dereferences
// a pointer argues for it.
unsafe impl Sync for Arena {}

impl Arena {
    /// Allocates `bytes` zeroed bytes.
    pub fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), PAGE_BYTES)
            .expect("arena sizes are small constants");
        // SAFETY: `layout` has a size of at least 1.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout, keeper: None }
    }

    /// An arena over memory from elsewhere, such as a mapping that others have too.
    ///
    /// # Safety
    /// `base` begins a page, and the `bytes` from there on are initialised and stay readable and
    /// writable until `keeper` is dropped. Nobody else reads or writes them but as those who use
    /// the arena argue.
    ///
    /// # Panics
    /// Where it does not begin a page, or is larger than memory can be.
    pub unsafe fn over(base: NonNull<u8>, bytes: usize, keeper: Box<dyn Keeper>) -> Self {
        let layout =
            Layout::from_size_align(bytes, SMALLEST_PAGE_BYTES).expect("memory has this size");
        assert!(base.addr().get().is_multiple_of(SMALLEST_PAGE_BYTES), "an arena begins a page");
        Self { base, layout, keeper: Some(keeper) }
    }

    /// Bytes in the block.
    #[inline]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Whether the block is empty: one of ours never is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A pointer to `len` bytes at `offset`. Panics where the block ends before them, so that no
    /// caller can hand the kernel or anybody else a pointer past the end.
    #[inline]
    pub fn pointer(&self, offset: usize, len: usize) -> NonNull<u8> {
        assert!(offset <= self.len() && len <= self.len() - offset, "slot outside the arena");
        // SAFETY: `offset` lies inside the allocation or one past its end, by the assert.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            return;
        }
        // SAFETY: `base` came from `alloc_zeroed` with this very layout and is freed only here.
        // Whoever lent slots to the kernel has taken them back first (each driver's `Drop` says
        // how).
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Of the largest pages that a kernel of ours has (64-bit Arm may have 4, 16 or 64 KiB).
pub const PAGE_BYTES: usize = 64 << 10;
const SMALLEST_PAGE_BYTES: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_begins_a_page_of_any_kernel() {
        let arenas = [1, 5000, 300_000].map(Arena::new);
        for arena in &arenas {
            assert!(arena.pointer(0, 1).addr().get().is_multiple_of(65_536));
        }
    }
}
