//! The driver for kernels and containers without io_uring: `recvmmsg`, `sendmmsg`, `ppoll`, and
//! epoll for the many.
//!
//! The few UDP sockets that carry players are asked one after the other, turn by turn, and sit in
//! no epoll set; before the driver sleeps it polls them together with the epoll set of everything
//! else, so they have somebody to wake only then. Links, listeners and connected sockets, which may
//! be many and carry little, are in that set.
#![allow(unsafe_code, reason = "receives into slots that are lent to the batch")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::bell::Bell;
use super::error::{StartError, Step};
use super::events::Reserve;
use super::gather::Sleeper;
use super::interface::{Interface, SocketKind};
use super::options::DriverOptions;
use super::receive::{self, Arrival, Next};
use super::send::Sender;
use super::slots::{SlotSize, Slots};
use super::table::Table;
use super::{errno, events};
use ringgate_batch::{Arena, IoEvent, IoStats, RxBatch, SocketId, TxBatch, Wait};
use ringgate_os::message::{Beside, Incoming, MESSAGES_MAX, Receiver};
use ringgate_os::notify::{self, Epoll, Ready};

/// Receives with `recvmmsg`.
#[derive(Debug)]
pub(super) struct Mmsg {
    table: Table<()>,
    epoll: Epoll,
    reserve: Reserve,
    bell: Bell,
    slots: Slots,
    /// Slots that the batch has now, from the first one on: small, large.
    lent: [u16; 2],
    /// For datagrams, and for bundles: local processes can send descriptors along with those.
    receivers: [Receiver; 2],
    sender: Sender,
    /// The sockets that are asked turn by turn.
    drained: Vec<SocketId>,
    /// Which of them is asked first, so that none can starve the others.
    first: usize,
    /// The same for what the epoll set names.
    first_ready: usize,
    ready: Vec<Ready>,
    awaited: Vec<libc::pollfd>,
    /// What else ends a wait.
    beside: Option<RawFd>,
    sleeper: Sleeper,
    stats: IoStats,
}

impl Mmsg {
    /// Opens a driver and the batch it fills.
    pub(super) fn open(
        options: &DriverOptions,
        arena: Option<Arc<Arena>>,
    ) -> Result<(Self, RxBatch), StartError> {
        let fail = |what: &str, e| StartError::new(what, Step::Other, e);
        let epoll = Epoll::new().map_err(|e| fail("make an epoll set", e))?;
        let bell = Bell::new().map_err(|e| fail("make an eventfd", e))?;
        epoll.add(bell.fd(), BELL_TOKEN).map_err(|e| fail("watch the eventfd", e))?;
        let (slots, batch) = match arena {
            Some(arena) => Slots::over(arena, *options),
            None => Slots::new(*options),
        };
        let driver = Self {
            table: Table::new(),
            epoll,
            reserve: Reserve::default(),
            bell,
            slots,
            lent: [0; 2],
            receivers: [Beside::NameAndControl, Beside::Nothing].map(Receiver::new),
            sender: Sender::default(),
            drained: Vec::new(),
            first: 0,
            first_ready: 0,
            ready: Vec::with_capacity(64),
            awaited: Vec::new(),
            beside: None,
            sleeper: Sleeper::default(),
            stats: IoStats::default(),
        };
        Ok((driver, batch))
    }

    /// Takes whatever has arrived on any socket.
    fn reap(&mut self, rx: &mut RxBatch) -> io::Result<()> {
        let count = self.drained.len();
        for step in 0..count {
            let id = self.drained[(self.first + step) % count];
            self.receive(id, rx);
        }
        self.first = (self.first + 1) % count.max(1);
        self.reap_watched(rx)
    }

