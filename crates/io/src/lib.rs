//! Drivers: they move datagrams between sockets and batches, and know no session, no key and no
//! header.
//!
//! A worker owns one driver and goes round: [`Driver::turn`] takes the receive slots back, reaps
//! what has arrived and waits when nothing has; the worker fills a [`TxBatch`]; [`Driver::flush`]
//! sends it, once per turn unless the batch fills up. Which kernel interface does the work is the
//! driver's secret: the tests run on both, and the gate cannot tell.
//!
//! Both drivers receive without being woken while they are busy. A socket that sits in an epoll set
//! or has a receive pending charges whoever delivers to it for a wake-up call, datagram by datagram
//! (75 ns each, and 50 to 66 ns per send; docs/BENCHMARKS.md, the wire). So sockets are *drained*
//! turn by turn, and *armed* only before the driver sleeps.
#![deny(unsafe_code)]

mod cmsg;
mod errno;
mod error;
mod events;
pub mod filter;
mod mmsg;
mod open;
mod receive;
mod send;
mod slots;
mod sockaddr;
pub mod socket;
mod table;
mod uring;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

pub use self::error::StartError;
pub use self::mmsg::MmsgDriver;
pub use self::open::{AnyDriver, Choice, DriverOptions, open};
pub use self::uring::UringDriver;
use ringgate_batch::{RxBatch, SocketId, TxBatch};
use ringgate_os::notify;

/// What a socket is, as far as a driver has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A bound UDP socket, one of a few. Every datagram has a sender; `local` and `kernel_ns` are
    /// filled where the socket was made to tell.
    Datagram,
    /// A connected UDP socket. There may be thousands: they are watched, not drained turn by turn.
    ConnectedDatagram,
    /// A listening `SOCK_SEQPACKET` socket. Connections are accepted and registered as
    /// [`SocketKind::Link`].
    LinkListener,
    /// A connected `SOCK_SEQPACKET` socket: datagrams of up to `BUNDLE_BYTES_MAX`, an end.
    Link,
}

/// How long a turn may wait when nothing has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until something arrives, the bell rings, or this much time has passed.
    AtMost(Duration),
}

/// What a driver has counted since it started. All counters only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Times the driver waited in the kernel.
    pub waits: u64,
    /// System calls made.
    pub syscalls: u64,
    /// Datagrams received.
    pub rx_datagrams: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Datagrams sent (each segment of a GSO send counts).
    pub tx_datagrams: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// GSO sends, each of two or more datagrams.
    pub tx_gso_sends: u64,
    /// Datagrams that could not be sent.
    pub tx_failures: u64,
    /// A socket went from being drained to being armed.
    pub rx_arms: u64,
    /// A receive ended before its socket was empty, and was started again.
    pub rx_restarts: u64,
    /// The receive slots ran out; the rest stayed in the sockets until the next turn.
    pub rx_no_buffers: u64,
    /// Times the completion queue overflowed, or the kernel asked to reap first (EBUSY).
    pub cq_overflows: u64,
    /// Datagrams the kernel dropped at a socket, as told by those that came after them
    /// (`SO_RXQ_OVFL`): its receive queue was full, or its filter refused them.
    /// [`socket::socket_drops`] knows the number of a socket at any time.
    pub kernel_drops: u64,
    /// Receive errors that carried no datagram, and processes turned away for want of a descriptor.
    pub rx_errors: u64,
}

/// Moves datagrams. One per worker; it may change threads until its first turn, and belongs to that
/// one from then on.
pub trait Driver {
    /// Takes a socket over. It must be non-blocking.
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId>;

    /// Closes a socket and forgets it. Its id is not used again while entries may still name it.
    fn deregister(&mut self, socket: SocketId);

    /// Reads a link no more (what comes stays in the kernel, and its sender waits when that is
    /// full), or again. What is on its way may still arrive, up to all slots once.
    fn hold(&mut self, socket: SocketId, is_held: bool);

    /// The descriptor of a registered socket, for options and peer credentials.
    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>>;

    /// Sends every entry of the batch, those of one target in order; notes failures in it, and
    /// leaves the entries for the caller to look at and [`clear`](TxBatch::clear).
    fn flush(&mut self, tx: &mut TxBatch);

    /// One pass: takes back the slots of `rx` and empties it, then fills it with what has arrived.
    /// Waits, as `wait` allows, only when nothing has; may return with nothing all the same. `rx`
    /// is the batch that this driver was opened with.
    ///
    /// An error is the end of the driver: everything that can be survived is.
    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()>;

    /// Something that rings this driver's bell from another thread.
    fn bell(&self) -> Bell;

    /// What has been counted.
    fn stats(&self) -> IoStats;

    /// For logs: `uring` or `mmsg`.
    fn name(&self) -> &'static str;
}

/// Wakes a driver that waits. Cheap to clone, rings from any thread; a ring while the driver is
/// awake is not lost.
#[derive(Clone, Debug)]
pub struct Bell {
    counter: Arc<OwnedFd>,
}

impl Bell {
    /// A bell that nobody listens to yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { counter: Arc::new(notify::event_counter()?) })
    }

    /// Rings. The driver's next turn, or the one it waits in, reports
    /// [`IoEvent::Woken`](ringgate_batch::IoEvent); several rings before that are one.
    pub fn ring(&self) {
        notify::event_add(self.counter.as_fd());
    }

    /// Whether it was rung since this was last asked. For drivers.
    pub fn take(&self) -> bool {
        notify::event_take(self.counter.as_fd())
    }

    /// Readable while the bell has rung and not been taken. For drivers that wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
