//! The part of a driver that receives and sends frames past the kernel's sockets: one queue of a
//! network interface, beside an interface of the kernel that does all the rest.
//!
//! ```text
//!   memory:  | slots of the interface | bundles to send | frames to send | frames to receive |
//!              RxBatch ──────────────────────────────────────────────────── and here ───────
//!                                       TxBatch ────────── and here ───
//! ```
//!
//! A datagram that has come in a frame stands in the received batch under the ordinary socket of
//! its address, which stays open: nobody but the driver can tell which way it came. An outgoing
//! slot lies in a frame, with room for headers in front of it. What leaves by the card leaves from
//! there, and the slot gets another frame; whatever the card cannot send (an address of which only
//! the kernel knows the way, a datagram too long for the wire, frames that are all under way)
//! leaves by the ordinary socket.
//!
//! Invariants:
//! - A frame is the kernel's, the queue's, in `lent` (the received batch names its bytes) or in
//!   `slots` (the outgoing batch has its bytes), and in one of these places only.
//! - The received batch names bytes of frames in `lent` only: they go back when it is cleared.
#![allow(unsafe_code, reason = "tells both batches which frames are theirs")]

mod base;
mod choice;
mod drops;
mod hops;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

pub use self::base::{CardBase, card_memory, look_at_card};
pub use self::choice::{CardChoice, CardMode, CardNews, GivenBase, GivenQueue};
pub use self::drops::{CardCounts, CardDrop};
use self::hops::Hops;
use super::options::DriverOptions;
use super::slots::Slots;
use ringgate_batch::{
    Arena, Endpoint, IoStats, LocalIp, PAGE_BYTES, RxBatch, RxMeta, SocketId, TxBatch, TxEntry,
};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, RX_DATAGRAM_BYTES, TX_SLOT_BYTES};
use ringgate_os::clock;
use ringgate_xdp::frame::{self, HEADERS_MAX, Leaving, Leg, Refusal, SUM_AT, UDP_BYTES};
use ringgate_xdp::memory;
use ringgate_xdp::program;
use ringgate_xdp::queue::{
    Frame, LeftSum, Mode, NOTE_ROOM, Notes, Queue, QueueOptions, Received, Statistics,
};
use ringgate_xdp::routes::{Hop, Routes};

/// Which queue of an interface a driver serves beside its sockets.
#[derive(Clone, Debug)]
pub struct CardOptions {
    /// The queue, and how large. Frames must have room for slots and headers: 2048 bytes or more.
    pub queue: QueueOptions,
    /// Where packets have to go.
    pub routes: Arc<Routes>,
    /// Where checksums of datagrams are left to others, if the queue takes notes.
    pub left_sums: LeftSums,
}

/// In which modes whoever sends the frames writes the checksums of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftSums {
    /// Where the kernel copies.
    pub copy: bool,
    /// Where the card reads our memory.
    pub zero_copy: bool,
}

/// A queue, and what is in the batches of it.
#[derive(Debug)]
pub struct Card {
    queue: Queue,
    ports: Vec<CardPort>,
    hops: Hops,
    /// Frames that the received batch names.
    lent: Vec<Frame>,
    /// The frame of each small slot of the outgoing batch.
    slots: Vec<Frame>,
    /// Checksums of datagrams are left to whoever sends the frames.
    leaves_sums: bool,
    /// Numbers datagrams that may be taken apart.
    fragments: u16,
    /// The driver's own.
    stats: CardCounts,
    /// Where the frames lie, for the process that goes on with them.
    memory: OwnedFd,
    base: u64,
}

/// An ordinary socket whose datagrams may come in frames.
#[derive(Clone, Copy, Debug)]
struct CardPort {
    socket: SocketId,
    /// `None` where it takes all addresses of this host.
    local: Option<LocalIp>,
    is_v4: bool,
    port: u16,
    may_fragment: bool,
}

/// A card with the memory that it shares with the interface beside it, and the batch to send from.
pub(super) struct Opened {
    pub(super) card: Card,
    pub(super) arena: Arc<Arena>,
    pub(super) tx: TxBatch,
}

