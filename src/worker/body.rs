//! One worker's loop: reap, mail, the gate's turn, mail and requests out, now and then
//! housekeeping.

use std::sync::Arc;
use std::time::Duration;

use super::mailbox::{Mailbox, MailboxFull, Post};
use super::report::Published;
use super::stages::{Recorder, Stage};
use ringgate_batch::{Batches, IoEvent, Port, SocketId};
use ringgate_core::secret::CookieSecret;
use ringgate_gate::{Credentials, Exit, Gate, LinkKind, Now, Request};
use ringgate_io::{AnyDriver, Driver, Wait, socket};
use ringgate_link::bundle::SessionId;
use ringgate_os::clock::{self, Clock};

/// A worker that is ready to run.
pub(super) struct Body {
    driver: AnyDriver,
    gate: Gate,
    mailbox: Mailbox,
    /// All workers' mailboxes, by their index.
    posts: Vec<Post>,
    players: Vec<SocketId>,
    clock: Clock,
    spin_ns: u64,
    stages: Box<Recorder>,
    published: Arc<Published>,
    turns: u64,
    housekeeping_at_ns: u64,
    /// When something last arrived, for spinning.
    busy_at_ns: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy)]
struct Moment {
    mono_ns: u64,
    unix_ns: u64,
}

impl Body {
    pub(super) fn new(
        driver: AnyDriver,
        gate: Gate,
        mailbox: Mailbox,
        players: Vec<SocketId>,
        clock: Clock,
        spin: Duration,
    ) -> Self {
        Self {
            driver,
            gate,
            mailbox,
            posts: Vec::new(),
            players,
            clock,
            spin_ns: spin.as_nanos() as u64,
            stages: Box::new(Recorder::new()),
            published: Arc::new(Published::new()),
            turns: 0,
            housekeeping_at_ns: 0,
            busy_at_ns: 0,
        }
    }

    pub(super) fn post(&self) -> Post {
        self.mailbox.post()
    }

    pub(super) fn published(&self) -> Arc<Published> {
        Arc::clone(&self.published)
    }

