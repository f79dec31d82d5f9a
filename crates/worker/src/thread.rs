//! A worker on its thread: the gate's loop over the kernel's sockets, and now and then
//! housekeeping.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::ahead::{Ahead, Lent};
use super::barrier::{Call, Exported, Gift, Order, Stand};
use super::card::Seat;
use super::counted::Counted;
use super::departures::Departures;
use super::mailbox::{Mailbox, MailboxFull, Post};
use super::public::PublicSockets;
use super::report::Published;
use super::shell::Shell;
use super::sockets;
use super::stages::Recorder;
use crate::handover::{CardGiven, SocketRow};
use ringgate_batch::filter::Filter;
use ringgate_batch::{Clock, Moment, SocketId};
use ringgate_core::secret::CookieSecret;
use ringgate_gate::body::{self, Stage, Surroundings};
use ringgate_gate::handover::{Rest, Sink, SocketUse};
use ringgate_gate::pace::Rules;
use ringgate_gate::{Buckets, ForwardedDatagram, Gate, Mail, MemberId, Party, WorkerId};
use ringgate_io::{CardCounts, SocketDriver, socket};
use ringgate_os::publishing::{self, Request};
use ringgate_os::shared::Writing;
use ringgate_os::{clock, notify};
use ringgate_trunk::worker::Lanes;

/// What a worker is made of.
pub(super) struct Parts<D> {
    pub(super) index: u16,
    pub(super) driver: D,
    /// Its sockets are the driver's.
    pub(super) gate: Gate,
    /// The driver's sockets for players.
    pub(super) players: Vec<SocketId>,
    /// By the processes before this one, where it goes on from them.
    pub(super) counted: Option<Counted>,
    /// Its part of the fleet's interface.
    pub(super) seat: Option<Seat>,
    /// Where sources are given to workers.
    pub(super) buckets: Option<Arc<Buckets>>,
}

/// A worker that is ready to run.
pub(super) struct Worker<D> {
    index: u16,
    body: body::Body,
    driver: D,
    /// Beside the driver's sockets, those that lead to agents.
    lanes: Lanes,
    clock: HostClock,
    around: Around,
    players: PublicSockets,
    published: Arc<Published>,
    housekeeping_at_ns: u64,
    link_port: Option<u16>,
    stand: Stand,
    /// What the next process may know before the barrier.
    ahead: Ahead,
    /// Readers who wait for what it publishes next.
    asked: Vec<Request>,
    /// By the processes before this one.
    counted: Counted,
    seat: Option<Seat>,
    buckets: Option<Arc<Buckets>>,
    /// What its listeners' sockets are to refuse from its first turn on: those have the filters of
    /// another process, which would have them back where this one does not come to that.
    filters: Vec<Option<Filter>>,
}

/// The clocks of this host.
#[derive(Clone, Copy)]
struct HostClock(clock::Clock);

/// What is around a worker in a fleet.
struct Around {
    mailbox: Mailbox,
    /// All workers' mailboxes, by their index.
    posts: Vec<Post>,
    /// Where its datagrams for other members of the cluster go, and which are its own there.
    departures: Option<(Departures, usize)>,
    stages: Box<Recorder>,
}

impl<D: SocketDriver> Worker<D> {
    /// Tells the worker where the others are, and where datagrams for other members go.
    pub(super) fn set_posts(&mut self, posts: Vec<Post>, departures: Option<Departures>) {
        self.around.posts = posts;
        self.around.departures = departures.map(|it| (it, usize::from(self.index)));
    }

