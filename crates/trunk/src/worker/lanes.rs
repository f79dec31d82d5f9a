//! All lanes that a worker has, and what it does with them in a turn.

mod called;

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::socket::{Buffers, CalledLink, LaneReport, Lease, SocketLane};
use ringgate_batch::{IoEvent, RxBatch, SendFailure, SocketId, TxBatch, Wait};
use ringgate_core::crypto::Aead;
use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_io::{Bell, SocketDriver, SocketKind, socket};
use ringgate_link::bundle::{Frame, Frames, Run};
use ringgate_os::clock::Clock;
use ringgate_os::notify::{Epoll, Ready};
use ringgate_os::{publishing, segments};

use crate::worker::desk::{Back, Inbox, Left, News, WorkerInbox};
use crate::worker::links::{Bound, Called, Links, Numbers};

/// A worker's lanes.
#[derive(Debug)]
pub struct Lanes {
    inbox: Arc<Inbox>,
    /// Links that came with too many others.
    later: VecDeque<(u32, (u16, u32), OwnedFd)>,
    clock: Clock,
    seats: Vec<Option<Seat>>,
    links: Links,
    /// Sockets of which the gate reads nothing at the moment.
    held: Vec<SocketId>,
    /// What all of them share, from the first one on.
    tools: Option<Box<Tools>>,
    /// The driver's batch has no room yet for what comes by lanes.
    lacks_room: bool,
    /// Somebody is asked whether a lane's other end is there.
    is_trying: bool,
    /// So many turns in a row have brought something: the next is likely to.
    busy_turns: u8,
    /// When that was last asked. What is done with it may be a turn late.
    now_ns: u64,
    due_ns: u64,
    shown_ns: u64,
}

#[derive(Debug)]
struct Tools {
    /// Of the lanes' sockets, by seat.
    epoll: Epoll,
    ready: Vec<Ready>,
    buffers: Buffers,
    aead: Aead,
    /// The parts of a bundle that must arrive.
    kept: Vec<Range<usize>>,
    /// What was said on a link before it was bound is read into this.
    bundle: Box<[u8]>,
}

/// One of them.
#[derive(Debug)]
struct Seat {
    trunk: u32,
    /// Unless it was asked back.
    way: Option<SocketLane>,
    lease: Lease,
    numbers: Numbers,
    /// Records that were written for the stream.
    written: u32,
    /// What must arrive finds no room in this flush.
    is_full: bool,
    /// Its socket has failed.
    is_failed: bool,
    /// Why, until the trunk's thread was told.
    why: Option<io::Error>,
    /// Links that were caught up with, until it was told.
    caught: Vec<u32>,
}

impl Lanes {
    /// None, for a worker whose driver has this bell.
    pub fn new(clock: Clock) -> Self {
        Self {
            inbox: Arc::default(),
            later: VecDeque::new(),
            clock,
            seats: Vec::new(),
            links: Links::default(),
            held: Vec::new(),
            tools: None,
            lacks_room: false,
            is_trying: false,
            busy_turns: 0,
            now_ns: 0,
            due_ns: u64::MAX,
            shown_ns: 0,
        }
    }

    /// Where trunks' threads leave things for it. The bell is that of its driver.
    pub fn desk(&self, bell: Bell) -> WorkerInbox {
        WorkerInbox::new(Arc::clone(&self.inbox), bell)
    }

    /// Whether it has yet to come across links of lanes that it was lent.
    pub fn is_calling(&self) -> bool {
        self.links.is_calling()
    }

    /// Whether there is nothing to do beside the driver.
    pub(crate) const fn is_idle(&self) -> bool {
        self.seats.is_empty()
    }

