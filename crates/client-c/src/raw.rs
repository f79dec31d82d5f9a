//! Pointers of a caller in C as references, slices and values.
//!
//! Structures that may grow begin with their size, as the caller's header had it. An older caller
//! gets as much of ours as it knows; what a newer one knows beyond ours is zero.

use std::ffi::{c_char, c_int, c_void};
use std::{ptr, slice};

use crate::types::{ERROR_NULL, ERROR_SIZE, OK};

/// A structure that begins with its size.
///
/// # Safety
/// The first field is the size as a `usize`, all bits zero are a value of it, and every field's
/// every value is one.
pub(crate) unsafe trait SizedByCaller: Copy {
    /// The size in the header's first version.
    const FIRST: usize;
}

/// The bytes, unless there is a null pointer.
///
/// # Safety
/// The pointer is null, or points at so many bytes that nobody changes meanwhile.
pub(crate) unsafe fn bytes<'a>(start: *const c_void, len: usize) -> Option<&'a [u8]> {
    if start.is_null() || len > isize::MAX as usize {
        return None;
    }
    // SAFETY: as our caller promises.
    Some(unsafe { slice::from_raw_parts(start.cast(), len) })
}

/// How long the caller's structure is.
///
/// # Safety
/// The pointer is null, or points at a structure that begins with its size.
pub(crate) unsafe fn size<T: SizedByCaller>(from: *const T) -> Result<usize, c_int> {
    if from.is_null() {
        return Err(ERROR_NULL);
    }
    // SAFETY: it begins with its size. A caller in C may have put it anywhere.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if (T::FIRST..=SIZE_MAX).contains(&size) { Ok(size) } else { Err(ERROR_SIZE) }
}

/// What the caller's structure says; `None` where there is none.
///
/// # Safety
/// As [`size`], and all of that size can be read.
pub(crate) unsafe fn read<T: SizedByCaller>(from: *const T) -> Result<Option<T>, c_int> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: as our caller promises.
    let size = unsafe { size(from) }?;
    // SAFETY: all zero is a value of it.
    let mut value: T = unsafe { std::mem::zeroed() };
    let len = size.min(std::mem::size_of::<T>());
    // SAFETY: both are at least that long, and apart from each other.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), len) };
    Ok(Some(value))
}

/// Writes a structure into the caller's, which is `size` long.
///
/// # Safety
/// So many bytes can be written there.
pub(crate) unsafe fn write<T: SizedByCaller>(to: *mut T, value: &T, size: usize) {
    let (start, head) = (to.cast::<u8>(), std::mem::size_of::<usize>());
    let len = size.min(std::mem::size_of::<T>());
    let from = ptr::from_ref(value).cast::<u8>();
    // SAFETY: it begins with its size. That is the caller's; all behind it that both have is ours.
    let from = unsafe { from.add(head) };
    // SAFETY: as above.
    let behind = unsafe { start.add(head) };
    // SAFETY: both are at least `len` long.
    unsafe { ptr::copy_nonoverlapping(from, behind, len - head) };
    // SAFETY: it lies within the caller's structure, at its end at the latest.
    let unknown = unsafe { start.add(len) };
    // SAFETY: so many bytes are left of it.
    unsafe { ptr::write_bytes(unknown, 0, size - len) };
}

/// As [`write`], with the size that the caller's structure says.
///
/// # Safety
/// As [`size`], and all of that size can be written.
pub(crate) unsafe fn answer<T: SizedByCaller>(to: *mut T, value: &T) -> c_int {
    // SAFETY: as our caller promises.
    match unsafe { size(to) } {
        Ok(size) => {
            // SAFETY: as our caller promises.
            unsafe { write(to, value, size) };
            OK
        }
        Err(code) => code,
    }
}

/// A structure that is longer is not one: its size was not set.
const SIZE_MAX: usize = 4096;

/// Writes as much of a text as there is room for, and a zero behind it.
///
/// # Safety
/// The pointer is null, or that many bytes can be written there.
pub(crate) unsafe fn write_text(to: *mut c_char, room: usize, text: &[u8]) {
    if to.is_null() || room == 0 || room > isize::MAX as usize {
        return;
    }
    // SAFETY: as our caller promises, and characters are bytes.
    let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), room) };
    let len = text.len().min(room - 1);
    to[..len].copy_from_slice(&text[..len]);
    to[len] = 0;
}
