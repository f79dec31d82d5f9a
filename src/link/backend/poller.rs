//! Waits for any link, or for the time to reconnect, behind one descriptor.
//!
//! An epoll set can itself be watched, which is how a game puts all links into a loop of its own.
//! The timer that reconnects is a descriptor in the set for the same reason: nobody has to know
//! when to call.
#![allow(unsafe_code, reason = "epoll, timerfd and ppoll have no safe face in the dependencies")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use crate::limits::WORKERS_MAX;

/// What [`Poller::next_ready`] calls the timer; links are called by their worker's index.
pub(super) const READY_TIMER: u64 = u64::MAX;

/// The set, and what was ready at the last look.
pub(super) struct Poller {
    epoll: OwnedFd,
    timer: File,
    ready: Box<[libc::epoll_event; READY_LEN]>,
    /// Those of `ready` before `seen` have been handed out, those from `found` on are old.
    seen: usize,
    found: usize,
}

impl Poller {
    /// A set with nothing but the timer in it.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let epoll = owned(epoll)?;
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: takes no pointer.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        let timer = File::from(owned(timer)?);
        let ready = Box::new([libc::epoll_event { events: 0, u64: 0 }; READY_LEN]);
        let poller = Self { epoll, timer, ready, seen: 0, found: 0 };
        poller.control(libc::EPOLL_CTL_ADD, poller.timer.as_fd(), READY_TIMER, libc::EPOLLIN)?;
        Ok(poller)
    }

    /// Watches a socket for datagrams. Closing the socket ends that.
    pub(super) fn watch(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, socket, token, libc::EPOLLIN)
    }

    /// Watches a socket that is in the set for room to send too, or no longer.
    pub(super) fn watch_for_room(&self, socket: BorrowedFd<'_>, token: u64, room: bool) {
        let events = if room { libc::EPOLLIN | libc::EPOLLOUT } else { libc::EPOLLIN };
        let changed = self.control(libc::EPOLL_CTL_MOD, socket, token, events);
        debug_assert!(changed.is_ok(), "changing a member of the set needs no memory");
    }

    /// Makes the timer ready once, `delay` from now.
    pub(super) fn arm_timer(&self, delay: Duration) {
        let once =
            libc::itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(delay) };
        // SAFETY: `once` is alive for the call, and a null old value is allowed.
        let armed = unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const once, ptr::null_mut())
        };
        debug_assert!(armed == 0, "a timer takes any delay");
    }

    /// Looks what is ready, unless something from the last look is still left. Returns whether
    /// there is anything.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        if self.seen < self.found {
            return Ok(true);
        }
        let (room, no_wait) = (self.ready.len() as i32, 0);
        // SAFETY: the kernel writes at most `room` entries to `ready`, which has as many.
        let found = unsafe {
            libc::epoll_wait(self.epoll.as_raw_fd(), self.ready.as_mut_ptr(), room, no_wait)
        };
        self.seen = 0;
        self.found = 0;
        match usize::try_from(found) {
            Ok(found) => self.found = found,
            Err(_) => unless_interrupted(io::Error::last_os_error())?,
        }
        Ok(self.found > 0)
    }

    /// The next of what was ready at the last look.
    pub(super) fn next_ready(&mut self) -> Option<u64> {
        if self.seen == self.found {
            return None;
        }
        let token = self.ready[self.seen].u64;
        self.seen += 1;
        if token == READY_TIMER {
            // Without the read the timer would stay ready.
            let _ = self.timer.read(&mut [0; 8]);
        }
        Some(token)
    }

    /// Sleeps until something is ready, for at most `timeout`. Returns whether something is; a
    /// signal ends the sleep too.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(timespec);
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        let mut set = libc::pollfd { fd: self.epoll.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // ppoll, because epoll_wait counts in milliseconds, which is coarse for a 60 Hz tick.
        // SAFETY: one entry, and the timeout it points to, are alive for the call; a null timeout
        // means none, a null mask leaves signals as they are.
        let found = unsafe { libc::ppoll(&raw mut set, 1, timeout, ptr::null()) };
        if found < 0 {
            unless_interrupted(io::Error::last_os_error())?;
        }
        self.look()
    }

    fn control(&self, op: i32, fd: BorrowedFd<'_>, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are borrowed and so open; `event` is alive for the call.
        let done =
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel has just made for us, which nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn unless_interrupted(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(duration.subsec_nanos()),
    }
}

/// Every link and the timer.
const READY_LEN: usize = WORKERS_MAX + 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_ready_for_the_one_that_watches_it() {
        let mut inner = Poller::new().expect("descriptors are left");
        let mut outer = Poller::new().expect("descriptors are left");
        outer.watch(inner.as_fd(), 5).expect("one set may watch another");
        assert!(!outer.look().expect("epoll works"));
        inner.arm_timer(Duration::from_nanos(1));
        assert!(outer.sleep(None).expect("ppoll works"));
        assert_eq!((outer.next_ready(), outer.next_ready()), (Some(5), None));

        assert!(inner.look().expect("epoll works"));
        assert_eq!((inner.next_ready(), inner.next_ready()), (Some(READY_TIMER), None));
        assert!(!inner.look().expect("epoll works"), "the timer rings once");
        assert!(!outer.look().expect("epoll works"));
    }

    #[test]
    fn a_sleep_ends_with_its_timeout() {
        let mut poller = Poller::new().expect("descriptors are left");
        assert!(!poller.sleep(Some(Duration::from_micros(1))).expect("ppoll works"));
    }
}
