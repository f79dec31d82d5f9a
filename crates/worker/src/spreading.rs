//! Workers that sleep while others do what there is to do (`workers_awake = "auto"`): who has which
//! sources stands in a table that the kernel asks for each datagram ([`ringgate_io::spread`]), and
//! a thread beside the workers writes it as [`Awake`] decides.
//!
//! Where that cannot be had, the kernel chooses among all workers, as it does without it.
//!
//! A process that is replaced gives the table on: it is memory, and the kernel goes on asking it
//! whatever becomes of the process. What its successor has of sessions is counted anew, in the one
//! moment in which nobody turns. One that has no table to give has let the kernel choose; where its
//! players have come to several workers within one bucket, the kernel goes on choosing there until
//! they have left.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use super::report::{Busy, Published};
use super::thread::Parts;
use super::{Fleet, Opened, Start};
use crate::handover::SpreadRow;
use ringgate_batch::spread::{BUCKETS, Bucket, KERNEL, SpreadKey};
use ringgate_core::sync::lock;
use ringgate_gate::{Awake, Buckets, Gate, ListenerId, Seed};
use ringgate_io::SocketDriver;
use ringgate_io::spread::{Spreader, detach};
use ringgate_os::capabilities::{self, Capability};
use ringgate_os::clock::Clock;

/// What of it there is.
#[derive(Debug)]
pub(super) struct Spreading {
    buckets: Arc<Buckets>,
    kernels: Mutex<Kernels>,
    /// Whether workers may sleep. The table may be there without that, from a process before.
    is_auto: bool,
    awake: Arc<AtomicUsize>,
    thread: Mutex<Option<Thinker>>,
}

/// How many workers newcomers come to.
#[derive(Clone, Debug, Default)]
pub struct AwakeWorkers {
    spreading: Option<Arc<Spreading>>,
    all: usize,
}

impl AwakeWorkers {
    /// Now. All of them where none may sleep.
    pub fn count(&self) -> usize {
        self.spreading.as_ref().map_or(self.all, |it| it.awake())
    }
}

/// What the kernel goes by.
#[derive(Debug)]
struct Kernels {
    spreader: Spreader,
    /// Whose sockets each group has.
    groups: Vec<Option<Group>>,
    /// Sockets of groups that are to be attached, one of each.
    pending: Vec<(usize, OwnedFd)>,
}

/// One address of a listener.
#[derive(Clone, Copy, Debug)]
struct Group {
    listener: ListenerId,
    address: SocketAddr,
}

/// The thread that decides. Dropped, it ends.
#[derive(Debug)]
struct Thinker {
    /// Closed at the end.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Which sessions workers have brought: each one's buckets.
pub(super) type Tally = Vec<Vec<u32>>;

/// The sockets of listeners by their addresses, and by worker.
pub(super) type ByAddress = BTreeMap<(ListenerId, u16), Vec<(u16, OwnedFd)>>;

impl Spreading {
    /// Loads what the kernel goes by, for this many addresses and some more.
    fn load(workers: u16, addresses: usize, is_auto: bool) -> Result<Self, String> {
        let draw = || Seed::generate().map(|seed| seed.random).map_err(|why| why.to_string());
        let random = [draw()?, draw()?];
        let numbers = random.as_flattened().first_chunk().expect("eight of them");
        let groups = (addresses + SPARE).min(usize::from(u16::MAX)) as u16;
        let key = SpreadKey::new(*numbers);
        let (spreader, spread) = Spreader::new(key, workers, groups).map_err(|why| {
            let rights = "it takes CAP_BPF at the start, a unit that lets `bpf` through, and before \
                          Linux 5.11 `LimitMEMLOCK=` (docs/howto/install.md)";
            format!("the kernel takes no program for sockets that share a port: {why}; {rights}")
        })?;
        let all = (is_auto, workers.into());
        Ok(Self::of(spreader, Buckets::new(spread), Vec::new(), all))
    }

