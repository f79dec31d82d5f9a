//! Threads that rest because another process is about to go on with what they have: each gives it
//! away, and waits to hear whether it was taken.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::protocol::beat::{BEAT_NS, SILENCE_NS};
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
    give: Sender<(usize, Option<Part>)>,
    number: usize,
}

impl Order {
    /// Gives away what there is, and waits. Says what has become of it, and whether it was taken
    /// in time to go along.
    pub fn rest(self, part: Option<Part>) -> (Verdict, bool) {
        let Self { bench, give, number } = self;
        let has_some = part.is_some();
        let is_given = give.send((number, part)).is_ok() && has_some;
        drop(give);
        (bench.wait(), is_given)
    }
}

/// Threads that are told to rest, each by its name.
pub struct Call {
    bench: Arc<Bench>,
    give: Sender<(usize, Option<Part>)>,
    given: Receiver<(usize, Option<Part>)>,
    names: BTreeMap<usize, String>,
}

impl Call {
    /// To nobody yet. All of them hear the verdict there.
    pub fn new(bench: &Arc<Bench>) -> Self {
        let (give, given) = mpsc::channel();
        Self { bench: Arc::clone(bench), give, given, names: BTreeMap::new() }
    }

    /// What the thread of this name is told.
    pub fn order(&mut self, name: String) -> Order {
        let number = self.names.len();
        self.names.insert(number, name);
        Order { bench: Arc::clone(&self.bench), give: self.give.clone(), number }
    }

    /// What they give, as far as they do so in time, and the names of the others. The log has them
    /// as well.
    pub fn gather(self, (clock, until_ns): (Clock, u64)) -> (Vec<Part>, Vec<String>) {
        let Self { bench: _, give, given, mut names } = self;
        drop(give);
        let mut parts = Vec::new();
        for _ in 0..names.len() {
            let left_ns = until_ns.saturating_sub(clock.now_ns());
            match given.recv_timeout(Duration::from_nanos(left_ns)) {
                Ok((number, Some(part))) => {
                    names.remove(&number);
                    parts.push(part);
                }
                Ok((_, None)) => {}
                Err(_) => break,
            }
        }
        for name in names.values() {
            tracing::warn!(event = "agent_thread_late", name, "{name} {LATE}");
        }
        (parts, names.into_values().collect())
    }
}

/// What is said of a thread that does not go along.
pub const LATE: &str = "did not come to rest in time with all that it has";

/// Who does not rest within this is not waited for. Meanwhile those that do say nothing to the
/// other ends of their trunks, whose last beat may be older already; and these have to hear from
/// the next process before they take silence for an end.
pub const REST_WITHIN_NS: u64 = 1_500_000_000;

const _: () = assert!(BEAT_NS + REST_WITHIN_NS <= SILENCE_NS / 3 * 2);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_give_nothing_in_time_are_named_and_keep_nobody_waiting() {
        let (bench, clock) = (Arc::new(Bench::default()), Clock::start());
        let mut call = Call::new(&bench);
        let orders = ["gives", "has nothing", "is gone", "late"].map(|it| call.order(it.into()));
        let [gives, has_nothing, is_gone, late] = orders;
        // Nobody waits for what is said already.
        bench.say(Verdict::Leave);
        let part = || Some(Part { bytes: Zeroizing::new(vec![7]), fds: Vec::new() });
        assert_eq!(gives.rest(part()), (Verdict::Leave, true));
        assert_eq!(has_nothing.rest(None), (Verdict::Leave, false));
        drop(is_gone);
        let (parts, names) = call.gather((clock, 0));
        assert_eq!(parts.iter().map(|it| it.bytes[0]).collect::<Vec<_>>(), [7]);
        assert_eq!(names, ["has nothing", "is gone", "late"]);
        assert_eq!(late.rest(part()), (Verdict::Leave, false));
    }

    #[test]
    fn where_nobody_is_left_who_could_give_it_is_not_waited_for() {
        let bench = Arc::new(Bench::default());
        let mut call = Call::new(&bench);
        drop([call.order("gone".into()), call.order("gone as well".into())]);
        let (_, names) = call.gather((Clock::start(), u64::MAX));
        assert_eq!(names, ["gone", "gone as well"]);
    }
}
