//! A worker on its thread: the gate's loop over the kernel's sockets, and now and then
//! housekeeping.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::barrier::{self, Exported, Helm, Order, Stand};
use super::counted::Counted;
use super::mailbox::{Mailbox, MailboxFull, Post};
use super::public::PublicSockets;
use super::report::Published;
use super::sockets;
use super::stages::Recorder;
use crate::handover::SocketRow;
use ringgate_batch::{Clock, Driver, Moment, SocketId};
use ringgate_core::secret::CookieSecret;
use ringgate_gate::body::{self, Stage, Surroundings};
use ringgate_gate::handover::{Export, Sink, SocketUse};
use ringgate_gate::pace::Rules;
use ringgate_gate::{Gate, Mail, WorkerId};
use ringgate_io::{AnyDriver, socket};
use ringgate_os::shared::Writing;
use ringgate_os::{clock, notify};

/// What a worker is made of.
pub(super) struct Parts {
    pub(super) index: u16,
    pub(super) driver: AnyDriver,
    /// Its sockets are the driver's.
    pub(super) gate: Gate,
    /// The driver's sockets for players.
    pub(super) players: Vec<SocketId>,
    /// By the processes before this one.
    pub(super) counted: Counted,
}

/// A worker that is ready to run.
pub(super) struct Worker {
    index: u16,
    body: body::Body,
    driver: AnyDriver,
    clock: HostClock,
    around: Around,
    players: PublicSockets,
    published: Arc<Published>,
    housekeeping_at_ns: u64,
    link_port: Option<u16>,
    stand: Stand,
    helm: Option<Helm>,
    /// By the processes before this one.
    counted: Counted,
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
    pub(super) fn new(parts: Parts, clock: clock::Clock, spin: Duration) -> Self {
        let Parts { index, driver, gate, players, counted } = parts;
        let link = gate.udp_link().and_then(|link| driver.fd(link));
        let link_port = link.and_then(|fd| socket::local_address(fd).ok());
        let pace = Rules::new(sockets::room(&driver, &players));
        let mailbox = Mailbox::new(driver.bell());
        let (stand, helm) = barrier::barrier();
        Self {
            index,
            link_port: link_port.map(|address| address.port()),
            body: body::Body::new(gate, spin, pace, clock.now_ns()),
            driver,
            clock: HostClock(clock),
            around: Around { mailbox, posts: Vec::new(), stages: Box::new(Recorder::new()) },
            players: PublicSockets::new(players),
            published: Arc::new(Published::new()),
            housekeeping_at_ns: 0,
            stand,
            helm: Some(helm),
            counted,
        }
    }

    /// How it is brought to the barrier. To be taken once.
    pub(super) fn take_helm(&mut self) -> Helm {
        self.helm.take().expect("it is taken once, when the fleet is made")
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
        loop {
            while !self.body.gate().is_stopped() && !self.stand.is_wanted() {
                let Self { body, driver, clock, around, housekeeping_at_ns, .. } = self;
                let now_ns = body.turn(driver, clock, around, *housekeeping_at_ns)?;
                self.publish_when_due(now_ns);
            }
            if self.body.gate().is_stopped() || !self.goes_on() {
                break;
            }
        }
        self.leave();
        Ok(())
    }

    /// Stands at the barrier and does as it is told. Returns whether it goes on.
    fn goes_on(&mut self) -> bool {
        let mut has_exported = false;
        loop {
            match self.stand.order() {
                Order::Turn(reply) => drop(reply.send(self.last_turn())),
                Order::Export(memory, reply) => {
                    has_exported = true;
                    drop(reply.send(self.export(memory)));
                }
                Order::Resume => {
                    if has_exported {
                        self.body.gate_mut().resume_after_failed_hand_over();
                    }
                    return true;
                }
                Order::Leave => return false,
            }
        }
    }

    /// Writes everything that it knows, and adds its sockets.
    fn export(&self, mut memory: Writing) -> Result<Exported, String> {
        let gate = self.body.gate();
        let mut sink = Sink::new(memory.bytes_mut());
        let written = Export::new().rest(gate, &mut sink);
        let bytes = sink.len();
        memory.use_up_to(bytes);
        written.map_err(|why| format!("worker {}: {why}", self.index))?;
        let sockets = gate.sockets().map(|(id, is)| self.give(id, is));
        let sockets = sockets.collect::<std::io::Result<Vec<_>>>();
        let sockets = sockets.map_err(|why| format!("worker {}: {why}", self.index))?;
        let counted = self.counted().numbers().to_vec();
        Ok(Exported { worker: self.index, memory, bytes, sockets, counted })
    }

    /// A second descriptor of a socket, and what it is.
    fn give(&self, id: SocketId, is: SocketUse) -> std::io::Result<(SocketRow, OwnedFd)> {
        let fd = self.driver.fd(id).ok_or(std::io::ErrorKind::NotFound)?;
        let player = match is {
            SocketUse::Player(listener, bind) => Some((listener.0, bind.0)),
            _ => None,
        };
        let kind = sockets::number_of(is);
        Ok((SocketRow { worker: self.index, kind, id: id.0, player }, fd.try_clone_to_owned()?))
    }

    fn last_turn(&mut self) -> std::io::Result<()> {
        self.take_sockets();
        let Self { body, driver, clock, around, .. } = self;
        body.last_turn(driver, clock, around).map(drop)
    }

    /// Leaves a report.
    pub(super) fn publish(&mut self) {
        let now_ns = self.clock.0.now_ns();
        let socket_drops = self.players.dropped(&self.driver);
        self.published.leave_report(|report| self.fill(report, (now_ns, socket_drops)));
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

    /// By all processes so far.
    fn counted(&self) -> Counted {
        self.counted.and(self.driver.stats(), self.body.turns(), self.body.gathers())
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
        let counted = self.counted();
        report.io = counted.io;
        report.turns = counted.turns;
        report.gathers = counted.gathers;
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