impl Card {
    /// Opens a queue over memory that begins with the slots of an interface.
    pub(super) fn open(options: &CardOptions, driver: &DriverOptions) -> io::Result<Opened> {
        let CardOptions { queue, routes, left_sums } = options;
        let bundles = usize::from(driver.tx_bundles) * BUNDLE_BYTES_MAX;
        let large_base = Slots::bytes(*driver).next_multiple_of(PAGE_BYTES);
        let frames = (large_base + bundles).next_multiple_of(PAGE_BYTES);
        let to_send = queue.send as usize * queue.frame_bytes as usize;
        assert!(
            queue.frame_bytes as usize >= HEAD_BYTES + SPREAD_MAX + TX_SLOT_BYTES,
            "a frame has room for headers and a slot"
        );
        let (arena, memory) = memory::shared(frames + queue.bytes())?;
        let arena = Arc::new(arena);
        // SAFETY: the memory was made here. What begins at `frames` is named to nobody else but by
        // frames: those of `slots` to the outgoing batch, those of `lent` to the received one.
        let mut queue = unsafe { Queue::open(queue, Arc::clone(&arena), frames) }?;
        let blanks = std::iter::from_fn(|| queue.blank()).take(driver.tx_datagrams.into());
        let slots: Vec<_> = blanks.collect();
        let places = slots.iter().map(|frame| place_in(&queue, frame)).collect();
        let own = large_base..frames + to_send;
        // SAFETY: frames to send come first in the queue's memory, which nobody writes to but by
        // a frame; each of `slots` is one of its own and is the batch's until `set_place`.
        // The bundles in front of them are nobody else's.
        let tx = unsafe {
            TxBatch::over(Arc::clone(&arena), own, places, (large_base, driver.tx_bundles.into()))
        };
        let card = Self {
            leaves_sums: left_sums.by(&queue),
            queue,
            ports: Vec::new(),
            hops: Hops::new(Arc::clone(routes)),
            lent: Vec::with_capacity(driver.small_slots.into()),
            slots,
            fragments: 0,
            stats: CardCounts::default(),
            memory,
            base: frames as u64,
        };
        Ok(Opened { card, arena, tx })
    }

    /// Goes on with a queue that another process has opened, once that has said which frames it had
    /// ([`resume`](Self::resume)). Up to then the outgoing batch lies in front of the frames.
    pub(super) fn adopt(
        options: &CardOptions,
        driver: &DriverOptions,
        given: GivenQueue,
    ) -> io::Result<Opened> {
        let CardOptions { queue, routes, left_sums } = options;
        let bundles = usize::from(driver.tx_bundles) * BUNDLE_BYTES_MAX;
        let large_base = Slots::bytes(*driver).next_multiple_of(PAGE_BYTES);
        let spare = large_base + bundles;
        let slots = usize::from(driver.tx_datagrams);
        let frames = (spare + slots * TX_SLOT_BYTES).next_multiple_of(PAGE_BYTES);
        let to_send = queue.send as usize * queue.frame_bytes as usize;
        let GivenQueue { socket, memory, base, takes_notes } = given;
        let queue = &QueueOptions { notes: takes_notes.then_some(Notes::Sender), ..*queue };
        let arena = Arc::new(memory::adopted(&memory, base, queue.bytes(), frames)?);
        // SAFETY: what begins at `frames` is named to nobody else but by frames, and there are none
        // before `resume`: up to then the other process has them.
        let queue = unsafe { Queue::adopt(queue, Arc::clone(&arena), frames, socket) }?;
        let places = (0..slots).map(|at| (spare + at * TX_SLOT_BYTES) as u32).collect();
        let own = large_base..frames + to_send;
        // SAFETY: the memory in front of the frames was made here, and these places in it do not
        // overlap. Frames to send are written to by whoever has the frame only, and become the
        // batch's places by `set_place`.
        let tx = unsafe {
            TxBatch::over(Arc::clone(&arena), own, places, (large_base, driver.tx_bundles.into()))
        };
        let card = Self {
            leaves_sums: left_sums.by(&queue),
            queue,
            ports: Vec::new(),
            hops: Hops::new(Arc::clone(routes)),
            lent: Vec::with_capacity(driver.small_slots.into()),
            slots: Vec::with_capacity(slots),
            fragments: 0,
            stats: CardCounts::default(),
            memory,
            base,
        };
        Ok(Opened { card, arena, tx })
    }

