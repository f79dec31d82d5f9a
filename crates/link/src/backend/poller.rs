//! Waits for any link, or for the time to reconnect, behind one descriptor.
//!
//! An epoll set can itself be watched, which is how a game puts all links into a loop of its own.
//! The timer that reconnects is a descriptor in the set for the same reason: the game does not have
//! to know when to call. And so is a counter that is readable while records wait in our own memory,
//! where the kernel does not see them.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::Socket;

use crate::bundle::WORKERS_MAX;
use ringgate_os::notify::{self, Epoll, Ready};

/// What [`Poller::next_ready`] calls the timer; links are called by their worker's index.
pub(super) const READY_TIMER: u64 = u64::MAX;

/// What the set calls the counter of unread records.
const READY_UNREAD: u64 = u64::MAX - 1;

/// What [`Poller::next_ready`] calls the connection that registers this process.
pub(super) const READY_REGISTRATION: u64 = u64::MAX - 2;

/// The set, and what was ready at the last look.
#[derive(Debug)]
pub(super) struct Poller {
    epoll: Epoll,
    timer: OwnedFd,
    unread: OwnedFd,
    /// The game watches the set by itself; until it does, `unread` is not needed.
    is_polled: AtomicBool,
    /// Whether `unread` is readable.
    is_unread_shown: AtomicBool,
    ready: Vec<Ready>,
    /// How many of `ready` have been handed out.
    seen: usize,
}

impl Poller {
    /// A set with no link in it.
    pub(super) fn new() -> io::Result<Self> {
        let (epoll, timer, unread) = (Epoll::new()?, notify::timer()?, notify::event_counter()?);
        epoll.add(timer.as_fd(), READY_TIMER)?;
        epoll.add(unread.as_fd(), READY_UNREAD)?;
        Ok(Self {
            epoll,
            timer,
            unread,
            is_polled: AtomicBool::new(false),
            is_unread_shown: AtomicBool::new(false),
            ready: Vec::with_capacity(WORKERS_MAX + 3),
            seen: 0,
        })
    }

    /// The set, for the game's own loop to watch.
    pub(super) fn watched(&self) -> BorrowedFd<'_> {
        self.is_polled.store(true, Ordering::Relaxed);
        self.epoll.as_fd()
    }

    /// Has the set be readable, or not, because of records that wait in our memory. Costs nothing
    /// where the game does not watch the set.
    #[inline]
    pub(super) fn show_unread(&self, is_shown: bool) {
        if self.is_polled.load(Ordering::Relaxed)
            && self.is_unread_shown.swap(is_shown, Ordering::Relaxed) != is_shown
        {
            if is_shown {
                notify::event_add(self.unread.as_fd());
            } else {
                notify::event_take(self.unread.as_fd());
            }
        }
    }

    /// Watches a socket for datagrams, until it is [closed](Self::close).
    pub(super) fn watch(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.epoll.add(socket, token)
    }

    /// Closes a socket that is watched. Where a child that was forked has it too, it would stay
    /// open and in the set, ready for ever.
    pub(super) fn close(&self, socket: &mut Option<Socket>) {
        if let Some(socket) = socket.take() {
            let _ = (socket.shutdown(Shutdown::Both), self.epoll.remove(socket.as_fd()));
        }
    }

    /// Watches a socket that is in the set for room to send too, or no longer.
    pub(super) fn watch_for_room(&self, socket: BorrowedFd<'_>, token: u64, room: bool) {
        let changed = self.epoll.watch_for_room(socket, token, room);
        debug_assert!(changed.is_ok(), "changing a member of the set needs no memory");
    }

    /// Makes the timer ready once, `delay` from now.
    pub(super) fn arm_timer(&self, delay: Duration) {
        let armed = notify::timer_arm(self.timer.as_fd(), delay);
        debug_assert!(armed.is_ok(), "a timer takes any delay");
    }

    /// Looks what is ready, unless something from the last look is still left. Returns whether
    /// there is anything.
    pub(super) fn look(&mut self) -> io::Result<bool> {
        if self.seen == self.ready.len() {
            self.seen = 0;
            unless_interrupted(self.epoll.ready(&mut self.ready))?;
        }
        Ok(!self.ready.is_empty())
    }

    /// The next of what was ready at the last look.
    pub(super) fn next_ready(&mut self) -> Option<u64> {
        loop {
            let token = self.ready.get(self.seen)?.token;
            self.seen += 1;
            match token {
                // What it stands for is not found here.
                READY_UNREAD => continue,
                READY_TIMER => _ = notify::event_take(self.timer.as_fd()),
                _ => {}
            }
            return Some(token);
        }
    }

    /// Sleeps until something is ready, for at most `timeout`. Returns whether something is; a
    /// signal ends the sleep too.
    pub(super) fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        // ppoll, because epoll_wait counts in milliseconds, which is coarse for a 60 Hz tick.
        let timeout = timeout.map_or(LONGEST_SLEEP, |timeout| timeout.min(LONGEST_SLEEP));
        let mut set = [notify::awaited(self.epoll.raw())];
        unless_interrupted(notify::wait(&mut set, timeout).map(drop))?;
        self.look()
    }
}

fn unless_interrupted(result: io::Result<()>) -> io::Result<()> {
    result.or_else(|error| match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    })
}

/// A sleep without end ends once a day, as if by a signal.
const LONGEST_SLEEP: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Type};
    use std::io::Read as _;

    #[test]
    fn a_socket_that_another_process_has_too_is_closed_for_both() {
        let mut poller = Poller::new().expect("descriptors are left");
        let pair = Socket::pair(Domain::UNIX, Type::SEQPACKET.nonblocking(), None);
        let (mut ours, gateways) = pair.map(|(ours, far)| (Some(ours), far)).expect("likewise");
        let socket = ours.as_ref().expect("just made");
        let _childs = socket.try_clone().expect("descriptors are left");
        poller.watch(socket.as_fd(), 5).expect("likewise");
        poller.close(&mut ours);
        assert!(ours.is_none() && !poller.look().expect("epoll works"), "nobody reads it any more");
        assert_eq!((&gateways).read(&mut [0; 8]).expect("it has ended"), 0);
    }

    #[test]
    fn a_set_is_ready_for_the_one_that_watches_it() {
        let mut inner = Poller::new().expect("descriptors are left");
        let mut outer = Poller::new().expect("descriptors are left");
        outer.watch(inner.watched(), 5).expect("one set may watch another");
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
