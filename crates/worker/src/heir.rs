//! A fleet that is made of another process's: its sockets, its clock, and what its workers know.
//!
//! In steps, because players wait during the last two only: [`Heir::prepare`] compares and makes
//! drivers; [`Heir::begin`] and [`Arriving::read`] take in what the other process writes ahead;
//! [`Arriving::read_rest`] takes in the rest, and [`Arriving::finish`] makes workers of it. Nobody
//! turns until [`Fleet::set_off`]: up to then the other process may take everything back.

mod listeners;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use super::card::Seat;
use super::counted::Counted;
use super::feed::Feed;
use super::shell::Shell;
use super::spreading::{self, ByAddress};
use super::thread::{Parts, Worker};
use super::{Fleet, Plan, Ready, Start, find_memory, sockets, with_ports};
use crate::handover::{BackendRow, CardGiven, Facts, Given, LeavingRow, SocketRow};
use listeners::Found;
use ringgate_batch::{Driver, Port, SocketId};
use ringgate_core::carry::Maps;
use ringgate_core::crypto::Aead;
use ringgate_core::limits::BACKENDS_MAX;
use ringgate_gate::handover::{Arrived, Format, Import, Kept, Leaving, SharedImport};
use ringgate_gate::{
    Allowed, Backend, Buckets, Claims, Denied, Front, LinkKind, ListenerId, Now, Seed, Setup,
    WorkerId, WorkerIndex, clash,
};
use ringgate_io::{AnyDriver, SocketDriver, SocketKind};
use ringgate_os::clock::{self, Clock};
use ringgate_os::{memory, process};
use ringgate_process::handover::Extent;

/// What a successor has made before it is given anything.
pub struct Heir<'a> {
    start: Start<'a>,
    drivers: Vec<AnyDriver>,
    predecessor: Format,
    kept: Kept,
    /// Listeners that only the predecessor's config had, and that drain.
    leaving: Vec<(ListenerId, LeavingRow)>,
    /// Of this process.
    generation: u64,
}

/// Rows, and a descriptor for each.
pub type Sockets = Vec<(SocketRow, OwnedFd)>;

/// Workers on their way, as far as they have come.
pub struct Arriving<'a> {
    plan: &'a Plan,
    setup: Arc<Setup>,
    clock: Clock,
    shared: SharedImport,
    shared_feed: Feed,
    workers: Vec<Arrival<AnyDriver>>,
    buckets: Option<Arc<Buckets>>,
    generation: u64,
    /// How long the rest has taken to be read.
    read_ns: u64,
}

/// One of them.
struct Arrival<D> {
    index: u16,
    shell: Shell,
    driver: D,
    feed: Feed,
    import: Import,
    players: Vec<SocketId>,
    /// Its part of the interface that packets come by.
    seat: Option<Seat>,
}

/// What has become of the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// That go on.
    pub sessions: usize,
    /// That do not, because this config has no such backend.
    pub not_carried: u64,
    /// How long the rest took to be read.
    pub read_us: u64,
    /// How long workers took to be made of it.
    pub made_us: u64,
    /// When the other process's workers were told to rest, on the clock of both.
    pub since_ns: u64,
}

