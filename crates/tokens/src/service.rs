//! The service as a whole: its options, what all its threads share, its start and its end.
//!
//! Each HTTP thread has a core, a listener of its own at the same address (the kernel spreads
//! connections over them), and a connection to etcd. One more thread mirrors the fleet. What they
//! share lies behind locks that are held for a microsecond.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use ringgate_fleet::clocks::{self, Clocks};
use ringgate_fleet::epochs::Policy;
use ringgate_fleet::etcd::{self, Client};
use ringgate_fleet::keyspace::{Keyspace, Name};
use ringgate_fleet::member::{MemberStatus, TICK, lock};
use ringgate_fleet::seal::FleetKey;
use ringgate_os::wiping;
use tokio::sync::{Notify, mpsc, watch};

use crate::book::Now;
use crate::callers::{Caller, Callers};
use crate::counters::{Counters, Standing};
use crate::desk::{Desk, Rules};
use crate::glance::Glance;
use crate::journal::{Disk, Journal, Promised};
use crate::memory::Memory;
use crate::random::of_text;
use crate::{fleet, http, tls};

/// Everything that a service is told at its start.
#[derive(Debug)]
pub struct Options {
    /// How to reach etcd.
    pub etcd: etcd::Options,
    /// Where the fleet stands in it.
    pub keyspace: Keyspace,
    /// What opens the listeners' keys.
    pub key: FleetKey,
    /// What this service is called.
    pub name: Name,
    /// The host that it runs on.
    pub host: Name,
    /// The program's version.
    pub version: String,
    /// Where it listens.
    pub bind: Vec<SocketAddr>,
    /// Certificate and key, for TLS.
    pub tls: Option<tls::Files>,
    /// HTTP threads.
    pub threads: usize,
    /// The operator's rules.
    pub rules: Rules,
    /// Who may ask.
    pub callers: Vec<Caller>,
    /// Bytes of answers that are kept for requests that come again.
    pub memory_bytes: usize,
    /// How long requests that are under way may take when the service ends.
    pub drain: Duration,
    /// How often the keys of listeners are rotated; `None` where operators do that.
    pub rotate_every: Option<Duration>,
    /// Where it writes what it has promised.
    pub disk: Option<Box<dyn Disk>>,
}

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) options: Plan,
    /// Names this process among all that ever were: blocks of slots go by it.
    pub(crate) owner: Name,
    /// When it was started, in seconds since 1970.
    pub(crate) started_s: u64,
    pub(crate) counters: Counters,
    /// The lease of all blocks; 0 for none.
    pub(crate) lease: AtomicI64,
    /// The lease under which this service is registered; 0 where it is not.
    pub(crate) registered: AtomicI64,
    /// Other services may have come or gone.
    pub(crate) company: Notify,
    /// A decision about slots has ended.
    pub(crate) leased: Notify,
    /// The lease of all blocks has gone.
    pub(crate) lost: Notify,
    pub(crate) is_stopping: AtomicBool,
    /// Hears of doubts that an operator has believed.
    pub(crate) confirm: mpsc::Sender<u64>,
    pub(crate) glance: Glance,
    pub(crate) clock: Arc<dyn Clocks>,
    desk: Mutex<Desk>,
    callers: Mutex<Callers>,
    memory: Mutex<Memory>,
    journal: Option<Mutex<Journal>>,
    member: Mutex<MemberStatus>,
}

/// The options that are asked for later.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) etcd: etcd::Options,
    pub(crate) keyspace: Keyspace,
    pub(crate) key: FleetKey,
    pub(crate) name: Name,
    pub(crate) host: Name,
    pub(crate) version: String,
    pub(crate) drain: Duration,
    /// How often the keys of listeners are rotated, in seconds, and how long new ones are for what.
    pub(crate) rotation: Option<(u64, Policy)>,
}

impl Shared {
    pub(crate) fn now(&self) -> Now {
        Now { unix_s: self.clock.unix_s(), ms: self.clock.now_ms() }
    }

    pub(crate) fn now_us(&self) -> u64 {
        self.clock.now_ns() / 1000
    }