    /// Before a turn: sends what is due, and says how long the driver may wait.
    pub(crate) fn prepare(&mut self, driver: &mut impl SocketDriver, wait: Wait) -> Wait {
        if self.is_idle() {
            return wait;
        }
        if mem::take(&mut self.lacks_room) {
            let rx = driver.rx();
            rx.clear();
            rx.make_room_for_copies(COPIES_BYTES, COPIES_MAX);
        }
        self.poll(self.now_ns);
        self.flush();
        let Some(tools) = &mut self.tools else { return wait };
        tools.ready.clear();
        // Where something is likely to have come, a look costs less than to arm all sockets.
        if self.busy_turns >= STREAK && matches!(wait, Wait::AtMost(_)) {
            let _ = tools.epoll.ready(&mut tools.ready);
            self.busy_turns = if tools.ready.is_empty() { 0 } else { STREAK };
        }
        let is_idle = tools.ready.is_empty() && self.links.stuck.is_empty();
        match wait {
            _ if !is_idle || self.inbox.has_news() || !self.later.is_empty() => Wait::No,
            // Nothing rings when the gate has said something on a link that is called.
            Wait::AtMost(time) if self.links.is_calling() => Wait::AtMost(time.min(CALL_EVERY)),
            Wait::AtMost(time) if self.is_trying => Wait::AtMost(time.min(TRY_EVERY)),
            wait => wait,
        }
    }

    /// After the driver's turn: what trunks' threads have, and what has come by lanes.
    pub(crate) fn turn(&mut self, driver: &mut impl SocketDriver) {
        // All but links at once: a link that is called has its sign already.
        if self.inbox.has_news() {
            let inbox = Arc::clone(&self.inbox);
            inbox.take().for_each(|(trunk, news)| self.handle_news(driver, trunk, news));
        }
        for _ in 0..LINKS_PER_TURN {
            let Some((trunk, numbers, socket)) = self.later.pop_front() else { break };
            self.take_link(driver, trunk, numbers, socket);
        }
        if self.is_idle() {
            return;
        }
        self.now_ns = self.clock.now_ns();
        let rx = driver.rx();
        self.catch_up(rx);
        let before = rx.len();
        self.deliver_stuck(rx, None);
        self.follow(rx);
        self.receive(rx);
        let is_busy = rx.len() != before;
        self.busy_turns = if is_busy { self.busy_turns.saturating_add(1) } else { 0 };
        self.show(self.now_ns);
    }

    fn handle_news(&mut self, driver: &mut impl SocketDriver, trunk: u32, news: News) {
        match news {
            News::Lane(lane, known) => self.take(driver, trunk, *lane, known),
            News::Link(numbers, socket) => self.later.push_back((trunk, numbers, socket)),
            News::Datagram(from, mut datagram) => {
                if let Some(seat) = self.find(trunk) {
                    self.receive_at_door(seat, from, &mut datagram, driver.rx());
                }
            }
            News::GiveBack(giving) => {
                let Some(seat) = self.find(trunk) else { return };
                if giving.is_wanted()
                    && let Some(back) = self.give_back(seat, driver.rx())
                {
                    giving.give(back);
                }
            }
            News::Gone => {
                let Some(seat) = self.find(trunk) else { return };
                self.links.take_all(seat);
                self.seats[seat] = None;
                while self.seats.last().is_some_and(Option::is_none) {
                    self.seats.pop();
                }
            }
        }
    }

    /// Takes a link of a lane that was lent, also where that has gone back meanwhile.
    fn take_link(
        &mut self,
        driver: &mut impl SocketDriver,
        trunk: u32,
        numbers: (u16, u32),
        socket: OwnedFd,
    ) {
        let Some(seat) = self.find(trunk) else { return };
        segments::ask_for_buffers(socket.as_fd(), LINK_BUFFER_BYTES, LINK_BUFFER_BYTES);
        let Ok(peer) = socket::peer_credentials(socket.as_fd()) else { return };
        // Where that fails, the socket closes, and the trunk's thread sees it.
        let Ok(connection) = driver.register(socket, SocketKind::Link) else { return };
        let rx = driver.rx();
        self.bind(seat, numbers, connection, rx);
        let peer = peer.into();
        rx.events.push(IoEvent::Accepted { socket: connection, connection, peer });
    }

