//! The loop of a stand-in over UDP: takes in what has arrived, batch by batch, and sends what is
//! said to it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp, RxBatch, SocketId, TxBatch, TxTarget};
use ringgate_core::limits::TX_SLOT_BYTES;
use ringgate_io::socket::{self, UdpOptions, socket_drops};
use ringgate_io::{AnyDriver, Bell, Choice, Driver, DriverOptions, SocketKind, StartError, Wait};

/// A driver with a socket for each server that is stood in for.
#[derive(Debug)]
pub(super) struct Sockets {
    driver: AnyDriver,
    rx: RxBatch,
    tx: TxBatch,
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
        let (mut driver, rx) = ringgate_io::open(io, &DriverOptions::default())?;
        let mut servers = Vec::with_capacity(addresses.len());
        for address in addresses {
            let options = UdpOptions { kernel_time: false, ..UdpOptions::default() };
            let opened = socket::player(*address, &options)?;
            let socket = driver
                .register(opened.fd, SocketKind::Datagram)
                .map_err(|why| StartError::other("register a socket", why))?;
            servers.push(Server { socket, address: opened.local, source: LocalIp::UNSPECIFIED });
        }
        Ok(Self { driver, rx, tx: TxBatch::new(TX_SLOTS, 0), servers })
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
        let fds = self.servers.iter().filter_map(|server| self.driver.fd(server.socket));
        fds.filter_map(|fd| socket_drops(fd).ok()).map(u64::from).sum()
    }

    /// Shows everything that has arrived to `handle`: which server, from whom, what. It writes an
    /// answer and returns its length, 0 for none. Waits where nothing has arrived.
    pub(super) fn turn(
        &mut self,
        at_most: Duration,
        mut handle: impl FnMut(usize, Endpoint, &[u8], &mut [u8; TX_SLOT_BYTES]) -> usize,
    ) -> io::Result<()> {
        self.driver.turn(&mut self.rx, Wait::AtMost(at_most))?;
        let Self { driver, rx, tx, servers } = self;
        for (meta, bytes) in rx.iter_mut() {
            let Some(index) = servers.iter().position(|server| server.socket == meta.socket) else {
                continue;
            };
            servers[index].source = meta.local;
            let target =
                TxTarget { socket: meta.socket, peer: Some(meta.peer), source: meta.local };
            send(driver, tx, target, |out| handle(index, meta.peer, bytes, out));
        }
        self.flush();
        Ok(())
    }

    /// Sends something of its own accord; to be flushed.
    pub(super) fn send(&mut self, server: usize, to: Endpoint, bytes: &[u8]) {
        let Server { socket, source, .. } = self.servers[server];
        let target = TxTarget { socket, peer: Some(to), source };
        send(&mut self.driver, &mut self.tx, target, |out| {
            out[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        flush(&mut self.driver, &mut self.tx);
    }
}

fn send(
    driver: &mut AnyDriver,
    tx: &mut TxBatch,
    target: TxTarget,
    write: impl FnOnce(&mut [u8; TX_SLOT_BYTES]) -> usize,
) {
    if tx.small_left() == 0 {
        flush(driver, tx);
    }
    let Some(slot) = tx.slot() else { return };
    match write(slot) {
        0 => {}
        len => drop(tx.commit(len, target, 0)),
    }
}

/// What the kernel does not take is lost, as it would be for any game server.
fn flush(driver: &mut AnyDriver, tx: &mut TxBatch) {
    if !tx.is_empty() {
        driver.flush(tx);
        tx.clear();
    }
}

const TX_SLOTS: usize = 256;
