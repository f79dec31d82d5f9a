//! Threads that rest because another process is about to go on with what they have: each gives it
//! away, and waits to hear whether it was taken.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ringgate_core::carry::Writer;
use ringgate_os::clock::Clock;
use zeroize::Zeroizing;

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nobody has taken it: whoever rests goes on.
    GoOn,
    /// Another process has it.
    Leave,
}

/// What one thread has, for another process.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Zeroizing<Vec<u8>>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Where threads wait for the verdict.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    verdict: Mutex<Option<Verdict>>,
    said: Condvar,
}

impl Bench {
    pub(crate) fn say(&self, verdict: Verdict) {
        self.verdict.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(verdict);
        self.said.notify_all();
    }

    fn wait(&self) -> Verdict {
        let verdict = self.verdict.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.said.wait_while(verdict, |verdict| verdict.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).unwrap_or(Verdict::GoOn)
    }
}

/// Tells a thread to rest.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    bench: Arc<Bench>,
    give: Sender<Part>,
}

impl Order {
    /// For as many threads as there are.
    pub(crate) fn new(bench: &Arc<Bench>) -> (Self, Receiver<Part>) {
        let (give, given) = mpsc::channel();
        (Self { bench: Arc::clone(bench), give }, given)
    }

    /// Gives away what there is, and waits. Says what has become of it, and whether it was taken
    /// in time to go along.
    pub(crate) fn rest(self, part: Option<Part>) -> (Verdict, bool) {
        let Self { bench, give } = self;
        let is_given = part.is_some_and(|part| give.send(part).is_ok());
        drop(give);
        (bench.wait(), is_given)
    }
}

/// What so many threads give, as far as they do so in time.
pub(crate) fn gather(
    given: &Receiver<Part>,
    threads: usize,
    (clock, until_ns): (Clock, u64),
) -> Vec<Part> {
    let mut parts = Vec::new();
    while parts.len() < threads {
        let left_ns = until_ns.saturating_sub(clock.now_ns());
        match given.recv_timeout(Duration::from_nanos(left_ns)) {
            Ok(part) => parts.push(part),
            Err(_) => break,
        }
    }
    parts
}

/// Who does not rest within this is not waited for.
pub(crate) const REST_WITHIN_NS: u64 = 500_000_000;

/// Bytes of what is written: measured first, so that no copy of a key is left in memory that was
/// too small.
pub(crate) fn written(write: impl Fn(&mut Writer<'_>)) -> Zeroizing<Vec<u8>> {
    let mut measure = Writer::new(&mut []);
    write(&mut measure);
    let mut bytes = Zeroizing::new(vec![0; measure.len()]);
    write(&mut Writer::new(&mut bytes));
    bytes
}
