//! The driver on io_uring: one ring per worker, one system call per busy turn.
//!
//! ```text
//!                    register
//!                       |
//!                       v       nothing came for a while, or the driver will sleep
//!   every turn:      drained  ------------------------------------------------------+
//!   receive until       ^                                                           v
//!   empty               +---------------------------------------------------- armed: wait,
//!                               something came, and was received              then receive
//!                               in the same call
//! ```
//!
//! A *drained* socket gets a multishot receive with `MSG_DONTWAIT` in every turn. It ends when the
//! socket is empty and never enters the socket's wait queue, so nobody pays for waking us while we
//! are awake. An *armed* socket has a poll and a receive behind it, linked: when something comes
//! the kernel runs both, and the sleeper wakes up with the datagrams in its batch. Idle sockets are
//! armed and cost nothing per turn. What is rare or reported once (listeners, the bell) is polled
//! and then handled by plain calls, the same as in the other driver.
//!
//! Invariants:
//! - A live socket that has not ended and is not held is in exactly one state; `drained` lists
//!   those that are drained, once each.
//! - A slot is the kernel's, the batch's or ours (`buf_ring`); those of the batch are in `lent`.
//! - The kernel takes no other requests than those of `op` (`Ring::restrict`), where it can be told
//!   so.
//! - All memory that a request may write to (slots, buffer rings) outlives the ring: see `Drop`.
#![allow(unsafe_code, reason = "requests carry raw pointers")]

mod buf_ring;
mod header;
mod op;
mod receiving;
mod ring;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::cqueue;
use io_uring::types::{CancelBuilder, Fd, Fixed};

use self::buf_ring::BufRing;
use self::header::Headers;
use self::op::{Asked, Handle, Op};
use self::receiving::{Receiving, State, patience};
use self::ring::{Entered, Ring};
use super::bell::Bell;
use super::error::{StartError, Step};
use super::events;
use super::events::Reserve;
use super::gather::Sleeper;
use super::interface::{Interface, SocketKind};
use super::options::DriverOptions;
use super::receive::{self, Next};
use super::send::Sender;
use super::slots::{SlotSize, Slots};
use super::table::{Registered, Table, index_of};
use ringgate_batch::{Arena, IoEvent, IoStats, RxBatch, SocketId, TxBatch, Wait};

/// Receives with io_uring. Belongs to the thread that takes its first turn; until then it may move
/// between threads.
#[derive(Debug)]
pub(super) struct Uring {
    /// First, so that the ring is gone before the memory it knows.
    ring: Ring,
    /// Why the ring takes more than a driver's requests, where it does.
    unrestricted: Option<io::Error>,
    small: BufRing,
    large: BufRing,
    slots: Slots,
    headers: Headers,
    table: Table<Receiving>,
    /// Sockets that get a receive in every turn.
    drained: Vec<SocketId>,
    /// Which of them comes first, so that none can starve the others of slots.
    first: usize,
    /// Listeners whose poll has to be queued.
    listeners: Vec<SocketId>,
    reserve: Reserve,
    bell: Bell,
    bell_is_polled: bool,
    /// What else ends a wait, and whether it is polled. Only waits begin that: what comes while
    /// the driver is awake wakes nobody more than once.
    beside: Option<RawFd>,
    beside_is_polled: bool,
    /// Slots that the batch has.
    lent: Vec<(SlotSize, u16)>,
    sender: Sender,
    sleeper: Sleeper,
    stats: IoStats,
    /// Nothing is asked for again, and nobody is accepted: see `Driver::let_go`.
    is_letting_go: bool,
}

impl Uring {
    /// Opens a driver and the batch it fills, after proving on a socket pair that this kernel can
    /// do what it needs.
    pub(super) fn open(
        options: &DriverOptions,
        arena: Option<Arc<Arena>>,
    ) -> Result<(Self, RxBatch), StartError> {
        let fail = |e| StartError::new("open io_uring", Step::Ring, e);
        Self::prove().map_err(fail)?;
        Self::set_up(*options, arena).map_err(fail)
    }

    /// Why the kernel would take other requests than a driver's on this ring, where it would.
    pub(super) const fn why_unrestricted(&self) -> Option<&io::Error> {
        self.unrestricted.as_ref()
    }