impl<'a> Heir<'a> {
    /// Compares what the predecessor has with what this process is to have, and makes drivers.
    /// `layout` is the beginning of the shared stream, `card` what comes with the interface that
    /// the facts name.
    pub fn prepare(
        plan: &'a Plan,
        facts: &Facts,
        layout: &[u8],
        card: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        let (predecessor, len) = Format::read(layout).map_err(|why| why.to_string())?;
        let Found { mut addresses, mut kept, leaving } = Found::of(plan, facts, &predecessor)?;
        let mut setup = with_ports(&plan.setup, &addresses);
        setup.incarnation = predecessor.incarnation;
        keep_backends(&mut setup, facts)?;
        setup.awaits_fleet = setup.fleet_tokens.is_some();
        let maps = Format::of(&setup, plan.workers, clock::boot_id()).map_backends(&predecessor);
        let rules = Leaving::read_all(&layout[len..], &maps).map_err(|why| why.to_string())?;
        let leaving = leaving.into_iter().map(|(row, bound)| {
            let its = rules.iter().find(|it| it.number == row.number).ok_or(TOO_FEW)?;
            let number = setup.listeners.push(its.listener.clone());
            kept.insert(row.number, number.0);
            addresses.push(bound);
            Ok((number, row))
        });
        let leaving = leaving.collect::<Result<Vec<_>, String>>()?;
        if let Some(refusal) = clash(&setup, &setup, |id| spoken(facts, &setup.backends[id])) {
            return Err(refusal);
        }
        predecessor.reserve(&mut setup);
        let setup = Arc::new(setup);
        let ours = Format::of(&setup, plan.workers, clock::boot_id());
        ours.compatible(&predecessor, &kept)?;
        find_memory(&setup, plan.workers).map_err(|why| why.to_string())?;
        let clock = Clock::since(facts.epoch_ns);
        // Replaced by what the predecessor's workers have agreed on.
        let claims = Arc::new(Claims::new(0, &[], setup.claim_limits()));
        let mut start = Start::with(plan, setup, claims, clock, addresses);
        if facts.has_links {
            // Also where this config has no such backend: those of players who stay have links.
            let path = |worker| sockets::link_path(&facts.run_dir, worker);
            start.link_paths = (0..plan.workers).map(path).collect();
        }
        let (card, spread) = match &facts.spread {
            Some(_) => (Vec::new(), card),
            None => (card, Vec::new()),
        };
        let drivers = start.adopt_drivers(facts.card.as_ref(), card);
        let drivers = drivers.map_err(|why| why.to_string())?;
        start.prepare_spread(facts.spread.as_ref(), spread);
        start.give_up_rights();
        if let Some(card) = &start.card {
            card.serve_more(leaving.iter().map(|(_, row)| row.by_card));
        }
        let generation = facts.generation.saturating_add(1);
        Ok(Self { start, drivers, predecessor, kept, leaving, generation })
    }

    /// Listeners that only the predecessor's config had, with the numbers that they have here:
    /// they go on draining.
    pub fn leaving(&self) -> &[(ListenerId, LeavingRow)] {
        &self.leaving
    }

    /// Takes in the first part of each stream: `streams` is their memory, the shared one's first.
    /// The fleet is there from then on, for a control plane.
    pub fn begin(
        mut self,
        sockets: Sockets,
        denied: Denied,
        streams: Vec<OwnedFd>,
        extent: &Extent,
    ) -> Result<(Fleet, Arriving<'a>), String> {
        let setup = Setup::clone(&self.start.setup);
        let setup = Arc::new(Setup { denied: Arc::new(denied), ..setup });
        self.start.setup = Arc::clone(&setup);
        let maps = Format::of(&setup, self.start.plan.workers, clock::boot_id())
            .compatible(&self.predecessor, &self.kept)?;
        let mut streams = streams.into_iter().map(Feed::new);
        let mut next = || streams.next().ok_or(TOO_FEW)?;
        let (mut shared, mut shared_feed) = (SharedImport::new(Arc::clone(&setup)), next()?);
        shared_feed.take(extent.shared_bytes, true, |bytes| {
            shared.take(bytes).map_err(|why| why.to_string())
        })?;
        self.start.claims = shared.claims().ok_or("the keys of what is shared are missing")?;
        let (plan, clock, generation) = (self.start.plan, self.start.clock, self.generation);
        let drivers = std::mem::take(&mut self.drivers);
        let mut jobs = Vec::new();
        let card = self.start.go_on_with_card(&drivers).map_err(|why| why.to_string())?;
        let addresses = Arc::new(self.start.addresses.clone());
        for ((index, driver), bytes) in (0..).zip(drivers).zip(&extent.worker_bytes) {
            let (shell, feed) = (Shell::new(&driver, clock), next()?);
            let birth = Birth::new(&self.start, index, &maps)?;
            let bytes = *bytes;
            let seat = card.as_ref().map(|card| Seat::new(Arc::clone(card), index.into()));
            let addresses = Arc::clone(&addresses);
            let sockets = Vec::new();
            jobs.push(Job { birth, shell, driver, feed, sockets, bytes, seat, addresses });
        }
        let mut lent = ByAddress::new();
        for (row, fd) in sockets {
            if let (Some((listener, bind)), true) = (row.player, self.start.spreads()) {
                let number = maps.listeners.get(usize::from(listener)).copied().flatten();
                let number = number.map(ListenerId).ok_or(TOO_FEW)?;
                let second = fd.try_clone().map_err(|why| why.to_string())?;
                lent.entry((number, bind)).or_default().push((row.worker, second));
            }
            let job = jobs.get_mut(usize::from(row.worker)).ok_or(TOO_FEW)?;
            job.sockets.push((row, fd));
        }
        self.start.note_sockets(lent);
        if jobs.len() != usize::from(plan.workers) {
            return Err(TOO_FEW.to_owned());
        }
        let workers = side_by_side(jobs, |job| {
            process::stand_back();
            job.begin()
        })?;
        let shells: Vec<_> = workers.iter().map(|it| &it.shell).collect();
        let facts =
            workers.first().map(|it| (it.driver.name(), it.import.gate().aead().kernel().name()));
        let buckets = self.start.spreading.as_ref().map(|it| Arc::clone(it.buckets()));
        let fleet = self.start.fleet(&shells, facts);
        let arriving = Arriving {
            plan,
            setup,
            clock,
            shared,
            shared_feed,
            workers,
            buckets,
            generation,
            read_ns: 0,
        };
        Ok((fleet, arriving))
    }
}

