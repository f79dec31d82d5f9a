//! Pinned threads: each owns a driver and a gate and carries bytes between them. The only place
//! where the two meet.
//!
//! [`Ports::claim`] takes the addresses before anything else is touched. [`Fleet::start`] opens
//! every socket of every worker before any thread runs, so that a start either succeeds whole or
//! fails with one reason. Afterwards the fleet is reached by mailbox and read by published reports
//! only; nothing that the packet path touches is shared. [`handover`] is how another process goes
//! on with all of it.
#![deny(unsafe_code)]

mod ahead;
mod barrier;
mod card;
mod counted;
mod departures;
mod feed;
pub mod handover;
mod heir;
mod kept;
mod mailbox;
mod opened;
mod ports;
mod public;
mod report;
mod shell;
mod sockets;
mod spreading;
mod stages;
#[cfg(test)]
mod tests;
mod thread;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use ahead::{Copied, Scribe, window_bytes};
pub use barrier::{Frozen, Gift, PartOfRest, Publishers, write_layout};
pub use card::{CardPlan, CardShown, FleetCard, START_RIGHTS};
pub use departures::Departures;
pub use heir::{Arriving, Heir, Inheritance, Sockets};
pub use kept::{Kept, name_of};
pub use mailbox::Hatch;
pub use opened::{NotOpened, Opened, Wanted};
pub use ports::Ports;
pub use report::{Published, Report};
pub use ringgate_gate::body::Stage;
pub use spreading::AwakeWorkers;
pub use stages::{Recorder, Stages};

use barrier::Helm;
use card::Seat;
use mailbox::{IsShut, Post};
use opened::NewSockets;
use shell::Shell;
use spreading::{Spreading, Tally};
use thread::{Parts, Worker};
use watch::Watch;

use ringgate_batch::{Driver, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_gate::{
    Claims, Denied, Gate, LinkKind, ListenerId, Mail, Now, Phase, Seed, Setup, SpentToken,
    WorkerId, WorkerIndex,
};
use ringgate_io::socket::{UdpSocket, overlap};
use ringgate_io::{AnyDriver, Choice, SocketDriver, StartError};
use ringgate_os::clock::{self, Clock};
use ringgate_os::memory;
use ringgate_trunk::worker::WorkerInbox;

/// What a fleet of workers is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Listeners, backends and limits.
    pub setup: Arc<Setup>,
    /// Where each listener is bound, by its number. Port 0 asks the kernel for one, the same for
    /// all workers.
    pub binds: Vec<Vec<SocketAddr>>,
    /// Whether each listener's sockets refuse in the kernel what cannot be ours, by its number.
    pub filter: Vec<bool>,
    /// Where the sockets for bundle links are made; `None` where there is no bundle backend.
    pub run_dir: Option<PathBuf>,
    /// Whether udp backends may come where the setup has none.
    pub expects_udp: bool,
    /// How many workers.
    pub workers: u16,
    /// Whether each worker is bound to a core of its own.
    pub pin: bool,
    /// Which driver.
    pub io: Choice,
    /// How long a worker looks for work before it sleeps.
    pub spin: Duration,
    /// Whether workers that are not needed sleep.
    pub narrows: bool,
    /// Which listeners are served past the kernel's sockets.
    pub card: Option<CardPlan>,
    /// Tokens that no session may be opened with.
    pub spent: Vec<SpentToken>,
}

impl Plan {
    /// Whether players need the socket that leads to udp backends.
    fn has_udp(&self, setup: &Setup) -> bool {
        let is_udp = |link: &LinkKind| matches!(link, LinkKind::Udp { .. });
        self.expects_udp || setup.backends.iter().any(|backend| is_udp(&backend.link))
    }

    /// From the start on, these may not play.
    pub fn deny(&mut self, denied: Denied) {
        self.setup = Arc::new(Setup { denied: Arc::new(denied), ..Setup::clone(&self.setup) });
    }

