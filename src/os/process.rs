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

/// Puts this thread before every ordinary one of its core, at the lowest real-time priority. Needs `CAP_SYS_NICE`. Threads
/// and processes that it starts are ordinary again.
pub fn go_first() -> io::Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `lowest` is a live `sched_param`, which the call only reads; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const lowest) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn who_goes_first_leaves_what_it_starts_where_it_was() {
        let policy = || std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
        let has_policy = |text: &str, wanted: &str| {
            let line = text.lines().find(|line| line.starts_with("policy"));
            line.is_some_and(|line| line.trim_end().ends_with(wanted))
        };
        let first = std::thread::spawn(move || {
            go_first().map(|()| {
                let child = std::thread::spawn(policy).join().expect("it only reads");
                (policy(), child)
            })
        });
        match first.join().expect("it only reads") {
            Ok((mine, child)) if !mine.is_empty() => {
                assert!(has_policy(&mine, "1") && has_policy(&child, "0"), "{mine} {child}");
            }
            Ok(_) => eprintln!("SKIPPED: this kernel does not show a thread's policy"),
            Err(why) => assert_eq!(why.kind(), io::ErrorKind::PermissionDenied),
        }
    }

    #[test]
    fn our_user_owns_the_files_we_make() {
        let file = std::env::temp_dir().join(format!("ringgate-uid-{}", std::process::id()));
        std::fs::write(&file, "").expect("temporary files can be made");
        let owner = std::fs::metadata(&file).expect("it was made").uid();
        std::fs::remove_file(&file).expect("and removed");
        assert_eq!(owner, effective_uid());
    }
}