    /// The frames that another process had are ours: some of them are the outgoing batch's slots
    /// from now on.
    pub(super) fn resume(&mut self, frames: &[u32], tx: &mut TxBatch) -> io::Result<()> {
        self.queue.resume(frames)?;
        for slot in 0..tx.small_left() {
            let frame = self.queue.blank().ok_or(io::ErrorKind::UnexpectedEof)?;
            // SAFETY: the slot has a frame of its own in `slots` from here on, and nothing was
            // written into the batch, so nobody looks at the place before.
            unsafe { tx.set_place(slot, place_in(&self.queue, &frame)) };
            self.slots.push(frame);
        }
        self.queue.top_up();
        Ok(())
    }

    /// Everything that another process needs to go on with it.
    pub fn given(&self) -> io::Result<GivenQueue> {
        Ok(GivenQueue {
            socket: self.queue.as_fd().try_clone_to_owned()?,
            memory: self.memory.try_clone()?,
            base: self.base,
            takes_notes: self.queue.takes_notes(),
        })
    }

    /// The kernel has been told everything, and both batches are empty: the frames that another
    /// process may have.
    pub(super) fn settle(&mut self) -> Vec<u32> {
        self.take_back();
        let mut free = self.queue.settle();
        free.extend(self.slots.iter().map(|frame| self.queue.number(frame)));
        free
    }

    /// Datagrams for this address are those of a socket from now on, if they come in frames.
    pub(super) fn serve(&mut self, socket: SocketId, address: SocketAddr, may_fragment: bool) {
        let local = match address.ip() {
            ip if ip.is_unspecified() => None,
            IpAddr::V4(ip) => Some(LocalIp::v4(ip.octets(), 0)),
            IpAddr::V6(ip) => Some(LocalIp::v6(ip.octets(), 0)),
        };
        let (is_v4, port) = (address.is_ipv4(), address.port());
        self.ports.push(CardPort { socket, local, is_v4, port, may_fragment });
    }

    /// A socket is closed.
    pub(super) fn forget(&mut self, socket: SocketId) {
        self.ports.retain(|port| port.socket != socket);
    }

    /// Its queue's socket, to be given to a program and to be waited for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }

    /// How frames come and go.
    pub const fn mode(&self) -> Mode {
        self.queue.mode()
    }

    /// Whether checksums are left to whoever sends the frames.
    pub const fn leaves_sums(&self) -> bool {
        self.leaves_sums
    }

    /// What the driver has counted.
    pub const fn stats(&self) -> CardCounts {
        self.stats
    }