    pub(crate) fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }

    pub(crate) fn callers(&self) -> MutexGuard<'_, Callers> {
        lock(&self.callers)
    }

    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        lock(&self.memory)
    }

    /// What was promised, where it is written. Writing does not wait for the disk.
    pub(crate) fn journal(&self) -> Option<MutexGuard<'_, Journal>> {
        self.journal.as_ref().map(lock)
    }

    /// Writes down that this is promised, before the caller is answered.
    pub(crate) fn keep<'a>(&self, promised: impl IntoIterator<Item = &'a Promised>) {
        let now = self.now();
        if let Some(mut journal) = self.journal() {
            promised.into_iter().for_each(|it| journal.add(it, now));
        }
    }

    pub(crate) fn seed(&self) -> u64 {
        of_text(self.owner.as_str())
    }

    /// How the service stands now.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            member: self.member(),
            memory_bytes: self.memory().bytes(),
            is_ready: !self.is_stopping() && self.desk().readiness(self.now()).is_ok(),
            keeps_promises: self.journal().is_some_and(|it| it.is_whole()),
        }
    }

    /// How it stands with its fleet.
    pub(crate) fn member(&self) -> MemberStatus {
        lock(&self.member).clone()
    }

    /// It stands otherwise now.
    pub(crate) fn set_member(&self, status: &MemberStatus) {
        lock(&self.member).clone_from(status);
    }

    /// Takes nothing new.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

/// A service that runs.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    /// Every request has been answered.
    drained: watch::Sender<bool>,
    http: Vec<thread::JoinHandle<()>>,
    fleet: thread::JoinHandle<()>,
}

/// A service that nothing is decided in yet. What doubts an operator has believed comes beside it.
/// No two starts of one name may have one `instance`.
pub fn open(
    options: Options,
    clock: Arc<dyn Clocks>,
    instance: u32,
) -> (Arc<Shared>, mpsc::Receiver<u64>) {
    let Options { etcd, keyspace, key, name, host, version, rules, drain, .. } = options;
    let rotation = options.rotate_every.map(|it| {
        let token_s = rules.expire_max_s.max(TOKEN_S_MIN);
        (it.as_secs(), Policy { mint_s: it.as_secs().saturating_mul(2), token_s })
    });
    let owner = owner(&name, instance);
    let names = (name.clone(), owner.clone());
    let mut desk = Desk::new(keyspace.clone(), key.clone(), names, rules);
    let now = Now { unix_s: clock.unix_s(), ms: clock.now_ms() };
    let journal = options.disk.map(|disk| {
        let (journal, before) = Journal::begin(disk, &keyspace, &owner, now);
        desk.book_mut().go_on(before, now);
        Mutex::new(journal)
    });
    let callers = Callers::new(options.callers);
    let memory = Memory::new(options.memory_bytes, callers.len());
    let (confirm, confirmed) = mpsc::channel(8);
    let shared = Arc::new(Shared {
        options: Plan { etcd, keyspace, key, name, host, version, drain, rotation },
        owner,
        started_s: now.unix_s,
        counters: Counters::default(),
        lease: AtomicI64::new(0),
        registered: AtomicI64::new(0),
        company: Notify::new(),
        leased: Notify::new(),
        lost: Notify::new(),
        is_stopping: AtomicBool::new(false),
        confirm,
        glance: Glance::default(),
        clock,
        desk: Mutex::new(desk),
        callers: Mutex::new(callers),
        memory: Mutex::new(memory),
        journal,
        member: Mutex::default(),
    });
    (shared, confirmed)
}

/// Starts a service. Returns once it listens.
pub fn start(mut options: Options) -> io::Result<Running> {
    let instance = getrandom::u32().map_err(io::Error::other)?;
    let (mut addresses, threads) = (std::mem::take(&mut options.bind), options.threads);
    let tls = options.tls.take();
    let (shared, confirmed) = open(options, clocks::of_host(), instance);
    let client = Client::new(shared.options.etcd.clone()).map_err(io::Error::other)?;
    let tls = tls.as_ref().map(tls::acceptor).transpose().map_err(io::Error::other)?;
    let (stop, stopped) = watch::channel(false);
    let mut http = Vec::new();
    for index in 0..threads.max(1) {
        let mut doors = Vec::new();
        for address in &mut addresses {
            let door = http::door::bind(*address)?;
            // A port of 0 is chosen once, for all threads.
            *address = door.local_addr()?;
            doors.push(door);
        }
        // Files are read before this returns: afterwards the process may be somebody else.
        let client = Client::new(shared.options.etcd.clone()).map_err(io::Error::other)?;
        let (shared, tls, stopped) = (Arc::clone(&shared), tls.clone(), stopped.clone());
        let body = move || run_http(&shared, client, (doors, tls), stopped);
        http.push(thread::Builder::new().name(format!("tokens-{index}")).spawn(body)?);
    }
    let for_fleet = Arc::clone(&shared);
    let (drained, is_drained) = watch::channel(false);
    let body = move || run_fleet(for_fleet, client, confirmed, is_drained);
    let fleet = thread::Builder::new().name("tokens-fleet".into()).spawn(body)?;
    Ok(Running { shared, addresses, stop, drained, http, fleet })
}