impl Arriving<'_> {
    /// Takes in the next part of each stream.
    pub fn read(&mut self, extent: &Extent) -> Result<(), String> {
        self.take(extent, process::stand_back)
    }

    /// Takes in sockets that were not lent before the barrier. They come before the rest.
    pub fn adopt(&mut self, sockets: Sockets) -> Result<(), String> {
        for (row, fd) in sockets {
            let arrival = self.workers.get_mut(usize::from(row.worker)).ok_or(TOO_FEW)?;
            arrival.adopt(row, fd)?;
        }
        Ok(())
    }

    /// Takes in the next part of the rest of each stream: players wait.
    pub fn read_rest(&mut self, extent: &Extent) -> Result<(), String> {
        let began_ns = self.clock.now_ns();
        self.take(extent, || {})?;
        self.read_ns += self.clock.now_ns() - began_ns;
        Ok(())
    }

    fn take(&mut self, extent: &Extent, first: fn()) -> Result<(), String> {
        let Extent { shared_bytes, worker_bytes, is_whole } = extent;
        let Self { shared, shared_feed, workers, .. } = self;
        if worker_bytes.len() != workers.len() {
            return Err(TOO_FEW.to_owned());
        }
        thread::scope(|scope| {
            let threads = workers.iter_mut().zip(worker_bytes).map(|(arrival, bytes)| {
                scope.spawn(move || {
                    first();
                    arrival.take(*bytes, *is_whole)
                })
            });
            let threads: Vec<_> = threads.collect();
            let taken = shared_feed.take(*shared_bytes, *is_whole, |bytes| {
                shared.take(bytes).map_err(|why| why.to_string())
            });
            let joined = threads.into_iter().map(|it| it.join().unwrap_or_else(|_| panicked()));
            joined.fold(taken, Result::and)
        })
    }

    /// Workers that know what the predecessor's did, on its sockets. They do not turn yet.
    pub fn finish(self, given: &Given) -> Result<(Ready, Inheritance), String> {
        let Self { plan, setup, clock, shared, mut workers, buckets, generation, read_ns, .. } =
            self;
        let began_ns = clock.now_ns();
        shared.finish().map_err(|why| why.to_string())?;
        for arrival in &mut workers {
            arrival.import.settle();
        }
        let counted =
            |index: u16| given.counted.get(usize::from(index)).map_or(&[][..], Vec::as_slice);
        let made = side_by_side(workers, |arrival| {
            let counted = Counted::of(counted(arrival.index));
            let none = CardGiven::default();
            let card = given.cards.get(usize::from(arrival.index)).unwrap_or(&none);
            let own = (&counted, card, buckets.as_ref());
            let (mut worker, arrived, tally) = arrival.finish(plan, &setup, clock, own)?;
            let filters = (0..plan.filter.len()).map(ListenerId::at);
            let filters = filters.map(|at| sockets::filter_of(plan, at)).collect();
            worker.take_over(u32::try_from(generation).unwrap_or(u32::MAX), filters);
            Ok((worker, arrived, tally))
        })?;
        let mut inheritance = Inheritance {
            read_us: read_ns / 1000,
            since_ns: given.since_ns,
            ..Inheritance::default()
        };
        let mut ready = Ready { workers: Vec::new(), tally: Some(Vec::new()) };
        for (worker, arrived, tally) in made {
            inheritance.sessions += arrived.sessions;
            inheritance.not_carried += arrived.not_carried;
            ready.workers.push(Box::new(worker));
            ready.tally.get_or_insert_default().push(tally);
        }
        inheritance.made_us = (clock.now_ns() - began_ns) / 1000;
        Ok((ready, inheritance))
    }
}

