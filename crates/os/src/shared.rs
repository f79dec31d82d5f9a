//! Memory that one process fills and another reads, and that never becomes a file: secrets on their
//! way from a process to the one that takes its place.
#![allow(unsafe_code, reason = "a memfd and its mapping have no wrapper elsewhere")]

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

/// Memory of the one who writes. Nobody can make it larger or smaller, or write to it by its
/// descriptor; it is wiped when this is dropped.
#[derive(Debug)]
pub struct Writing {
    fd: OwnedFd,
    start: NonNull<u8>,
    bytes: usize,
    /// What may have been written to.
    used: usize,
    /// The most of it that was, at any time.
    reached: usize,
}

// SAFETY: the mapping belongs to this value alone, and to no thread.
unsafe impl Send for Writing {}

/// A file in memory that can be sealed and is never run: some systems make no other.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    let make = |kind| {
        // SAFETY: the name is a C string.
        let raw = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | kind) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(File::from(unsafe { OwnedFd::from_raw_fd(raw) }))
    };
    // Linux before 6.3 knows nothing of what is run.
    make(libc::MFD_NOEXEC_SEAL).or_else(|_| make(libc::MFD_ALLOW_SEALING))
}

impl Writing {
    /// So many bytes of zeros. Pages that are not touched cost nothing.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1);
        let file = memory_file(c"ringgate")?;
        file.set_len(bytes as u64)?;
        let fd = OwnedFd::from(file);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice, of a file that is as long.
        let start =
            unsafe { libc::mmap(null_mut(), bytes, access, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel maps nothing at zero");
        let writing = Self { fd, start, bytes, used: 0, reached: 0 };
        // SAFETY: takes integers only.
        let sealed = unsafe { libc::fcntl(writing.fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) };
        if sealed < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(writing)
    }

    /// All of it. What is written to has to be said afterwards ([`use_up_to`](Self::use_up_to)), or
    /// has been before.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.used = self.bytes;
        // SAFETY: the mapping is as long and lives as long as this value, which lends it out once
        // at a time. Others can only read it, by their descriptors.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Nothing behind this was written to since it was [lent](Self::bytes_mut), so what lies there
    /// need not be wiped if it did not have to be before.
    pub fn use_up_to(&mut self, bytes: usize) {
        self.reached = self.reached.max(bytes.min(self.bytes));
        self.used = self.reached;
    }

    /// For the one who reads.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let used = self.used;
        let bytes = self.bytes_mut();
        bytes[..used].fill(0);
        // Looked at, or the compiler would leave it out.
        std::hint::black_box(bytes);
        // SAFETY: it is our own mapping, and nobody has borrowed it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Copies so many bytes of memory that another process has filled, from a place on. An error where
/// it is no such memory, or not as long.
pub fn read(fd: BorrowedFd<'_>, from: u64, into: &mut [u8]) -> io::Result<()> {
    // SAFETY: takes no argument.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & SEALS != SEALS {
        return Err(io::Error::other("it is no sealed memory"));
    }
    let mut read = 0;
    while read < into.len() {
        let rest = &mut into[read..];
        let at = from.checked_add(read as u64).and_then(|at| libc::off_t::try_from(at).ok());
        let at = at.ok_or(io::ErrorKind::UnexpectedEof)?;
        // SAFETY: the pointer and the length are those of a live slice that is ours alone.
        let len = unsafe { libc::pread(fd.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), at) };
        match usize::try_from(len) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len,
            Err(_) => match io::Error::last_os_error() {
                why if why.kind() == io::ErrorKind::Interrupted => {}
                why => return Err(why),
            },
        }
    }
    Ok(())
}

/// Nobody changes its length, and nobody begins to write to it.
const SEALS: i32 =
    libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn what_was_written_can_be_read_until_it_is_wiped() {
        let mut writing = Writing::new(100_003).expect("memory");
        writing.bytes_mut()[..11].copy_from_slice(b"very secret");
        writing.bytes_mut()[100_002] = 7;
        let other = || writing.fd().try_clone_to_owned().expect("a second descriptor");
        let mut copy = vec![0; 100_003];
        read(writing.fd(), 0, &mut copy).expect("it is there");
        assert_eq!((&copy[..11], copy[100_002]), (&b"very secret"[..], 7));
        let mut part = [0; 6];
        read(writing.fd(), 5, &mut part).expect("it is there");
        assert_eq!(&part, b"secret");
        assert!(read(writing.fd(), 0, &mut vec![0; 100_004]).is_err(), "it is not that long");
        assert!(
            read(writing.fd(), 100_000, &mut part).is_err()
                && read(writing.fd(), u64::MAX, &mut part).is_err()
        );
        let late = File::from(other());
        assert!(late.write_at(b"x", 0).is_err() && late.set_len(5).is_err());
        drop(writing);
        late.read_exact_at(&mut copy, 0).expect("it is there");
        assert!(copy.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn what_was_written_before_it_was_lent_again_is_wiped_too() {
        let mut writing = Writing::new(64).expect("memory");
        writing.bytes_mut()[..20].fill(7);
        writing.use_up_to(20);
        writing.bytes_mut()[..5].fill(8);
        writing.use_up_to(5);
        let late = File::from(writing.fd().try_clone_to_owned().expect("a second descriptor"));
        drop(writing);
        let mut copy = [1; 64];
        late.read_exact_at(&mut copy, 0).expect("it is there");
        assert_eq!(copy, [0; 64]);
    }

    #[test]
    fn a_file_is_not_taken_for_memory() {
        let path = std::env::temp_dir().join(format!("ringgate-shared-{}", std::process::id()));
        std::fs::write(&path, [1; 64]).expect("a file");
        let file = File::open(&path).expect("there");
        std::fs::remove_file(&path).expect("removed");
        assert!(read(file.as_fd(), 0, &mut [0; 8]).is_err());
    }
}
