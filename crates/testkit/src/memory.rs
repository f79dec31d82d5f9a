//! The driver without a kernel: what arrives was put there beforehand, what leaves goes to a
//! closure or to a simulated world.
//!
//! It keeps the promises of every driver: a socket that has refused a datagram for want of room
//! takes nothing more in that flush, and memory that was taken back is not looked at again.
//!
//! Tests of the gate read this file too.

use std::io;

use ringgate_batch::{
    Batches, Driver, Endpoint, Flush, IoEvent, IoStats, Port, RxBatch, RxMeta, SendFailure,
    SocketId, TxBatch, TxTarget, Wait,
};
use ringgate_core::limits::{BUNDLE_BYTES_MAX, RX_DATAGRAM_BYTES};

/// Where a [`MemoryDriver`]'s sockets lead to. A closure that takes what leaves is one.
pub trait Wire {
    /// Takes a datagram that leaves, or says why it does not.
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure>;

    /// Opens a socket like this, if it can.
    fn open(&mut self, port: &Port<'_>) -> io::Result<SocketId> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("{port:?} leads nowhere")))
    }

    /// The socket is closed.
    fn close(&mut self, _socket: SocketId) {}

    /// What comes on the socket has to wait from now on, or no longer.
    fn hold(&mut self, _socket: SocketId, _is_held: bool) {}
}

impl<F: FnMut(&TxTarget, &[u8]) -> Result<(), SendFailure>> Wire for F {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        self(target, bytes)
    }
}

/// What a [`MemoryDriver`] keeps from turn to turn: both batches.
#[derive(Debug)]
pub struct Memory {
    rx: RxBatch,
    tx: TxBatch,
    /// Sockets that have failed in the flush at hand.
    failing: Vec<(SocketId, SendFailure)>,
    /// What the received batch holds was given out in a turn.
    is_old: bool,
    stats: IoStats,
}

impl Memory {
    /// Memory for so many datagrams and bundles that leave in one flush.
    pub fn new(tx_datagrams: usize, tx_bundles: usize) -> Self {
        Self {
            rx: RxBatch::in_memory(RX_BYTES, RX_DATAGRAMS_MAX),
            tx: TxBatch::new(tx_datagrams, tx_bundles),
            failing: Vec::new(),
            is_old: false,
            stats: IoStats::default(),
        }
    }

    /// Gives the next turn a datagram to find. What else there is to say about it goes into what
    /// comes back; `None` when a turn has to be taken first.
    pub fn receive(
        &mut self,
        socket: SocketId,
        peer: Endpoint,
        bytes: &[u8],
    ) -> Option<&mut RxMeta> {
        self.take_back();
        let kept = &bytes[..bytes.len().min(SLOT_BYTES_MAX)];
        let meta = self.rx.push_copy(socket, peer, kept)?;
        meta.truncated = kept.len() < bytes.len();
        Some(meta)
    }

    /// Gives the next turn an event to find.
    pub fn notice(&mut self, event: IoEvent) {
        self.take_back();
        self.rx.events.push(event);
    }

    /// The next turn looks at links alone, because one of them has answered.
    pub fn look_at_links(&mut self) {
        self.take_back();
        self.rx.is_of_links = true;
    }

    /// The driver over this memory, for a turn, with sockets that lead to `wire`.
    pub fn driver<'a, W: Wire>(&'a mut self, wire: &'a mut W) -> MemoryDriver<'a, W> {
        MemoryDriver { memory: self, wire }
    }

    fn take_back(&mut self) {
        if std::mem::take(&mut self.is_old) {
            self.rx.clear();
        }
    }
}

/// Moves datagrams between [`Memory`] and a [`Wire`].
#[derive(Debug)]
pub struct MemoryDriver<'a, W> {
    memory: &'a mut Memory,
    wire: &'a mut W,
}

/// What sends the outgoing batch of a [`MemoryDriver`].
#[derive(Debug)]
pub struct MemoryOut<'a, W> {
    failing: &'a mut Vec<(SocketId, SendFailure)>,
    stats: &'a mut IoStats,
    wire: &'a mut W,
}

