//! Drivers: they move datagrams between sockets and batches, and know no session, no key and no header.
//!
//! A worker owns one driver and calls it twice a turn at most: [`Driver::flush`] when the outgoing batch is full, and
//! [`Driver::turn`], which sends what is left, takes the receive slots back, and reaps. Which kernel interface does the
//! work is the driver's secret: the tests run on both, and the gate cannot tell.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::buf::{RxBatch, SocketId, TxBatch};

/// What a socket is, as far as a driver has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A bound UDP socket. Every datagram has a sender; `local` and `kernel_ns` are filled where the socket was made to tell.
    Datagram,
    /// A connected UDP socket.
    ConnectedDatagram,
    /// A listening `SOCK_SEQPACKET` socket. Connections are accepted and registered as [`SocketKind::Link`].
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
    /// A multishot receive ended and was armed again.
    pub rx_rearms: u64,
    /// The provided buffers ran out.
    pub rx_no_buffers: u64,
    /// The completion queue overflowed, or the kernel asked to reap first (EBUSY).
    pub cq_overflows: u64,
    /// Datagrams the kernel dropped because a socket's receive queue was full (`SO_RXQ_OVFL`).
    pub kernel_drops: u64,
    /// Receive errors that carried no datagram.
    pub rx_errors: u64,
}

/// Moves datagrams. One per worker, used from one thread.
pub trait Driver {
    /// Takes a socket over. It must be non-blocking.
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId>;

    /// Closes a socket and forgets it. Its id is not used again while entries may still name it.
    fn deregister(&mut self, socket: SocketId);

    /// The descriptor of a registered socket, for options and peer credentials.
    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>>;

    /// Sends every entry of the batch in order, notes failures in it, and leaves the entries for the caller to look at and
    /// [`clear`](TxBatch::clear).
    fn flush(&mut self, tx: &mut TxBatch);

    /// One pass: takes back the slots of `rx` and empties it, then fills it with what has arrived. Waits, as `wait` allows, only when nothing has.
    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()>;

    /// Something that rings this driver's bell from another thread.
    fn bell(&self) -> Bell;

    /// What has been counted.
    fn stats(&self) -> IoStats;

    /// For logs: `uring` or `mmsg`.
    fn name(&self) -> &'static str;
}

/// Wakes a driver that waits. Cheap to clone, rings from any thread; a ring while the driver is awake is not lost.
#[derive(Clone, Debug)]
pub struct Bell {
    eventfd: std::sync::Arc<OwnedFd>,
}

impl Bell {
    /// A bell over an event file descriptor, which the driver reads.
    pub fn new(eventfd: OwnedFd) -> Self {
        Self { eventfd: std::sync::Arc::new(eventfd) }
    }

    /// The descriptor, for the driver.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.eventfd.as_fd()
    }
}
