//! What every interface of the kernel that moves datagrams can do, and the kinds of sockets that it
//! is given.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use super::bell::Bell;
use ringgate_batch::{IoStats, RxBatch, SocketId, TxBatch, Wait};

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

impl SocketKind {
    /// Whether it is looked at in a turn, which may be of links alone.
    pub(crate) const fn is_asked(self, of_links: bool) -> bool {
        !of_links || matches!(self, Self::Link)
    }
}

/// An interface of the kernel that moves the datagrams of an [`AnyDriver`](crate::AnyDriver),
/// between batches that it is lent.
pub(crate) trait Interface {
    /// Takes a socket over. It must be non-blocking.
    fn register(&mut self, socket: OwnedFd, kind: SocketKind) -> io::Result<SocketId>;

    /// As [`Driver::close`](ringgate_batch::Driver::close).
    fn deregister(&mut self, socket: SocketId);

    /// As [`Driver::hold`](ringgate_batch::Driver::hold).
    fn hold(&mut self, socket: SocketId, is_held: bool);

    /// As [`Driver::let_go`](ringgate_batch::Driver::let_go), into the batch that was opened with
    /// it.
    fn let_go(&mut self, rx: &mut RxBatch) -> io::Result<()>;

    /// The descriptor of a registered socket, for options and peer credentials.
    fn fd(&self, socket: SocketId) -> Option<BorrowedFd<'_>>;

    /// As [`Flush::flush`](ringgate_batch::Flush).
    fn flush(&mut self, tx: &mut TxBatch);

    /// As [`Driver::turn`](ringgate_batch::Driver::turn): takes back the slots of `rx` and empties
    /// it, then fills it. `rx` is the batch that was opened with it.
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