    /// What the kernel has counted at its socket.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.queue.statistics()
    }

    pub(super) const fn syscalls(&self) -> u64 {
        self.queue.syscalls()
    }

    /// Takes the frames of a batch back that has been cleared, and those that have left; the kernel
    /// has room again before anything else is done.
    pub(super) fn take_back(&mut self) {
        for frame in self.lent.drain(..) {
            self.queue.give_back(frame);
        }
        self.queue.reap();
        self.queue.top_up();
    }

    /// Puts what has arrived into the batch, so many datagrams at most.
    pub(super) fn receive(&mut self, rx: &mut RxBatch, at_most: usize, stats: &mut IoStats) {
        self.hops.renew();
        let mut clocks = None;
        for _ in 0..at_most {
            let Some(received) = self.queue.receive() else { return };
            let clocks = *clocks.get_or_insert_with(Clocks::now);
            let Some(meta) = self.look_at(&received, clocks) else {
                self.queue.give_back(received.frame);
                continue;
            };
            stats.rx_datagrams += 1;
            stats.rx_bytes += meta.len() as u64;
            self.stats.received += 1;
            self.lent.push(received.frame);
            // SAFETY: the datagram lies in a frame that has just been put into `lent`, where it
            // stays until the batch has been cleared (`take_back`); frames do not overlap each
            // other, nor the interface's slots.
            unsafe { rx.push(meta) };
        }
    }

    /// What a frame brings for one of our sockets.
    fn look_at(&mut self, received: &Received, clocks: Clocks) -> Option<RxMeta> {
        let Received { frame, at, len } = received;
        let (front, bytes) = self.queue.bytes(frame).split_at(*at as usize);
        let bytes = &bytes[..*len as usize];
        let kernel_ns = program::stamp_in(front).map_or(0, |ns| clocks.unix_ns(ns));
        let arrived = match frame::parse(bytes) {
            Ok(arrived) => arrived,
            Err(why) => {
                *self.refused(why) += 1;
                return None;
            }
        };
        let Some(port) = self.port_of(&arrived.local, arrived.port) else {
            self.stats.refused_shape += 1;
            return None;
        };
        if self.hops.came(&arrived.peer, (arrived.from, arrived.vlan)) == Hop::Ours {
            self.stats.refused_source += 1;
            return None;
        }
        let offset = self.queue.offset(frame) + *at as usize + arrived.payload.start;
        let kept = arrived.payload.len().min(RX_DATAGRAM_BYTES);
        let mut meta = RxMeta::new(port.socket, arrived.peer, 0, offset as u32, kept as u32);
        meta.truncated = kept < arrived.payload.len();
        meta.kernel_ns = kernel_ns;
        if port.local.is_none() {
            meta.local = arrived.local;
        }
        Some(meta)
    }

    fn refused(&mut self, why: Refusal) -> &mut u64 {
        match why {
            Refusal::Shape => &mut self.stats.refused_shape,
            Refusal::Source => &mut self.stats.refused_source,
            Refusal::Checksum => &mut self.stats.refused_checksum,
        }
    }

    /// The socket of an address: its own, rather than one that takes all.
    fn port_of(&self, local: &LocalIp, number: u16) -> Option<CardPort> {
        let fits = |port: &&CardPort| port.port == number && port.is_v4 == local.is_v4();
        let mut own = self.ports.iter().filter(fits);
        let exact = own.clone().find(|port| port.local.is_some_and(|it| it == *local));
        exact.or_else(|| own.find(|port| port.local.is_none())).copied()
    }

    /// Sends what the card can send, and tells the batch. The rest is for the sockets.
    pub(super) fn send(&mut self, tx: &mut TxBatch, stats: &mut IoStats) {
        if self.ports.is_empty() {
            return;
        }
        self.hops.begin_flush();
        self.queue.reap();
        let mut is_any = false;
        for index in 0..tx.entries().len() {
            let entry = tx.entries()[index];
            let Some(port) = self.ports.iter().find(|port| port.socket == entry.target.socket)
            else {
                continue;
            };
            let port = *port;
            if self.send_one(tx, &entry, &port) {
                tx.take(index);
                stats.tx_datagrams += 1;
                stats.tx_bytes += entry.len() as u64;
                is_any = true;
            } else {
                self.stats.left_by_socket += 1;
            }
        }
        if is_any && self.queue.kick().is_err() {
            self.stats.kicks_failed += 1;
            self.hops.distrust();
        }
    }

    /// Puts one datagram on its way, if the card can take it: its frame goes, and its slot gets
    /// another.
    fn send_one(&mut self, tx: &mut TxBatch, entry: &TxEntry, port: &CardPort) -> bool {
        let (Some(slot), Some(peer)) = (entry.small_slot(), entry.target.peer) else {
            return false;
        };
        let Some((leg, local)) = self.way_of(entry, port, &peer) else { return false };
        let Some(blank) = self.queue.blank() else { return false };
        let place = place_in(&self.queue, &blank);
        let fragments = port.may_fragment.then(|| {
            self.fragments = self.fragments.wrapping_add(1);
            self.fragments
        });
        let frame = &mut self.slots[slot];
        let start = self.queue.offset(frame);
        let head = entry.offset() - start;
        let sum_is_left = self.leaves_sums;
        let leaving = Leaving { leg, local, port: port.port, peer, fragments, sum_is_left };
        let (room, datagram) = self.queue.bytes_mut(frame).split_at_mut(head);
        let datagram = &datagram[..entry.len()];
        let headers = frame::write_headers(room, &leaving, datagram);
        let frame = std::mem::replace(frame, blank);
        let (at, len) = ((head - headers) as u32, (headers + entry.len()) as u32);
        let sent = if sum_is_left {
            let sum = LeftSum { from: (headers - UDP_BYTES) as u16, at: SUM_AT as u16 };
            self.queue.send_unfinished(frame, at, len, sum)
        } else {
            self.queue.send(frame, at, len)
        };
        match sent {
            Ok(()) => {
                // SAFETY: the slot has a frame of its own in `slots` now. The one before is read
                // by the kernel, and written to by nobody, until it is blank again.
                unsafe { tx.set_place(slot, place) };
                self.stats.sent += 1;
                true
            }
            Err(frame) => {
                let blank = std::mem::replace(&mut self.slots[slot], frame);
                self.queue.give_back(blank);
                false
            }
        }
    }

    /// Where a datagram's frame goes and which of our addresses it comes from, where both are known
    /// and it is not too long.
    fn way_of(
        &mut self,
        entry: &TxEntry,
        port: &CardPort,
        peer: &Endpoint,
    ) -> Option<(Leg, LocalIp)> {
        let said = Some(entry.target.source).filter(|source| !source.is_unspecified());
        let local = said.or(port.local)?;
        if local.is_v4() != peer.is_v4() {
            return None;
        }
        match self.hops.to(peer) {
            Hop::Out { leg, mtu, .. }
                if frame::inner_headers(peer.is_v4()) + entry.len() <= mtu as usize =>
            {
                Some((leg, local))
            }
            _ => None,
        }
    }
}

