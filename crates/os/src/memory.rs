//! How memory is mapped.
#![allow(unsafe_code, reason = "a system call without a wrapper elsewhere")]

use std::io;
use std::ops::Range;

/// Asks for huge pages where `range` is large enough to hold one. Tables of a million entries that
/// are touched at random cost a walk of the page tables for nearly every touch otherwise, which
/// takes longer than the memory itself (docs/BENCHMARKS.md, the turn). To be called before the
/// memory is used; where the kernel has no huge pages to give, it gives small ones.
pub fn prefer_huge_pages(range: &Range<*const u8>) -> io::Result<()> {
    let start = range.start.addr().next_multiple_of(PAGE_BYTES);
    let end = range.end.addr() & !(PAGE_BYTES - 1);
    let Some(bytes) = end.checked_sub(start).filter(|bytes| *bytes >= 2 * HUGE_PAGE_BYTES) else {
        return Ok(());
    };
    let base = range.start.with_addr(start).cast_mut().cast();
    // SAFETY: this advice changes how pages are made up and nothing that can be read from them,
    // no matter whose they are; a range that is not mapped is an error and nothing worse.
    let result = unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Of the largest pages that a kernel of ours has.
const PAGE_BYTES: usize = 64 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_taken_and_changes_no_byte() {
        let mut memory = vec![7_u8; 16 << 20];
        let advised = prefer_huge_pages(&memory.as_ptr_range());
        // A kernel built without them says so.
        assert!(advised.is_ok() || advised.is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)));
        memory.push(8);
        assert!(memory[..16 << 20].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn small_tables_are_left_alone() {
        let memory = [0_u8; 100];
        assert!(prefer_huge_pages(&memory.as_ptr_range()).is_ok());
        let nowhere = std::ptr::null::<u8>()..std::ptr::null();
        assert!(prefer_huge_pages(&nowhere).is_ok());
    }
}