    fn find(&self, trunk: u32) -> Option<usize> {
        self.seats.iter().position(|seat| seat.as_ref().is_some_and(|seat| seat.trunk == trunk))
    }

    /// Takes a lane that is lent, and calls its links. Those that it had when it was here before
    /// are among them.
    fn take(
        &mut self,
        driver: &mut impl SocketDriver,
        trunk: u32,
        (way, lease): (SocketLane, Lease),
        known: Vec<CalledLink>,
    ) {
        if let Err(why) = self.equip(driver) {
            let _ = lease.say(LaneReport::Failed(why));
            return;
        }
        let at = self.find(trunk).unwrap_or_else(|| {
            let free = self.seats.iter().position(Option::is_none);
            free.unwrap_or_else(|| {
                self.seats.push(None);
                self.seats.len() - 1
            })
        });
        let (epoll, token) = (self.tools.as_ref().map(|tools| &tools.epoll), at as u64);
        let added = match (epoll, way.socket()) {
            (Some(epoll), Some(socket)) => epoll.add(socket, token),
            _ => Ok(()),
        };
        self.links.take_all(at);
        let mut seat = Seat {
            trunk,
            way: Some(way),
            lease,
            numbers: Numbers::default(),
            written: 0,
            is_full: false,
            is_failed: false,
            why: None,
            caught: Vec::new(),
        };
        seat.note(added);
        for CalledLink { number, serial, sign, said } in known {
            let called = Called { sign, found: None, said, unsaid: Vec::new() };
            let bound = Bound::new(at, (number, serial), None, Some(Box::new(called)));
            self.links.bind(bound, &mut seat.numbers);
        }
        self.seats[at] = Some(seat);
        self.due_ns = 0;
    }

    /// Makes what all lanes share, where that is not there yet.
    fn equip(&mut self, driver: &mut impl SocketDriver) -> io::Result<()> {
        if self.tools.is_some() {
            return Ok(());
        }
        let epoll = Epoll::new()?;
        if let Some(card) = driver.card() {
            epoll.add(card.fd(), CARD_TOKEN)?;
        }
        driver.watch(epoll.raw());
        self.tools = Some(Box::new(Tools {
            epoll,
            ready: Vec::with_capacity(READY_EXPECTED),
            buffers: Buffers::default(),
            aead: Aead::detect(),
            kept: Vec::with_capacity(READY_EXPECTED),
            bundle: vec![0; BUNDLE_BYTES_MAX].into_boxed_slice(),
        }));
        self.lacks_room = true;
        Ok(())
    }

    fn bind(
        &mut self,
        at: usize,
        (number, serial): (u16, u32),
        socket: SocketId,
        rx: &mut RxBatch,
    ) {
        let Self { seats, links, .. } = self;
        let Some(Some(seat)) = seats.get_mut(at) else { return };
        let mut bound = Bound::new(at, (number, serial), Some(socket), None);
        if let Some(before) = links.take_number(&seat.numbers, number) {
            seat.numbers.forget(&before);
            if before.called.is_some() {
                seat.caught.push(before.serial);
            }
            // It was called before it came; or else its number is another one's from now on,
            // whenever its socket closes.
            if before.serial == serial {
                seat.numbers.waiting += before.waiting.len();
                links.stuck.extend((!before.waiting.is_empty()).then_some(socket));
                bound.waiting = before.waiting;
            } else if let Some(way) = &mut seat.way {
                way.count_dropped(payloads_of(&before.waiting), 0);
            }
        }
        links.bind(bound, &mut seat.numbers);
        let Seat { way: Some(way), numbers, .. } = seat else { return };
        let mut delivery = Delivery::new(numbers, links, rx);
        way.lane().begin_link(number, |link, frame| delivery.take(link, frame));
        delivery.settle(way);
    }

    /// A link's socket closes.
    pub(crate) fn forget(&mut self, socket: SocketId) {
        self.held.retain(|held| *held != socket);
        if let Some(bound) = self.links.unbind(socket) {
            self.end_link(&bound);
        }
    }

