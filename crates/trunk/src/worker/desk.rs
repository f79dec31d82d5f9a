//! How a trunk's thread reaches a worker: what it has for it lies here until the worker's next
//! turn, and rings its bell.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::socket::{CalledLink, Lease, SocketLane};
use crossbeam_queue::SegQueue;
use ringgate_io::Bell;

/// Something for a worker, of the trunk with this number.
#[derive(Debug)]
pub(crate) enum News {
    /// Its lane for this worker, and its links that the worker has already.
    Lane(Box<(SocketLane, Lease)>, Vec<CalledLink>),
    /// One of its links, by its number on the lane and its serial number at the trunk, and the
    /// local socket that leads to the trunk's thread.
    Link((u16, u32), OwnedFd),
    /// A datagram of its lane that has come to the address that everybody knows.
    Datagram(SocketAddr, Box<[u8]>),
    /// The lane is asked back.
    GiveBack(Giving),
    /// It is over.
    Gone,
}

/// A lane that comes back.
#[derive(Debug)]
pub struct Back {
    /// The lane.
    pub way: Box<SocketLane>,
    /// Its links that the worker has not come across.
    pub left: Vec<Left>,
}

/// What a worker leaves that has not come across a link that it was told of.
#[derive(Debug)]
pub struct Left {
    /// The link, by its serial number.
    pub serial: u32,
    /// What has come for it by the lane.
    pub heard: Vec<u8>,
    /// What was said on it and must arrive, and found no room. The rest can be read there.
    pub said: Vec<u8>,
}

/// What has become of a lane that was asked back.
#[derive(Debug)]
pub enum Outcome {
    /// It is back.
    Back(Back),
    /// Its worker has not turned in time, and keeps it: everything is as before.
    Kept,
    /// Its worker does not have it, or is no more.
    Gone,
}

/// A lane that was asked back.
#[derive(Debug)]
pub struct Asked {
    answer: Receiver<Back>,
    is_decided: Arc<AtomicBool>,
}

/// The same, at the worker.
#[derive(Debug)]
pub(crate) struct Giving {
    reply: Sender<Back>,
    is_decided: Arc<AtomicBool>,
}

impl Asked {
    /// Waits for it so long, and no longer than that: a worker that comes to it later keeps the
    /// lane.
    pub fn wait(self, within: Duration) -> Outcome {
        let Self { answer, is_decided } = self;
        let back = match answer.recv_timeout(within) {
            Err(RecvTimeoutError::Timeout) if !is_decided.swap(true, Ordering::AcqRel) => {
                return Outcome::Kept;
            }
            // The worker is giving it back at this moment.
            Err(RecvTimeoutError::Timeout) => answer.recv().ok(),
            back => back.ok(),
        };
        back.map_or(Outcome::Gone, Outcome::Back)
    }
}

impl Giving {
    /// Whether it is still wanted: then it has to be given now.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_decided.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn give(self, back: Back) {
        drop(self.reply.send(back));
    }
}

#[derive(Debug, Default)]
pub(crate) struct Inbox {
    news: SegQueue<(u32, News)>,
    /// How many of them are datagrams: those are strangers', too.
    datagrams: AtomicUsize,
    is_closed: AtomicBool,
}

/// A worker's inbox, for trunks' threads.
#[derive(Clone, Debug)]
pub struct WorkerInbox {
    inbox: Arc<Inbox>,
    bell: Bell,
}

impl WorkerInbox {
    pub(crate) const fn new(inbox: Arc<Inbox>, bell: Bell) -> Self {
        Self { inbox, bell }
    }

    /// Lends the worker its lane of a trunk, and says which of its links lead there.
    pub fn lend(&self, trunk: u32, lane: (SocketLane, Lease), known: Vec<CalledLink>) {
        self.put(trunk, News::Lane(Box::new(lane), known));
    }