    /// Runs until it is told to stop, or until the driver fails.
    pub(super) fn run(&mut self) -> std::io::Result<()> {
        // Where that is forbidden, waits take longer than they should.
        let _ = notify::end_waits_on_time();
        self.change_filters();
        while !self.body.gate().is_stopped() {
            let goes_on = match self.stand.call() {
                Call::None => true,
                Call::Order => self.obey(),
                Call::Stand => self.stand_still(None),
            };
            if !goes_on {
                break;
            }
            let is_busy = self.ahead.is_busy() || !self.asked.is_empty();
            let Self { body, driver, lanes, clock, around, housekeeping_at_ns, .. } = self;
            let until_ns = if is_busy { 0 } else { *housekeeping_at_ns };
            let now_ns = body.turn(&mut lanes.over(driver), clock, around, until_ns)?;
            self.tell_members();
            self.publish_when_due(now_ns);
            if self.ahead.is_busy() {
                self.go_on_ahead();
            }
        }
        self.leave();
        Ok(())
    }

    /// A worker in what was made for it.
    pub(super) fn new(shell: Shell, parts: Parts<D>, clock: clock::Clock, spin: Duration) -> Self {
        let Parts { index, driver, gate, players, counted, seat, buckets } = parts;
        let Shell { mailbox, published, stand, helm: _, stages, lanes, desk: _ } = shell;
        let link = gate.udp_link().and_then(|link| driver.fd(link));
        let link_port = link.and_then(|fd| socket::local_address(fd).ok());
        let pace = Rules::new(sockets::room(&driver, &players));
        let dropped_before = counted.map(|it| it.dropped);
        let players =
            PublicSockets::new(players, dropped_before, |it| driver.dropped_at(it) as u32);
        Self {
            index,
            link_port: link_port.map(|address| address.port()),
            body: body::Body::new(gate, spin, pace, clock.now_ns()),
            driver,
            lanes,
            clock: HostClock(clock),
            around: Around { mailbox, posts: Vec::new(), departures: None, stages },
            players,
            published,
            housekeeping_at_ns: 0,
            stand,
            ahead: Ahead::default(),
            asked: Vec::new(),
            counted: counted.unwrap_or_default(),
            seat,
            buckets,
            filters: Vec::new(),
        }
    }

    /// How others reach it.
    #[cfg(test)]
    pub(super) fn post(&self) -> Post {
        self.around.mailbox.post()
    }

    /// What it decides with.
    #[cfg(test)]
    pub(super) fn gate(&self) -> &Gate {
        self.body.gate()
    }

    /// One turn that does not wait.
    #[cfg(test)]
    pub(super) fn turn_now(&mut self) {
        let Self { body, driver, lanes, clock, around, .. } = self;
        let turned = body.turn(&mut lanes.over(driver), clock, around, 0);
        let now_ns = turned.expect("the driver lives");
        self.housekeeping_at_ns = now_ns + HOUSEKEEPING_NS;
    }

    /// How long the driver might wait now.
    #[cfg(test)]
    pub(super) fn wait_now(&self) -> ringgate_io::Wait {
        self.body.wait(&self.around, self.housekeeping_at_ns)
    }

    /// Has game processes told, in its first turn, that another process has the gateway, and the
    /// listeners' sockets refuse what this one does not want.
    pub(super) fn take_over(&mut self, generation: u32, filters: Vec<Option<Filter>>) {
        self.body.gate_mut().tell_taken_over(generation);
        self.filters = filters;
    }

    fn change_filters(&mut self) {
        let filters = std::mem::take(&mut self.filters);
        for (id, is) in self.body.gate().sockets() {
            let SocketUse::Player(listener, _) = is else { continue };
            // One that only the process before had goes on by its rules.
            if let (Some(filter), Some(fd)) = (filters.get(listener.index()), self.driver.fd(id)) {
                socket::change_filter(fd, filter.as_ref());
            }
        }
    }

    /// Does what it is told between two turns. Returns whether it goes on.
    fn obey(&mut self) -> bool {
        while let Some(order) = self.stand.next_order() {
            match order {
                Order::Lend(reply) => self.ahead.lend_soon(reply),
                Order::Ahead(memory, reply) => self.ahead.begin(memory, reply),
                Order::Forget => self.ahead.forget(),
                Order::Publish(request) => self.asked.push(request),
                // Given since, with a call to stand.
                order => return self.stand_still(Some(order)),
            }
        }
        true
    }

