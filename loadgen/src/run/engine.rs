//! The threads that carry the swarms: each has a driver, a clock and a share of the players, and
//! shares nothing else.
//!
//! Once per interval a thread gives what it has gathered to the thread that started it. The loop
//! is the gateway's own: take in what has come, send what is due, wait until something is. Where
//! payloads leave at moments of their own, [`pacer`](super::pacer) says what comes next instead.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_batch::{Batches, Flush, SocketId};
use ringgate_core::crypto::Aead;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, StartError, Wait,
};
use ringgate_os::clock::{self, Clock};
use ringgate_os::process;

use super::pacer::{HEARD_AT_ONCE, Pacer, Step};
use crate::measure::bursts::Bursts;
use crate::measure::pause::Pause;
use crate::measure::procfs::{self, ThreadCpu};
use crate::measure::silence::Silence;
use crate::measure::tally::{Count, Tally};
use crate::players::scenario::Plan;
use crate::players::{Addresses, Gauges, Now, SecondLoss, Setup, Swarm, TICK_NS, TX_SLOTS};

/// What all threads are told alike.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which driver.
    pub io: Choice,
    /// Cores to pin threads to, one thread for each; threads without one are not pinned.
    pub cores: Vec<usize>,
    /// Whether threads look for work without sleeping.
    pub spin: bool,
    /// Players act in bursts.
    pub gather: Option<Gather>,
    /// How often what was gathered is handed over.
    pub interval: Duration,
    /// Whom the players talk to: decides how they get their addresses.
    pub server: SocketAddr,
    /// Ports among which a NAT can switch.
    pub ports: usize,
    /// From which address on players live who share a few sockets beyond loopback.
    pub players_at: Option<Ipv4Addr>,
    /// A socket for each player even on loopback, as it has to be elsewhere.
    pub own_sockets: bool,
}

/// Once everybody is in, threads act only every so often, and before whatever else runs on their
/// cores.
#[derive(Clone, Debug)]
pub struct Gather {
    /// How often.
    pub every: Duration,
    /// Who reads a process's CPU time between the first thread's bursts.
    pub bursts: Option<Arc<Bursts>>,
}

/// What a thread hands over.
#[derive(Debug)]
pub struct Handover {
    /// Which thread.
    pub thread: u32,
    /// Which interval, from 0.
    pub interval: u64,
    /// What was gathered in it.
    pub tally: Tally,
    /// Where the players are.
    pub gauges: Gauges,
    /// With the thread's last handover: what it leaves behind.
    pub last: Option<Last>,
}

/// What a thread leaves behind.
#[derive(Clone, Debug)]
pub struct Last {
    /// Loss by second.
    pub seconds: Vec<SecondLoss>,
    /// Its CPU time.
    pub cpu: ThreadCpu,
    /// The longest time in which it heard nothing.
    pub pause: Pause,
    /// How long its players heard nothing, phase by phase.
    pub silences: Vec<Silence>,
}

/// What threads and the thread that started them tell each other.
#[derive(Debug, Default)]
struct Board {
    /// Nobody is to come any more, and everybody who is there is to leave.
    wind_up: AtomicBool,
    /// One of the threads has failed: give up at once.
    stop: AtomicBool,
    /// Threads whose players have all gone.
    done: AtomicU64,
    /// Datagrams that threads whose players have gone still heard.
    last_words: AtomicU64,
    /// The books are closed: nothing needs to be heard any more.
    release: AtomicBool,
}

/// Threads that run.
#[derive(Debug)]
pub struct Team {
    threads: Vec<JoinHandle<io::Result<()>>>,
    handovers: Receiver<Handover>,
    board: Arc<Board>,
    /// Which driver they use.
    pub driver: &'static str,
    /// When the run's clock shows 0.
    pub clock: Clock,
    /// A copy of the first thread's socket, to send with its players' addresses.
    pub players_socket: Option<OwnedFd>,
}