    /// What another process has loaded.
    pub(super) fn adopt(
        fds: Vec<OwnedFd>,
        row: &SpreadRow,
        addresses: &[Vec<SocketAddr>],
        is_auto: bool,
    ) -> Result<Self, String> {
        let in_use: Vec<_> = row.groups.iter().map(Option::is_some).collect();
        let adopted = Spreader::adopt(fds, &in_use);
        let (spreader, spread) = adopted.map_err(|why| why.to_string())?;
        let buckets = Buckets::new(spread);
        let find = |address: SocketAddr| {
            let at = addresses.iter().position(|all| all.contains(&address))?;
            Some(Group { listener: ListenerId::at(at), address })
        };
        let groups: Vec<_> = row.groups.iter().map(|it| it.and_then(find)).collect();
        for Group { listener, .. } in groups.iter().flatten() {
            buckets.set_listener(*listener, true);
        }
        let workers = usize::from(buckets.spread().workers());
        let awake = if is_auto { usize::from(row.awake).clamp(1, workers) } else { workers };
        Ok(Self::of(spreader, buckets, groups, (is_auto, awake)))
    }

    fn of(
        spreader: Spreader,
        buckets: Buckets,
        mut groups: Vec<Option<Group>>,
        (is_auto, awake): (bool, usize),
    ) -> Self {
        groups.resize(spreader.groups(), None);
        Self {
            kernels: Mutex::new(Kernels { spreader, groups, pending: Vec::new() }),
            is_auto,
            awake: Arc::new(AtomicUsize::new(awake)),
            buckets: Arc::new(buckets),
            thread: Mutex::new(None),
        }
    }

    /// What tables count their sessions in.
    pub(super) const fn buckets(&self) -> &Arc<Buckets> {
        &self.buckets
    }

    /// Notes the sockets of all addresses of a listener, before the first session there. Nothing is
    /// changed for them before [`attach`](Self::attach).
    pub(super) fn note<'a>(
        &self,
        listener: ListenerId,
        addresses: impl Iterator<Item = (SocketAddr, Vec<BorrowedFd<'a>>)>,
        waits: bool,
    ) -> std::io::Result<()> {
        let mut kernels = self.kernels();
        for (address, sockets) in addresses {
            let Kernels { spreader, groups, pending } = &mut *kernels;
            let noted = spreader.note(&sockets, waits).and_then(|group| {
                groups[group] = Some(Group { listener, address });
                pending.push((group, sockets[0].try_clone_to_owned()?));
                Ok(())
            });
            if let Err(why) = noted {
                kernels.forget(|it| it == listener);
                return Err(why);
            }
        }
        self.buckets.set_listener(listener, true);
        Ok(())
    }

    /// The kernel goes by the table for everything that was noted.
    pub(super) fn attach(&self) -> std::io::Result<()> {
        let mut kernels = self.kernels();
        let pending = std::mem::take(&mut kernels.pending);
        let attach =
            |(group, socket): &(usize, OwnedFd)| kernels.spreader.attach(*group, socket.as_fd());
        let attached = pending.iter().try_for_each(attach);
        if attached.is_err() {
            let of_group = |(group, _): &(usize, OwnedFd)| kernels.groups[*group];
            let listeners: Vec<_> = pending.iter().filter_map(of_group).collect();
            for (_, socket) in &pending {
                detach(socket.as_fd());
            }
            for Group { listener, .. } in listeners {
                self.buckets.set_listener(listener, false);
                kernels.forget(|it| it == listener);
            }
        }
        attached
    }

    /// A listener has closed.
    pub(super) fn close(&self, listener: ListenerId) {
        self.kernels().forget(|it| it == listener);
    }

    /// Puts the sessions in that another process's workers have brought, before the first turn, and
    /// has the kernel go by the table where it has not yet.
    fn settle(&self, tally: &Tally) {
        let spread = self.buckets.spread();
        let mut found = vec![Bucket { worker: KERNEL, sessions: 0 }; BUCKETS];
        for (worker, buckets) in (0..).zip(tally) {
            for bucket in buckets {
                let it = &mut found[*bucket as usize];
                let is_its = it.sessions == 0 || it.worker == worker;
                it.worker = if is_its { worker } else { KERNEL };
                it.sessions += 1;
            }
        }
        let is_new = !self.kernels().pending.is_empty();
        if is_new {
            found.iter().enumerate().for_each(|(at, bucket)| spread.set(at, *bucket));
        } else {
            spread.recount(&found.iter().map(|it| it.sessions).collect::<Vec<_>>());
        }
        if let Err(why) = self.attach() {
            tracing::warn!("{}", why_left(&why));
        }
    }

