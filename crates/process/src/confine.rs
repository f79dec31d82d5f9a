//! Giving up what the daemon does not need any more: its user, the rest of the file system, most
//! system calls.
//!
//! The order is the kernel's. Giving up files (`ringgate_os::landlock`) binds the calling thread
//! and those it starts later, so it comes before there are any. [`become_user`] comes once every
//! socket is bound. [`system_calls`] reaches all threads and comes last.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use ringgate_os::process;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter, apply_filter_all_threads,
};

/// A user of this system, with its main group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl User {
    /// Looks a user up by name.
    pub fn named(name: &str) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "there is no such user");
        let name = CString::new(name).map_err(|_| unknown())?;
        let mut record = MaybeUninit::<libc::passwd>::uninit();
        let mut strings = vec![0_i8 as libc::c_char; PASSWD_BYTES_MAX];
        let mut found = null_mut();
        // SAFETY: all pointers are to live values of the right types, and the length is the
        // buffer's own.
        let result = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                record.as_mut_ptr(),
                strings.as_mut_ptr(),
                strings.len(),
                &raw mut found,
            )
        };
        match (result, found.is_null()) {
            (0, true) => Err(unknown()),
            (0, false) => {
                // SAFETY: the call succeeded and found a user, so it has filled the record in.
                let record = unsafe { record.assume_init() };
                Ok(Self { uid: record.pw_uid, gid: record.pw_gid })
            }
            (error, _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Whom a process becomes that is to be this user; nobody else where it is that user already.
pub fn becomes(name: Option<&str>) -> Result<Option<User>, String> {
    let Some(name) = name else { return Ok(None) };
    let user = User::named(name).map_err(|why| format!("cannot become user {name}: {why}"))?;
    match process::effective_uid() {
        own if own == user.uid => Ok(None),
        0 => Ok(Some(user)),
        own => Err(format!(
            "cannot become user {name}: the daemon was started as user {own}, not as root"
        )),
    }
}

/// A user's name, home and shell; longer ones are refused by the call.
const PASSWD_BYTES_MAX: usize = 64 << 10;

/// Becomes another user without a way back, on all threads: its groups, then its ids. All
/// capabilities go with that.
pub fn become_user(user: User) -> io::Result<()> {
    let check = |result: i32| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: a list of no groups, so no pointer is read.
    check(unsafe { libc::setgroups(0, null_mut()) })?;
    // SAFETY: takes integers only; the C library does it on every thread.
    check(unsafe { libc::setresgid(user.gid, user.gid, user.gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(user.uid, user.uid, user.uid) })
}

/// Whose system calls are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// A gateway's, with its rings and its card's tables.
    Gateway,
    /// An agent's, which makes sockets for game processes while it serves.
    Agent,
    /// A token service's.
    Tokens,
}

/// From here on all threads may make the calls of [`CALLS`] only, those that are the process's
/// own, and some [in part](parts). Any other fails with `EPERM`: a call that a library makes one
/// day must not end the players' sessions.
pub fn system_calls(whose: Calls) -> io::Result<()> {
    apply_filter_all_threads(&filter(whose)?).map_err(io::Error::other)
}

/// Whether this can be done here. A thread does it, and ends with that: when the process does,
/// nobody else may have its players any more.
pub fn check_system_calls(whose: Calls) -> io::Result<()> {
    let filter = filter(whose)?;
    let tried = std::thread::Builder::new().spawn(move || apply_filter(&filter))?.join();
    tried.map_err(|_| io::Error::other("a thread has panicked"))?.map_err(io::Error::other)
}

fn filter(whose: Calls) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let more = match whose {
        Calls::Gateway => GATEWAY_CALLS,
        Calls::Agent => AGENT_CALLS,
        Calls::Tokens => &[],
    };
    let whole = CALLS.iter().chain(more);
    let mut rules: BTreeMap<i64, _> = whole.map(|call| (*call, Vec::new())).collect();
    rules.extend(parts(whose).map_err(io::Error::other)?);
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch);
    filter.and_then(BpfProgram::try_from).map_err(io::Error::other)
}

/// Calls of which a part remains. Signals and limits are this process's own, and no other process
/// becomes the owner of a descriptor, who is sent a signal when there is something to read.
fn parts(whose: Calls) -> Result<Vec<(i64, Vec<SeccompRule>)>, BackendError> {
    let mut parts = vec![
        (libc::SYS_tgkill, first_is(&[std::process::id().into()])?),
        (libc::SYS_prlimit64, first_is(&[0])?),
        (libc::SYS_fcntl, second_is_neither(SET_OWNER)?),
        (libc::SYS_ioctl, second_is_neither(SET_OWNER_BY_IOCTL)?),
    ];
    match whose {
        // The tables of a program that is there change, by descriptors that this process has: with
        // `io = "xdp"` addresses come and go. No program can be loaded or attached.
        Calls::Gateway => parts.push((libc::SYS_bpf, first_is(&[SET_IN_MAP, REMOVE_FROM_MAP])?)),
        // A umask of a thread's own, with which a socket's file is made.
        Calls::Agent => parts.push((libc::SYS_unshare, first_is(&[libc::CLONE_FS as u64])?)),
        Calls::Tokens => {}
    }
    Ok(parts)
}

fn first_is(values: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let is = |value: &u64| SeccompRule::new(vec![argument(0, SeccompCmpOp::Eq, *value)?]);
    values.iter().map(is).collect()
}

