//! One worker's loop: reap, mail, the gate's turn, mail and requests out.
//!
//! Generic over the driver, the clocks and what else is around a worker, so that the code that runs
//! on production's threads is the code that the simulator, the tests and the fuzz targets run.

use std::io;
use std::time::Duration;

use crate::gate::Gate;
use crate::mail::{Mail, Request};
use crate::now::Now;
use crate::setup::LinkKind;
use ringgate_batch::{Batches, Clock, Driver, IoEvent, Moment, Port, RxBatch, Wait};
use ringgate_core::secret::CookieSecret;
use ringgate_link::bundle::SessionId;

/// A gate that takes turns.
pub struct Body {
    gate: Gate,
    spin_ns: u64,
    turns: u64,
    /// When something last arrived, for spinning.
    busy_at_ns: u64,
    /// When the driver last came back.
    reaped_ns: u64,
}

/// What is around a worker besides its driver and the clocks.
pub trait Surroundings {
    /// Hands over what one turn takes of the mail that waits, in order.
    fn take_mail(&mut self, handle: impl FnMut(Mail));

    /// Whether mail waits.
    fn has_mail(&self) -> bool;

    /// Gives another worker a message, or gives it back.
    fn send(&mut self, to: u16, mail: Mail) -> Result<(), Box<Mail>>;

    /// Two secrets for cookies; `None` where there are none now, and the gate asks again.
    fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]>;

    /// Something took so long, `count` times.
    fn record(&mut self, stage: Stage, ns: u64, count: u64);
}

/// What is measured of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stage {
    /// From the first request we took to the session.
    Handshake,
    /// From the kernel's receive to the payload's handing over to a link.
    Uplink,
    /// From the kernel's receive to the reap: time in the socket's queue.
    Queue,
    /// From the reap to the end of the submit.
    Turn,
    /// From the receive on a link to the end of the submit.
    Downlink,
}

impl Stage {
    /// Every stage, in declaration order.
    pub const ALL: [Self; 5] =
        [Self::Handshake, Self::Uplink, Self::Queue, Self::Turn, Self::Downlink];

    /// The name used as tag in logs and as label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Uplink => "uplink",
            Self::Queue => "queue",
            Self::Turn => "turn",
            Self::Downlink => "downlink",
        }
    }
}

impl Body {
    /// A worker that has not turned yet. It looks for work for so long before it lets its driver
    /// wait.
    pub fn new(gate: Gate, spin: Duration, now_ns: u64) -> Self {
        let spin_ns = spin.as_nanos() as u64;
        Self { gate, spin_ns, turns: 0, busy_at_ns: 0, reaped_ns: now_ns }
    }

    /// What it decides with, to be asked.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The gate, to tell it something between two turns.
    pub const fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// Turns taken.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// How long the driver may wait in the next turn: until a timer is due or `until_ns`, and not
    /// at all while the worker spins or mail was left.
    pub fn wait(&self, around: &impl Surroundings, until_ns: u64) -> Wait {
        let now_ns = self.reaped_ns;
        if self.spin_ns > 0 && now_ns < self.busy_at_ns + self.spin_ns || around.has_mail() {
            return Wait::No;
        }
        let due_ns = self.gate.poll_timeout().unwrap_or(u64::MAX).min(until_ns);
        match due_ns.saturating_sub(now_ns) {
            0 => Wait::No,
            ns => Wait::AtMost(Duration::from_nanos(ns)),
        }
    }