    /// Begins to decide, about workers that turn.
    pub(super) fn begin(&self, tally: Option<&Tally>, published: &[Arc<Published>], clock: Clock) {
        tally.inspect(|tally| self.settle(tally));
        let workers = self.buckets.spread().workers();
        let mut thoughts = Thoughts {
            buckets: Arc::clone(&self.buckets),
            awake: Awake::new(workers, self.awake()),
            count: Arc::clone(&self.awake),
            books: published.iter().map(|it| (Arc::clone(it), Busy::default(), 0.0)).collect(),
            is_auto: self.is_auto,
            given_ns: 0,
        };
        thoughts.give(clock.now_ns());
        let (end, ends) = mpsc::channel::<()>();
        let think = move || {
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(LOOK_EVERY) {
                thoughts.look(clock.now_ns());
            }
        };
        let thread = std::thread::Builder::new().name("ringgate-awake".to_owned()).spawn(think);
        *lock(&self.thread) = Some(Thinker { end: Some(end), thread: thread.ok() });
    }

    /// Decides no more: another process does.
    pub(super) fn end(&self) {
        lock(&self.thread).take();
    }

    /// How many workers newcomers come to now, but for those that are full.
    pub(super) fn awake(&self) -> usize {
        self.awake.load(Ordering::Relaxed)
    }

    /// What the process after this one needs to go on with it.
    fn given(&self) -> std::io::Result<(SpreadRow, Vec<OwnedFd>)> {
        let kernels = self.kernels();
        let groups = kernels.groups.iter().map(|it| it.map(|it| it.address)).collect();
        let awake = self.awake() as u16;
        Ok((SpreadRow { groups, awake }, kernels.spreader.given()?))
    }

    fn kernels(&self) -> MutexGuard<'_, Kernels> {
        lock(&self.kernels)
    }
}

impl Kernels {
    fn forget(&mut self, is_it: impl Fn(ListenerId) -> bool) {
        let Self { spreader, groups, pending } = self;
        for (number, group) in groups.iter_mut().enumerate() {
            if group.take_if(|it| is_it(it.listener)).is_some() {
                spreader.release(number);
                pending.retain(|(it, _)| *it != number);
            }
        }
    }
}

impl Drop for Thinker {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What decides, and how busy each worker was when it last looked.
struct Thoughts {
    buckets: Arc<Buckets>,
    awake: Awake,
    count: Arc<AtomicUsize>,
    /// With what an earlier report has said, and which part of its core a worker was busy for.
    books: Vec<(Arc<Published>, Busy, f64)>,
    is_auto: bool,
    given_ns: u64,
}

impl Thoughts {
    fn look(&mut self, now_ns: u64) {
        let busy = self.books.iter_mut().map(|(worker, before, busy)| {
            let now = worker.busy();
            // Two reports that were asked for may have but a moment between them.
            if now.at_ns >= before.at_ns + LOOK_EVERY.as_nanos() as u64 / 2 {
                *busy = now.since(&std::mem::replace(before, now));
            }
            *busy
        });
        let busy: Vec<_> = busy.collect();
        let has_changed = self.awake.look(now_ns, &busy, self.is_auto);
        self.buckets.set_among(self.awake.among());
        if has_changed || now_ns >= self.given_ns + GIVE_EVERY_NS {
            self.give(now_ns);
        }
    }