impl Team {
    /// Opens every thread's sockets, then starts all threads.
    pub fn start(
        options: &Options,
        parts: Vec<(Setup, Plan)>,
        slots: usize,
    ) -> Result<Self, StartError> {
        let (sender, handovers) = channel();
        let board = Arc::new(Board::default());
        let mut bodies = Vec::new();
        for (index, (setup, plan)) in parts.into_iter().enumerate() {
            let is_exact = setup.arrivals.is_exact();
            let (driver, addresses, sockets, own_sockets) =
                open(options, is_exact, setup.thread, slots)?;
            let aead = Aead::from_env()
                .map_err(|why| StartError::other("start a thread", io::Error::other(why)))?;
            bodies.push(Body {
                thread: setup.thread,
                core: options.cores.get(index).copied(),
                spin: options.spin,
                pacer: is_exact.then(Pacer::default),
                gather: options.gather.clone(),
                is_gathering: false,
                everybody: plan.players_max(),
                echoed: 0,
                interval_ns: options.interval.as_nanos() as u64,
                driver,
                swarm: Swarm::new(setup, plan, addresses, aead),
                sockets,
                own_sockets,
                clock: Clock::start(),
                sender: sender.clone(),
                board: Arc::clone(&board),
                intervals: 0,
                kernel_drops: 0,
                has_kernel_time: false,
            });
        }
        let driver = bodies.first().map_or("none", |body| body.driver.name());
        let players_socket = bodies.first().and_then(Body::copy_socket);
        let clock = Clock::start();
        let threads = bodies
            .into_iter()
            .map(|mut body| {
                body.clock = clock;
                let name = format!("loadgen-{}", body.thread);
                let run = move || {
                    let ran = body.run();
                    // The others would wait for it when their players have gone.
                    if ran.is_err() {
                        body.board.stop.store(true, Ordering::Relaxed);
                    }
                    ran
                };
                std::thread::Builder::new()
                    .name(name)
                    .spawn(run)
                    .map_err(|why| StartError::other("start a thread", why))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { threads, handovers, board, driver, clock, players_socket })
    }

    /// The next handover; `None` when all threads have ended, or after so much time.
    pub fn next(&self, at_most: Duration) -> Option<Handover> {
        self.handovers.recv_timeout(at_most).ok()
    }

    /// Whether every thread has ended.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Asks the threads to end the plan here: players say goodbye, and the books go on until they
    /// have.
    pub fn wind_up(&self) {
        self.board.wind_up.store(true, Ordering::Relaxed);
    }

    /// Once every player has gone: how many datagrams have come since. The threads listen on until
    /// they are [released](Self::release), so that the books of both sides can agree to the
    /// datagram.
    pub fn last_words(&self) -> Option<u64> {
        let is_done = self.board.done.load(Ordering::Acquire) == self.threads.len() as u64;
        is_done.then(|| self.board.last_words.load(Ordering::Relaxed))
    }

    /// Lets the threads end.
    pub fn release(&self) {
        self.board.release.store(true, Ordering::Relaxed);
    }

    /// Waits for the end and says what went wrong.
    pub fn join(self) -> io::Result<Vec<Handover>> {
        for thread in self.threads {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => return Err(io::Error::other("a thread of the generator has panicked")),
            }
        }
        Ok(self.handovers.try_iter().collect())
    }
}

/// A thread that is ready to run.
struct Body {
    thread: u32,
    core: Option<usize>,
    spin: bool,
    /// Where payloads leave one by one.
    pacer: Option<Pacer>,
    gather: Option<Gather>,
    is_gathering: bool,
    /// Players at the plan's height.
    everybody: u32,
    /// Echoes that have been handed over.
    echoed: u64,
    interval_ns: u64,
    driver: AnyDriver,
    swarm: Swarm,
    /// Those that players share, and those that are a player's own.
    sockets: Vec<SocketId>,
    own_sockets: Vec<SocketId>,
    clock: Clock,
    sender: Sender<Handover>,
    board: Arc<Board>,
    intervals: u64,
    kernel_drops: u64,
    /// The kernel says when datagrams arrived. Known once one has.
    has_kernel_time: bool,
}

impl Body {
    fn copy_socket(&self) -> Option<OwnedFd> {
        self.driver.fd(*self.sockets.first()?)?.try_clone_to_owned().ok()
    }

    fn run(&mut self) -> io::Result<()> {
        if let Some(id) = self.core
            && !core_affinity::set_for_current(core_affinity::CoreId { id })
        {
            return Err(io::Error::other(format!("no thread of ours may run on core {id}")));
        }
        sharpen_timers();
        while !self.swarm.is_finished() && !self.board.stop.load(Ordering::Relaxed) {
            match self.pacer {
                Some(pacer) => self.keep_pace(pacer)?,
                None => {
                    self.gather_once_all_are_in()?;
                    let wait = self.pause();
                    self.listen(wait)?;
                }
            }
            let now = self.now();
            if self.board.wind_up.load(Ordering::Relaxed) {
                self.swarm.wind_up(now);
            }
            self.swarm.advance(now);
            self.transmit();
            self.hand_over_if_due();
        }
        self.hear_the_last()?;
        let seconds = self.swarm.seconds().to_vec();
        let (cpu, pause) = (procfs::this_thread().unwrap_or_default(), self.swarm.longest_pause());
        let silences = self.swarm.silences().to_vec();
        self.hand_over(Some(Last { seconds, cpu, pause, silences }));
        Ok(())
    }

