//! One worker's loop: reap, mail, the gate's turn, mail and requests out.
//!
//! Generic over the driver, the clocks and what else is around a worker, so that the code that runs
//! on production's threads is the code that the simulator, the tests and the fuzz targets run.

use std::io;
use std::time::Duration;

use crate::gate::Gate;
use crate::ids::{BackendId, MemberId, WorkerId};
use crate::mail::{ForwardedDatagram, Mail, Request};
use crate::now::Now;
use crate::pace::{BatchDelay, Found, Pace, Rules};
use crate::party::Party;
use ringgate_batch::{Batches, Clock, Driver, IoEvent, IoStats, Moment, Port, RxMeta, Wait};
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
    /// When players' sockets were last looked at, and when the turn ended that did.
    looked_ns: u64,
    gathers_since: Moment,
    /// When the last turn ended, where the worker may wait for more.
    ended: Moment,
    pace: Pace,
    gathers: Gathers,
    /// Of the driver's sleeps that were measured, those that the pace knows of, and their cost.
    known_sleeps: (u64, u64),
}

/// What a worker has waited on purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gathers {
    /// From one look to the next, as it is chosen now; 0 where the worker waits for arrivals only.
    pub delay_ns: u64,
    /// Times it has waited.
    pub count: u64,
    /// How long, all together.
    pub waited_ns: u64,
    /// What one of them costs of the worker's processor time, as it was of late; 0 until the first
    /// was measured.
    pub sleep_cost_ns: u64,
}

/// A wait on purpose that is over.
struct Gathered {
    from: Moment,
    ns: u64,
}

/// What is around a worker besides its driver and the clocks.
pub trait Surroundings {
    /// Hands over what one turn takes of the mail that waits, in order.
    fn take_mail(&mut self, handle: impl FnMut(Mail));

    /// Whether mail waits.
    fn has_mail(&self) -> bool;

    /// Gives another worker a message, or gives it back.
    fn send(&mut self, to: WorkerId, mail: Mail) -> Result<(), Box<Mail>>;

    /// Gives another member of the cluster a datagram. Whether there was room for it.
    fn send_to_member(&mut self, to: MemberId, datagram: &ForwardedDatagram) -> bool;

    /// Two secrets for cookies; `None` where there are none now, and the gate asks again.
    fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]>;

    /// What took how long, and how often.
    fn record(&mut self, of: (Party, Stage), durations: impl Iterator<Item = (u64, u64)>);
}

ringgate_core::named! {
    /// What is measured of a turn.
    pub enum Stage;
    /// From the first request we took to the session.
    Handshake = "handshake",
    /// From the kernel's receive to the payload's handing over to a link.
    Uplink = "uplink",
    /// From the kernel's receive to the reap: time in the socket's queue, without that of `Gather`.
    Queue = "queue",
    /// From the reap to the end of the submit.
    Turn = "turn",
    /// From the receive on a link to the end of the submit.
    Downlink = "downlink",
    /// Of the time in the socket's queue, what the worker has waited on purpose, for more.
    Gather = "gather",
}

impl Body {
    /// A worker that has not turned yet. It looks for work for so long before it lets its driver
    /// wait, and waits for more by these rules.
    pub fn new(gate: Gate, spin: Duration, pace: Rules, now_ns: u64) -> Self {
        let pace = pace.among(gate.common.worker.count);
        Self {
            gate,
            spin_ns: spin.as_nanos() as u64,
            turns: 0,
            busy_at_ns: 0,
            reaped_ns: now_ns,
            looked_ns: now_ns,
            gathers_since: Moment::default(),
            ended: Moment::default(),
            pace: Pace::new(BatchDelay::OFF, pace, now_ns),
            gathers: Gathers::default(),
            known_sleeps: (0, 0),
        }
    }