    /// One turn over everything that has arrived, after waiting for it until `until_ns` at most.
    /// Returns when the driver came back. An error is the driver's end.
    pub fn turn<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        clock: &impl Clock,
        around: &mut S,
        until_ns: u64,
    ) -> io::Result<u64> {
        driver.turn(self.wait(around, until_ns))?;
        let reaped = clock.now();
        self.reaped_ns = reaped.mono_ns;
        self.turns += 1;
        let now = Now { mono_ns: reaped.mono_ns, unix_s: reaped.unix_ns / NS_PER_S };
        let is_idle = self.decide(driver, around, now, reaped);
        self.note_latencies(clock, around, reaped, is_idle);
        self.send_mail(around);
        self.answer_requests(driver, around, now);
        Ok(reaped.mono_ns)
    }

    /// The gate's turn, mail first. Returns whether no datagram had arrived.
    fn decide<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        around: &mut S,
        now: Now,
        reaped: Moment,
    ) -> bool {
        let Self { gate, busy_at_ns, .. } = self;
        let Batches { rx, tx, mut out } = driver.batches();
        if !rx.is_empty() {
            *busy_at_ns = reaped.mono_ns;
        }
        note_queueing(rx, around, reaped);
        for event in &rx.events {
            // Before the gate reads what they say.
            if let IoEvent::Accepted { connection, peer, .. } = *event {
                gate.handle_link_accepted(connection, peer);
            }
        }
        let (fronts, mut turn) = gate.begin(now, tx, &mut out);
        around.take_mail(|mail| fronts.handle_mail(&mut turn, mail));
        fronts.turn(&mut turn, rx);
        rx.metas().is_empty()
    }

    fn note_latencies<S: Surroundings>(
        &self,
        clock: &impl Clock,
        around: &mut S,
        reaped: Moment,
        is_idle: bool,
    ) {
        let stamps = self.gate.stamps();
        for ns in &stamps.handshakes_ns {
            around.record(Stage::Handshake, *ns, 1);
        }
        if is_idle && stamps.downlink_count == 0 {
            return;
        }
        let submitted = clock.now();
        let turn_ns = submitted.mono_ns - reaped.mono_ns;
        around.record(Stage::Turn, turn_ns, 1);
        if stamps.downlink_count > 0 {
            around.record(Stage::Downlink, turn_ns, stamps.downlink_count);
        }
        for kernel_ns in stamps.uplink_kernel_ns.iter().filter(|ns| **ns > 0) {
            around.record(Stage::Uplink, submitted.unix_ns.saturating_sub(*kernel_ns), 1);
        }
    }

    fn send_mail<S: Surroundings>(&mut self, around: &mut S) {
        let mut refused: Vec<Box<Mail>> = Vec::new();
        for (worker, mail) in self.gate.poll_mail() {
            refused.extend(around.send(worker, mail).err());
        }
        for mail in refused {
            self.gate.mail_refused(&mail);
        }
    }

    fn answer_requests<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        around: &mut S,
        now: Now,
    ) {
        while let Some(request) = self.gate.poll_request() {
            match request {
                Request::CloseSocket(socket) => driver.close(socket),
                Request::CookieSecrets => {
                    if let Some(secrets) = around.cookie_secrets() {
                        self.gate.renew_cookies(now, secrets);
                    }
                }
                Request::HoldLink { socket, is_held } => driver.hold(socket, is_held),
                Request::OpenSessionSocket { session, backend } => {
                    self.open_session_socket(driver, now, session, backend);
                }
            }
        }
    }

    /// A socket for one player toward a backend off loopback. Where that fails (too few
    /// descriptors) the gate asks again.
    fn open_session_socket<D: Driver>(
        &mut self,
        driver: &mut D,
        now: Now,
        session: SessionId,
        backend: u16,
    ) {
        let LinkKind::Udp { address } = self.gate.setup().backends[usize::from(backend)].link
        else {
            return;
        };
        match driver.open(&Port::Session { address }) {
            Ok(socket) => self.gate.bind_session_socket(session, socket),
            Err(_) => self.gate.session_socket_failed(now, session),
        }
    }
}

/// Time that datagrams have spent in the sockets' queues.
fn note_queueing<S: Surroundings>(rx: &RxBatch, around: &mut S, reaped: Moment) {
    for meta in rx.metas() {
        if meta.kernel_ns > 0 {
            around.record(Stage::Queue, reaped.unix_ns.saturating_sub(meta.kernel_ns), 1);
        }
    }
}

const NS_PER_S: u64 = 1_000_000_000;
