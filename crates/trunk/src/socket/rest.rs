//! Threads that rest because another process is about to go on with what they have: each gives it
//! away, and waits to hear whether it was taken.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use ringgate_os::clock::Clock;
use zeroize::Zeroizing;

/// What has become of what threads have given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nobody has taken it: whoever rests goes on.
    GoOn,
    /// Another process has it.
    Leave,
}

/// What one thread has, for another process.
pub struct Part {
    /// Keys are among it.
    pub bytes: Zeroizing<Vec<u8>>,
    /// In the order in which they are asked for.
    pub fds: Vec<OwnedFd>,
}

/// Where threads wait for the verdict.
#[derive(Debug, Default)]
pub struct Bench {
    verdict: Mutex<Option<Verdict>>,
    said: Condvar,
}

impl Bench {
    /// Everybody who waits hears the first verdict, and who comes later hears it too.
    pub fn say(&self, verdict: Verdict) {
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
pub struct Order {
    bench: Arc<Bench>,
    give: Sender<Part>,
}

impl Order {
    /// For as many threads as there are; they give what they have to the other end.
    pub fn new(bench: &Arc<Bench>) -> (Self, Receiver<Part>) {
        let (give, given) = mpsc::channel();
        (Self { bench: Arc::clone(bench), give }, given)
    }

    /// Gives away what there is, and waits. Says what has become of it, and whether it was taken
    /// in time to go along.
    pub fn rest(self, part: Option<Part>) -> (Verdict, bool) {
        let Self { bench, give } = self;
        let is_given = part.is_some_and(|part| give.send(part).is_ok());
        drop(give);
        (bench.wait(), is_given)
    }
}

/// What so many threads give, as far as they do so in time.
pub fn gather(
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
pub const REST_WITHIN_NS: u64 = 500_000_000;

/// Bytes of what is written: measured first, so that no copy of a key is left in memory that was
/// too small.
pub fn written(write: impl Fn(&mut Writer<'_>)) -> Zeroizing<Vec<u8>> {
    let mut measure = Writer::new(&mut []);
    write(&mut measure);
    let mut bytes = Zeroizing::new(vec![0; measure.len()]);
    write(&mut Writer::new(&mut bytes));
    bytes
}

/// Writes what threads have given, each with its length, so that one that cannot be read leaves the
/// others alone.
pub fn write_parts(parts: &[Part], out: &mut Writer<'_>) {
    (parts.len() as u32).write(out);
    for Part { bytes, fds } in parts {
        (fds.len() as u32).write(out);
        bytes.len().write(out);
        out.bytes(bytes);
    }
}

/// What one thread has given away.
pub type Given<'a> = (&'a [u8], Vec<OwnedFd>);

/// Takes the parts apart, and their descriptors out of all.
pub fn read_parts<'a>(
    from: &mut Reader<'a>,
    fds: &mut impl Iterator<Item = OwnedFd>,
) -> Result<Vec<Given<'a>>, Broken> {
    let mut parts = Vec::new();
    for _ in 0..u32::read(from)? {
        let (count, len) = (u32::read(from)? as usize, usize::read(from)?);
        let bytes = from.bytes(len)?;
        let fds: Vec<_> = fds.by_ref().take(count).collect();
        if fds.len() != count {
            return Err(Broken::Truncated);
        }
        parts.push((bytes, fds));
    }
    Ok(parts)
}

/// Threads that rest, and what they have given away. Dropped, they go on.
pub struct AtRest {
    bench: Arc<Bench>,
    bytes: Zeroizing<Vec<u8>>,
    fds: Vec<OwnedFd>,
}

impl AtRest {
    /// Threads that wait there.
    pub const fn new(bench: Arc<Bench>, bytes: Zeroizing<Vec<u8>>, fds: Vec<OwnedFd>) -> Self {
        Self { bench, bytes, fds }
    }

    /// What another process has to read, keys among it, and what it has to get beside that, in this
    /// order. Once.
    pub fn take(&mut self) -> (Zeroizing<Vec<u8>>, Vec<OwnedFd>) {
        (std::mem::take(&mut self.bytes), std::mem::take(&mut self.fds))
    }

    /// Another process has it all: the threads end, and peers hear nothing of it.
    pub fn leave(self) {
        self.bench.say(Verdict::Leave);
    }
}

impl Drop for AtRest {
    fn drop(&mut self) {
        self.bench.say(Verdict::GoOn);
    }
}

impl fmt::Debug for AtRest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fds = self.fds.len();
        f.debug_struct("AtRest")
            .field("bytes", &self.bytes.len())
            .field("fds", &fds)
            .finish_non_exhaustive()
    }
}