    /// Buckets without sessions go to those whom newcomers are to come to.
    fn give(&mut self, now_ns: u64) {
        let all = || (0..self.buckets.spread().workers()).collect();
        let takers = if self.is_auto { self.awake.takers() } else { all() };
        self.buckets.spread().give_empty(&takers);
        self.count.store(self.awake.count(), Ordering::Relaxed);
        self.given_ns = now_ns;
    }
}

/// The buckets of the sessions that a gate has brought, which counts them from now on.
pub(super) fn tally(gate: &mut Gate, buckets: &Arc<Buckets>) -> Vec<u32> {
    let mut tally = Vec::new();
    gate.for_addresses(|address| {
        tally.extend(
            buckets.bucket_of(address.listener, &address.endpoint).map(|bucket| bucket as u32),
        );
    });
    gate.share(buckets);
    tally
}

impl Start<'_> {
    /// Why workers cannot sleep, where they should; nothing where there is nothing to ask the
    /// kernel for.
    fn may_spread(&self) -> Option<Result<(), String>> {
        let plan = self.plan;
        if !plan.narrows || plan.workers == 1 {
            return None;
        }
        let by_card = "frames come to workers by the queues of an interface (io = \"xdp\")";
        Some(if self.card.is_some() { Err(by_card.to_owned()) } else { Ok(()) })
    }

    /// Has the kernel spread newcomers over the workers that are awake, from the first one on.
    pub(super) fn spread(&mut self, parts: &mut [Parts<impl SocketDriver>]) {
        let spread = self.may_spread().map(|may| may.and_then(|()| self.spread_over(parts)));
        give_up_rights(spread.as_ref());
        self.note_spreading(spread.map(|it| it.map(Some)));
    }

    fn note_spreading(&mut self, spread: Option<Result<Option<Spreading>, String>>) {
        match spread {
            Some(Ok(spreading)) => self.spreading = spreading.map(Arc::new),
            Some(Err(why)) => self.why_all_awake = Some(why),
            None => {}
        }
    }

    fn spread_over(&self, parts: &mut [Parts<impl SocketDriver>]) -> Result<Spreading, String> {
        let count = self.addresses.iter().map(Vec::len).sum();
        let spreading = Spreading::load(self.plan.workers, count, self.plan.narrows)?;
        let mut at = 0;
        for (listener, addresses) in self.addresses.iter().enumerate() {
            let of = |bind: usize| -> Vec<_> {
                parts.iter().filter_map(|it| it.driver.fd(it.players[at + bind])).collect()
            };
            let sockets = addresses.iter().enumerate().map(|(bind, it)| (*it, of(bind)));
            let noted = spreading.note(ListenerId::at(listener), sockets, true);
            noted.map_err(|why| why_left(&why))?;
            at += addresses.len();
        }
        let all: Vec<_> = (0..self.plan.workers).collect();
        spreading.buckets.spread().give_empty(&all);
        spreading.attach().map_err(|why| why_left(&why))?;
        for it in parts.iter_mut() {
            it.gate.share(&spreading.buckets);
            it.buckets = Some(Arc::clone(&spreading.buckets));
        }
        Ok(spreading)
    }

    /// The same in the place of another process, before it is known which sockets there are.
    pub(super) fn prepare_spread(&mut self, given: Option<&SpreadRow>, fds: Vec<OwnedFd>) {
        let plan = self.plan;
        let count = self.addresses.iter().map(Vec::len).sum();
        let adopt = |row: &SpreadRow| match &self.card {
            None => Spreading::adopt(fds, row, &self.addresses, plan.narrows).map(Some),
            // The kernel goes on asking the table, and nobody writes it.
            Some(_) => Ok(None),
        };
        let adopted = given.map(adopt);
        let load = || Spreading::load(plan.workers, count, plan.narrows).map(Some);
        let spread = adopted.or_else(|| self.may_spread().map(|may| may.and_then(|()| load())));
        give_up_rights(spread.as_ref());
        self.note_spreading(spread);
    }

    /// Whether there is a table.
    pub(super) const fn spreads(&self) -> bool {
        self.spreading.is_some()
    }