    /// Gives it a link of that lane: the socket is its end of the local link. In it lies what the
    /// process says on the link, but for what comes by the lane. The link has a number on the
    /// lane and a serial number, which is told with what must arrive.
    pub fn link(&self, trunk: u32, numbers: (u16, u32), socket: OwnedFd) {
        self.put(trunk, News::Link(numbers, socket));
    }

    /// Hands it a datagram of that lane. `false` where too many wait.
    pub fn put_datagram(&self, trunk: u32, from: SocketAddr, datagram: &[u8]) -> bool {
        let waiting = self.inbox.datagrams.fetch_add(1, Ordering::Relaxed);
        if waiting >= DATAGRAMS_MAX {
            self.inbox.datagrams.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.put(trunk, News::Datagram(from, datagram.into()));
        true
    }

    /// Asks for the lane back.
    pub fn ask_back(&self, trunk: u32) -> Asked {
        let ((reply, answer), is_decided) = (mpsc::channel(), Arc::default());
        self.put(trunk, News::GiveBack(Giving { reply, is_decided: Arc::clone(&is_decided) }));
        Asked { answer, is_decided }
    }

    /// The trunk is over. Its links are as good as their sockets.
    pub fn forget(&self, trunk: u32) {
        self.put(trunk, News::Gone);
    }

    fn put(&self, trunk: u32, news: News) {
        if self.inbox.is_closed.load(Ordering::Acquire) {
            return;
        }
        self.inbox.news.push((trunk, news));
        self.bell.ring();
    }
}

impl Inbox {
    /// Whether something waits.
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    pub(crate) fn next(&self) -> Option<(u32, News)> {
        let news = self.news.pop()?;
        if matches!(news.1, News::Datagram(..)) {
            self.datagrams.fetch_sub(1, Ordering::Relaxed);
        }
        Some(news)
    }

    /// Takes what waits by now. What is put meanwhile has to wait: trunks' threads that never pause
    /// do not have the worker to themselves.
    pub(crate) fn take(&self) -> impl Iterator<Item = (u32, News)> + '_ {
        std::iter::from_fn(|| self.next()).take(self.news.len())
    }

    /// Nobody looks any more: who waits for an answer hears that there is none.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        while self.next().is_some() {}
    }
}

/// Datagrams that may wait. A lane's own come this way when its agent's address has changed.
const DATAGRAMS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> (Giving, Asked) {
        let ((reply, answer), is_decided) = (mpsc::channel(), Arc::<AtomicBool>::default());
        let giving = Giving { reply, is_decided: Arc::clone(&is_decided) };
        (giving, Asked { answer, is_decided })
    }

    #[test]
    fn trunks_threads_that_never_pause_do_not_have_the_worker_to_themselves() {
        let inbox = Inbox::default();
        let says_more = || inbox.news.push((1, News::Gone));
        says_more();
        says_more();
        for _ in 0..2 {
            assert_eq!(inbox.take().inspect(|_| says_more()).take(1_000_000).count(), 2);
        }
        assert!(inbox.has_news(), "so the worker does not wait");
    }

    #[test]
    fn who_comes_too_late_keeps_the_lane_and_who_is_no_more_has_none() {
        let (giving, asked) = asked();
        assert!(matches!(asked.wait(Duration::ZERO), Outcome::Kept));
        assert!(!giving.is_wanted(), "nobody would take it");
        let (giving, asked) = self::asked();
        drop(giving);
        assert!(matches!(asked.wait(Duration::MAX), Outcome::Gone));
    }

    #[test]
    fn who_gives_while_the_time_ends_is_waited_for() {
        let (giving, asked) = asked();
        assert!(giving.is_wanted());
        let waits = std::thread::spawn(|| asked.wait(Duration::ZERO));
        // Nothing was given: the worker has ended in the midst of it.
        drop(giving);
        assert!(matches!(waits.join().expect("it waits"), Outcome::Gone));
    }
}
