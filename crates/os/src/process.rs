//! What the process is and may do: its user, and whether its memory can be looked at.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::Mutex;

/// The user that this process acts as.
pub fn effective_uid() -> u32 {
    // SAFETY: takes no argument, always succeeds.
    unsafe { libc::geteuid() }
}

/// Keeps keys out of core dumps, and other processes of the same user from attaching to this one.
/// As a side effect the files below `/proc/self` belong to root from now on.
pub fn forbid_dumps() -> io::Result<()> {
    // SAFETY: `PR_SET_DUMPABLE` takes one integer and no pointer.
    let result = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0_u64) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// SIGUSR1 and SIGUSR2 do nothing from now on; by default they end a process. So does SIGXFSZ: a
/// file that may not grow is an error of the write.
pub fn ignore_user_signals() {
    for number in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGXFSZ] {
        // SAFETY: takes integers; "ignore" is no function that could be called.
        unsafe { libc::signal(number, libc::SIG_IGN) };
    }
}

/// A child that has ended, if there is one, and how. The kernel forgets it with this.
pub fn bury() -> Option<(u32, ExitStatus)> {
    let mut status = 0;
    // SAFETY: `status` is a live integer, which the call only writes; the rest are integers.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    Some((pid, ExitStatus::from_raw(status)))
}

/// Sends a signal to a process.
pub fn signal(pid: u32, number: i32) -> io::Result<()> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: takes integers only.
    let result = unsafe { libc::kill(pid, number) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has this process hear a signal. A confined one may do that, and signal nobody else.
pub fn raise(number: i32) {
    // SAFETY: takes an integer only.
    unsafe { libc::raise(number) };
}

/// Has what this starts be killed when the thread that starts it ends, however that happens.
pub fn end_with_us(command: &mut Command) -> &mut Command {
    let ask = || {
        // SAFETY: `PR_SET_PDEATHSIG` takes one integer and no pointer.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes one system call, and allocates nothing.
    unsafe { command.pre_exec(ask) }
}

/// Puts this thread before every ordinary one of its core, at the lowest real-time priority. Needs
/// `CAP_SYS_NICE`. Threads and processes that it starts are ordinary again.
pub fn go_first() -> io::Result<()> {
    let lowest: libc::c_int = 1;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel's `sched_param` is one integer, which the call only reads; 0 is the
    // calling thread.
    match unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts this thread behind the ordinary ones of its core, for work that may take longer. There is
/// no way back without rights, so it is for threads that end with their work.
pub fn stand_back() {
    // SAFETY: takes integers; 0 is the calling thread, since Linux keeps this for each of them.
    // Where it cannot be had, the work is done all the same.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Something like a tenth of a core that others want, all of one that they do not.
const NICE: i32 = 10;

/// Runs `make` with a umask of its own, so that what it creates has exactly the mode it asks for
/// and nothing has to be changed by its path afterwards.
///
/// A umask belongs to all threads of a process. So `make` runs on a thread that has left that
/// community (`unshare(CLONE_FS)`), and files that other threads create meanwhile are as private as
/// ever. Where that call is forbidden (some containers' filters) the umask of the whole process
/// changes for as long as `make` runs; one call at a time, so that each puts back what was there.
pub fn with_umask<T: Send>(umask: u32, make: impl FnOnce() -> T + Send) -> io::Result<T> {
    static SHARED: Mutex<()> = Mutex::new(());
    std::thread::scope(|scope| {
        let apart = std::thread::Builder::new().spawn_scoped(scope, || {
            // SAFETY: takes no pointer, and concerns this thread's umask and working directory
            // only.
            let is_apart = unsafe { libc::unshare(libc::CLONE_FS) } == 0;
            let _one_at_a_time = (!is_apart).then(|| SHARED.lock());
            let before = set_umask(umask);
            let made = make();
            set_umask(before);
            made
        })?;
        apart.join().map_err(|_| io::Error::other("a thread panicked"))
    })
}

fn set_umask(umask: u32) -> u32 {
    // SAFETY: takes no pointer, always succeeds.
    unsafe { libc::umask(umask) }
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
    fn a_umask_of_its_own_is_nobody_elses() {
        let umask = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc");
            let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
            line.expect("Linux 4.7 tells it").trim().to_owned()
        };
        let before = umask();
        let inside = with_umask(0o531, umask).expect("a thread can be started");
        assert_eq!(inside, "0531");
        assert_eq!(umask(), before, "and afterwards it is what it was");
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