/// Both clocks at one moment: frames are stamped on one, sockets on the other.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    monotonic_ns: u64,
    unix_ns: u64,
}

impl Clocks {
    fn now() -> Self {
        Self { monotonic_ns: clock::monotonic_ns(), unix_ns: clock::unix_ns() }
    }

    /// A moment of the monotonic clock, which has been.
    const fn unix_ns(self, monotonic_ns: u64) -> u64 {
        let ago_ns = self.monotonic_ns.saturating_sub(monotonic_ns);
        self.unix_ns.saturating_sub(ago_ns)
    }
}

impl LeftSums {
    /// Whether checksums are left to whoever sends a queue's frames.
    const fn by(self, queue: &Queue) -> bool {
        let is_done = match queue.mode() {
            Mode::Copy => self.copy,
            Mode::ZeroCopy => self.zero_copy,
        };
        is_done && queue.takes_notes()
    }
}

/// Where in the arena a slot begins that lies in a frame: behind room for headers, and with some
/// frames a line or more later, because the first lines of all frames would meet in few of a
/// cache's sets.
fn place_in(queue: &Queue, frame: &Frame) -> u32 {
    let offset = queue.offset(frame);
    let spread = offset / FRAME_BYTES_MIN % SPREAD_STEPS * LINE_BYTES;
    (offset + HEAD_BYTES + spread) as u32
}

const LINE_BYTES: usize = 64;
const FRAME_BYTES_MIN: usize = 2048;
const SPREAD_STEPS: usize = 5;
const SPREAD_MAX: usize = (SPREAD_STEPS - 1) * LINE_BYTES;

/// In front of a slot, a multiple of a line.
const HEAD_BYTES: usize = 128;
const _: () = assert!(NOTE_ROOM + HEADERS_MAX <= HEAD_BYTES);
const _: () = assert!(HEAD_BYTES + SPREAD_MAX + TX_SLOT_BYTES <= FRAME_BYTES_MIN);