    /// The sockets that another process has lent go by the table later, where they do not yet.
    pub(super) fn note_sockets(&mut self, mut sockets: ByAddress) {
        let Some(spreading) = &self.spreading else { return };
        let mut listeners: Vec<_> = sockets.keys().map(|(listener, _)| *listener).collect();
        listeners.dedup();
        let goes_by = |it: &ListenerId| {
            let groups = &spreading.kernels().groups;
            groups.iter().flatten().any(|group| group.listener == *it)
        };
        let is_new = !listeners.iter().any(goes_by);
        if !is_new {
            // Whoever has given the table has left out what does not go by it.
            return;
        }
        for fds in sockets.values_mut() {
            fds.sort_by_key(|(worker, _)| *worker);
        }
        for listener in listeners {
            let all = sockets.range((listener, 0)..=(listener, u16::MAX));
            let known = &self.addresses[listener.index()];
            let all = all.map(|((_, bind), fds)| {
                (known[usize::from(*bind)], fds.iter().map(|(_, fd)| fd.as_fd()).collect())
            });
            if let Err(why) = spreading.note(listener, all, false) {
                self.why_all_awake = Some(why_left(&why));
                self.spreading = None;
                return;
            }
        }
    }
}

/// This thread, and all that it will start, load no program any more.
fn give_up_rights<T>(spread: Option<&Result<T, String>>) {
    if spread.is_some_and(Result::is_ok)
        && let Err(why) = capabilities::give_up(&[Capability::Bpf])
    {
        tracing::warn!(
            "the right that workers_awake = \"auto\" takes could not be given up: {why}"
        );
    }
}

impl Fleet {
    /// How many workers newcomers come to, as it changes.
    pub fn awake(&self) -> AwakeWorkers {
        AwakeWorkers { spreading: self.spreading.clone(), all: self.published.len() }
    }

    /// Why all are awake, where the config would let some sleep.
    pub fn why_all_awake(&self) -> Option<&str> {
        self.why_all_awake.as_deref()
    }

    /// The table of who has which sources, for the process after this one.
    pub fn given_spread(&self) -> std::io::Result<Option<(SpreadRow, Vec<OwnedFd>)>> {
        self.spreading.as_ref().map(|it| it.given()).transpose()
    }

    /// What players of a new listener send goes by the table, too.
    pub(super) fn spread_opened(&self, listener: ListenerId, opened: &Opened) {
        let Some(spreading) = &self.spreading else { return };
        // Whoever has had its number before is gone.
        spreading.close(listener);
        let noted = spreading.note(listener, opened.by_address(), false);
        if let Err(why) = noted.and_then(|()| spreading.attach()) {
            spreading.buckets.set_listener(listener, false);
            tracing::warn!("{}", why_left(&why));
        }
    }

    /// The number of a listener is nobody's any more.
    pub(super) fn spread_closed(&self, listener: ListenerId) {
        self.spreading.as_ref().inspect(|it| it.close(listener));
    }
}

fn why_left(why: &std::io::Error) -> String {
    let advice = if why.kind() == std::io::ErrorKind::ResourceBusy {
        "its sockets go by the table of an earlier process, which has not been given on; a restart ends that"
    } else {
        "the kernel chooses the worker of its players"
    };
    format!("workers cannot sleep for a listener: {why}; {advice}")
}

/// Programs for addresses that a reload may bring.
const SPARE: usize = 8;

/// A worker publishes twice within.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Buckets that have become empty go to whoever is awake.
const GIVE_EVERY_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::super::{Kept, Plan, Ports, tests};
    use super::*;

    #[test]
    fn who_has_given_its_workers_away_decides_no_more() {
        let plan = Plan { narrows: true, ..tests::plan() };
        let ports = Ports { players: Vec::new(), kept: Kept::default() };
        let fleet = Fleet::start_on(&plan, ports).expect("no sockets to fail");
        let Some(spreading) = &fleet.spreading else {
            let is_required = std::env::var_os("REQUIRE_XDP").is_some_and(|it| it == "1");
            let why = fleet.why_all_awake().unwrap_or_default();
            assert!(!is_required, "REQUIRE_XDP=1, but: {why}");
            return eprintln!("SKIPPED: {why}");
        };
        let decides = || lock(&spreading.thread).is_some();
        fleet.freeze().expect("they stand").resume();
        assert!(decides());
        fleet.freeze().expect("they stand").leave();
        assert!(!decides());
    }
}