    /// Where workers listen for game processes.
    fn link_paths(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let path = |dir, worker| sockets::link_path(dir, worker);
        self.run_dir.iter().flat_map(move |dir| (0..self.workers).map(move |it| path(dir, it)))
    }
}

/// Workers that have not begun to turn.
pub struct Ready {
    workers: Vec<Box<Worker<AnyDriver>>>,
    /// The sessions that they have brought.
    tally: Option<Tally>,
}

/// Workers that run, or will as soon as they are there.
pub struct Fleet {
    threads: Vec<JoinHandle<std::io::Result<()>>>,
    /// Where the threads wait for their workers, until they have them.
    seats: Vec<Sender<Box<Worker<AnyDriver>>>>,
    has_begun: bool,
    posts: Vec<Post>,
    /// While they stand, and for good once another process has them.
    is_shut: IsShut,
    departures: Option<Departures>,
    /// By which workers are lent lanes of trunks.
    desks: Vec<WorkerInbox>,
    helms: Vec<Helm>,
    published: Vec<Arc<Published>>,
    claims: Arc<Claims>,
    /// Of each listener; none of one that has closed.
    addresses: Mutex<Vec<Vec<SocketAddr>>>,
    link_paths: Vec<PathBuf>,
    driver: &'static str,
    why_not_uring: Option<String>,
    why_unrestricted: Option<String>,
    kernel: &'static str,
    failed: Arc<AtomicBool>,
    clock: Clock,
    /// As the workers were last given it: an older one has keys that are nobody's any more.
    setup: Mutex<Arc<Setup>>,
    /// Tells the workers which udp backends are there. Ends before they do.
    watch: Option<Watch>,
    /// Whether any may be.
    watches: bool,
    /// Past the kernel's sockets.
    card: Option<Arc<FleetCard>>,
    /// Ends before the workers do.
    spreading: Option<Arc<Spreading>>,
    why_all_awake: Option<String>,
}

impl Fleet {
    /// Claims the addresses, opens all other sockets, then starts all threads.
    pub fn start(plan: &Plan) -> Result<Self, StartError> {
        Self::start_on(plan, Ports::claim(plan, None, &mut Kept::default())?)
    }

    /// The same on addresses that were claimed for this plan.
    pub fn start_on(plan: &Plan, ports: Ports) -> Result<Self, StartError> {
        find_memory(&plan.setup, plan.workers)?;
        let mut start = Start::new(plan, ports);
        let drivers = start.drivers()?;
        let parts = (0..).zip(drivers).map(|(index, driver)| start.parts(index, driver));
        let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
        start.spread(&mut parts);
        start.give_up_rights();
        start.begin_card(&mut parts)?;
        let shells: Vec<_> =
            parts.iter().map(|parts| Shell::new(&parts.driver, start.clock)).collect();
        let facts = parts.first().map(|it| (it.driver.name(), it.gate.aead().kernel().name()));
        let clock = start.clock;
        let mut fleet = start.fleet(&shells.iter().collect::<Vec<_>>(), facts);
        // So that workers know before they take a player in.
        fleet.begin_watch();
        let workers = shells.into_iter().zip(parts);
        let workers =
            workers.map(|(shell, parts)| Box::new(Worker::new(shell, parts, clock, plan.spin)));
        fleet.set_off(Ready { workers: workers.collect(), tally: None });
        Ok(fleet)
    }

    /// Has workers turn that are ready to.
    pub fn set_off(&mut self, Ready { workers, tally }: Ready) {
        self.has_begun = true;
        if let Some(spreading) = &self.spreading {
            spreading.begin(tally.as_ref(), &self.published, self.clock);
        }
        if let Some(card) = &self.card {
            card.change(&self.known_addresses(), &[]);
        }
        for (mut worker, seat) in workers.into_iter().zip(self.seats.drain(..)) {
            worker.set_posts(self.posts.clone(), self.departures.clone());
            // Its thread lives: it waits for nothing else.
            let _ = seat.send(worker);
        }
        // Those of another process know up to the barrier, and nothing older is to come behind it.
        self.begin_watch();
    }

