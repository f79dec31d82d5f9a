//! Landlock: files that the calling thread, and every thread it starts later, may touch from now
//! on, without a way back.
//!
//! What the kernel is too old for is left out, and said.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr;

/// How far a confinement reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Everything that was asked for.
    Full,
    /// The kernel is too old for some of it.
    Partial,
    /// The kernel knows nothing of it.
    None,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Partial => "partial",
            Self::None => "none",
        })
    }
}

/// From here on the calling thread, and every thread it starts, may read below the first folders,
/// read, write, make and remove below the second, and touch no other file. Folders that are not
/// there are left out.
pub fn confine(read: &[PathBuf], write: &[PathBuf]) -> io::Result<Reach> {
    // No program that it starts gets rights that it lacks; without that the kernel refuses.
    let [yes, unused]: [libc::c_ulong; 2] = [1, 0];
    // SAFETY: takes integers only.
    let is_set = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, unused, unused, unused) };
    check(is_set.into())?;
    let handled = match version() {
        0 => return Ok(Reach::None),
        1 => RIGHTS_OF_FIRST,
        2 => RIGHTS_OF_FIRST | REFER,
        _ => RIGHTS_OF_FIRST | REFER | TRUNCATE,
    };
    let rules = begin(handled)?;
    for (paths, rights) in [(read, READING), (write, handled)] {
        for path in paths {
            allow(&rules, path, rights & handled)?;
        }
    }
    // SAFETY: takes integers only, and the descriptor is open.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) })?;
    Ok(if handled & TRUNCATE == 0 { Reach::Partial } else { Reach::Full })
}

/// Which version of the interface the kernel has; 0 without any, or where it is switched off.
fn version() -> i64 {
    // SAFETY: asked so, the call reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<Handled>(),
            0_usize,
            VERSION_IS_ASKED,
        )
    };
    version.max(0)
}

/// A set of rules that allows nothing of what it handles.
fn begin(handled: u64) -> io::Result<OwnedFd> {
    let handled = Handled { files: handled };
    // SAFETY: the call reads as many bytes as the value has.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            size_of::<Handled>(),
            0_u32,
        )
    })?;
    // SAFETY: the kernel has just made the descriptor, for this process alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn allow(rules: &OwnedFd, path: &PathBuf, rights: u64) -> io::Result<()> {
    let open = File::options().read(true).custom_flags(libc::O_PATH).open(path);
    let Ok(place) = open else { return Ok(()) };
    // The rest means something for folders only, and the kernel refuses it for others.
    let is_folder = place.metadata().map_or(true, |found| found.is_dir());
    let rights = if is_folder { rights } else { rights & RIGHTS_OF_FILES };
    let beneath = Beneath { rights, place: place.as_raw_fd() };
    // SAFETY: the call reads a value of this kind, and both descriptors are open.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            IS_BENEATH,
            &raw const beneath,
            0_u32,
        )
    };
    check(added).map(drop)
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// `struct landlock_ruleset_attr`, as its first version has it.
#[repr(C)]
struct Handled {
    files: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct Beneath {
    rights: u64,
    place: i32,
}

/// `LANDLOCK_CREATE_RULESET_VERSION`.
const VERSION_IS_ASKED: u32 = 1;

/// `LANDLOCK_RULE_PATH_BENEATH`.
const IS_BENEATH: i32 = 1;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_FOLDER: u64 = 1 << 3;

/// All rights of Linux 5.13: the above, and to remove and make each kind of file.
const RIGHTS_OF_FIRST: u64 = (1 << 13) - 1;

/// To link or move files between folders, from Linux 5.19 on.
const REFER: u64 = 1 << 13;

/// To cut files, from Linux 6.2 on.
const TRUNCATE: u64 = 1 << 14;

const READING: u64 = EXECUTE | READ_FILE | READ_FOLDER;

const RIGHTS_OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    /// Landlock binds one thread, so a test may confine one.
    #[test]
    fn a_confined_thread_reads_and_writes_where_it_may_only() {
        let root = std::env::temp_dir().join(format!("ringgate-confine-{}", std::process::id()));
        let (read, write, other) = (root.join("read"), root.join("write"), root.join("other"));
        for folder in [&read, &write, &other] {
            std::fs::create_dir_all(folder).expect("temporary folders");
            std::fs::write(folder.join("file"), "text").expect("temporary files");
        }
        std::fs::write(other.join("one file"), "text").expect("temporary files");
        let confined = std::thread::spawn({
            let (read, write, other) = (read.clone(), write.clone(), other.clone());
            move || {
                let may_be_read = [read.clone(), other.join("one file")];
                let reach =
                    confine(&may_be_read, slice::from_ref(&write)).expect("a sane rule set");
                if reach == Reach::None {
                    eprintln!("SKIPPED: this kernel has no Landlock");
                    return;
                }
                let is_refused = |result: io::Result<()>| {
                    result.is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied)
                };
                assert_eq!(std::fs::read(read.join("file")).expect("may be read"), b"text");
                assert!(is_refused(std::fs::write(read.join("file"), "new")));
                std::fs::write(write.join("new"), "text").expect("may be written");
                std::fs::remove_file(write.join("new")).expect("and removed");
                assert!(is_refused(std::fs::read(other.join("file")).map(drop)));
                assert_eq!(std::fs::read(other.join("one file")).expect("may be read"), b"text");
                // What it starts is bound too.
                let child = std::thread::spawn(move || std::fs::read(other.join("file")).is_err());
                assert!(child.join().expect("it has not panicked"));
            }
        });
        let outcome = confined.join();
        std::fs::remove_dir_all(&root).expect("this thread is free");
        outcome.expect("it has not panicked");
    }
}