    fn set_up(options: DriverOptions, arena: Option<Arc<Arena>>) -> io::Result<(Self, RxBatch)> {
        let slot_count = u32::from(options.small_slots) + u32::from(options.large_slots);
        let completions = (2 * slot_count).next_power_of_two().max(COMPLETIONS_MIN);
        let slots = match arena {
            Some(arena) => Slots::over(arena, options),
            None => Slots::new(options),
        };
        Self::over(Ring::open(SUBMISSIONS, completions)?, slots, options)
    }

    fn over(
        ring: Ring,
        (slots, batch): (Slots, RxBatch),
        options: DriverOptions,
    ) -> io::Result<(Self, RxBatch)> {
        let small = BufRing::new(&ring, &slots, SlotSize::Small)?;
        let large = BufRing::new(&ring, &slots, SlotSize::Large)?;
        // Where that many descriptors are not allowed, sockets do without being registered.
        let _ = ring.submitter().register_files_sparse(u32::from(options.registered_sockets));
        let unrestricted = ring.restrict(&op::CODES, op::FLAGS).err();
        let driver = Self {
            ring,
            unrestricted,
            small,
            large,
            slots,
            headers: Headers::new(),
            table: Table::new(),
            drained: Vec::new(),
            first: 0,
            listeners: Vec::new(),
            reserve: Reserve::default(),
            bell: Bell::new()?,
            bell_is_polled: false,
            beside: None,
            beside_is_polled: false,
            lent: Vec::new(),
            sender: Sender::default(),
            sleeper: Sleeper::default(),
            stats: IoStats::default(),
            is_letting_go: false,
        };
        Ok((driver, batch))
    }

    /// Receives one record with a driver of the smallest size. Kernels that know the system call
    /// may yet refuse multishot receives, and no flag tells; so the only question that counts is
    /// asked.
    fn prove() -> io::Result<()> {
        let smallest = DriverOptions {
            small_slots: 1,
            large_slots: 1,
            registered_sockets: 1,
            ..DriverOptions::default()
        };
        let (mut driver, mut rx) = Self::set_up(smallest, None)?;
        let (here, there) = super::socket::link_pair()?;
        driver.register(here, SocketKind::Link)?;
        socket2::SockRef::from(&there).send(b"?")?;
        driver.turn(&mut rx, Wait::No)?;
        if rx.len() == 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
    }

    fn take_slots_back(&mut self) {
        let Self { lent, small, large, slots, .. } = self;
        for (size, index) in lent.drain(..) {
            let ring = if size == SlotSize::Small { &mut *small } else { &mut *large };
            ring.provide(slots, index);
        }
        small.publish();
        large.publish();
    }

    /// Queues what a turn asks for.
    fn queue_receives(&mut self, of_links: bool) -> io::Result<()> {
        if !self.bell_is_polled {
            self.bell_is_polled = self.push(&[op::bell(self.bell.fd().as_raw_fd())])?;
        }
        while let Some(&id) = self.listeners.last() {
            let handle = self.table.get(id).map(|socket| socket.state.handle);
            if let Some(handle) = handle
                && !self.push(&[op::listen(handle, id)])?
            {
                break;
            }
            self.listeners.pop();
        }
        let count = self.drained.len();
        for step in 0..count {
            self.drain(self.drained[(self.first + step) % count], of_links)?;
        }
        self.first = (self.first + 1) % count.max(1);
        Ok(())
    }

    fn drain(&mut self, id: SocketId, of_links: bool) -> io::Result<()> {
        let Some(socket) = self.table.get_mut(id) else { return Ok(()) };
        if !socket.kind.is_asked(of_links) {
            return Ok(());
        }
        socket.state.count = 0;
        let (handle, size) = (socket.state.handle, SlotSize::of(socket.kind));
        let request = op::drain(handle, size, self.headers.of(size), id);
        for _ in 0..socket.state.receives {
            self.push(std::slice::from_ref(&request))?;
        }
        Ok(())
    }

    /// Has a socket wake us. Returns whether it will; if not, the submission queue is full and will
    /// be for this turn.
    fn arm(&mut self, id: SocketId) -> io::Result<bool> {
        let Some(socket) = self.table.get(id) else { return Ok(false) };
        let (handle, size) = (socket.state.handle, SlotSize::of(socket.kind));
        let requests = op::wait_and_drain(handle, size, self.headers.of(size), id);
        let is_queued = self.push(&requests)?;
        if let Some(socket) = self.table.get_mut(id).filter(|_| is_queued) {
            socket.state.state = State::Armed;
            socket.state.count = 0;
        }
        self.stats.rx_arms += u64::from(is_queued);
        Ok(is_queued)
    }

