//! Memory without a file, by descriptor: another process can be given it, with everything that lies
//! in it.
#![allow(unsafe_code, reason = "a memfd and its mapping have no wrapper elsewhere")]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringgate_batch::Arena;
use ringgate_os::mapping::Mapping;
use ringgate_os::shared::memory_file;

/// Memory of another process from an offset on, behind so many bytes of our own, as one arena. Both
/// are multiples of a page.
///
/// # Errors
/// Where the other process's memory is not as long.
pub fn adopted(fd: &OwnedFd, offset: u64, bytes: usize, head: usize) -> io::Result<Arena> {
    let len = File::from(fd.try_clone()?).metadata()?.len();
    if offset.checked_add(bytes as u64).is_none_or(|end| end > len) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mapping = Mapping::behind(head, fd.as_fd(), offset, bytes)?;
    let start = mapping.start();
    // SAFETY: the mapping is as long and is kept as long as the arena lives. The head is nobody
    // else's; of the rest the caller is told who may touch what.
    Ok(unsafe { Arena::over(start, head + bytes, Box::new(mapping)) })
}

/// So many bytes of zeros as an arena, and their descriptor. Pages are there before this returns.
pub fn shared(bytes: usize) -> io::Result<(Arena, OwnedFd)> {
    let file = memory_file(c"ringgate-frames")?;
    file.set_len(bytes as u64)?;
    let fd = OwnedFd::from(file);
    let mapping = Mapping::new(fd.as_fd(), 0, bytes)?;
    let start = mapping.start();
    // SAFETY: the mapping is as long, is kept as long as the arena lives, and is nobody else's: its
    // address has not left this function.
    Ok((unsafe { Arena::over(start, bytes, Box::new(mapping)) }, fd))
}