    /// Stands at the barrier and does as it is told. Returns whether it goes on.
    fn stand_still(&mut self, first: Option<Order>) -> bool {
        let mut has_exported = false;
        let mut order = first.unwrap_or_else(|| self.stand.order());
        loop {
            match order {
                Order::Turn(reply) => drop(reply.send(self.last_turn())),
                Order::Export(memory, reply) => {
                    let is_first = !std::mem::replace(&mut has_exported, true);
                    drop(reply.send(self.export(memory, is_first)));
                }
                Order::Resume => {
                    if has_exported {
                        self.body.gate_mut().resume_after_failed_hand_over();
                    }
                    return true;
                }
                Order::Leave => return false,
                Order::Forget => self.ahead.forget(),
                // Where it does not go on, the reader hears that nobody answers.
                Order::Publish(request) => self.asked.push(request),
                // It is too late for those: who waits hears that nobody answers.
                Order::Lend(_) | Order::Ahead(..) => {}
            }
            order = self.stand.order();
        }
    }

    /// After a turn: what the next process may know already.
    fn go_on_ahead(&mut self) {
        self.ahead.write(self.index, self.body.gate());
        if self.around.mailbox.has_commands() {
            return;
        }
        if let Some(borrower) = self.ahead.take_borrower() {
            self.take_sockets();
            let is_listeners = |is: SocketUse| !matches!(is, SocketUse::Link | SocketUse::Session);
            let lent = self.give_some(|_, is| is_listeners(is));
            if let Ok(lent) = &lent {
                self.ahead.note_lent(lent);
            }
            drop(borrower.send(lent));
        }
    }

    /// Writes the next part of the rest of what it knows.
    fn export(&mut self, mut memory: Writing, is_first: bool) -> Result<Exported, String> {
        let mut sink = Sink::new(memory.bytes_mut());
        let written = self.ahead.export().rest(self.body.gate(), &mut sink);
        let bytes = sink.len();
        memory.use_up_to(bytes);
        let rest = written.map_err(|why| format!("worker {}: {why}", self.index))?;
        let gift = is_first.then(|| self.gift()).transpose()?;
        Ok(Exported { worker: self.index, memory, bytes, is_last: rest == Rest::All, gift })
    }

    /// What it gives besides: the sockets that it has not lent, and what was counted.
    fn gift(&mut self) -> Result<Gift, String> {
        let sockets = self.give_some(|id, _| !self.ahead.is_lent(id.0))?;
        let card = self.settle_card();
        let counted = self.counted_with(&CardCounts::of_given(&card.counted)).numbers().to_vec();
        Ok(Gift { sockets, counted, card })
    }

    /// The frames that the next process may have, and what was counted of them.
    fn settle_card(&mut self) -> CardGiven {
        let Some(seat) = &self.seat else { return CardGiven::default() };
        let frames = self.driver.settle_card();
        CardGiven { frames, counted: seat.absolute(&self.driver).numbers().to_vec() }
    }

