//! What others have for a trunk's thread: bounded, because datagrams of strangers are among it.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

use crate::protocol::control::Reason;
use ringgate_os::notify;
use ringgate_os::publishing::Request;

use crate::socket::rest::Order;
use ringgate_core::sync::lock;

/// Something for a trunk's thread.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A datagram that has come to the address that everybody knows.
    Datagram(SocketAddr, Box<[u8]>),
    /// The trunk is to end.
    End(Reason),
    /// What agents may do has changed.
    Rules,
    /// How the trunk is, and its lanes, is to be shown at once.
    Show(Request),
    /// Another process is about to go on with the trunk.
    Rest(Order),
}

/// Where it waits.
#[derive(Debug)]
pub(crate) struct Mailbox {
    queue: Mutex<VecDeque<Mail>>,
    bell: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { queue: Mutex::default(), bell: notify::event_counter()? })
    }

    /// Readable while something may wait.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Puts a datagram in. `false` where too many wait.
    pub(crate) fn try_put(&self, from: SocketAddr, datagram: &[u8]) -> bool {
        let mut queue = lock(&self.queue);
        let has_room = queue.len() < DATAGRAMS_MAX;
        if has_room {
            queue.push_back(Mail::Datagram(from, datagram.into()));
            notify::event_add(self.bell());
        }
        has_room
    }

    /// Puts something in that must arrive.
    pub(crate) fn put(&self, mail: Mail) {
        lock(&self.queue).push_back(mail);
        notify::event_add(self.bell());
    }

    /// Takes some of what waits: the bell goes on ringing while there is more.
    pub(crate) fn take(&self, taken: &mut Vec<Mail>) {
        notify::event_take(self.bell());
        let mut queue = lock(&self.queue);
        let count = queue.len().min(AT_ONCE);
        taken.extend(queue.drain(..count));
        if !queue.is_empty() {
            notify::event_add(self.bell());
        }
    }
}

/// Datagrams that may wait: a lane's first ones come this way, and later only those of others.
const DATAGRAMS_MAX: usize = 256;

/// What is looked at before anything else has its turn.
const AT_ONCE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_a_bound_and_orders_have_none() {
        let mailbox = Mailbox::new().expect("a descriptor");
        let from = SocketAddr::from(([192, 0, 2, 1], 5));
        let taken = (0..1000).filter(|_| mailbox.try_put(from, b"x")).count();
        assert_eq!(taken, DATAGRAMS_MAX);
        mailbox.put(Mail::End(Reason::Replaced));
        let (mut mail, mut looks) = (Vec::new(), 0);
        while mail.len() <= DATAGRAMS_MAX {
            let mut waits = [notify::awaited(std::os::fd::AsRawFd::as_raw_fd(&mailbox.bell()))];
            let ready = notify::wait(&mut waits, std::time::Duration::ZERO).expect("ppoll works");
            assert_eq!(ready, 1, "the bell rings while something waits");
            mailbox.take(&mut mail);
            looks += 1;
        }
        assert_eq!(looks, DATAGRAMS_MAX / AT_ONCE + 1);
        assert!(matches!(mail.last(), Some(Mail::End(Reason::Replaced))));
    }
}
