//! The game server's end of the bundle link.
//!
//! A [`Backend`] holds one link to every worker of the gateway and puts them together again when
//! the gateway restarts. It owns all buffers: an event borrows its payload from the datagram it
//! came in, and what is sent is copied once, into the bundle that leaves.
//!
//! The game's loop is a turn, like a worker's: take every event, answer, flush once. That makes one
//! datagram and at most one wake-up for each link and turn, however many players there are.
//!
//! ```no_run
//! use ringgate_link::backend::{Backend, Event};
//!
//! let mut backend = Backend::connect("/run/ringgate", "arena-1")?;
//! loop {
//!     backend.wait(None)?;
//!     let mut events = backend.poll()?;
//!     while let Some((event, outbox)) = events.next() {
//!         if let Event::Payload { session, bytes } = event {
//!             let _ = outbox.send(session, bytes);
//!         }
//!     }
//!     backend.flush();
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Nothing blocks except [`Backend::wait`]. A game with a loop of its own watches the descriptor of
//! [`Backend::as_fd`](std::os::fd::AsFd), which is readable whenever [`Backend::poll`] has
//! something to do, and calls the same three functions.
//!
//! A child that was forked has the links too, and would keep them up when its parent has ended: one
//! that does not execute another program drops the backend first.
//!
//! Left out on purpose: threads, and any memory of who is connected. The game has its own player
//! table, and a session id alone tells which link to answer on.

mod events;
mod link;
mod outbox;
mod pace;
mod poller;
mod queue;
mod registration;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::Duration;

pub use events::{Event, Events, LinkLoss};
pub use outbox::{Outbox, SendError, SendStats};
pub use queue::Queue;

use self::link::Link;
use self::pace::Pace;
use self::poller::Poller;
use self::registration::Registration;
use super::bundle::is_name;
use crate::announce::{Announcement, Standing};
use ringgate_os::clock::{self, Clock, SleepCosts};
use ringgate_os::notify;

/// How to connect. What [`Backend::connect`] does with the defaults.
#[derive(Clone, Debug)]
pub struct Options {
    run_dir: PathBuf,
    name: String,
    spin: Duration,
    batch_delay: Option<Duration>,
    queue_bundles: usize,
}

impl Options {
    /// The gateway's `run_dir`, and the name under which its configuration lists this backend.
    pub fn new(run_dir: impl Into<PathBuf>, name: impl Into<String>) -> Self {
        let (run_dir, name) = (run_dir.into(), name.into());
        let (spin, batch_delay) = (Duration::ZERO, None);
        Self { run_dir, name, spin, batch_delay, queue_bundles: QUEUE_BUNDLES }
    }

    /// How long [`Backend::wait`] looks again and again before it sleeps; by default not at all. To
    /// be woken costs the gateway's worker up to 12 µs, to look costs the game's core all of that
    /// time: a process with a core to itself may spin for longer than its usual gap between
    /// bundles. One that spins does not wait for more (`batch_delay`).
    #[must_use]
    pub const fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// How long [`Backend::wait`] may sleep with nobody to wake it while bundles follow each other
    /// closely, so that one look takes several; zero for never. It does so only where two or more
    /// can be expected in that time. Payloads wait for half of it, on average.
    ///
    /// By default it follows the gateway, whose config says how long both may wait together
    /// (`batch_delay`, `batch_delay_max`): one worker has waited for both, several leave 50 µs, or
    /// twelve times what a sleep costs this thread, within what they have not used themselves. It
    /// is 50 µs where the gateway does not say.
    ///
    /// Where it does, it asks the kernel to end this thread's sleeps on time (`PR_SET_TIMERSLACK`).
    #[must_use]
    pub const fn batch_delay(mut self, longest: Duration) -> Self {
        self.batch_delay = Some(longest);
        self
    }

    /// How many bundles of 16 KiB may wait for each worker before payloads are refused: at least 5,
    /// because the longest message takes as many.
    ///
    /// # Panics
    /// With 0.
    #[must_use]
    pub const fn queue_bundles(mut self, bundles: usize) -> Self {
        assert!(bundles > 0, "without a bundle nothing can be sent");
        self.queue_bundles = if bundles < QUEUE_BUNDLES_MIN { QUEUE_BUNDLES_MIN } else { bundles };
        self
    }

    /// Connects to a gateway that is running: fails where nobody listens on the first worker's
    /// socket.
    ///
    /// The links are not up yet: each becomes an [`Event::LinkUp`], or an [`Event::LinkLost`] that
    /// says why the gateway refuses it.
    pub fn connect(self) -> io::Result<Backend> {
        let mut backend = Backend::new(self)?;
        match backend.open_link(0) {
            // It listens, and many others connect as well.
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => backend.retry_later(),
            opened => opened?,
        }
        Ok(backend)
    }

