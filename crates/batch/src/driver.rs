//! The seam between who decides and who moves bytes: a driver owns the memory of both batches,
//! fills the one and sends the other.
//!
//! Sockets are described ([`Port`]), not handed over, so that a driver may make them of whatever it
//! has: the kernel's sockets, frames of a network card, or lists in memory.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::filter::Filter;
use super::{RxBatch, SocketId, TxBatch};

/// Moves datagrams. One per worker; it may change threads until its first turn, and belongs to that
/// one from then on.
///
/// A worker goes round: [`turn`](Self::turn) takes the receive memory back and fills the received
/// batch, the worker reads that and writes into the outgoing batch, [`flush`](Self::flush) sends.
pub trait Driver {
    /// What sends while the received batch is being read.
    type Out<'a>: Flush
    where
        Self: 'a;

    /// Why a socket could not be opened.
    type OpenError: std::error::Error;

    /// Opens a socket like this.
    fn open(&mut self, port: &Port<'_>) -> Result<SocketId, Self::OpenError>;

    /// Closes a socket and forgets it. Its id is not used again while entries may still name it.
    fn close(&mut self, socket: SocketId);

    /// Reads a link no more (what comes stays in the kernel, and its sender waits when that is
    /// full), or again. What is on its way may still arrive, up to all receive memory once.
    fn hold(&mut self, socket: SocketId, is_held: bool);

    /// One pass: takes the memory of the received batch back and fills it with what has arrived.
    /// Waits only as `wait` says; may return with nothing all the same.
    ///
    /// An error is the end of the driver: everything that can be survived is.
    fn turn(&mut self, wait: Wait) -> io::Result<()>;

    /// Asks for nothing any more, and brings what requests under way had already taken: the last
    /// pass before its sockets go to another process. What arrives from then on stays in the
    /// sockets. A turn after it asks again, so a driver that has let go can go on.
    fn let_go(&mut self) -> io::Result<()>;

    /// Both batches, to be used side by side, and what sends the outgoing one.
    fn batches(&mut self) -> Batches<'_, Self::Out<'_>>;

    /// What the last turn has brought.
    fn rx(&mut self) -> &mut RxBatch {
        self.batches().rx
    }

    /// Where what leaves is written.
    fn tx(&mut self) -> &mut TxBatch {
        self.batches().tx
    }

    /// Sends everything that was written, as [`Flush::flush`] says.
    fn flush(&mut self) {
        let Batches { tx, mut out, .. } = self.batches();
        out.flush(tx);
    }

    /// Datagrams that the kernel has dropped at a socket: refused by its filter, or its receive
    /// buffer was full. A socket of the kernel counts them in 32 bits, and on from 0.
    fn dropped_at(&self, socket: SocketId) -> u64;

    /// What has been counted.
    fn stats(&self) -> IoStats;

    /// For logs: `uring`, `mmsg`, `memory`.
    fn name(&self) -> &'static str;
}

/// Sends.
pub trait Flush {
    /// Sends every entry of the driver's outgoing batch, those of one target in order, and empties
    /// it. What could not be sent is in [`TxBatch::failures`] afterwards. A socket that has no room
    /// or is gone takes nothing more in the same flush. The end of a link that fails for anything
    /// but room is told by a turn, behind what its peer had said until then.
    fn flush(&mut self, tx: &mut TxBatch);
}

/// A driver's two batches.
#[derive(Debug)]
pub struct Batches<'a, F> {
    /// What the last turn has brought.
    pub rx: &'a mut RxBatch,
    /// Where what leaves is written.
    pub tx: &'a mut TxBatch,
    /// Sends `tx`.
    pub out: F,
}

/// What a socket should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port<'a> {
    /// For players: a UDP socket at an address, which it shares with those of the other workers.
    Players {
        /// Where. Port 0 asks for one.
        address: SocketAddr,
        /// What may be queued at all; everything where there is none.
        filter: Option<&'a Filter>,
        /// Whether routers may take datagrams apart that are too long for a path.
        may_fragment: bool,
    },
    /// For game servers on this host that speak plain UDP: sends from any loopback address, and
    /// hears nobody else.
    UdpLink,
    /// Accepts bundle links of game processes on this host.
    Links {
        /// The file that they connect to. It is the caller's to remove at the end.
        path: &'a Path,
    },
    /// A UDP socket with one peer, for one player of a game server off loopback.
    Session {
        /// Where the game server listens.
        address: SocketAddr,
    },
}

/// How long a turn may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Where nothing has arrived: until something does, the bell rings, or this much time has
    /// passed.
    AtMost(Duration),
    /// This long before anything is looked for, so that more can be taken at once. Nothing that
    /// arrives ends it, so that no sender pays for a wake-up; the bell does.
    Gather(Duration),
    /// The same, but what comes on a link that was sent to since the last turn ends it too. Then
    /// only links are looked at ([`RxBatch::is_of_links`]): players' datagrams go on gathering.
    GatherAnswers(Duration),
}

ringgate_core::numbered! {
    /// What a driver has counted since it started. All counters only grow.
    pub struct IoStats;
    /// Times the driver waited in the kernel for something to arrive.
    waits,
    /// System calls made.
    syscalls,
    /// Datagrams received.
    rx_datagrams,
    /// Bytes received.
    rx_bytes,
    /// Datagrams sent (each segment of a GSO send counts).
    tx_datagrams,
    /// Bytes sent.
    tx_bytes,
    /// GSO sends, each of two or more datagrams.
    tx_gso_sends,
    /// Datagrams that could not be sent.
    tx_failures,
    /// A socket went from being drained to being armed.
    rx_arms,
    /// A receive ended before its socket was empty, and was started again.
    rx_restarts,
    /// The receive slots ran out; the rest stayed in the sockets until the next turn.
    rx_no_buffers,
    /// Times the completion queue overflowed, or the kernel asked to reap first (EBUSY).
    cq_overflows,
    /// Datagrams the kernel dropped at a socket, as told by those that came after them
    /// (`SO_RXQ_OVFL`): its receive queue was full, or its filter refused them.
    /// [`Driver::dropped_at`] knows the number of a socket at any time.
    kernel_drops,
    /// Receive errors that carried no datagram, and processes turned away for want of a descriptor.
    rx_errors,
    // Behind what a process gives the next: what a sleep costs is measured anew by each.
    /// Waits on purpose ([`Wait::Gather`]) whose cost was measured.
    sleeps_measured,
    /// What those cost of the thread's processor time, with the wake-up.
    sleeps_cpu_ns,
}