    /// What it decides with, to be asked.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// The gate, to tell it something between two turns.
    pub const fn gate_mut(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// There is a socket for players now whose receive buffer holds no more datagrams than this.
    pub fn limit_room(&mut self, room: u32) {
        self.pace.limit_room(room);
    }

    /// So many workers have the gateway's datagrams among them from now on.
    pub fn share_among(&mut self, workers: u16) {
        self.pace.share_among(workers);
    }

    /// Turns taken.
    pub const fn turns(&self) -> u64 {
        self.turns
    }

    /// What was waited on purpose.
    pub const fn gathers(&self) -> Gathers {
        let (delay_ns, sleep_cost_ns) = (self.pace.chosen_ns(), self.pace.sleep_cost_ns());
        Gathers { delay_ns, sleep_cost_ns, ..self.gathers }
    }

    /// How long the driver may wait in the next turn: until a timer is due or `until_ns`, and not
    /// at all while the worker spins or mail was left.
    pub fn wait(&self, around: &impl Surroundings, until_ns: u64) -> Wait {
        let now_ns = self.reaped_ns;
        if self.spin_ns > 0 && now_ns < self.busy_at_ns + self.spin_ns || around.has_mail() {
            return Wait::No;
        }
        let due_ns = self.gate.poll_timeout().unwrap_or(u64::MAX).min(until_ns);
        if due_ns <= now_ns {
            return Wait::No;
        }
        let Some(delay_ns) = self.pace.delay_ns() else {
            return Wait::AtMost(Duration::from_nanos(due_ns - now_ns));
        };
        let look_ns = (self.looked_ns + delay_ns).min(due_ns);
        let ns = look_ns.saturating_sub(self.ended.mono_ns);
        // Answers are waited for once in a delay.
        let has_heard = self.looked_ns < self.reaped_ns;
        if ns < self.pace.sleep_min_ns() {
            Wait::No
        } else if self.pace.awaits_answers() && !has_heard {
            Wait::GatherAnswers(Duration::from_nanos(ns))
        } else {
            Wait::Gather(Duration::from_nanos(ns))
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
        let wait = self.wait(around, until_ns);
        driver.turn(wait)?;
        Ok(self.finish_turn(driver, clock, around, wait))
    }

    /// The last turn before the driver's sockets go to another process: takes in what was under
    /// way, and asks for nothing. A turn after it goes on as before.
    pub fn last_turn<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        clock: &impl Clock,
        around: &mut S,
    ) -> io::Result<u64> {
        driver.let_go()?;
        Ok(self.finish_turn(driver, clock, around, Wait::No))
    }

    /// Everything after the driver has come back.
    fn finish_turn<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        clock: &impl Clock,
        around: &mut S,
        wait: Wait,
    ) -> u64 {
        let reaped = clock.now();
        self.reaped_ns = reaped.mono_ns;
        self.turns += 1;
        if !driver.rx().is_of_links {
            self.looked_ns = reaped.mono_ns;
        }
        let gathered = self.end_gathering(wait, reaped);
        if gathered.is_some() {
            self.note_sleep_cost(driver.stats());
        }
        let now = Now { mono_ns: reaped.mono_ns, unix_s: reaped.unix_ns / NS_PER_S };
        let is_idle = self.decide(driver, around, now, gathered.is_some());
        for run in &self.gate.common.runs {
            let party = run.of_players().map_or(Party::NONE, |run| Party::of(run.listener));
            let metas = &driver.rx().metas()[run.range.clone()];
            note_queueing(metas, around, party, reaped, gathered.as_ref());
        }
        self.note_latencies(clock, around, reaped, is_idle);
        self.send_mail(around);
        self.answer_requests(driver, around, now);
        if self.pace.chosen_ns() > 0 {
            self.ended = clock.now();
            if self.looked_ns == self.reaped_ns {
                self.gathers_since = self.ended;
            }
        }
        reaped.mono_ns
    }