/// What a worker's gate is made with.
struct Birth {
    index: u16,
    worker: WorkerIndex,
    setup: Arc<Setup>,
    claims: Arc<Claims>,
    clock: Clock,
    maps: Maps,
    aead: Aead,
    seed: Seed,
}

impl Birth {
    fn new(start: &Start<'_>, index: u16, maps: &Maps) -> Result<Self, String> {
        let fail = |why: &dyn ToString| format!("worker {index}: {}", why.to_string());
        let Start { plan, setup, claims, clock, .. } = start;
        Ok(Self {
            index,
            worker: WorkerIndex { id: WorkerId(index), count: plan.workers },
            setup: Arc::clone(setup),
            claims: Arc::clone(claims),
            clock: *clock,
            maps: maps.clone(),
            aead: Aead::from_env().map_err(|why| fail(&why))?,
            seed: Seed::generate().map_err(|why| fail(&why))?,
        })
    }

    /// Makes the gate of the beginning of its stream. Returns how long that is, too.
    fn give(self, bytes: &[u8]) -> Result<(Import, usize), String> {
        let Self { index, worker, setup, claims, clock, maps, aead, seed } = self;
        let now = now(clock);
        let begun = Import::begin(bytes, setup, worker, claims, aead, seed, maps, now);
        let (mut import, start) = begun.map_err(|why| format!("worker {index}: {why}"))?;
        for table in import.gate_mut().large_tables() {
            let _ = memory::prefer_huge_pages(&table);
        }
        Ok((import, start))
    }
}

/// A worker that has not come yet.
struct Job<D> {
    birth: Birth,
    shell: Shell,
    driver: D,
    feed: Feed,
    /// Those of its listeners.
    sockets: Sockets,
    bytes: u64,
    seat: Option<Seat>,
    /// Of all listeners.
    addresses: Arc<Vec<Vec<SocketAddr>>>,
}

impl<D: SocketDriver> Job<D> {
    fn begin(self) -> Result<Arrival<D>, String> {
        let Self { mut birth, shell, mut driver, mut feed, mut sockets, bytes, .. } = self;
        let (seat, addresses, index) = (self.seat, self.addresses, birth.index);
        // Those of a listener in the order of their addresses.
        sockets.sort_by_key(|(row, _)| (row.kind, row.player));
        let mut players = Vec::new();
        for (row, fd) in sockets {
            let id = adopt(&mut driver, &row, fd)?;
            birth.maps.sockets.insert(row.id, id.0);
            players.extend(row.player.map(|_| id));
            if let (Some(seat), Some((listener, bind))) = (&seat, row.player) {
                let number = birth.maps.listeners.get(usize::from(listener)).copied().flatten();
                let listener = number.map(ListenerId).ok_or(TOO_FEW)?;
                let known = addresses.get(listener.index());
                let address = known.and_then(|it| it.get(usize::from(bind))).ok_or(TOO_FEW)?;
                let rules = birth.setup.listeners.get(listener).ok_or(TOO_FEW)?;
                seat.serve(&mut driver, (listener, rules), (id, *address));
            }
        }
        let (mut birth, mut import) = (Some(birth), None);
        feed.take(bytes, true, |bytes| {
            let start = match birth.take() {
                Some(birth) => {
                    let (begun, start) = birth.give(bytes)?;
                    import = Some(begun);
                    start
                }
                None => 0,
            };
            let import: &mut Import = import.as_mut().ok_or(TOO_FEW)?;
            let taken = import.take(&bytes[start..]);
            taken.map(|taken| start + taken).map_err(|why| format!("worker {index}: {why}"))
        })?;
        let import = import.ok_or(TOO_FEW)?;
        Ok(Arrival { index, shell, driver, feed, import, players, seat })
    }
}

