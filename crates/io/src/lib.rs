//! Drivers: they move datagrams between sockets and batches, and know no session, no key and no
//! header.
//!
//! [`AnyDriver`] is the [`Driver`] over the kernel's sockets. It owns the memory of both batches;
//! [`Driver::turn`] takes the receive slots back, reaps what has arrived and waits when nothing
//! has; [`Driver::flush`] sends what was written, once per turn unless the batch fills up. Which
//! interface of the kernel does the work is its secret: the tests run on both, and the gate cannot
//! tell.
//!
//! Over both, a driver receives without being woken while it is busy. A socket that sits in an
//! epoll set or has a receive pending charges whoever delivers to it for a wake-up call, datagram
//! by datagram (75 ns each, and 50 to 66 ns per send; docs/BENCHMARKS.md, the wire). So sockets are
//! *drained* turn by turn, and *armed* only before the driver sleeps.
#![deny(unsafe_code)]

mod any;
mod card;
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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

pub use self::any::{AnyDriver, player_options};
pub use self::card::{
    CardBase, CardChoice, CardCounts, CardDrop, CardMode, CardNews, CardOptions, CardStats,
    GivenBase, GivenQueue, LeftSums, card_memory, look_at_card,
};
pub use self::error::StartError;
pub use self::open::{Choice, DriverOptions, open, open_with_card, open_with_given_card};
pub use ringgate_batch::{Driver, IoStats, Wait};
use ringgate_batch::{RxBatch, SocketId, TxBatch};
use ringgate_os::notify;
pub use ringgate_xdp::netlink::{Facts as CardFacts, Link as CardLink};

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

/// An interface of the kernel that moves the datagrams of an [`AnyDriver`], between batches that it
/// is lent.
trait Interface {
    /// Takes a socket over. It must be non-blocking.
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId>;

    /// As [`Driver::close`].
    fn deregister(&mut self, socket: SocketId);

    /// As [`Driver::hold`].
    fn hold(&mut self, socket: SocketId, is_held: bool);

    /// As [`Driver::let_go`], into the batch that was opened with it.
    fn let_go(&mut self, rx: &mut RxBatch) -> io::Result<()>;

    /// Every registered socket, in the order of their places.
    fn sockets(&self) -> Vec<(SocketId, SocketKind)>;

    /// The descriptor of a registered socket, for options and peer credentials.
    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>>;

    /// As [`Flush::flush`](ringgate_batch::Flush).
    fn flush(&mut self, tx: &mut TxBatch);

    /// As [`Driver::turn`]: takes back the slots of `rx` and empties it, then fills it. `rx` is the
    /// batch that was opened with it.
    fn turn(&mut self, rx: &mut RxBatch, wait: Wait) -> io::Result<()>;

    /// Something that rings this driver's bell from another thread.
    fn bell(&self) -> Bell;

    /// What the kernel has dropped by now is not counted here.
    fn forget_drops(&mut self);

    /// Waits that end when something arrives end also when this is readable. It stays open for as
    /// long as the interface lives.
    fn watch(&mut self, beside: RawFd);

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

    /// Waits until it is rung, or for as long as it was told. Meanwhile no socket has a thread to
    /// wake, so whoever sends to one is not charged for it. For drivers.
    fn wait(&self, at_most: Duration) -> io::Result<()> {
        match notify::wait(&mut [notify::awaited(self.counter.as_raw_fd())], at_most) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    /// Readable while the bell has rung and not been taken. For drivers that wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