    /// A link that was taken out is over.
    fn end_link(&mut self, bound: &Bound) {
        let Some(Some(seat)) = self.seats.get_mut(bound.seat) else { return };
        seat.numbers.forget(bound);
        let Some(way) = &mut seat.way else { return };
        // What has waited for it is refused there by name.
        way.lane().end_link(bound.number, |_, _| {});
        way.count_dropped(payloads_of(&bound.waiting), 0);
    }

    /// What comes on a link has to wait, or no longer.
    pub(crate) fn hold(&mut self, socket: SocketId, is_held: bool) {
        self.held.retain(|held| *held != socket);
        self.held.extend(is_held.then_some(socket));
        if let Some(bound) = self.links.by_socket(socket) {
            bound.is_held = is_held;
        }
    }

    fn give_back(&mut self, at: usize, rx: &mut RxBatch) -> Option<Back> {
        // As with a socket that is held: what is on its way may still arrive.
        self.deliver_stuck(rx, Some(at));
        let left = self.leave_called(at);
        let Self { seats, tools, now_ns, .. } = self;
        let (Some(Some(seat)), Some(tools)) = (seats.get_mut(at), tools) else { return None };
        seat.flush(tools, at, *now_ns);
        let mut way = seat.way.take()?;
        way.leave(&tools.epoll);
        Some(Back { way: Box::new(way), left })
    }

    /// A datagram of a lane from somewhere else than its socket leads to.
    fn receive_at_door(
        &mut self,
        at: usize,
        from: SocketAddr,
        datagram: &mut [u8],
        rx: &mut RxBatch,
    ) {
        let now_ns = self.clock.now_ns();
        let Self { seats, links, tools, .. } = self;
        let (Some(Some(seat)), Some(tools)) = (seats.get_mut(at), tools) else { return };
        let Seat { way: Some(way), numbers, lease, .. } = &mut *seat else { return };
        let mut delivery = Delivery::new(numbers, links, rx);
        let deliver = |link: u16, run: Run<'_>| delivery.take_run(link, run);
        let (_, is_newest) = way.receive_at_door(datagram, &mut tools.aead, now_ns, deliver);
        delivery.settle(way);
        if is_newest {
            way.try_address((lease.own(), from), (&tools.epoll, at as u64), now_ns);
            seat.flush(tools, at, now_ns);
            (self.due_ns, self.is_trying) = (0, true);
        }
    }

    /// Hands on what has waited for the gate to read its link again, as far as there is room; all
    /// that is of a lane that leaves.
    fn deliver_stuck(&mut self, rx: &mut RxBatch, leaving: Option<usize>) {
        let Self { seats, links, .. } = self;
        let mut stuck = mem::take(&mut links.stuck);
        stuck.retain(|&socket| {
            let Some(bound) = links.by_socket(socket) else { return false };
            let has_to_wait = bound.is_held || bound.waiting.len() > rx.copies_left();
            if has_to_wait && leaving != Some(bound.seat) {
                return true;
            }
            let mut full = 0;
            for frame in Frames::new(&bound.waiting).map_while(Result::ok) {
                if !rx.append_copy(socket, frame.bytes(), BUNDLE_BYTES_MAX) {
                    full += weight(frame);
                }
            }
            let waited = bound.waiting.len();
            bound.waiting.clear();
            bound.waiting.shrink_to(KEPT_BYTES);
            if let Some(Some(Seat { way, numbers, .. })) = seats.get_mut(bound.seat) {
                numbers.waiting -= waited;
                if let Some(way) = way {
                    way.count_dropped(0, full);
                }
            }
            false
        });
        links.stuck = stuck;
    }

    /// Takes in how far the streams are.
    fn follow(&mut self, rx: &mut RxBatch) {
        let Self { seats, links, .. } = self;
        for Seat { way, lease, numbers, .. } in seats.iter_mut().flatten() {
            let Some(way) = way else { continue };
            let [_, heard] = lease.stream(0);
            let mut delivery = Delivery::new(numbers, links, rx);
            way.lane().set_heard(heard, |link, frame| delivery.take(link, frame));
            delivery.settle(way);
        }
    }