    /// What of a wait that is over was on purpose. Where the driver came back later than it should
    /// have, the rest was not.
    fn end_gathering(&mut self, wait: Wait, reaped: Moment) -> Option<Gathered> {
        let (Wait::Gather(asked) | Wait::GatherAnswers(asked)) = wait else { return None };
        let ns = reaped.mono_ns.saturating_sub(self.ended.mono_ns).min(asked.as_nanos() as u64);
        self.gathers.count += 1;
        self.gathers.waited_ns += ns;
        let from = self.gathers_since;
        let before_ns = self.ended.mono_ns.saturating_sub(from.mono_ns);
        Some(Gathered { from, ns: before_ns + ns })
    }

    /// Tells the pace what sleeps that the driver has measured since have cost.
    fn note_sleep_cost(&mut self, stats: IoStats) {
        let IoStats { sleeps_measured, sleeps_cpu_ns, .. } = stats;
        let (known, known_ns) = self.known_sleeps;
        if let Some(mean_ns) = (sleeps_cpu_ns - known_ns).checked_div(sleeps_measured - known) {
            self.pace.note_sleep_cost(mean_ns);
            self.known_sleeps = (sleeps_measured, sleeps_cpu_ns);
        }
    }

    /// The gate's turn, mail first. Returns whether no datagram had arrived.
    fn decide<D: Driver, S: Surroundings>(
        &mut self,
        driver: &mut D,
        around: &mut S,
        now: Now,
        has_slept: bool,
    ) -> bool {
        let Self { gate, busy_at_ns, pace, spin_ns, .. } = self;
        let Batches { rx, tx, mut out } = driver.batches();
        if !rx.is_empty() {
            *busy_at_ns = now.mono_ns;
        }
        let before = gate.counters().datagrams_in;
        for event in &rx.events {
            // Before the gate reads what they say.
            if let IoEvent::Accepted { connection, peer, .. } = *event {
                gate.handle_link_accepted(connection, peer);
            }
        }
        let (fronts, mut turn) = gate.begin(now, tx, &mut out);
        around.take_mail(|mail| fronts.handle_mail(&mut turn, mail));
        fronts.turn(&mut turn, rx);
        // A worker that spins does not sleep, so it takes what arrives at once.
        pace.limit(if *spin_ns > 0 { BatchDelay::OFF } else { gate.setup().batch_delay });
        let from_players = gate.counters().datagrams_in - before;
        let from_all = rx.metas().len();
        if rx.is_of_links {
            pace.note_answers(from_all);
        } else {
            pace.note(now.mono_ns, Found { has_slept, from_players, from_all });
        }
        from_all == 0
    }

