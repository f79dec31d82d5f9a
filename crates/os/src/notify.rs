//! Waiting for descriptors: epoll, `ppoll`, eventfd and timerfd, as safe calls.
#![allow(unsafe_code, reason = "system calls without a wrapper elsewhere")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{null, null_mut};
use std::time::Duration;

/// A set of descriptors that the kernel watches, level-triggered.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
}

/// One descriptor of an [`Epoll`] that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// What the descriptor was added with.
    pub token: u64,
    /// Bits of `EPOLLIN`, `EPOLLERR`, …
    pub events: u32,
}

impl Ready {
    /// Whether the other side has hung up, which is reported whatever was asked for.
    pub const fn has_hung_up(self) -> bool {
        self.events & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

impl Epoll {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        Ok(Self { fd: owned(fd)? })
    }

    /// Watches a descriptor for reading, and for errors as always.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)
    }

    /// Watches a descriptor that is in the set for room to write too, or no longer.
    pub fn watch_for_room(&self, fd: BorrowedFd<'_>, token: u64, room: bool) -> io::Result<()> {
        self.watch_for(fd, token, [true, room])
    }

    /// Watches a descriptor that is in the set for reading again, or for nothing: that its peer has
    /// hung up is reported all the same, and without `EPOLLIN`.
    pub fn watch_for_input(&self, fd: BorrowedFd<'_>, token: u64, input: bool) -> io::Result<()> {
        self.watch_for(fd, token, [input, false])
    }

    /// Watches a descriptor that is in the set for reading, for room to write, for both or for
    /// neither.
    pub fn watch_for(
        &self,
        fd: BorrowedFd<'_>,
        token: u64,
        [input, room]: [bool; 2],
    ) -> io::Result<()> {
        let events = if input { libc::EPOLLIN } else { 0 } | if room { libc::EPOLLOUT } else { 0 };
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    /// Watches a descriptor that is in the set for nothing, and has it said once that its peer has
    /// hung up.
    pub fn watch_for_end(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, libc::EPOLLET)
    }

    fn control(&self, op: i32, fd: BorrowedFd<'_>, token: u64, events: i32) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` outlives the call, which only reads it.
        let result =
            unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) };
        check(result).map(drop)
    }

    /// Stops watching a descriptor.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: no event is passed; the kernel ignores that argument here (Linux 2.6.9).
        let result = unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_DEL, fd.as_raw_fd(), null_mut())
        };
        check(result).map(drop)
    }

    /// What is ready now, into `ready`, without waiting. At most 64; the others come next time.
    pub fn ready(&self, ready: &mut Vec<Ready>) -> io::Result<()> {
        self.wait_ms(ready, 0)
    }

    /// The same, after waiting for the first of them: for at most so long, in whole milliseconds.
    /// A signal ends the wait.
    pub fn wait(&self, ready: &mut Vec<Ready>, at_most: Duration) -> io::Result<()> {
        let ms = at_most.as_nanos().div_ceil(1_000_000);
        match self.wait_ms(ready, i32::try_from(ms).unwrap_or(i32::MAX)) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other,
        }
    }

    fn wait_ms(&self, ready: &mut Vec<Ready>, timeout_ms: i32) -> io::Result<()> {
        const EVENTS_MAX: usize = 64;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        ready.clear();
        // SAFETY: `events` has room for the `EVENTS_MAX` entries that the kernel may write.
        let count = unsafe {
            libc::epoll_wait(
                self.fd.as_raw_fd(),
                events.as_mut_ptr(),
                EVENTS_MAX as i32,
                timeout_ms,
            )
        };
        let count = check(count)? as usize;
        ready.extend(events[..count].iter().map(|e| Ready { token: e.u64, events: e.events }));
        Ok(())
    }

    /// The set itself can be polled.
    pub fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A descriptor to wait for with [`wait`], readable or in error.
pub fn awaited(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the descriptors is ready or the time is over. While it waits, and only then,
/// their sockets have a thread to wake.
pub fn wait(fds: &mut [libc::pollfd], at_most: Duration) -> io::Result<usize> {
    let timeout = timespec(at_most);
    // SAFETY: `fds` is a live slice of initialised entries with its true length; `timeout` outlives
    // the call; a null signal mask changes nothing.
    let ready =
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as u64, &raw const timeout, null()) };
    check(ready).map(|count| count as usize)
}

/// Has the waits of this thread end within a microsecond of their time. By itself the kernel ends
/// several at once, up to 50 µs late.
pub fn end_waits_on_time() -> io::Result<()> {
    const SLACK_NS: u64 = 1000;
    // SAFETY: `PR_SET_TIMERSLACK` takes one integer and no pointer, and concerns this thread only.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) }).map(drop)
}

/// A counter that can be waited for. Non-blocking.
pub fn event_counter() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// Adds one. A counter that is full is as loud as it gets, so nothing can fail that matters.
pub fn event_add(fd: BorrowedFd<'_>) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: writes 8 bytes from a live array.
    let _ = unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// A timer that can be waited for. Non-blocking; [`event_take`] makes it silent again.
pub fn timer() -> io::Result<OwnedFd> {
    let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
    // SAFETY: takes no pointer.
    owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })
}

/// Makes a timer ready once, `delay` from now. A delay of nothing would disarm it, so it takes at
/// least a nanosecond.
pub fn timer_arm(timer: BorrowedFd<'_>, delay: Duration) -> io::Result<()> {
    let once = libc::itimerspec {
        it_interval: timespec(Duration::ZERO),
        it_value: timespec(delay.max(Duration::from_nanos(1))),
    };
    // SAFETY: `once` outlives the call, which only reads it; a null old value is not written.
    check(unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const once, null_mut()) })
        .map(drop)
}

/// Takes the count back to zero. Returns whether it was more.
pub fn event_take(fd: BorrowedFd<'_>) -> bool {
    let mut count = [0_u8; 8];
    // SAFETY: reads 8 bytes into a live array.
    let read = unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    read == 8
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    let fd = check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