    /// Second descriptors of some of its sockets.
    fn give_some(&self, wanted: impl Fn(SocketId, SocketUse) -> bool) -> Result<Lent, String> {
        let sockets = self.body.gate().sockets().filter(|(id, is)| wanted(*id, *is));
        let sockets = sockets.map(|(id, is)| self.give(id, is));
        let sockets = sockets.collect::<std::io::Result<_>>();
        sockets.map_err(|why| format!("worker {}: {why}", self.index))
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

    /// Takes in what is under way, and ends the sessions that an operator wants to end: the next
    /// process does not know of that.
    pub(super) fn last_turn(&mut self) -> std::io::Result<()> {
        self.take_sockets();
        for _ in 0..LAST_TURNS_MAX {
            let Self { body, driver, lanes, clock, around, .. } = self;
            body.last_turn(&mut lanes.over(driver), clock, around)?;
            self.tell_members();
            if !self.body.gate().is_ending_sessions() {
                return Ok(());
            }
        }
        Err(std::io::Error::other("it is ending sessions that an operator wants to end; try again"))
    }

    /// Has the others of a cluster told who has come and gone, and sent what is for them.
    fn tell_members(&self) {
        let Some((departures, worker)) = &self.around.departures else { return };
        let claims = self.body.gate().claims();
        let has_moved = claims.whereabouts().is_some_and(|it| it.has_news());
        let has_sent = departures.has_of(*worker);
        if has_moved || has_sent || claims.standbys().is_some_and(|it| it.has_news()) {
            departures.wake();
        }
    }

    /// Leaves a report.
    pub(super) fn publish(&mut self) {
        let now_ns = self.clock.0.now_ns();
        let socket_drops = self.players.dropped(&self.driver);
        self.published.leave_report(|report| self.fill(report, (now_ns, socket_drops)));
    }

    /// Leaves a report now and then, and where it was asked for one.
    fn publish_when_due(&mut self, now_ns: u64) {
        if now_ns < self.housekeeping_at_ns && self.asked.is_empty() {
            return;
        }
        self.housekeeping_at_ns = now_ns + publishing::period_ns(HOUSEKEEPING_NS);
        self.take_sockets();
        if let Some(buckets) = &self.buckets {
            self.body.share_among(buckets.among());
        }
        self.published.pass_by(&mut self.around.stages);
        let socket_drops = self.players.dropped(&self.driver);
        let is_left = self.published.leave_report(|it| self.fill(it, (now_ns, socket_drops)));
        // What is being read just now is published after the next turn.
        if !self.asked.is_empty() && is_left && self.lanes.show_now() {
            self.asked.drain(..).for_each(Request::answer);
        }
    }

    /// By all processes so far.
    fn counted(&self) -> Counted {
        let absolute = self.seat.as_ref().map(|seat| seat.absolute(&self.driver));
        self.counted_with(&absolute.unwrap_or_default())
    }

    /// The same, with what program, kernel and driver say of frames now.
    fn counted_with(&self, absolute: &CardCounts) -> Counted {
        let sum = self.counted.and(self.driver.stats(), self.body.turns(), self.body.gathers());
        let card = self.seat.as_ref().map(|seat| seat.since(absolute)).unwrap_or_default();
        let card = self.counted.card.and(&card);
        Counted { dropped: self.players.dropped_before(), card, ..sum }
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
        report.card = counted.card;
        report.revision = gate.revision();
        report.at_ns = now_ns;
        // Its thread is the one that asks.
        report.busy_ns = self.buckets.as_ref().map_or(0, |_| clock::thread_cpu_ns());
        report.backends_up.clear();
        report.backends_up.extend(gate.backends_up());
        report.backends_closed.clear();
        report.backends_closed.extend(gate.backends_closed());
        report.backend_arrivals.clear();
        report.backend_arrivals.extend(gate.backend_arrivals());
        report.listeners.clear();
        report.listeners.extend(gate.listener_traffic());
        report.listener_drops.clear();
        report.listener_drops.extend(gate.listener_drops().cloned());
        report.delivery.clear();
        report.delivery.extend(gate.delivery_traffic());
        report.backends.clear();
        report.backends.extend(gate.backend_traffic());
        report.moves.clear();
        report.moves.extend(gate.backend_moves());
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

    fn send_to_member(&mut self, to: MemberId, datagram: &ForwardedDatagram) -> bool {
        let departures = self.departures.as_ref();
        departures.is_some_and(|(departures, worker)| departures.send(*worker, to, datagram))
    }

    /// `None` where the operating system's generator fails.
    fn cookie_secrets(&mut self) -> Option<[CookieSecret; 2]> {
        Some([CookieSecret::generate().ok()?, CookieSecret::generate().ok()?])
    }

    fn record(&mut self, of: (Party, Stage), durations: impl Iterator<Item = (u64, u64)>) {
        self.stages.record(of, durations);
    }
}

/// A table of two million players is looked through within them.
const LAST_TURNS_MAX: usize = 1024;

/// Counters are published this often.
const HOUSEKEEPING_NS: u64 = 50_000_000;