fn second_is_neither(values: [u64; 2]) -> Result<Vec<SeccompRule>, BackendError> {
    let is_not = values.map(|value| argument(1, SeccompCmpOp::Ne, value));
    Ok(vec![SeccompRule::new(is_not.into_iter().collect::<Result<_, _>>()?)?])
}

fn argument(at: u8, is: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, is, value)
}

/// `BPF_MAP_UPDATE_ELEM` and `BPF_MAP_DELETE_ELEM`.
const SET_IN_MAP: u64 = 2;
const REMOVE_FROM_MAP: u64 = 3;
/// `F_SETOWN` and `F_SETOWN_EX`.
const SET_OWNER: [u64; 2] = [8, 15];
/// `FIOSETOWN` and `SIOCSPGRP`.
const SET_OWNER_BY_IOCTL: [u64; 2] = [0x8901, 0x8902];

/// What a daemon that is serving asks of the kernel beside [`parts`]. No new program, no other
/// process's memory, no new user, no mount, no module. `setsid`-like, `ptrace`-like and `exec`-like
/// calls are out by not being here.
const CALLS: &[i64] = &[
    // Datagrams and links.
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    // Time, where the vDSO does not answer.
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    // Files: the config on reload, histograms, state, link sockets.
    libc::SYS_close,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Memory that another process reads: what it takes over.
    libc::SYS_memfd_create,
    // Memory and threads.
    libc::SYS_brk,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    // The domain that names of hosts are looked up in.
    libc::SYS_uname,
    // Older C libraries of x86-64 go by these names.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
];

/// A gateway's own: its workers' rings.
const GATEWAY_CALLS: &[i64] = &[libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// An agent's own: each lane that a gateway opens is a socket in `run_dir`, with a mode.
const AGENT_CALLS: &[i64] = &[libc::SYS_fchmod, libc::SYS_umask];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        assert_eq!(User::named("root").expect("every system has one"), User { uid: 0, gid: 0 });
        let nobody = User::named("no such user, surely").expect_err("nobody");
        assert_eq!(nobody.kind(), io::ErrorKind::NotFound);
        assert_eq!(User::named("a\0b").expect_err("nobody").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn what_can_be_given_up_is_found_out_without_doing_it() {
        for whose in [Calls::Gateway, Calls::Agent, Calls::Tokens] {
            check_system_calls(whose).expect("this kernel filters calls");
        }
        process::signal(std::process::id(), 0).expect("this thread may still do that");
    }

    #[test]
    fn the_filter_fits_and_lets_no_program_be_started() {
        for whose in [Calls::Gateway, Calls::Agent, Calls::Tokens] {
            assert!(filter(whose).expect("it compiles").len() < 4096, "the kernel's limit");
        }
        let all = || CALLS.iter().chain(GATEWAY_CALLS).chain(AGENT_CALLS);
        for forbidden in [
            libc::SYS_bpf,
            libc::SYS_execve,
            libc::SYS_kill,
            libc::SYS_ptrace,
            libc::SYS_setuid,
            libc::SYS_unshare,
        ] {
            assert!(all().all(|call| *call != forbidden));
        }
    }

    /// A filter binds the thread that asks for it, and those that it starts.
    #[test]
    fn a_filtered_thread_makes_the_calls_of_an_agent_and_no_others() {
        let folder = std::env::temp_dir().join(format!("ringgate-calls-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("temporary folders");
        let path = folder.join("worker-0.sock");
        let mut other = std::process::Command::new("cat");
        let mut other = other.stdin(std::process::Stdio::piped()).spawn().expect("a program");
        let (theirs, ours) = (other.id().into(), std::process::id().into());
        let filtered = std::thread::spawn(move || {
            let filter = filter(Calls::Agent).expect("it compiles");
            apply_filter(&filter).expect("this kernel filters calls");
            let is_refused = |result: io::Result<()>| {
                result.is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied)
            };
            assert!(is_refused(std::process::Command::new("/bin/true").status().map(drop)));
            assert!(is_refused(process::signal(std::process::id(), 0)));
            // No signal is sent, no limit is told, and nobody has the signals of a descriptor.
            let call = |number: i64, [first, second, third]: [i64; 3]| {
                // SAFETY: all are integers, and a pointer that is null.
                match unsafe { libc::syscall(number, first, second, third, 0) } {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            };
            // SAFETY: takes no argument.
            let thread = unsafe { libc::gettid() }.into();
            call(libc::SYS_tgkill, [ours, thread, 0]).expect("its own threads");
            assert!(is_refused(call(libc::SYS_tgkill, [theirs, theirs, 0])));
            call(libc::SYS_prlimit64, [0, 0, 0]).expect("its own limits");
            assert!(is_refused(call(libc::SYS_prlimit64, [theirs, 0, 0])));
            let owners = [(libc::SYS_fcntl, SET_OWNER), (libc::SYS_ioctl, SET_OWNER_BY_IOCTL)];
            for (number, command) in owners.iter().flat_map(|(it, all)| all.map(|one| (*it, one))) {
                assert!(is_refused(call(number, [0, command as i64, 0])), "{number} {command}");
            }
            // What an agent does when a gateway opens a lane.
            let made = process::with_umask(0, || std::os::unix::net::UnixListener::bind(path));
            made.expect("a thread").expect("a socket");
            std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        });
        let outcome = filtered.join();
        drop(other.stdin.take());
        other.wait().expect("it ends with its input");
        std::fs::remove_dir_all(&folder).expect("this thread is free");
        outcome.expect("it has not panicked");
    }
}
