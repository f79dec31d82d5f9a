//! A worker on its thread: the gate's loop over the kernel's sockets, and now and then
//! housekeeping.

use std::sync::Arc;
use std::time::Duration;

use super::mailbox::{Mailbox, MailboxFull, Post};
use super::public::PublicSockets;
use super::report::Published;
use super::stages::Recorder;
use ringgate_batch::{Clock, Driver, Moment, SocketId};
use ringgate_core::secret::CookieSecret;
use ringgate_gate::body::{self, Stage, Surroundings};
use ringgate_gate::pace::Rules;
use ringgate_gate::{Gate, Mail, WorkerId};
use ringgate_io::{AnyDriver, socket};
use ringgate_os::{clock, notify};

/// A worker that is ready to run.
pub(super) struct Worker {
    body: body::Body,
    driver: AnyDriver,
    clock: HostClock,
    around: Around,
    players: PublicSockets,
    published: Arc<Published>,
    housekeeping_at_ns: u64,
    link_port: Option<u16>,
}

/// The clocks of this host.
#[derive(Clone, Copy)]
struct HostClock(clock::Clock);

/// What is around a worker in a fleet.
struct Around {
    mailbox: Mailbox,
    /// All workers' mailboxes, by their index.
    posts: Vec<Post>,
    stages: Box<Recorder>,
}

impl Worker {
    pub(super) fn new(
        driver: AnyDriver,
        gate: Gate,
        mailbox: Mailbox,
        players: Vec<SocketId>,
        clock: clock::Clock,
        spin: Duration,
        pace: Rules,
    ) -> Self {
        let link = gate.udp_link().and_then(|link| driver.fd(link));
        let link_port = link.and_then(|fd| socket::local_address(fd).ok());
        Self {
            link_port: link_port.map(|address| address.port()),
            body: body::Body::new(gate, spin, pace, clock.now_ns()),
            driver,
            clock: HostClock(clock),
            around: Around { mailbox, posts: Vec::new(), stages: Box::new(Recorder::new()) },
            players: PublicSockets::new(players),
            published: Arc::new(Published::new()),
            housekeeping_at_ns: 0,
        }
    }

    pub(super) fn post(&self) -> Post {
        self.around.mailbox.post()
    }

    pub(super) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    pub(super) fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    pub(super) fn kernel_name(&self) -> &'static str {
        self.body.gate().aead().kernel().name()
    }

    /// What it decides with.
    #[cfg(test)]
    pub(super) fn gate(&self) -> &Gate {
        self.body.gate()
    }

    /// One turn that does not wait.
    #[cfg(test)]
    pub(super) fn turn_now(&mut self) {
        let Self { body, driver, clock, around, .. } = self;
        let now_ns = body.turn(driver, clock, around, 0).expect("the driver lives");
        self.housekeeping_at_ns = now_ns + HOUSEKEEPING_NS;
    }

    /// How long the driver might wait now.
    #[cfg(test)]
    pub(super) fn wait_now(&self) -> ringgate_io::Wait {
        self.body.wait(&self.around, self.housekeeping_at_ns)
    }

    /// Tells the worker where the others are.
    pub(super) fn set_posts(&mut self, posts: Vec<Post>) {
        self.around.posts = posts;
    }

    /// Runs until it is told to stop, or until the driver fails.
    pub(super) fn run(&mut self) -> std::io::Result<()> {
        // Where that is forbidden, waits take longer than they should.
        let _ = notify::end_waits_on_time();
        while !self.body.gate().is_stopped() {
            let Self { body, driver, clock, around, housekeeping_at_ns, .. } = self;
            let now_ns = body.turn(driver, clock, around, *housekeeping_at_ns)?;
            self.publish_when_due(now_ns);
        }
        self.leave();
        Ok(())
    }

    fn publish_when_due(&mut self, now_ns: u64) {
        if now_ns < self.housekeeping_at_ns {
            return;
        }
        self.housekeeping_at_ns = now_ns + HOUSEKEEPING_NS;
        self.take_sockets();
        self.published.pass_by(&mut self.around.stages);
        let socket_drops = self.players.dropped(&self.driver);
        self.published.leave_report(|report| self.fill(report, (now_ns, socket_drops)));
    }

    /// Begins to hear the players of listeners that were added.
    fn take_sockets(&mut self) {
        let Self { body, driver, around, players, .. } = self;
        let given = around.mailbox.take_sockets();
        if let Some(room) = players.take(given, driver, body.gate_mut()) {
            body.limit_room(room);
        }
    }

    fn fill(&self, report: &mut super::Report, (now_ns, socket_drops): (u64, u64)) {
        let gate = self.body.gate();
        report.counters.clone_from(gate.counters());
        report.last_refused = *gate.last_refused();
        report.io = self.driver.stats();
        report.turns = self.body.turns();
        report.gathers = self.body.gathers();
        report.revision = gate.revision();
        report.at_ns = now_ns;
        report.backends_up.clear();
        report.backends_up.extend(gate.backends_up());
        report.backend_arrivals.clear();
        report.backend_arrivals.extend(gate.backend_arrivals());
        report.listeners.clear();
        report.listeners.extend(gate.listener_traffic());
        report.backends.clear();
        report.backends.extend(gate.backend_traffic());
        report.link_port = self.link_port;
        report.servers.clear();
        report.servers.extend(gate.servers());
        report.socket_drops = socket_drops;
    }

    /// The last words: everything that was counted.
    fn leave(&mut self) {
        let now_ns = self.clock.0.now_ns();
        let socket_drops = self.players.dropped(&self.driver);
        self.published.leave_last_report(|report| self.fill(report, (now_ns, socket_drops)));
        self.published.leave_last_stages(std::mem::take(&mut self.around.stages));
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        Moment { mono_ns: self.0.now_ns(), unix_ns: clock::unix_ns() }
    }
}

impl Surroundings for Around {
    fn take_mail(&mut self, handle: impl FnMut(Mail)) {
        self.mailbox.take_some().for_each(handle);
    }

    fn has_mail(&self) -> bool {
        self.mailbox.has_mail()
    }

    fn send(&mut self, to: WorkerId, mail: Mail) -> Result<(), Box<Mail>> {
        match self.posts.get(to.index()) {
            Some(post) => post.send(mail).map_err(|MailboxFull(mail)| mail),
            None => Ok(()),
        }
    }

    /// `None` where the operating system's generator fails.
    fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]> {
        Some([CookieSecret::generate().ok()?, CookieSecret::generate().ok()?])
    }

    fn record(&mut self, stage: Stage, ns: u64, count: u64) {
        self.stages.record_many(stage, ns, count);
    }
}

/// Counters are published this often.
const HOUSEKEEPING_NS: u64 = 50_000_000;