    /// Like [`Options::connect`], but a gateway that is not there yet is waited for like one that
    /// restarts. Fails only where the process lacks descriptors or the name cannot be one.
    pub fn start(self) -> io::Result<Backend> {
        let mut backend = Backend::new(self)?;
        backend.open_links();
        Ok(backend)
    }
}

/// A game process's connection to every worker of a gateway.
#[derive(Debug)]
pub struct Backend {
    options: Options,
    outbox: Outbox,
    poller: Poller,
    inbox: events::Inbox,
    pace: Pace,
    sleep_costs: SleepCosts,
    /// Whether the kernel was asked to end our sleeps on time.
    is_on_time: bool,
    clock: Clock,
    /// How many workers the gateway has, as the latest welcome says; 1 before the first one.
    workers: usize,
    /// How long the next lost link waits before it is tried again.
    backoff: Duration,
    is_retry_armed: bool,
    /// Whether new players may be sent to this process.
    takes_players: bool,
    registration: Registration,
}

impl Backend {
    /// Connects to the gateway whose sockets are in `run_dir`, as the backend `name`.
    pub fn connect(run_dir: impl Into<PathBuf>, name: impl Into<String>) -> io::Result<Self> {
        Options::new(run_dir, name).connect()
    }

    fn new(options: Options) -> io::Result<Self> {
        if !is_name(&options.name) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "{:?} cannot name a backend: 1 to 32 printable ASCII characters",
                    options.name
                ),
            ));
        }
        let registration = Registration::new(options.run_dir.clone(), instance());
        let longest =
            if options.spin.is_zero() { options.batch_delay } else { Some(Duration::ZERO) };
        let mut outbox = Outbox::default();
        outbox.links.push(Link::new(options.queue_bundles));
        Ok(Self {
            options,
            outbox,
            poller: Poller::new()?,
            inbox: events::Inbox::new(),
            pace: Pace::new(longest),
            sleep_costs: SleepCosts::default(),
            is_on_time: false,
            clock: Clock::start(),
            workers: 1,
            backoff: BACKOFF_MIN,
            is_retry_armed: false,
            takes_players: true,
            registration,
        })
    }

    /// What has arrived, without waiting. Take every event, then [`flush`](Self::flush).
    pub fn poll(&mut self) -> io::Result<Events<'_>> {
        self.poller.look()?;
        Ok(Events { backend: self })
    }

    /// Where answers go. The same that [`Events::next`] lends beside each event.
    pub const fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Sends what the outbox holds: one datagram for each link, more only where one is too small.
    /// What a full link does not take stays in the queue for the next flush.
    pub fn flush(&mut self) {
        for (worker, link) in self.outbox.links.iter_mut().enumerate() {
            link.tell_intake(self.takes_players);
            link.flush(&mut self.outbox.stats);
            link.watch_for_room(&self.poller, worker as u64);
        }
    }

    /// Flushes, and waits for at most so long until all of it has left. Returns how many datagrams
    /// have not: a process that ends before there are none takes them along, closes included.
    pub fn flush_for(&mut self, wait: Duration) -> usize {
        let start_ns = self.clock.now_ns();
        loop {
            self.flush();
            let links = &self.outbox.links;
            let waited = Duration::from_nanos(self.clock.now_ns() - start_ns);
            if waited >= wait || !links.iter().any(Link::is_watched_for_room) {
                return links.iter().map(Link::waiting).sum();
            }
            clock::sleep(FLUSH_EVERY.min(wait.saturating_sub(waited)));
        }
    }

    /// Flushes, then waits until [`poll`](Self::poll) has something to do, or for as long as
    /// `timeout` says. Returns whether there is something; a signal ends the wait early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        self.flush();
        if self.inbox.has_unread() {
            return Ok(true);
        }
        let spin = timeout.map_or(self.options.spin, |timeout| timeout.min(self.options.spin));
        let start_ns = self.clock.now_ns();
        let bundles = self.inbox.take_bundle_count();
        let delay = self.pace.next(start_ns, bundles, self.workers as u64);
        self.gather(timeout.map_or(delay, |timeout| timeout.min(delay)));
        loop {
            if self.poller.look()? {
                return Ok(true);
            }
            let waited = Duration::from_nanos(self.clock.now_ns() - start_ns);
            if waited >= spin {
                let left = timeout.map(|timeout| timeout.saturating_sub(waited));
                let (slept, cost_ns) = self.sleep_costs.of(|| self.poller.sleep(left));
                self.pace.note_sleep_cost(cost_ns);
                return slept;
            }
            std::hint::spin_loop();
        }
    }

    /// Sleeps with nobody to wake us, so that one look takes more.
    fn gather(&mut self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        if !std::mem::replace(&mut self.is_on_time, true) {
            // Where that is forbidden, sleeps take somewhat longer.
            let _ = notify::end_waits_on_time();
        }
        let ((), cost_ns) = self.sleep_costs.of(|| clock::sleep(delay));
        self.pace.note_sleep_cost(cost_ns);
    }

    /// Asks every worker for an answer, which comes back as [`Event::Pong`] with the round trip.
    /// Leaves with the next flush. Returns how many workers were asked.
    pub fn ping(&mut self) -> usize {
        let token = self.clock.now_ns();
        self.outbox.links.iter_mut().filter_map(|link| link.ping(token).then_some(())).count()
    }

    /// Says whether new players may be sent to this process, which they may until it says
    /// otherwise: a match that has begun, or a process that is about to end, keeps who is there.
    /// Leaves with the next flush, and is said again on links that come up later. Gateways before
    /// this word, and those that speak the first version, go on sending players.
    pub const fn set_intake(&mut self, is_open: bool) {
        self.takes_players = is_open;
    }

    /// Registers this process with the fleet of its gateway, which leads players to it from then
    /// on, and says anew what it is whenever that has changed: its state, its players. It stays
    /// registered as long as it runs, and a gateway that restarts is told again. Costs a message to
    /// the gateway, so a few times a second at the most.
    ///
    /// A gateway knows nobody of this name before, so [`Options::start`] is the way to connect, and
    /// its refusals ([`Event::LinkLost`]) until then are of no concern.
    /// [`standing`](Self::standing) says what has become of it. An error is of what cannot be said.
    pub fn announce(&mut self, what: &Announcement) -> io::Result<()> {
        self.registration.set(what, &self.options.name)?;
        self.register();
        Ok(())
    }

    /// How the registration stands, as the gateway has said last.
    pub const fn standing(&self) -> Standing {
        self.registration.standing()
    }

    fn register(&mut self) {
        if !self.registration.say(&self.poller) {
            self.retry_later();
        }
    }

    /// How many workers the gateway has: 1 until the first link is up.
    pub const fn workers(&self) -> usize {
        self.workers
    }

    /// Whether the links to all workers are up.
    pub fn is_up(&self) -> bool {
        self.outbox.links.len() >= self.workers
            && self.outbox.links[..self.workers].iter().all(Link::is_up)
    }

    /// Opens every link that should be there and is not.
    fn open_links(&mut self) {
        while self.outbox.links.len() < self.workers {
            self.outbox.links.push(Link::new(self.options.queue_bundles));
        }
        for worker in 0..self.workers {
            if self.outbox.links[worker].is_down() && self.open_link(worker).is_err() {
                self.retry_later();
            }
        }
    }

    fn open_link(&mut self, worker: usize) -> io::Result<()> {
        let path = self.options.run_dir.join(format!("worker-{worker}.sock"));
        let link = &mut self.outbox.links[worker];
        link.open(&path, &self.options.name, &self.poller, worker as u64)
    }

    /// Has the timer open what is down. Each time without a welcome in between takes twice as long.
    fn retry_later(&mut self) {
        if !self.is_retry_armed {
            self.poller.arm_timer(self.backoff);
            self.is_retry_armed = true;
            self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
        }
    }
}

/// A number that no other start of a process has.
fn instance() -> u64 {
    // Keyed with random numbers, for each process and each use.
    RandomState::new().hash_one(std::process::id())
}

impl AsFd for Backend {
    /// Readable whenever [`Backend::poll`] has something to do: reconnecting, and the rest of a
    /// turn whose events were not all taken, included.
    fn as_fd(&self) -> BorrowedFd<'_> {
        let set = self.poller.watched();
        if self.inbox.has_records() {
            self.poller.show_unread(true);
        }
        set
    }
}

impl AsRawFd for Backend {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// 256 KiB for each worker: more than the kernel's default send buffer, so a burst that the gateway
/// reads within its next turns is not refused.
const QUEUE_BUNDLES: usize = 16;
const QUEUE_BUNDLES_MIN: usize =
    crate::bundle::MESSAGE_BYTES_MAX.div_ceil(crate::bundle::PART_BYTES_MAX);

/// A gateway that restarts is back within a few of these.
const BACKOFF_MIN: Duration = Duration::from_millis(50);

/// How soon it is looked again whether there is room, by a process that waits for nothing else.
const FLUSH_EVERY: Duration = Duration::from_millis(1);

/// An operator who fixes the configuration does not wait longer than this.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
