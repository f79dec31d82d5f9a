//! Being asked to end, for programs that look around often anyway: the first SIGINT or SIGTERM is
//! kept until they do, the next one ends the process at once.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;
use std::sync::atomic::{AtomicI32, Ordering};

/// Keeps the first SIGINT or SIGTERM from now on, also where the parent process had it
/// ignored.
pub fn keep_first() -> io::Result<()> {
    // SAFETY: a `sigaction` is numbers and a pointer that may be null; all zero is a valid one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    for signal in SIGNALS {
        // SAFETY: the mask is a live and valid set, and the signals exist.
        unsafe { libc::sigaddset(&raw mut action.sa_mask, signal) };
    }
    for signal in SIGNALS {
        // SAFETY: `action` is a live `sigaction` with a valid mask and a handler of the right type
        // that lives as long as the process; a null pointer asks for nothing back.
        let result = unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The signal that was kept, if any was.
pub fn kept() -> Option<i32> {
    let signal = KEPT.load(Ordering::Relaxed);
    (signal != 0).then_some(signal)
}

/// A signal's name.
pub const fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGINT => "SIGINT",
        libc::SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}

/// Runs between any two instructions of any thread, so it may only do what is safe there: an atomic
/// store and `signal(2)`.
extern "C" fn note(signal: libc::c_int) {
    KEPT.store(signal, Ordering::Relaxed);
    for signal in SIGNALS {
        // SAFETY: `signal` may be called from a handler (signal-safety(7)); the default action
        // needs no function of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// 0 as long as none came.
static KEPT: AtomicI32 = AtomicI32::new(0);

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

#[cfg(test)]
mod tests {
    use super::*;

    /// What a disposition looks like in `/proc/self/status`.
    fn is_caught(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or_default();
        let mask = u64::from_str_radix(line.trim(), 16).unwrap_or_default();
        mask >> (signal - 1) & 1 == 1
    }

    #[test]
    fn the_first_signal_is_kept_and_the_next_would_end_the_process() {
        keep_first().expect("both can be caught");
        assert!(is_caught(libc::SIGINT) && is_caught(libc::SIGTERM));
        assert_eq!(kept(), None);
        // SAFETY: sends a signal to this very thread, whose handler stores a number.
        unsafe { libc::raise(libc::SIGTERM) };
        assert_eq!(kept().map(name), Some("SIGTERM"));
        assert!(!is_caught(libc::SIGINT) && !is_caught(libc::SIGTERM));
        KEPT.store(0, Ordering::Relaxed);
    }
}
