//! The loop of a stand-in over UDP: takes in what has arrived, batch by batch, and sends what is
//! said to it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Batches, Endpoint, Flush, LocalIp, SocketId, TxBatch, TxTarget};
use ringgate_core::limits::TX_SLOT_BYTES;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    AnyDriver, Bell, Choice, Driver, DriverOptions, SocketDriver, SocketKind, StartError, Wait,
};

/// A driver with a socket for each server that is stood in for.
#[derive(Debug)]
pub(super) struct Sockets {
    driver: AnyDriver,
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    socket: SocketId,
    address: SocketAddr,
    /// From where players were answered last: the address to speak from where the socket is bound
    /// to no particular one.
    source: LocalIp,
}

impl Sockets {
    pub(super) fn open(io: Choice, addresses: &[SocketAddr]) -> Result<Self, StartError> {
        let options = DriverOptions { tx_datagrams: TX_SLOTS, tx_bundles: 0, ..Default::default() };
        let mut driver = ringgate_io::open(io, &options)?;
        let mut servers = Vec::with_capacity(addresses.len());
        for address in addresses {
            let options = UdpOptions { kernel_time: false, ..UdpOptions::default() };
            let opened = socket::player(*address, &options)?;
            let socket = driver
                .register(opened.fd, SocketKind::Datagram)
                .map_err(|why| StartError::other("register a socket", why))?;
            servers.push(Server { socket, address: opened.local, source: LocalIp::UNSPECIFIED });
        }
        Ok(Self { driver, servers })
    }

    /// Where the servers listen.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.servers.iter().map(|server| server.address)
    }

    /// Wakes the loop.
    pub(super) fn bell(&self) -> Bell {
        self.driver.bell()
    }

    /// Datagrams that the kernel has dropped at these sockets.
    pub(super) fn kernel_drops(&self) -> u64 {
        self.servers.iter().map(|server| self.driver.dropped_at(server.socket)).sum()
    }

    /// Shows everything that has arrived to `handle`: which server, from whom, what. It writes an
    /// answer and returns its length, 0 for none. Waits where nothing has arrived.
    pub(super) fn turn(
        &mut self,
        at_most: Duration,
        mut handle: impl FnMut(usize, Endpoint, &[u8], &mut [u8; TX_SLOT_BYTES]) -> usize,
    ) -> io::Result<()> {
        self.driver.turn(Wait::AtMost(at_most))?;
        let Self { driver, servers } = self;
        let Batches { rx, tx, mut out } = driver.batches();
        for (meta, bytes) in rx.iter_mut() {
            let Some(index) = servers.iter().position(|server| server.socket == meta.socket) else {
                continue;
            };
            servers[index].source = meta.local;
            let target =
                TxTarget { socket: meta.socket, peer: Some(meta.peer), source: meta.local };
            send(&mut out, tx, target, |slot| handle(index, meta.peer, bytes, slot));
        }
        self.flush();
        Ok(())
    }

    /// Sends a datagram that answers nothing; to be flushed.
    pub(super) fn send(&mut self, server: usize, to: Endpoint, bytes: &[u8]) {
        let Server { socket, source, .. } = self.servers[server];
        let target = TxTarget { socket, peer: Some(to), source };
        let Batches { tx, mut out, .. } = self.driver.batches();
        send(&mut out, tx, target, |slot| {
            slot[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        let Batches { tx, mut out, .. } = self.driver.batches();
        flush(&mut out, tx);
    }
}

fn send(
    out: &mut impl Flush,
    tx: &mut TxBatch,
    target: TxTarget,
    write: impl FnOnce(&mut [u8; TX_SLOT_BYTES]) -> usize,
) {
    if tx.small_left() == 0 {
        flush(out, tx);
    }
    let Some(room) = tx.room() else { return };
    match write(room.slot) {
        0 => {}
        len => drop(room.send(len, target, 0)),
    }
}

/// What the kernel does not take is lost, as it would be for any game server.
fn flush(out: &mut impl Flush, tx: &mut TxBatch) {
    if !tx.is_empty() {
        out.flush(tx);
    }
}

const TX_SLOTS: u16 = 256;