    /// Takes in what the lanes' sockets have.
    fn receive(&mut self, rx: &mut RxBatch) {
        let Self { seats, links, tools, now_ns, .. } = self;
        let (Some(tools), now_ns) = (tools, *now_ns) else { return };
        let Tools { ready, epoll, buffers, aead, .. } = &mut **tools;
        if ready.is_empty() {
            if seats.len() <= FEW_SEATS {
                // To ask a socket for what it has costs no more than to ask whether it has any.
                let all = 0..seats.len() as u64;
                ready.extend(all.map(|token| Ready { token, events: 0 }));
            } else {
                let _ = epoll.ready(ready);
            }
        }
        for ready in ready.drain(..) {
            let Some(Some(seat)) = seats.get_mut(ready.token as usize) else { continue };
            for _ in 0..BURSTS_MAX {
                // No agent takes the room that another one's lane needs.
                let has_room =
                    rx.copies_left() >= Buffers::BYTES && rx.copy_entries_left() >= BURST_COPIES;
                if seat.is_failed || !has_room {
                    break;
                }
                let Seat { way: Some(way), lease, numbers, .. } = &mut *seat else { break };
                let stray = |from: SocketAddr, datagram: &[u8]| {
                    // One of those that nobody has asked for, where too many wait.
                    let _ = lease.say(LaneReport::Stray(from, datagram.into()));
                };
                let mut delivery = Delivery::new(numbers, links, rx);
                let deliver = |link: u16, run: Run<'_>| delivery.take_run(link, run);
                let received = way.receive(buffers, aead, now_ns, deliver, stray);
                delivery.settle(way);
                match received {
                    Ok((true, _)) => {}
                    Ok((false, _)) => break,
                    Err(why) => seat.note(Err(why)),
                }
            }
        }
    }

    /// Beats, probes, and who has fallen silent.
    fn poll(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        (self.due_ns, self.is_trying) = (u64::MAX, false);
        for seat in self.seats.iter_mut().flatten() {
            if let Some(way) = &mut seat.way {
                way.poll(now_ns);
                self.due_ns = self.due_ns.min(way.due_ns());
                self.is_trying |= way.is_trying();
                if way.is_silent(now_ns) {
                    // Said again until somebody listens.
                    let _ = seat.lease.say(LaneReport::Silent);
                    self.due_ns = now_ns + SHOW_EVERY_NS;
                }
            }
        }
    }

    /// Sends what the lanes have.
    fn flush(&mut self) {
        let Self { seats, tools, now_ns, .. } = self;
        let (Some(tools), now_ns) = (tools, *now_ns) else { return };
        for (at, seat) in seats.iter_mut().enumerate() {
            if let Some(seat) = seat {
                seat.flush(tools, at, now_ns);
            }
        }
    }