    /// Takes in what has arrived, or the first of it.
    fn listen(&mut self, wait: Wait) -> io::Result<()> {
        self.driver.turn(wait)?;
        if let Some(meta) = self.driver.rx().metas().first() {
            self.has_kernel_time = meta.kernel_ns > 0;
        }
        let now = self.now();
        self.swarm.receive(now, self.driver.rx().iter_mut());
        Ok(())
    }

    /// Returns when something is due, or has been heard.
    fn keep_pace(&mut self, pacer: Pacer) -> io::Result<()> {
        let due_ns = self.due_ns();
        let wait = loop {
            match pacer.step(self.clock.now_ns(), due_ns) {
                Step::Send => return Ok(()),
                Step::SpinUntil(until_ns) => {
                    while self.clock.now_ns() < until_ns {
                        std::hint::spin_loop();
                    }
                }
                Step::Rest(ns) if !self.spin => break self.rest(ns, REST_NS_MAX),
                Step::Rest(_) | Step::Listen => break Wait::No,
            }
        };
        self.listen(wait)?;
        let heard = self.driver.rx().len();
        let now_ns = self.clock.now_ns();
        if let Some(pacer) = &mut self.pacer {
            pacer.note(now_ns, heard);
        }
        Ok(())
    }

    /// Sleeps deaf for that long where no arrival needs to wake the thread, or says how the driver
    /// may. It bears the kernel's time; only while players connect their time to get in
    /// would be ours.
    fn rest(&self, ns: u64, deaf_ns_max: u64) -> Wait {
        let deaf_ns_max = match (self.has_kernel_time, self.swarm.gauges().connecting) {
            (false, _) => 0,
            (true, 0) => deaf_ns_max,
            (true, _) => 2 * TICK_NS,
        };
        if ns <= deaf_ns_max {
            clock::sleep(Duration::from_nanos(ns));
            return Wait::No;
        }
        Wait::AtMost(Duration::from_nanos(ns.min(NAP_NS_MAX)))
    }

    /// When a payload is due, or anything else is to be done.
    fn due_ns(&self) -> u64 {
        self.swarm.poll_timeout().min((self.intervals + 1) * self.interval_ns)
    }

    /// Everyone has said goodbye, but what the gateway sent before it heard that is still coming,
    /// and sessions whose goodbyes were all lost are kept alive until they time out.
    fn hear_the_last(&mut self) -> io::Result<()> {
        self.board.done.fetch_add(1, Ordering::Release);
        let is_over = |board: &Board| {
            board.release.load(Ordering::Relaxed) || board.stop.load(Ordering::Relaxed)
        };
        while !is_over(&self.board) {
            self.driver.turn(Wait::AtMost(LISTEN_STEP))?;
            let (now, rx) = (self.now(), self.driver.rx());
            self.swarm.receive(now, rx.iter_mut());
            self.board.last_words.fetch_add(rx.len() as u64, Ordering::Relaxed);
            self.hand_over_if_due();
        }
        self.swarm.give_up_delayed();
        Ok(())
    }

    fn now(&self) -> Now {
        Now { mono_ns: self.clock.now_ns(), unix_ns: clock::unix_ns() }
    }

    /// Sleeps until something is due, or says how the driver may.
    ///
    /// While payloads are due all the time no arrival needs to wake the thread: it waits for the
    /// next tick. To be woken for each echo would cost more than to read it.
    fn pause(&mut self) -> Wait {
        if self.spin {
            return Wait::No;
        }
        let due_ns = self.due_ns();
        if let Some(gather) = &self.gather
            && self.is_gathering
        {
            let has_more = !self.driver.rx().is_empty();
            self.sleep_until_burst(gather, due_ns, has_more);
            return Wait::No;
        }
        match due_ns.saturating_sub(self.clock.now_ns()) {
            0..NAP_NS_MIN => Wait::No,
            ns => self.rest(ns, DEAF_NS_MAX),
        }
    }

    /// While players still come, a gateway on the same core must be able to let them in: otherwise
    /// they would ask again and again without an answer.
    fn gather_once_all_are_in(&mut self) -> io::Result<()> {
        if self.gather.is_some()
            && !self.is_gathering
            && self.swarm.gauges().playing >= self.everybody
        {
            process::go_first()?;
            self.is_gathering = true;
        }
        Ok(())
    }

    /// Sleeps until the next moment to act, deaf to what arrives; not at all while something is
    /// left of what was due or has come before.
    fn sleep_until_burst(&self, gather: &Gather, due_ns: u64, has_more: bool) {
        let now_ns = self.clock.now_ns();
        if due_ns <= now_ns || has_more {
            return;
        }
        let until_ns = (now_ns + 1).next_multiple_of(gather.every.as_nanos().max(1) as u64);
        clock::sleep(Duration::from_nanos(until_ns - now_ns));
        if let Some(bursts) = gather.bursts.as_ref().filter(|_| self.thread == 0) {
            bursts.note(self.clock.now_ns(), self.echoed + self.swarm.counted(Count::Echoed));
        }
    }