impl<W: Wire> Driver for MemoryDriver<'_, W> {
    type Out<'b>
        = MemoryOut<'b, W>
    where
        Self: 'b;
    type OpenError = io::Error;

    fn open(&mut self, port: &Port<'_>) -> io::Result<SocketId> {
        self.wire.open(port)
    }

    fn close(&mut self, socket: SocketId) {
        self.wire.close(socket);
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        self.wire.hold(socket, is_held);
    }

    /// Never waits: what arrives is put there between two turns, and the caller has asked before
    /// how long to wait.
    fn turn(&mut self, _wait: Wait) -> io::Result<()> {
        let Memory { rx, is_old, stats, .. } = &mut *self.memory;
        if std::mem::replace(is_old, true) {
            rx.clear();
        }
        stats.rx_datagrams += rx.len() as u64;
        Ok(())
    }

    /// Nothing is ever under way.
    fn let_go(&mut self) -> io::Result<()> {
        self.turn(Wait::No)
    }

    fn batches(&mut self) -> Batches<'_, MemoryOut<'_, W>> {
        let Memory { rx, tx, failing, stats, .. } = &mut *self.memory;
        Batches { rx, tx, out: MemoryOut { failing, stats, wire: self.wire } }
    }

    fn dropped_at(&self, _socket: SocketId) -> u64 {
        0
    }

    fn stats(&self) -> IoStats {
        self.memory.stats
    }

    fn name(&self) -> &'static str {
        "memory"
    }
}

impl<W: Wire> Flush for MemoryOut<'_, W> {
    fn flush(&mut self, tx: &mut TxBatch) {
        self.failing.clear();
        for index in 0..tx.entries().len() {
            let entry = tx.entries()[index];
            if let Err(why) = self.carry(&entry.target, tx.bytes(&entry)) {
                tx.fail(index, why);
                self.stats.tx_failures += 1;
            }
        }
        self.stats.tx_datagrams += tx.entries().len() as u64;
        tx.end_flush();
    }
}

impl<W: Wire> MemoryOut<'_, W> {
    fn carry(&mut self, target: &TxTarget, bytes: &[u8]) -> Result<(), SendFailure> {
        if let Some(&(_, why)) = self.failing.iter().find(|(socket, _)| *socket == target.socket) {
            return Err(why);
        }
        let carried = self.wire.carry(target, bytes);
        if let Err(why @ (SendFailure::Full | SendFailure::Gone)) = carried {
            self.failing.push((target.socket, why));
        }
        carried
    }
}

/// What a turn finds at most, as with the kernel's drivers.
const RX_DATAGRAMS_MAX: usize = 64;

/// Full bundles on every link and long datagrams besides.
const RX_BYTES: usize = 32 * BUNDLE_BYTES_MAX;

/// Longer datagrams are cut off. One bound for all sockets: what is too long for a player's socket
/// is too long anyway.
const SLOT_BYTES_MAX: usize = BUNDLE_BYTES_MAX;

const _: () = assert!(RX_DATAGRAM_BYTES <= SLOT_BYTES_MAX);

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::LocalIp;

    #[test]
    fn a_turn_finds_what_was_put_there_once_and_a_full_socket_takes_nothing_more() {
        let mut memory = Memory::new(4, 0);
        memory.receive(SocketId(1), Endpoint::v4([192, 0, 2, 1], 5), b"in").expect("room");
        let mut carried = Vec::new();
        let mut wire = |target: &TxTarget, bytes: &[u8]| {
            carried.push(bytes[0]);
            if target.socket == SocketId(2) { Err(SendFailure::Full) } else { Ok(()) }
        };
        let mut driver = memory.driver(&mut wire);
        driver.turn(Wait::No).expect("nothing can fail");
        assert_eq!(driver.rx().len(), 1);
        driver.turn(Wait::No).expect("nothing can fail");
        assert!(driver.rx().is_empty(), "what was given out is gone");
        for (socket, byte) in [(1, 10), (2, 20), (2, 21), (1, 11)] {
            let source = LocalIp::UNSPECIFIED;
            let target = TxTarget { socket: SocketId(socket), peer: None, source };
            let room = driver.tx().room().expect("free");
            room.send_copy(&[byte], target, u64::from(byte));
        }
        driver.flush();
        let failed: Vec<_> = driver.tx().failures().map(|(entry, ..)| entry.tag).collect();
        assert_eq!((failed, carried), (vec![20, 21], vec![10, 20, 11]));
    }
}