    /// Says how the lanes are, now and then.
    fn show(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.shown_ns) >= publishing::period_ns(SHOW_EVERY_NS) {
            self.shown_ns = now_ns;
            self.show_now();
        }
    }

    /// Says how the lanes are. Whether all of it could be said: what is being read cannot.
    pub fn show_now(&mut self) -> bool {
        let mut is_all = true;
        self.tell_caught();
        for Seat { way, lease, why, .. } in self.seats.iter_mut().flatten() {
            if let Some(way) = way {
                is_all &= lease.show(&way.stats());
                if let Some(from) = way.take_unproven() {
                    // Where nobody listens, the next one is told of.
                    let _ = lease.say(LaneReport::Unproven(from));
                }
            }
            if let Some(failed) = why.take()
                && let Err(LaneReport::Failed(failed)) = lease.say(LaneReport::Failed(failed))
            {
                *why = Some(failed);
            }
        }
        is_all
    }

    /// Takes what may be lost out of the bundles of bound links, and into their lanes.
    pub(crate) fn sift(&mut self, tx: &mut TxBatch) {
        let Self { seats, links, tools, clock, now_ns, .. } = self;
        let Some(tools) = tools else { return };
        let mut is_late = true;
        for index in 0..tx.entries().len() {
            let entry = tx.entries()[index];
            if entry.small_slot().is_some() || entry.is_taken() {
                continue;
            }
            let Some(bound) = links.by_socket(entry.target.socket) else { continue };
            let (number, serial) = (bound.number, bound.serial);
            let Some(Some(seat)) = seats.get_mut(bound.seat) else { continue };
            if mem::take(&mut is_late) {
                *now_ns = clock.now_ns();
            }
            if !seat.sift(number, tx.bytes(&entry), tools, *now_ns) {
                continue;
            }
            let left = compact(tx.bytes_mut(index), &tools.kept);
            tx.shorten(index, left);
            tx.take(index);
            let kept = tx.entries()[index];
            if let Err(why) = seat.tell(serial, tx.bytes(&kept)) {
                tx.fail(index, why);
            }
        }
    }

    /// After a flush: everything else may follow what was written.
    pub(crate) fn send(&mut self) {
        for seat in self.seats.iter_mut().flatten() {
            seat.is_full = false;
        }
        self.flush();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl Seat {
    /// Pushes what may be lost of a bundle, and remembers what must arrive. `false` where the lane
    /// is not here.
    fn sift(&mut self, number: u16, bundle: &[u8], tools: &mut Tools, now_ns: u64) -> bool {
        let Tools { kept, aead, .. } = tools;
        kept.clear();
        let Some(way) = &mut self.way else { return false };
        let mut frames = Frames::new(bundle);
        let mut at = 0;
        loop {
            let run = frames.take_run();
            at += run.bytes().len();
            way.push_run(number, run, aead, now_ns);
            let Some(Ok(frame)) = frames.next() else { break };
            // What is pushed from here on comes after it.
            let told = self.written.wrapping_add(kept.len() as u32 + 1);
            way.lane().set_told(self.lease.stream(told)[0]);
            kept.push(at..at + frame.bytes().len());
            at += frame.bytes().len();
        }
        self.written = self.written.wrapping_add(kept.len() as u32);
        true
    }

    /// Gives the stream what must arrive: all of it, in the order in which links have said it, or
    /// from the first that finds no room nothing more in this flush.
    fn tell(&mut self, serial: u32, records: &[u8]) -> Result<(), SendFailure> {
        if records.is_empty() {
            return Ok(());
        }
        let told =
            if self.is_full { Err(SendFailure::Full) } else { self.try_tell(serial, records) };
        if told.is_err() {
            self.is_full = true;
            self.written = self.written.wrapping_sub(Frames::new(records).count() as u32);
        }
        told
    }

    fn try_tell(&self, serial: u32, records: &[u8]) -> Result<(), SendFailure> {
        let full = [libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM, libc::EINTR].map(Some);
        self.lease.tell(serial, records).map_err(|why| match why.raw_os_error() {
            code if full.contains(&code) => SendFailure::Full,
            _ => SendFailure::Gone,
        })
    }

    fn flush(&mut self, tools: &mut Tools, at: usize, now_ns: u64) {
        let Some(way) = self.way.as_mut().filter(|way| way.has_pending()) else { return };
        way.lane().set_told(self.lease.stream(self.written)[0]);
        let flushed = way.flush(&mut tools.aead, &tools.epoll, at as u64, now_ns);
        self.note(flushed);
    }

    fn note(&mut self, outcome: io::Result<()>) {
        if let Err(why) = outcome
            && !mem::replace(&mut self.is_failed, true)
        {
            self.why = Some(why);
        }
    }
}

/// Hands a lane's records to its links: into the batch, as bundles of each link's socket.
struct Delivery<'a> {
    numbers: &'a mut Numbers,
    links: &'a mut Links,
    rx: &'a mut RxBatch,
    gone: u64,
    full: u64,
}

impl<'a> Delivery<'a> {
    const fn new(numbers: &'a mut Numbers, links: &'a mut Links, rx: &'a mut RxBatch) -> Self {
        Self { numbers, links, rx, gone: 0, full: 0 }
    }