    fn note_latencies<S: Surroundings>(
        &self,
        clock: &impl Clock,
        around: &mut S,
        reaped: Moment,
        is_idle: bool,
    ) {
        let stamps = self.gate.stamps();
        for (party, ns) in &stamps.handshakes_ns {
            around.record((*party, Stage::Handshake), once(*ns));
        }
        let downlinks = Party::all().map(|party| (party, stamps.downlinks[party.index()]));
        let mut downlinks = downlinks.filter(|(_, count)| *count > 0).peekable();
        if is_idle && downlinks.peek().is_none() {
            return;
        }
        let submitted = clock.now();
        let turn_ns = submitted.mono_ns - reaped.mono_ns;
        around.record((Party::NONE, Stage::Turn), once(turn_ns));
        for (party, count) in downlinks {
            around.record((party, Stage::Downlink), std::iter::once((turn_ns, count)));
        }
        for (party, kernel_ns) in stamps.uplinks() {
            let known = kernel_ns.iter().filter(|ns| **ns > 0);
            let durations = known.map(|ns| (submitted.unix_ns.saturating_sub(*ns), 1));
            around.record((party, Stage::Uplink), durations);
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
        let mut for_members = std::mem::take(&mut self.gate.common.neighbours.members_out);
        for (member, datagram) in &for_members {
            if !around.send_to_member(*member, datagram) {
                self.gate.member_refused(datagram);
            }
        }
        // With the memory that it has.
        for_members.clear();
        self.gate.common.neighbours.members_out = for_members;
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
        backend: BackendId,
    ) {
        let Some(address) = self.gate.setup().backends[backend].address() else { return };
        match driver.open(&Port::Session { address }) {
            Ok(socket) => self.gate.bind_session_socket(session, socket),
            Err(_) => self.gate.session_socket_failed(now, session),
        }
    }
}

/// Time that datagrams have spent in a socket's queue, and what of it was on purpose.
fn note_queueing<S: Surroundings>(
    metas: &[RxMeta],
    around: &mut S,
    party: Party,
    reaped: Moment,
    gathered: Option<&Gathered>,
) {
    let since = |kernel_ns| gathered.map_or(0, |it| it.since(kernel_ns));
    let known = || metas.iter().map(|meta| meta.kernel_ns).filter(|ns| *ns > 0);
    if gathered.is_some() {
        let waited = known().map(since).filter(|ns| *ns > 0);
        around.record((party, Stage::Gather), waited.map(|ns| (ns, 1)));
    }
    let queued = known().map(|ns| reaped.unix_ns.saturating_sub(ns).saturating_sub(since(ns)));
    around.record((party, Stage::Queue), queued.map(|ns| (ns, 1)));
}

/// That something took so long.
fn once(ns: u64) -> impl Iterator<Item = (u64, u64)> {
    std::iter::once((ns, 1))
}

impl Gathered {
    /// How much of it a datagram has seen that came at `unix_ns`.
    fn since(&self, unix_ns: u64) -> u64 {
        let end_ns = self.from.unix_ns + self.ns;
        end_ns.saturating_sub(unix_ns.max(self.from.unix_ns))
    }
}

const NS_PER_S: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::{Endpoint, RxBatch, SocketId};

    /// Remembers what took how long, and nothing else.
    #[derive(Default)]
    struct Stopwatch(Vec<(Stage, u64)>);

    impl Surroundings for Stopwatch {
        fn take_mail(&mut self, _handle: impl FnMut(Mail)) {}

        fn has_mail(&self) -> bool {
            false
        }

        fn send(&mut self, _to: WorkerId, _mail: Mail) -> Result<(), Box<Mail>> {
            Ok(())
        }

        fn send_to_member(&mut self, _to: MemberId, _datagram: &ForwardedDatagram) -> bool {
            true
        }

        fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]> {
            None
        }

        fn record(&mut self, of: (Party, Stage), durations: impl Iterator<Item = (u64, u64)>) {
            self.0.extend(durations.map(|(ns, _)| (of.1, ns)));
        }
    }

    /// What is recorded of datagrams that the kernel received at these moments.
    fn recorded(kernel_ns: &[u64], gathered: Option<&Gathered>) -> Vec<(Stage, u64)> {
        let mut rx = RxBatch::in_memory(1000, 8);
        for ns in kernel_ns {
            let meta = rx.push_copy(SocketId(1), Endpoint::v4([10, 0, 0, 1], 5), b"x");
            meta.expect("room").kernel_ns = *ns;
        }
        let mut around = Stopwatch::default();
        let reaped = Moment { mono_ns: 0, unix_ns: 2000 };
        note_queueing(rx.metas(), &mut around, Party::NONE, reaped, gathered);
        around.0
    }

    #[test]
    fn time_waited_on_purpose_is_no_time_in_the_queue() {
        let from = Moment { mono_ns: 0, unix_ns: 1000 };
        // The wait was to end at 1,900; the driver came back at 2,000.
        let gathered = Gathered { from, ns: 900 };
        let on_purpose = Some(&gathered);
        let both = |gather, queue| vec![(Stage::Gather, gather), (Stage::Queue, queue)];
        assert_eq!(recorded(&[1300], on_purpose), both(600, 100));
        assert_eq!(recorded(&[800], on_purpose), both(900, 300), "it came in the turn before");
        assert_eq!(recorded(&[1950], on_purpose), [(Stage::Queue, 50)], "the wait was over");
        assert_eq!(recorded(&[1300, 0], None), [(Stage::Queue, 700)]);
    }
}