    pub(super) fn driver_name(&self) -> &'static str {
        self.driver.name()
    }

    pub(super) fn kernel_name(&self) -> &'static str {
        self.gate.aead().kernel().name()
    }

    /// What it decides with.
    #[cfg(test)]
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// One turn over nothing but mail.
    #[cfg(test)]
    pub(super) fn turn_now(&mut self) {
        let now = self.moment();
        self.turn(now);
        self.housekeeping_at_ns = now.mono_ns + HOUSEKEEPING_NS;
    }

    /// How long the driver might wait now.
    #[cfg(test)]
    pub(super) fn wait_now(&self) -> Wait {
        self.wait(self.clock.now_ns())
    }

    /// Tells the worker where the others are.
    pub(super) fn meet(&mut self, posts: Vec<Post>) {
        self.posts = posts;
    }

    /// Runs until it is told to stop, or until the driver fails.
    pub(super) fn run(&mut self) -> std::io::Result<()> {
        let mut now = self.moment();
        while !self.gate.is_stopped() {
            let wait = self.wait(now.mono_ns);
            self.driver.turn(wait)?;
            now = self.moment();
            self.turn(now);
            self.keep_house(now.mono_ns);
        }
        self.leave();
        Ok(())
    }

    fn moment(&self) -> Moment {
        Moment { mono_ns: self.clock.now_ns(), unix_ns: clock::unix_ns() }
    }

    /// How long the driver may wait: until a timer is due, and not at all while it spins or a turn
    /// has left mail.
    fn wait(&self, now_ns: u64) -> Wait {
        if self.spin_ns > 0 && now_ns < self.busy_at_ns + self.spin_ns || self.mailbox.has_mail() {
            return Wait::No;
        }
        let due_ns = self.gate.poll_timeout().unwrap_or(u64::MAX).min(self.housekeeping_at_ns);
        match due_ns.saturating_sub(now_ns) {
            0 => Wait::No,
            ns => Wait::AtMost(Duration::from_nanos(ns)),
        }
    }

    fn turn(&mut self, reaped: Moment) {
        let now = Now { mono_ns: reaped.mono_ns, unix_s: reaped.unix_ns / NS_PER_S };
        self.turns += 1;
        if !self.driver.rx().is_empty() {
            self.busy_at_ns = reaped.mono_ns;
        }
        self.note_queueing(reaped.unix_ns);
        self.take_links_in();
        let Self { driver, gate, mailbox, .. } = self;
        let Batches { rx, tx, mut out } = driver.batches();
        let mut exit = Exit { tx, out: &mut out };
        for mail in mailbox.take_some() {
            gate.handle_mail(now, mail, &mut exit);
        }
        gate.turn(now, rx, &mut exit);
        self.note_latencies(reaped);
        self.send_mail();
        self.answer_requests(now);
    }

    /// Time that datagrams have spent in the sockets' queues.
    fn note_queueing(&mut self, reaped_unix_ns: u64) {
        for meta in self.driver.rx().metas() {
            if meta.kernel_ns > 0 {
                self.stages.record(Stage::Queue, reaped_unix_ns.saturating_sub(meta.kernel_ns));
            }
        }
    }

    fn note_latencies(&mut self, reaped: Moment) {
        let stamps = self.gate.stamps();
        let is_idle = self.driver.rx().metas().is_empty() && stamps.downlink_count == 0;
        for ns in &stamps.handshakes_ns {
            self.stages.record(Stage::Handshake, *ns);
        }
        if is_idle {
            return;
        }
        let submitted = Moment { mono_ns: self.clock.now_ns(), unix_ns: clock::unix_ns() };
        let turn_ns = submitted.mono_ns - reaped.mono_ns;
        self.stages.record(Stage::Turn, turn_ns);
        if stamps.downlink_count > 0 {
            self.stages.record_many(Stage::Downlink, turn_ns, stamps.downlink_count);
        }
        for kernel_ns in stamps.uplink_kernel_ns.iter().filter(|ns| **ns > 0) {
            self.stages.record(Stage::Uplink, submitted.unix_ns.saturating_sub(*kernel_ns));
        }
    }

    /// Looks up who has connected, before the gate reads what they say.
    fn take_links_in(&mut self) {
        for at in 0..self.driver.rx().events.len() {
            let event = self.driver.rx().events[at];
            let IoEvent::Accepted { connection, .. } = event else { continue };
            let credentials = self.driver.fd(connection).map(socket::peer_credentials);
            if let Some(Ok(peer)) = credentials {
                let credentials = Credentials { uid: peer.uid, gid: peer.gid };
                self.gate.handle_link_accepted(connection, credentials);
            } else {
                self.driver.close(connection);
            }
        }
    }

    fn send_mail(&mut self) {
        let Self { gate, posts, .. } = self;
        let mut refused: Vec<MailboxFull> = Vec::new();
        for (worker, mail) in gate.poll_mail() {
            if let Some(post) = posts.get(usize::from(worker)) {
                refused.extend(post.send(mail).err());
            }
        }
        for MailboxFull(mail) in refused {
            gate.mail_refused(&mail);
        }
    }

    /// Where the operating system's generator fails, the gate asks again.
    fn draw_cookie_secrets(&mut self, now: Now) {
        if let (Ok(first), Ok(second)) = (CookieSecret::generate(), CookieSecret::generate()) {
            self.gate.renew_cookies(now, [first, second]);
        }
    }

    fn answer_requests(&mut self, now: Now) {
        while let Some(request) = self.gate.poll_request() {
            match request {
                Request::CloseSocket(socket) => self.driver.close(socket),
                Request::CookieSecrets => self.draw_cookie_secrets(now),
                Request::HoldLink { socket, is_held } => self.driver.hold(socket, is_held),
                Request::OpenSessionSocket { session, backend } => {
                    self.open_session_socket(now, session, backend);
                }
            }
        }
    }

    /// A socket for one player toward a backend off loopback. Where that fails (too few
    /// descriptors) the gate asks again.
    fn open_session_socket(&mut self, now: Now, session: SessionId, backend: u16) {
        let LinkKind::Udp { address } = self.gate.setup().backends[usize::from(backend)].link
        else {
            return;
        };
        match self.driver.open(&Port::Session { address }) {
            Ok(socket) => self.gate.bind_session_socket(session, socket),
            Err(_) => self.gate.session_socket_failed(now, session),
        }
    }

    fn keep_house(&mut self, now_ns: u64) {
        if now_ns < self.housekeeping_at_ns {
            return;
        }
        self.housekeeping_at_ns = now_ns + HOUSEKEEPING_NS;
        let Self { published, stages, .. } = self;
        published.pass_by(stages);
        let published = Arc::clone(&self.published);
        published.leave_report(|report| self.fill(report, now_ns));
    }

    fn fill(&self, report: &mut super::Report, now_ns: u64) {
        report.counters.clone_from(self.gate.counters());
        report.last_refused = *self.gate.last_refused();
        report.io = self.driver.stats();
        report.turns = self.turns;
        report.revision = self.gate.revision();
        report.at_ns = now_ns;
        report.backends_up.clear();
        report.backends_up.extend(self.gate.backends_up());
        report.backend_arrivals.clear();
        report.backend_arrivals.extend(self.gate.backend_arrivals());
        report.servers.clear();
        report.servers.extend(self.gate.servers());
        report.socket_drops =
            self.players.iter().map(|player| self.driver.dropped_at(*player)).sum();
    }

    /// The last words: everything that was counted.
    fn leave(&mut self) {
        let published = Arc::clone(&self.published);
        published.leave_last_report(|report| self.fill(report, self.clock.now_ns()));
        published.leave_last_stages(std::mem::take(&mut self.stages));
    }
}

/// Counters are published this often.
const HOUSEKEEPING_NS: u64 = 50_000_000;

const NS_PER_S: u64 = 1_000_000_000;