    /// Takes what has arrived on the sockets of the epoll set.
    fn reap_watched(&mut self, rx: &mut RxBatch) -> io::Result<()> {
        self.stats.syscalls += 1;
        let mut ready = std::mem::take(&mut self.ready);
        let result = self.epoll.ready(&mut ready);
        // The kernel names those that stay ready in the same order each time, and the first could
        // take all slots.
        let count = ready.len();
        for step in 0..count {
            self.handle(&ready[(self.first_ready + step) % count], rx);
        }
        self.first_ready = self.first_ready.wrapping_add(1);
        self.ready = ready;
        match result {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    fn handle(&mut self, ready: &Ready, rx: &mut RxBatch) {
        if ready.token == BELL_TOKEN {
            if self.bell.take() {
                rx.events.push(IoEvent::Woken);
            }
            return;
        }
        let id = SocketId(ready.token as u32);
        let asked = self.table.get(id).filter(|it| it.kind.is_asked(rx.is_of_links));
        let Some(socket) = asked else { return };
        if ready.events & libc::EPOLLERR as u32 != 0 {
            events::read_errors(id, socket, rx, &mut self.stats);
        }
        if socket.kind == SocketKind::Link && ready.events & libc::EPOLLIN as u32 == 0 {
            // It is held: what it has still said is read before its end.
            return;
        }
        if socket.kind != SocketKind::LinkListener {
            return self.receive(id, rx);
        }
        let mut reserve = std::mem::take(&mut self.reserve);
        self.stats.rx_errors += events::accept_all(self, &mut reserve, id, rx);
        self.reserve = reserve;
    }

    /// Receives from one socket until it is empty, has failed, or the slots are used up.
    fn receive(&mut self, id: SocketId, rx: &mut RxBatch) {
        for _ in 0..RECEIVES_MAX {
            let Some(socket) = self.table.get(id) else { return };
            let size = SlotSize::of(socket.kind);
            let free = self.slots.count(size) - self.lent[size as usize];
            let wanted = usize::from(free).min(MESSAGES_MAX);
            if wanted == 0 {
                self.stats.rx_no_buffers += 1;
                return;
            }
            let first = self.lent[size as usize];
            let slots = (first..).take(wanted).map(|index| self.slots.data(size, index));
            self.stats.syscalls += 1;
            // SAFETY: slots from `first` on have not been lent to the batch since `turn` emptied
            // it, and no other driver has this arena (`assert_owns`). Lending a slot before this
            // call has returned would break it.
            let received =
                unsafe { self.receivers[size as usize].receive(socket.fd.as_fd(), slots) };
            match received {
                Ok(count) if self.deliver(id, size, count, rx) && count == wanted => {}
                Ok(_) => return,
                Err(error) => match self.handle_error(id, errno::of(&error), rx) {
                    Next::Again => {}
                    Next::Empty => return,
                    Next::Ended => return self.end(id, rx),
                },
            }
        }
    }

    /// Puts the messages of a receive into the batch. Returns whether the socket goes on.
    fn deliver(&mut self, id: SocketId, size: SlotSize, count: usize, rx: &mut RxBatch) -> bool {
        let Some(socket) = self.table.get_mut(id) else { return false };
        for index in 0..count {
            let Incoming { len, truncated, name, control } =
                self.receivers[size as usize].message(index);
            let slot = self.lent[size as usize];
            let arrival = Arrival { size, slot, len, truncated, name, control };
            if arrival.is_end() {
                self.end(id, rx);
                return false;
            }
            self.lent[size as usize] += 1;
            // SAFETY: message `index` went into this slot, which stays lent until `turn` empties
            // the batch.
            unsafe { arrival.lend(&self.slots, (id, socket), rx, &mut self.stats) };
        }
        true
    }

    fn handle_error(&mut self, id: SocketId, errno: i32, rx: &mut RxBatch) -> Next {
        let Some(socket) = self.table.get(id) else { return Next::Empty };
        receive::handle_error(errno, (id, socket), rx, &mut self.stats)
    }

    /// A link has ended: stop listening to it, and say so.
    fn end(&mut self, id: SocketId, rx: &mut RxBatch) {
        if let Some(socket) = self.table.get_mut(id) {
            let _ = self.epoll.remove(socket.fd.as_fd());
            rx.events.push(IoEvent::Closed { socket: id });
        }
    }

    fn read_errors(&mut self, id: SocketId, rx: &mut RxBatch) {
        if let Some(socket) = self.table.get(id) {
            events::read_errors(id, socket, rx, &mut self.stats);
        }
    }

    /// Waits for anything at all, and takes it.
    fn sleep(&mut self, at_most: Duration, rx: &mut RxBatch) -> io::Result<()> {
        let Self { table, drained, awaited, beside, .. } = self;
        awaited.clear();
        awaited.push(notify::awaited(self.epoll.raw()));
        let fds = drained.iter().filter_map(|id| table.fd(*id));
        awaited.extend(fds.map(|fd| notify::awaited(fd.as_raw_fd())));
        awaited.extend(beside.map(notify::awaited));
        self.stats.waits += 1;
        self.stats.syscalls += 1;
        self.stats.rx_arms += drained.len() as u64;
        match notify::wait(awaited, at_most) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(e) => return Err(e),
            Ok(_) => {}
        }
        for index in 0..self.drained.len() {
            let (id, events) = (self.drained[index], self.awaited[1 + index].revents);
            if events & libc::POLLERR != 0 {
                self.read_errors(id, rx);
            }
            if events != 0 {
                self.receive(id, rx);
            }
        }
        if self.awaited[0].revents == 0 { Ok(()) } else { self.reap_watched(rx) }
    }
}

impl Interface for Mmsg {
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId> {
        let id = self.table.insert(socket, kind, ())?;
        if kind == SocketKind::LinkListener {
            self.reserve.refill();
        }
        if kind == SocketKind::Datagram && self.drained.len() < DRAINED_MAX {
            self.drained.push(id);
            return Ok(id);
        }
        let watched = self.table.fd(id).map(|fd| self.epoll.add(fd, u64::from(id.0)));
        if let Some(Err(error)) = watched {
            self.table.remove(id);
            return Err(error);
        }
        Ok(id)
    }