impl Running {
    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes nothing new, answers what is under way, gives back what is not promised, and ends.
    pub fn stop(self) {
        self.end();
        while !self.has_ended() {
            ringgate_os::clock::sleep(Duration::from_millis(5));
        }
    }

    /// Begins to.
    pub fn end(&self) {
        self.shared.stop();
        let _ = self.stop.send(true);
    }

    /// Whether it has. To be asked until it has: when every request is answered, the rest begins.
    pub fn has_ended(&self) -> bool {
        if self.http.iter().all(thread::JoinHandle::is_finished) {
            let _ = self.drained.send(true);
        }
        self.shared.is_stopping() && self.fleet.is_finished()
    }

    /// Whether all its threads run, as long as it has not been told to end.
    pub fn is_healthy(&self) -> bool {
        let mut threads = self.http.iter().chain([&self.fleet]);
        self.shared.is_stopping() || !threads.any(thread::JoinHandle::is_finished)
    }
}

fn owner(name: &Name, instance: u32) -> Name {
    let short = &name.as_str()[..name.as_str().len().min(OWNER_NAME_BYTES)];
    Name::new(&format!("{short}.{instance:08x}")).expect("a name goes on like this")
}

/// How long a key is accepted at least after it was minted with, as after an operator's rotation.
const TOKEN_S_MIN: u64 = 3600;

/// How long the end waits for etcd: the slots of thousands of backends are given back by then.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// So that a name of 64 bytes is left room behind it.
const OWNER_NAME_BYTES: usize = 48;

fn run_http(
    shared: &Arc<Shared>,
    client: Client,
    (doors, tls): (Vec<std::net::TcpListener>, Option<tokio_rustls::TlsAcceptor>),
    stopped: watch::Receiver<bool>,
) {
    // Requests hold what callers show.
    wiping::wipe_from_now_on();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        tracing::error!("a thread of the token service cannot begin");
        return;
    };
    runtime.block_on(http::door::serve(shared, client, doors, tls, stopped));
}

fn run_fleet(
    shared: Arc<Shared>,
    client: Client,
    confirmed: mpsc::Receiver<u64>,
    drained: watch::Receiver<bool>,
) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        tracing::error!("the mirror of the fleet cannot begin");
        return;
    };
    runtime.block_on(work(shared, client, confirmed, drained));
}

/// Everything but answers. It ends when every request has been answered, after what is not promised
/// was given back.
pub async fn work(
    shared: Arc<Shared>,
    client: Client,
    mut confirmed: mpsc::Receiver<u64>,
    mut drained: watch::Receiver<bool>,
) {
    let mut member = fleet::join(&shared, client.clone());
    let leasing = tokio::spawn(fleet::keep_lease(Arc::clone(&shared), client.clone()));
    let tidying = tokio::spawn(fleet::tidy(Arc::clone(&shared), client.clone()));
    let rotating = tokio::spawn(fleet::rotate(Arc::clone(&shared), client.clone()));
    let keeping = tokio::spawn(fleet::keep_company(Arc::clone(&shared), client.clone()));
    let mut ticks = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            biased;
            // Until every request is answered it may still promise something, and others have to
            // know of it. What it has promised stays promised for as long as each token lives.
            () = async { drop(drained.wait_for(|it| *it).await) } => break,
            Some(number) = confirmed.recv() => member.confirm(number).await,
            _ = ticks.tick() => {
                let beside = shared.desk().beside();
                member.tell(fleet::Beside(beside));
            }
        }
    }
    [keeping, rotating, tidying].iter().for_each(tokio::task::JoinHandle::abort);
    let ending = async {
        let is_claimed = fleet::claim_all(&shared, &client).await;
        member.leave().await;
        let is_left = fleet::close(&shared, &client).await;
        if let (true, Some(mut journal)) = (is_claimed && is_left, shared.journal()) {
            journal.end();
        }
        member.end().await;
    };
    let _ = tokio::time::timeout(LAST_WORDS, ending).await;
    leasing.abort();
}