    #[inline]
    fn take_run(&mut self, number: u16, run: Run<'_>) {
        let bound = self.links.by_number(self.numbers, number);
        let is_taken = bound
            .and_then(|bound| bound.way_in())
            .is_some_and(|socket| self.rx.append_copy(socket, run.bytes(), BUNDLE_BYTES_MAX));
        if !is_taken {
            run.frames().for_each(|frame| self.take(number, frame));
        }
    }

    fn take(&mut self, number: u16, frame: Frame<'_>) {
        let Some(bound) = self.links.by_number(self.numbers, number) else {
            self.gone += frame.payloads().max(1);
            return;
        };
        if let Some(socket) = bound.way_in() {
            if !self.rx.append_copy(socket, frame.bytes(), BUNDLE_BYTES_MAX) {
                self.full += weight(frame);
            }
            return;
        }
        let more = frame.bytes().len();
        if bound.waiting.len() + more > WAITING_BYTES_MAX
            || self.numbers.waiting + more > LANE_WAITING_BYTES_MAX
        {
            self.full += weight(frame);
            return;
        }
        self.numbers.waiting += more;
        let is_first = bound.waiting.is_empty();
        bound.waiting.extend_from_slice(frame.bytes());
        // One that is called says by itself when it goes on.
        if let Some(socket) = bound.socket.filter(|_| is_first) {
            self.links.stuck.push(socket);
        }
    }

    /// Counts what no link took.
    const fn settle(self, way: &mut SocketLane) {
        way.count_dropped(self.gone, self.full);
    }
}

/// What a record counts as where it is dropped.
fn weight(frame: Frame<'_>) -> u64 {
    frame.payloads() + u64::from(frame.ends_message())
}

fn payloads_of(records: &[u8]) -> u64 {
    Frames::new(records).map_while(Result::ok).map(weight).sum()
}

/// Moves these parts to the beginning, one behind the other. Returns how long they are.
fn compact(bytes: &mut [u8], kept: &[Range<usize>]) -> usize {
    let mut end = 0;
    for part in kept {
        bytes.copy_within(part.clone(), end);
        end += part.len();
    }
    end
}

/// What lanes bring in a turn at most: two bursts.
const COPIES_BYTES: usize = 2 * Buffers::BYTES;

/// And in how many bundles.
const COPIES_MAX: usize = 2 * BURST_COPIES;

/// Bundles of a burst: its records may be for one link after the other.
const BURST_COPIES: usize = 2048;

/// Links that are taken in a turn: what each process has said with it is read in the next, and the
/// gate knows only so many at a time that have not said who they are.
const LINKS_PER_TURN: usize = 16;

/// After so many busy turns it is looked for more before the driver waits.
const STREAK: u8 = 3;

/// Lanes that are all looked at in a turn.
const FEW_SEATS: usize = 2;

/// Bursts of one lane in a turn.
const BURSTS_MAX: usize = 4;

/// What waits for one link while the gate is behind with it: two thousand payloads.
const WAITING_BYTES_MAX: usize = 256 << 10;

const _: () = assert!(WAITING_BYTES_MAX <= COPIES_BYTES);

/// What waits for all links of a lane: an agent has thousands of them if it wants to.
const LANE_WAITING_BYTES_MAX: usize = 4 << 20;

/// Memory that a link keeps after that.
const KEPT_BYTES: usize = 4 * BUNDLE_BYTES_MAX;

/// As any link's socket has.
const LINK_BUFFER_BYTES: i32 = 1 << 20;

/// How often it is looked what the gate has said on links that are called.
const CALL_EVERY: Duration = Duration::from_millis(1);

/// How often it is looked whether an address has answered.
const TRY_EVERY: Duration = Duration::from_millis(5);

const SHOW_EVERY_NS: u64 = 100_000_000;

const READY_EXPECTED: usize = 64;

/// What is beside the lanes' sockets in their set; no seat has this number.
const CARD_TOKEN: u64 = u64::MAX;