    fn deregister(&mut self, socket: SocketId) {
        self.drained.retain(|id| *id != socket);
        // Closing the last descriptor of a socket takes it out of the epoll set (epoll(7)).
        self.table.remove(socket);
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        if let Some(fd) = self.table.fd(socket) {
            // One that has ended is not in the set any more.
            let _ = self.epoll.watch_for_input(fd, u64::from(socket.0), !is_held);
        }
    }

    /// Receives return before they are looked at, so nothing is ever under way.
    fn let_go(&mut self, rx: &mut RxBatch) -> io::Result<()> {
        self.slots.assert_owns(rx);
        rx.clear();
        self.lent = [0; 2];
        Ok(())
    }

    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>> {
        self.table.fd(socket)
    }

    fn flush(&mut self, tx: &mut TxBatch) {
        self.sender.flush(&self.table, tx, &mut self.stats);
    }

    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()> {
        self.slots.assert_owns(rx);
        let Self { sleeper, sender, table, bell, stats, .. } = self;
        let links = sender.asked.iter().filter_map(|id| table.fd(*id));
        let of_links = sleeper.gather(bell, wait, links, stats)?;
        sender.asked.clear();
        rx.clear();
        rx.is_of_links = of_links;
        self.lent = [0; 2];
        while let Some(id) = self.sender.troubled.pop() {
            self.read_errors(id, rx);
        }
        if of_links {
            return self.reap_watched(rx);
        }
        self.reap(rx)?;
        match wait {
            Wait::AtMost(time) if rx.is_empty() => self.sleep(time, rx),
            _ => Ok(()),
        }
    }

    fn bell(&self) -> Bell {
        self.bell.clone()
    }

    fn forget_drops(&mut self) {
        self.table.forget_drops();
    }

    fn watch(&mut self, beside: RawFd) {
        self.beside = Some(beside);
    }

    fn stats(&self) -> IoStats {
        self.stats
    }

    fn name(&self) -> &'static str {
        "mmsg"
    }
}

/// No socket has this id: it would need 65,536 places and as many rounds.
const BELL_TOKEN: u64 = u64::MAX;

/// Sockets that are asked turn by turn. Asking in vain costs about 150 ns, so the many go into the
/// epoll set.
const DRAINED_MAX: usize = 16;

/// Receives per socket and turn; enough to use up all slots.
const RECEIVES_MAX: usize = 64;
