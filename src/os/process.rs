//! What the process is and may do: its user, and whether its memory can be looked at.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;

/// The user that this process acts as.
pub fn effective_uid() -> u32 {
    // SAFETY: takes no argument, always succeeds.
    unsafe { libc::geteuid() }
}

/// Keeps keys out of core dumps, and other processes of the same user from attaching to this one. As a side effect the
/// files below `/proc/self` belong to root from now on.
pub fn forbid_dumps() -> io::Result<()> {
    // SAFETY: `PR_SET_DUMPABLE` takes one integer and no pointer.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0_u64) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn our_user_owns_the_files_we_make() {
        let file = std::env::temp_dir().join(format!("ringgate-uid-{}", std::process::id()));
        std::fs::write(&file, "").expect("temporary files can be made");
        let owner = std::fs::metadata(&file).expect("it was made").uid();
        std::fs::remove_file(&file).expect("and removed");
        assert_eq!(owner, effective_uid());
    }
}