    /// After a turn's receives: which sockets deserve more of them, and which have been idle for
    /// long enough to be armed.
    fn judge(&mut self, of_links: bool) -> io::Result<()> {
        let mut index = 0;
        while let Some(&id) = self.drained.get(index) {
            let drained = self.drained.len();
            let stays = self
                .table
                .get_mut(id)
                .filter(|socket| socket.kind.is_asked(of_links))
                .is_none_or(|socket| socket.state.judge(patience(socket.kind, drained)));
            if stays || !self.arm_at(index)? {
                index += 1;
            }
        }
        Ok(())
    }

    /// Arms the socket at a place of `drained`, and takes it out if that works.
    fn arm_at(&mut self, index: usize) -> io::Result<bool> {
        let is_armed = self.arm(self.drained[index])?;
        if is_armed {
            self.drained.swap_remove(index);
        }
        Ok(is_armed)
    }

    /// Has what lies beside the sockets wake us too. Returns whether it will.
    fn poll_beside(&mut self) -> io::Result<bool> {
        if let Some(fd) = self.beside.filter(|_| !self.beside_is_polled) {
            self.beside_is_polled = self.push(&[op::beside(fd)])?;
        }
        Ok(self.beside.is_none() || self.beside_is_polled)
    }

    /// Arms everything that is not. Returns whether it is now: only then may we sleep.
    fn arm_all(&mut self) -> io::Result<bool> {
        while !self.drained.is_empty() {
            if !self.arm_at(0)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Queues requests, making room first where there is none. Returns whether they are queued.
    fn push(&mut self, requests: &[io_uring::squeue::Entry]) -> io::Result<bool> {
        // SAFETY: requests point to `headers`, boxed and alive until the ring is gone, and receive
        // into slots of registered buffer rings, of which `Drop` takes care.
        if unsafe { self.ring.push(requests) } {
            return Ok(true);
        }
        self.enter(None)?;
        // SAFETY: as above.
        Ok(unsafe { self.ring.push(requests) })
    }

    fn enter(&mut self, at_most: Option<Duration>) -> io::Result<()> {
        self.stats.syscalls += 1;
        self.stats.waits += u64::from(at_most.is_some());
        let entered = self.ring.enter(at_most)?;
        let has_overflowed = entered == Entered::Busy || self.ring.has_overflowed();
        self.stats.cq_overflows += u64::from(has_overflowed);
        if self.ring.has_lost_completions() {
            // With them went slots, and word of receives that have ended: there is no going on.
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        Ok(())
    }

    fn reap(&mut self, rx: &mut RxBatch) {
        while let Some(completion) = self.ring.completion() {
            let (op, id) = Op::of_tag(completion.user_data());
            match op {
                Op::Bell => self.hear_bell(rx),
                Op::Listen => self.accept(id, rx),
                Op::Beside => self.beside_is_polled = false,
                Op::Receive(size, asked) => {
                    self.handle_receive((size, asked), id, &completion, rx);
                }
                // The receive behind it is cancelled and does not say so: where a success is not
                // reported, what hangs on a failure is not either.
                Op::Wait => self.receive_ended(id, Asked::BehindWait, -libc::ECANCELED, rx),
            }
        }
    }

    fn hear_bell(&mut self, rx: &mut RxBatch) {
        self.bell_is_polled = false;
        if self.bell.take() {
            rx.events.push(IoEvent::Woken);
        }
    }

    fn accept(&mut self, id: SocketId, rx: &mut RxBatch) {
        if self.table.get(id).is_none() {
            return;
        }
        self.listeners.push(id);
        if self.is_letting_go {
            return;
        }
        let mut reserve = std::mem::take(&mut self.reserve);
        self.stats.rx_errors += events::accept_all(self, &mut reserve, id, rx);
        self.reserve = reserve;
    }

    fn handle_receive(
        &mut self,
        (size, asked): (SlotSize, Asked),
        id: SocketId,
        completion: &cqueue::Entry,
        rx: &mut RxBatch,
    ) {
        if let Some(slot) = cqueue::buffer_select(completion.flags()) {
            // It goes back at the next turn, whatever it holds.
            self.lent.push((size, slot));
            self.deliver(size, slot, id, completion.result(), rx);
        }
        if !cqueue::more(completion.flags()) {
            self.receive_ended(id, asked, completion.result(), rx);
        }
    }

    /// Puts a datagram into the batch.
    fn deliver(&mut self, size: SlotSize, slot: u16, id: SocketId, result: i32, rx: &mut RxBatch) {
        let Some(socket) = self.table.get_mut(id) else { return };
        // SAFETY: the slot has just been put on the list of those that go back at the next turn.
        let arrival = unsafe { header::read(&self.slots, size, slot, result) };
        let Some(arrival) = arrival else { return };
        if arrival.is_end() {
            return self.end(id, rx);
        }
        socket.state.count += 1;
        // SAFETY: the completion has taken the slot out of the kernel's hands, and it is provided
        // again only after `turn` has emptied the batch (`lent`). Slots are named by one completion
        // at a time.
        unsafe { arrival.lend(&self.slots, (id, socket), rx, &mut self.stats) };
    }

    fn receive_ended(&mut self, id: SocketId, asked: Asked, result: i32, rx: &mut RxBatch) {
        let Some(socket) = self.table.get_mut(id) else { return };
        let Receiving { state, count, .. } = socket.state;
        let next = match result {
            // An empty datagram ends a multishot, and so does a completion queue without room.
            0.. => Next::Again,
            error => receive::handle_error(-error, (id, socket), rx, &mut self.stats),
        };
        self.stats.rx_restarts += u64::from(next == Next::Again && state != State::Ended);
        match (state, next) {
            (_, Next::Ended) => self.end(id, rx),
            // Of an earlier turn, by completions that came late: another one is behind a wait.
            (State::Armed, _) if asked == Asked::ByTurn => {}
            (State::Armed, _) if socket.state.is_held => socket.state.state = State::Held,
            (State::Armed, _) => {
                let is_empty = result == -libc::EAGAIN;
                if is_empty && count == 0 {
                    // Woken, and nothing there: an error that a send was told about wakes too,
                    // until it is read.
                    events::read_errors(id, socket, rx, &mut self.stats);
                }
                // One that ran out of slots must not be armed before there are some: it would wake
                // at once, and again.
                if self.is_letting_go
                    || !is_empty
                    || patience(socket.kind, self.drained.len()) > 0
                    || !self.arm(id).unwrap_or(false)
                {
                    self.set_drained(id);
                }
            }
            (State::Drained | State::Ended | State::Held, _) => {}
        }
    }

    fn set_drained(&mut self, id: SocketId) {
        if let Some(socket) = self.table.get_mut(id) {
            socket.state = Receiving::new(socket.state.handle);
            self.drained.push(id);
        }
    }

    /// A link has ended: receive no more, and say so once.
    fn end(&mut self, id: SocketId, rx: &mut RxBatch) {
        let Some(socket) = self.table.get_mut(id) else { return };
        if socket.state.state != State::Ended {
            socket.state.state = State::Ended;
            self.drained.retain(|drained| *drained != id);
            rx.events.push(IoEvent::Closed { socket: id });
        }
    }

    /// Takes back every request on a socket, those included that are queued but not submitted:
    /// their descriptor may soon be somebody else's.
    fn cancel(&mut self, socket: &Registered<Receiving>) {
        let _ = self.enter_if_enabled();
        let which = match socket.state.handle {
            Handle::Fixed(index) => CancelBuilder::fd(Fixed(index)).all(),
            Handle::Raw(fd) => CancelBuilder::fd(Fd(fd)).all(),
        };
        self.ring.cancel(which);
        // Runs the completions, with which the kernel lets go of the socket.
        let _ = self.enter_if_enabled();
    }

    /// Takes every request back, and what those have brought that could not be.
    fn cancel_all(&mut self, rx: &mut RxBatch) -> io::Result<()> {
        // What is queued but not submitted could not be found.
        self.enter(None)?;
        self.reap(rx);
        for _ in 0..CANCEL_ROUNDS {
            if !self.ring.cancel(CancelBuilder::any()) {
                break;
            }
            self.enter(None)?;
            self.reap(rx);
            if !self.is_asking() {
                return Ok(());
            }
        }
        Err(io::Error::other("receives are under way and cannot be taken back"))
    }

    /// Whether a request is under way.
    fn is_asking(&self) -> bool {
        let is_armed = |socket: &Registered<Receiving>| socket.state.state == State::Armed;
        self.bell_is_polled
            || self.beside_is_polled
            || self.table.all().any(|(_, socket)| is_armed(socket))
    }

    fn enter_if_enabled(&mut self) -> io::Result<()> {
        if self.ring.is_enabled() { self.enter(None) } else { Ok(()) }
    }
}

impl Interface for Uring {
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId> {
        let raw = socket.as_raw_fd();
        let id = self.table.insert(socket, kind, Receiving::new(Handle::Raw(raw)))?;
        let index = index_of(id) as u32;
        let is_fixed = self.ring.submitter().register_files_update(index, &[raw]).is_ok();
        if let Some(socket) = self.table.get_mut(id).filter(|_| is_fixed) {
            socket.state.handle = Handle::Fixed(index);
        }
        match kind {
            SocketKind::LinkListener => {
                self.reserve.refill();
                self.listeners.push(id);
            }
            _ => self.drained.push(id),
        }
        Ok(id)
    }

    fn deregister(&mut self, socket: SocketId) {
        let Some(gone) = self.table.remove(socket) else { return };
        self.drained.retain(|id| *id != socket);
        self.listeners.retain(|id| *id != socket);
        self.cancel(&gone);
        if let Handle::Fixed(index) = gone.state.handle {
            let _ = self.ring.submitter().register_files_update(index, &[-1]);
        }
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        let Some(known) = self.table.get_mut(socket) else { return };
        known.state.is_held = is_held;
        match (known.state.state, is_held) {
            (State::Drained, true) => {
                known.state.state = State::Held;
                self.drained.retain(|id| *id != socket);
            }
            (State::Held, false) => self.set_drained(socket),
            // One that is armed has a receive behind its poll, and is held when that has ended.
            _ => {}
        }
    }

    fn let_go(&mut self, rx: &mut RxBatch) -> io::Result<()> {
        self.slots.assert_owns(rx);
        self.ring.enable()?;
        rx.clear();
        self.take_slots_back();
        self.is_letting_go = true;
        let cancelled = self.cancel_all(rx);
        self.is_letting_go = false;
        cancelled
    }

    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>> {
        self.table.fd(socket)
    }

    fn flush(&mut self, tx: &mut TxBatch) {
        self.sender.flush(&self.table, tx, &mut self.stats);
    }

    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()> {
        self.slots.assert_owns(rx);
        self.ring.enable()?;
        // Outside of the ring, where what completes in it wakes nobody: sockets that are armed are
        // as quiet as those that are drained.
        let Self { sleeper, sender, table, bell, stats, .. } = self;
        let links = sender.asked.iter().filter_map(|id| table.fd(*id));
        let of_links = sleeper.gather(bell, wait, links, stats)?;
        sender.asked.clear();
        rx.clear();
        rx.is_of_links = of_links;
        self.take_slots_back();
        while let Some(id) = self.sender.troubled.pop() {
            if let Some(socket) = self.table.get(id) {
                events::read_errors(id, socket, rx, &mut self.stats);
            }
        }
        self.queue_receives(of_links)?;
        if self.ring.has_work() {
            self.enter(None)?;
        }
        self.reap(rx);
        self.judge(of_links)?;
        if let Wait::AtMost(time) = wait
            && rx.is_empty()
            && self.bell_is_polled
            && self.arm_all()?
            && self.poll_beside()?
        {
            self.enter(Some(time))?;
            self.reap(rx);
        }
        Ok(())
    }

    fn bell(&self) -> Bell {
        self.bell.clone()
    }

    fn forget_drops(&mut self) {
        self.table.forget_drops();
    }

    fn watch(&mut self, beside: RawFd) {
        self.beside = Some(beside);
        // A poll of another one that is under way ends one wait too many, at most.
        self.beside_is_polled = false;
    }

    fn stats(&self) -> IoStats {
        self.stats
    }

    fn name(&self) -> &'static str {
        "uring"
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.ring.cancel(CancelBuilder::any()) {
            // Runs the cancelled requests' completions. With that, and without registered
            // descriptors, sockets and their ports are free when this returns; left to the kernel,
            // it takes tens of milliseconds.
            let _ = self.enter_if_enabled();
            let _ = self.ring.submitter().unregister_files();
        } else {
            // Some requests live on: it is not our thread. They may take slots and write to them,
            // so all of it lives on too.
            std::mem::forget(self.slots.clone());
            self.small.leak();
            self.large.leak();
        }
    }
}

/// Requests queued before they must be submitted.
const SUBMISSIONS: u32 = 256;

/// Receives that end by themselves while they are taken back leave the next round nothing.
const CANCEL_ROUNDS: usize = 8;

/// Completions for a few hundred links that all have something at once.
const COMPLETIONS_MIN: u32 = 1024;

#[cfg(test)]
mod tests;