    /// Sends a batch of what is due. One, then it is receiving's turn: what waits here is late and
    /// says so, what waits in the socket for too long is lost.
    fn transmit(&mut self) {
        let now = self.now();
        let Batches { tx, mut out, .. } = self.driver.batches();
        self.swarm.transmit(now, tx);
        if !tx.is_empty() {
            out.flush(tx);
            self.swarm.sent(tx);
            if let Some(pacer) = &mut self.pacer {
                pacer.sent(tx.sent().len());
            }
        }
    }

    fn hand_over_if_due(&mut self) {
        while self.clock.now_ns() >= (self.intervals + 1) * self.interval_ns {
            self.hand_over(None);
        }
    }

    fn hand_over(&mut self, last: Option<Last>) {
        // To ask for each player's own takes too long while players play.
        let own = self.own_sockets.iter().filter(|_| last.is_some());
        let drops = self.sockets.iter().chain(own).map(|id| self.driver.dropped_at(*id)).sum();
        self.swarm.note_kernel_drops(u64::saturating_sub(drops, self.kernel_drops));
        self.kernel_drops = drops;
        self.echoed += self.swarm.counted(Count::Echoed);
        let handover = Handover {
            thread: self.thread,
            interval: self.intervals,
            tally: self.swarm.take_tally(Tally::new()),
            gauges: self.swarm.gauges(),
            last,
        };
        self.intervals += 1;
        // Nobody listens any more: the run is being given up.
        let _ = self.sender.send(handover);
    }
}

type Opened = (AnyDriver, Addresses, Vec<SocketId>, Vec<SocketId>);

/// A driver with the sockets of one thread's players: those they share, or each player's own.
fn open(
    options: &Options,
    is_exact: bool,
    thread: u32,
    slots: usize,
) -> Result<Opened, StartError> {
    let driver_options = DriverOptions {
        small_slots: if is_exact { HEARD_AT_ONCE } else { 512 },
        large_slots: 1,
        tx_datagrams: TX_SLOTS as u16,
        tx_bundles: 0,
        ..DriverOptions::default()
    };
    let mut driver = ringgate_io::open(options.io, &driver_options)?;
    let fail = |why| StartError::other("register a socket", why);
    let is_loopback = matches!(options.server, SocketAddr::V4(v4) if v4.ip().is_loopback());
    let mut sockets = Vec::new();
    let ports = options.ports.max(1);
    if (is_loopback || options.players_at.is_some()) && !options.own_sockets {
        for _ in 0..ports {
            let wildcard = SocketAddr::from(([0, 0, 0, 0], 0));
            let opened = socket::player(wildcard, &UdpOptions::default())?;
            sockets.push(driver.register(opened.fd, SocketKind::Datagram).map_err(fail)?);
        }
        let addresses = match options.players_at {
            None => Addresses::loopback(sockets.clone(), thread),
            Some(first) => Addresses::block(sockets.clone(), first, thread),
        };
        return Ok((driver, addresses, sockets, Vec::new()));
    }
    let small = UdpOptions {
        receive_buffer_bytes: 64 << 10,
        send_buffer_bytes: 64 << 10,
        ..UdpOptions::default()
    };
    for _ in 0..slots * ports {
        let opened = socket::connected(options.server, &small)?;
        sockets.push(driver.register(opened.fd, SocketKind::ConnectedDatagram).map_err(fail)?);
    }
    Ok((driver, Addresses::sockets(sockets.clone(), ports as u32), Vec::new(), sockets))
}

/// Has the kernel wake this thread when it asked to be, not up to 50 µs later. Without that the
/// generator would add its own sleepiness to what it measures; where it is refused, the figures of
/// late sends show it.
fn sharpen_timers() {
    let thread = std::fs::read_link("/proc/thread-self").ok();
    if let Some(id) = thread.as_deref().and_then(std::path::Path::file_name) {
        let file = std::path::Path::new("/proc").join(id).join("timerslack_ns");
        let _ = std::fs::write(file, "1");
    }
}

/// How soon a thread that only listens notices that it need not any more.
const LISTEN_STEP: Duration = Duration::from_millis(10);

/// A shorter sleep costs more than it saves.
const NAP_NS_MIN: u64 = 5_000;

/// Longer than this, and arrivals end a sleep.
const DEAF_NS_MAX: u64 = 1_000_000;

/// The same where payloads leave one by one, and few of them.
const REST_NS_MAX: u64 = 5_000_000;

/// A longer sleep would miss a request to stop.
const NAP_NS_MAX: u64 = 100_000_000;