impl<D: SocketDriver> Arrival<D> {
    fn take(&mut self, bytes: u64, is_whole: bool) -> Result<(), String> {
        let Self { index, feed, import, .. } = self;
        feed.take(bytes, is_whole, |bytes| {
            import.take(bytes).map_err(|why| format!("worker {index}: {why}"))
        })
    }

    /// A socket that was not lent before the barrier.
    fn adopt(&mut self, row: SocketRow, fd: OwnedFd) -> Result<(), String> {
        let id = adopt(&mut self.driver, &row, fd)?;
        self.import.add_socket(SocketId(row.id), id);
        Ok(())
    }

    fn finish(
        self,
        plan: &Plan,
        setup: &Setup,
        clock: Clock,
        (counted, card, buckets): (&Counted, &CardGiven, Option<&Arc<Buckets>>),
    ) -> Result<(Worker<D>, Arrived, Vec<u32>), String> {
        let Self { index, shell, mut driver, import, players, mut seat, .. } = self;
        if let Some(seat) = &mut seat {
            seat.go_on(&mut driver, card)?;
        }
        let finished = import.finish(now(clock));
        let (mut gate, arrived) = finished.map_err(|why| format!("worker {index}: {why}"))?;
        if gate.udp_link().is_none() && plan.has_udp(setup) {
            let link = driver.open(&Port::UdpLink).map_err(|why| why.to_string())?;
            gate.bind_udp_link(link);
        }
        // Up to here the predecessor has heard of them.
        driver.forget_drops();
        let tally = buckets.map(|buckets| spreading::tally(&mut gate, buckets));
        let (counted, buckets) = (Some(*counted), buckets.map(Arc::clone));
        let parts = Parts { index, driver, gate, players, counted, seat, buckets };
        let mut worker = Worker::new(shell, parts, clock, plan.spin);
        // Whoever looks before its first turn should see that counters go on.
        worker.publish();
        Ok((worker, arrived, tally.unwrap_or_default()))
    }
}

fn now(clock: Clock) -> Now {
    Now { mono_ns: clock.now_ns(), unix_s: clock::unix_seconds() }
}

/// Does the same with each, on threads of their own.
fn side_by_side<T: Send, R: Send>(
    all: Vec<T>,
    work: impl Fn(T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = all.into_iter().map(|it| scope.spawn(move || work(it))).collect();
        threads.into_iter().map(|it| it.join().unwrap_or_else(|_| panicked())).collect()
    })
}

fn panicked<T>() -> Result<T, String> {
    Err("what was given made a thread panic".to_owned())
}

/// Registers what a worker gets. Returns the number that it has now.
fn adopt(driver: &mut impl SocketDriver, row: &SocketRow, fd: OwnedFd) -> Result<SocketId, String> {
    let kind = sockets::kind_of(row.kind).ok_or("there is a socket of an unknown kind")?;
    is_such(&fd, kind)?;
    driver.register(fd, kind).map_err(|why| format!("cannot adopt a socket: {why}"))
}

/// Whether a descriptor is what it is said to be: a driver that waits for what never blocks would
/// turn for ever, and one that blocks would never turn.
fn is_such(fd: &OwnedFd, kind: SocketKind) -> Result<(), String> {
    let socket = socket2::SockRef::from(fd);
    let wanted = match kind {
        SocketKind::Datagram | SocketKind::ConnectedDatagram => socket2::Type::DGRAM,
        SocketKind::Link | SocketKind::LinkListener => socket2::Type::SEQPACKET,
    };
    let is_such = socket.r#type().is_ok_and(|found| found == wanted);
    let set = socket.set_nonblocking(true);
    if is_such && set.is_ok() {
        Ok(())
    } else {
        Err("a socket is not what it should be".to_owned())
    }
}