    /// Looks for udp backends from now on.
    fn begin_watch(&mut self) {
        // Without a socket toward them there never is one.
        if self.watches && self.watch.is_none() {
            let (claims, posts) = (Arc::clone(&self.claims), self.posts.clone());
            self.watch = Some(Watch::start(self.setup(), claims, posts));
        }
    }

    /// Waits for workers that another process goes on with. What lies in the file system is that
    /// process's.
    pub fn part(mut self) -> std::io::Result<()> {
        self.link_paths.clear();
        self.join()
    }

    /// The addresses that each listener serves on, with the ports that the kernel has chosen.
    pub fn addresses(&self) -> Vec<Vec<SocketAddr>> {
        self.known_addresses().clone()
    }

    /// Which driver carries the datagrams.
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// Why that is not io_uring, where it could have been.
    pub fn why_not_uring(&self) -> Option<&str> {
        self.why_not_uring.as_deref()
    }

    /// Why the kernel takes more requests on the workers' rings than they need, where it does.
    pub fn why_unrestricted(&self) -> Option<&str> {
        self.why_unrestricted.as_deref()
    }

    /// Which kernel seals and opens.
    pub fn kernel(&self) -> &'static str {
        self.kernel
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        self.published.len()
    }

    /// What workers have for other members of the cluster; `None` where there is no cluster.
    pub fn departures(&self) -> Option<&Departures> {
        self.departures.as_ref()
    }

    /// How a thread beside the workers reaches them.
    pub fn hatch(&self) -> Hatch {
        Hatch::new(self.posts.clone(), self.is_shut.clone())
    }

    /// What the workers agree on.
    pub fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// What each worker has published last.
    pub fn published(&self) -> &[Arc<Published>] {
        &self.published
    }

    /// By which each worker is lent lanes of trunks.
    pub fn desks(&self) -> &[WorkerInbox] {
        &self.desks
    }

    /// Gives every worker the same command. Each gets it once and after all earlier ones, whenever
    /// it next turns; this does not wait for that.
    pub fn tell_all(&self, mail: impl Fn() -> Mail) {
        for post in &self.posts {
            post.command(mail());
        }
    }

    /// What players' packets come by past the kernel's sockets.
    pub fn card(&self) -> Option<&Arc<FleetCard>> {
        self.card.as_ref()
    }

    /// Opens a listener's sockets for all workers, beside those that were opened for the same setup
    /// before. Nothing is changed yet: what is not given to [`adopt`](Self::adopt) closes again.
    pub fn open(&self, wanted: &Wanted<'_>, beside: &[Opened]) -> Result<Opened, NotOpened> {
        let beside: Vec<_> = beside.iter().flat_map(Opened::addresses).copied().collect();
        opened::open(wanted, self.posts.len(), &beside, self.card.as_deref())
    }

    /// The listener whose sockets take what is sent to an address.
    pub fn holder_of(&self, address: SocketAddr) -> Option<ListenerId> {
        let known = self.known_addresses();
        let holds = |all: &Vec<SocketAddr>| all.iter().any(|it| overlap(*it, address));
        known.iter().position(holds).map(ListenerId::at)
    }

    /// Gives all workers another setup, in which backends and listeners that serve keep their
    /// numbers, and the sockets of the listeners that are new in it. Returns it as the workers have
    /// it.
    pub fn adopt(&self, setup: &Setup, opened: Vec<(ListenerId, Opened)>) -> Arc<Setup> {
        let setup = Arc::new(with_ports(setup, &self.note_addresses(setup, &opened)));
        self.tell_all(|| Mail::Setup(Arc::clone(&setup)));
        for (listener, opened) in &opened {
            self.spread_opened(*listener, opened);
        }
        for (listener, Opened { sockets, by_card, .. }) in opened {
            let revision = setup.revision;
            for (post, sockets) in self.posts.iter().zip(sockets) {
                post.give(NewSockets { listener, revision, sockets, by_card });
            }
        }
        if let Some(watch) = &self.watch {
            watch.adopt(&setup);
        }
        *self.setup.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&setup);
        setup
    }

    fn note_addresses(
        &self,
        setup: &Setup,
        opened: &[(ListenerId, Opened)],
    ) -> Vec<Vec<SocketAddr>> {
        let mut known = self.known_addresses();
        known.resize_with(setup.listeners.len(), Vec::new);
        for ((number, listener), addresses) in setup.listeners.pairs().zip(known.iter_mut()) {
            if listener.phase == Phase::Closed {
                addresses.clear();
                self.spread_closed(number);
            }
        }
        for (listener, opened) in opened {
            known[listener.index()].clone_from(&opened.addresses);
        }
        if let Some(card) = &self.card {
            let come: Vec<_> = opened.iter().map(|(it, opened)| (*it, opened.by_card)).collect();
            card.change(&known, &come);
        }
        known.clone()
    }

    fn known_addresses(&self) -> MutexGuard<'_, Vec<Vec<SocketAddr>>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the workers were given last.
    pub fn setup(&self) -> Arc<Setup> {
        Arc::clone(&self.setup.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a worker has ended with an error.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The clock that all workers use.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Ends every session, telling its player, and waits for the workers.
    pub fn stop(mut self) -> std::io::Result<()> {
        self.tell_all(|| Mail::Stop);
        self.join()
    }

    fn join(&mut self) -> std::io::Result<()> {
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended =
                thread.join().unwrap_or_else(|_| Err(std::io::Error::other("a worker panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if !self.has_begun {
            // Whatever lies there is still another process's.
            return;
        }
        if !self.threads.is_empty() {
            self.tell_all(|| Mail::Stop);
            for thread in self.threads.drain(..) {
                let _ = thread.join();
            }
        }
        for path in &self.link_paths {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Looks whether there is address space for all tables at once: a table that cannot be made ends
/// the process without a word. Nothing is touched, so this costs no memory.
fn find_memory(setup: &Setup, workers: u16) -> Result<(), StartError> {
    let sessions = setup.worker_sessions_max;
    let bytes = setup.worker_places().saturating_mul(Gate::session_bytes());
    let mut tables = Vec::new();
    for _ in 0..workers {
        let mut table = Vec::<u8>::new();
        table.try_reserve_exact(bytes).map_err(|_| {
            let gib = bytes.div_ceil(1 << 30);
            let what = format!(
                "set memory aside for {sessions} sessions ({gib} GiB of address space for each of {workers} workers; lower \
                 max_sessions)"
            );
            StartError::other(what, std::io::ErrorKind::OutOfMemory.into())
        })?;
        // Looked at, or the compiler would leave it out.
        tables.push(std::hint::black_box(table));
    }
    Ok(())
}

/// Before the first worker serves the first player.
fn remember(claims: &Claims, spent: &[SpentToken], clock: Clock) {
    let now = Now { mono_ns: clock.now_ns(), unix_s: clock::unix_seconds() };
    let is_left_out = |token: &&SpentToken| !claims.remember_spent(token, now);
    let left_out = spent.iter().filter(|it| it.expire_s() > now.unix_s).filter(is_left_out).count();
    if left_out > 0 {
        tracing::warn!("there is no room for {left_out} spent tokens: they are good again");
    }
}

/// A fleet that is being started.
struct Start<'a> {
    plan: &'a Plan,
    setup: Arc<Setup>,
    claims: Arc<Claims>,
    clock: Clock,
    addresses: Vec<Vec<SocketAddr>>,
    /// For the first worker.
    claimed: Option<Vec<Vec<UdpSocket>>>,
    /// For the others.
    kept: Kept,
    link_paths: Vec<PathBuf>,
    why_not_uring: Option<String>,
    why_unrestricted: Option<String>,
    card: Option<FleetCard>,
    /// The same, for all who need it.
    shared_card: Option<Arc<FleetCard>>,
    spreading: Option<Arc<Spreading>>,
    why_all_awake: Option<String>,
}

impl<'a> Start<'a> {
    fn new(plan: &'a Plan, ports: Ports) -> Self {
        let setup = Arc::clone(&plan.setup);
        let (slots, limits) = (setup.backend_slots(), setup.claim_limits());
        let claims = Claims::new(setup.listeners.len(), &slots, limits).clustered(&setup);
        let claims = Arc::new(claims);
        let clock = Clock::start();
        remember(&claims, &plan.spent, clock);
        let addresses = ports.addresses();
        let (claimed, kept) = (Some(ports.players), ports.kept);
        Self { claimed, kept, ..Self::with(plan, setup, claims, clock, addresses) }
    }

    /// Without sockets.
    fn with(
        plan: &'a Plan,
        setup: Arc<Setup>,
        claims: Arc<Claims>,
        clock: Clock,
        addresses: Vec<Vec<SocketAddr>>,
    ) -> Self {
        Self {
            plan,
            setup,
            claims,
            clock,
            addresses,
            claimed: None,
            kept: Kept::default(),
            link_paths: Vec::new(),
            why_not_uring: None,
            why_unrestricted: None,
            card: None,
            shared_card: None,
            spreading: None,
            why_all_awake: None,
        }
    }

    /// What a worker is made of, with all its sockets.
    fn parts<D: SocketDriver>(
        &mut self,
        index: u16,
        mut driver: D,
    ) -> Result<Parts<D>, StartError> {
        let plan = self.plan;
        let seed = Seed::generate()
            .map_err(|why| StartError::other("draw random numbers", std::io::Error::other(why)))?;
        let now = Now { mono_ns: self.clock.now_ns(), unix_s: clock::unix_seconds() };
        let worker = WorkerIndex { id: WorkerId(index), count: plan.workers };
        let claims = Arc::clone(&self.claims);
        let players = match self.claimed.take() {
            Some(claimed) => sockets::register_players(claimed, &mut driver)?,
            None => sockets::open_players(plan, &self.addresses, &mut self.kept, &mut driver)?,
        };
        if index == 0 {
            self.setup = Arc::new(with_ports(&plan.setup, &self.addresses));
        }
        let setup = Arc::clone(&self.setup);
        let aead = Aead::from_env()
            .map_err(|why| StartError::other("start a worker", std::io::Error::other(why)))?;
        let mut gate = Gate::new(setup, worker, claims, aead, seed, now);
        for table in gate.large_tables() {
            // Small pages only cost time.
            let _ = memory::prefer_huge_pages(&table);
        }
        self.serve_by_card(&players, &mut driver);
        sockets::bind_players(plan, &players, &mut driver, &mut gate)?;
        sockets::open_links(plan, index, &mut driver, &mut gate, &mut self.link_paths)?;
        let players = players.into_iter().flatten().collect();
        let (counted, seat, buckets) = (None, None, None);
        Ok(Parts { index, driver, gate, players, counted, seat, buckets })
    }

    /// Follows what changes at the interface. Frames for listeners come in from now on where they
    /// did before, otherwise once the workers turn.
    fn go_on_with_card(
        &mut self,
        drivers: &[impl SocketDriver],
    ) -> Result<Option<Arc<FleetCard>>, StartError> {
        let Some(mut card) = self.card.take() else { return Ok(None) };
        let drivers: Vec<_> = drivers.iter().collect();
        card.begin(&self.addresses, &drivers, false)?;
        self.shared_card = Some(Arc::new(card));
        Ok(self.shared_card.clone())
    }

    /// Has a worker's driver take frames for the listeners that are served so.
    fn serve_by_card(&self, players: &[Vec<SocketId>], driver: &mut impl SocketDriver) {
        let Some(card) = &self.card else { return };
        for ((listener, sockets), addresses) in players.iter().enumerate().zip(&self.addresses) {
            let listener = ListenerId::at(listener);
            if card.serves(listener) {
                let sockets = sockets.iter().copied().zip(addresses.iter().copied());
                card::serve_by_card(driver, &self.setup.listeners[listener], sockets);
            }
        }
    }

    /// Frames come in from now on, where they are asked for.
    fn begin_card(&mut self, parts: &mut [Parts<impl SocketDriver>]) -> Result<(), StartError> {
        let Some(mut card) = self.card.take() else { return Ok(()) };
        let drivers: Vec<_> = parts.iter().map(|parts| &parts.driver).collect();
        card.begin(&self.addresses, &drivers, true)?;
        let card = Arc::new(card);
        for parts in parts {
            parts.seat = Some(Seat::new(Arc::clone(&card), parts.index.into()));
        }
        self.shared_card = Some(card);
        Ok(())
    }

    /// A fleet whose threads wait for their workers, which use this driver and this cipher kernel.
    fn fleet(self, shells: &[&Shell], facts: Option<(&'static str, &'static str)>) -> Fleet {
        let posts: Vec<Post> = shells.iter().map(|shell| shell.post()).collect();
        let published = shells.iter().map(|shell| Arc::clone(&shell.published)).collect();
        let failed = Arc::new(AtomicBool::new(false));
        let (driver, kernel) = facts.unwrap_or(("none", "none"));
        let watches = self.plan.has_udp(&self.setup);
        let cores = if self.plan.pin { core_affinity::get_core_ids() } else { None };
        let seat = |at| spawn(at, cores.as_deref(), Arc::clone(&failed));
        let (seats, threads) = (0..shells.len()).map(seat).unzip();
        Fleet {
            threads,
            seats,
            has_begun: false,
            helms: shells.iter().map(|shell| shell.helm.clone()).collect(),
            departures: self.claims.whereabouts().map(|_| Departures::new(posts.len())),
            posts,
            is_shut: IsShut::default(),
            desks: shells.iter().map(|shell| shell.desk.clone()).collect(),
            published,
            claims: self.claims,
            addresses: Mutex::new(self.addresses),
            link_paths: self.link_paths,
            driver,
            why_not_uring: self.why_not_uring,
            why_unrestricted: self.why_unrestricted,
            kernel,
            failed,
            clock: self.clock,
            setup: Mutex::new(self.setup),
            watch: None,
            watches,
            card: self.shared_card,
            spreading: self.spreading,
            why_all_awake: self.why_all_awake,
        }
    }
}

/// The setup with addresses that tokens can name: what was bound where nothing else is said, and
/// the port that the kernel has chosen in place of port 0.
fn with_ports(setup: &Setup, addresses: &[Vec<SocketAddr>]) -> Setup {
    let mut setup = setup.clone();
    for (listener, bound) in setup.listeners.iter_mut().zip(addresses) {
        if listener.public.is_empty() {
            listener.public.clone_from(bound);
        }
        for public in listener.public.iter_mut().filter(|public| public.port() == 0) {
            let is_there = |local: &&SocketAddr| {
                local.ip() == public.ip()
                    || local.ip().is_unspecified() && local.is_ipv4() == public.is_ipv4()
            };
            if let Some(local) = bound.iter().find(is_there) {
                public.set_port(local.port());
            }
        }
    }
    setup
}

/// A thread that waits for its worker, and ends where none comes.
fn spawn(
    at: usize,
    cores: Option<&[core_affinity::CoreId]>,
    failed: Arc<AtomicBool>,
) -> (Sender<Box<Worker<AnyDriver>>>, JoinHandle<std::io::Result<()>>) {
    let core = cores.filter(|cores| !cores.is_empty()).map(|cores| cores[at % cores.len()]);
    let (seat, worker) = mpsc::channel::<Box<Worker<AnyDriver>>>();
    let run = move || {
        if let Some(core) = core {
            core_affinity::set_for_current(core);
        }
        let Ok(mut worker) = worker.recv() else { return Ok(()) };
        let ended = worker.run();
        if let Err(why) = &ended {
            tracing::error!(worker = at, %why, "worker failed");
            failed.store(true, Ordering::Release);
        }
        ended
    };
    let thread = std::thread::Builder::new()
        .name(format!("ringgate-{at}"))
        .spawn(run)
        .expect("a thread can be started at start");
    (seat, thread)
}
