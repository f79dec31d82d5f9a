//! A word to the CPU about what will be needed next.
//!
//! A batch of packets from random sessions is a batch of cache misses. Asked for one by one, each
//! costs a wait; announced all at once, they cost one (benches/turn.rs: docs/BENCHMARKS.md has the
//! figures). A prefetch changes nothing but caches, so asking for the wrong line is harmless.
#![allow(unsafe_code, reason = "the prefetch instruction takes a pointer")]

/// Has the `line`th cache line of `object` fetched, counted from its first byte. Lines behind its
/// end are fetched as well.
#[inline]
pub fn prefetch_line<T>(object: &T, line: usize) {
    let address = std::ptr::from_ref(object).cast::<i8>().wrapping_add(line * LINE_BYTES);
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and never faults, whatever the
        // address; SSE is a part of every x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Of every CPU this runs fast on.
pub const LINE_BYTES: usize = 64;