/// Backends that the other process has and this config has not are kept for their players, as a
/// reload keeps them.
fn keep_backends(setup: &mut Setup, facts: &Facts) -> Result<(), String> {
    let own = setup.backends.len();
    // Those without players last. They are kept because some may come before the barrier, as far as
    // there is room.
    let is_empty = |row: &&BackendRow| row.players == Some(0);
    let rows = || facts.backends.iter();
    for row in rows().filter(|row| !is_empty(row)).chain(rows().filter(is_empty)) {
        let kept = kept(&row.name, row.address, row.slots, row.grace_ns);
        let has_room = !is_empty(&row) || setup.backends.len() < BACKENDS_MAX;
        if has_room && !setup.backends.iter().any(|known| known.is_same(&kept)) {
            setup.backends.push(kept);
        }
    }
    let count = setup.backends.len();
    if count > BACKENDS_MAX {
        return Err(format!(
            "the config has {own} backends, and {} more may have players: {BACKENDS_MAX} are the most",
            count - own
        ));
    }
    Ok(())
}

/// What the players of a backend speak, or those who may come, as far as the other process says.
fn spoken(facts: &Facts, backend: &Backend) -> Option<Front> {
    let is_it = |row: &&BackendRow| backend.is(&row.name, row.address);
    facts.backends.iter().find(is_it).and_then(|row| Front::of_word(row.front.as_deref()?))
}

fn kept(name: &str, address: Option<SocketAddr>, slots: u32, grace_ns: u64) -> Backend {
    Backend {
        name: name.to_owned(),
        link: match address {
            Some(address) => LinkKind::Udp { address },
            None => LinkKind::Bundle { allow: Allowed { uids: Vec::new(), gids: Vec::new() } },
        },
        slots,
        grace_ns,
        retired: true,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    }
}

const TOO_FEW: &str = "what was given is not what was announced";

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process says that has backends with players, and without.
    fn facts(with_players: usize, without: usize) -> Facts {
        let row = |at: usize, players: u32| BackendRow {
            name: format!("old-{at}"),
            address: None,
            slots: 4,
            grace_ns: 1,
            front: None,
            players: Some(players),
        };
        let empty = (0..without).map(|at| row(at, 0));
        let rows: Vec<_> =
            empty.chain((without..without + with_players).map(|at| row(at, 1))).collect();
        let facts = serde_json::json!({
            "release": "0.1.0", "pid": 1, "generation": 1, "workers": 2, "epoch_ns": 0,
            "started_unix_s": 0, "run_dir": "/run", "has_links": false, "layout_bytes": 0,
            "retired": [], "listeners": [], "backends": rows,
        });
        serde_json::from_value(facts).expect("facts")
    }

    #[test]
    fn backends_without_players_are_kept_as_far_as_there_is_room() {
        let own = |count: usize| {
            let all = (0..count).map(|at| kept(&format!("new-{at}"), None, 4, 1)).collect();
            Setup::new(Vec::new(), all, 1)
        };
        for (with_players, without, own_count, fits) in [
            (1, BACKENDS_MAX - 1, BACKENDS_MAX - 1, true),
            (10, 100, BACKENDS_MAX - 20, true),
            (10, 100, 5, true),
            (2, 0, BACKENDS_MAX - 1, false),
        ] {
            let mut setup = own(own_count);
            let done = keep_backends(&mut setup, &facts(with_players, without));
            assert_eq!(done.is_ok(), fits, "{done:?}");
            if fits {
                let sum = own_count + with_players + without;
                assert_eq!(setup.backends.len(), sum.min(BACKENDS_MAX));
                let of_players = setup.backends.iter().skip(own_count).take(with_players);
                let first = format!("old-{without}");
                assert_eq!(of_players.clone().next().map(|it| &*it.name), Some(&*first));
            }
        }
    }
}
