//! What this kernel can do at all: an echo without sessions and ciphers, and a relay of two hops
//! without them.
//!
//! Both use the same drivers as the gateway, so what is left between them and it is the gateway's
//! own work.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringgate_batch::{Batches, Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, StartError, Wait,
};

/// Sends everything back, or on to a game process and from there back.
#[derive(Debug)]
pub struct Bare {
    driver: AnyDriver,
    /// Where players are answered from; the first also brings them what comes back over the link.
    players: SocketId,
    link: Option<Link>,
    /// Where it can be reached.
    pub addresses: Vec<SocketAddr>,
}

/// The second hop: every player has a loopback address of its own there, which is also its address
/// here.
#[derive(Debug)]
struct Link {
    socket: SocketId,
    to: Endpoint,
    /// Players' ports, by the low bits of their address.
    ports: Vec<u16>,
}

impl Bare {
    /// Binds to addresses; with `behind`, everything that comes to the first goes through there.
    pub fn open(
        choice: Choice,
        binds: &[SocketAddr],
        behind: Option<SocketAddr>,
    ) -> Result<Self, StartError> {
        let options =
            DriverOptions { tx_datagrams: 512, tx_bundles: 0, ..DriverOptions::default() };
        let mut driver = ringgate_io::open(choice, &options)?;
        let register = |driver: &mut AnyDriver, fd| {
            driver
                .register(fd, SocketKind::Datagram)
                .map_err(|why| StartError::other("register a socket", why))
        };
        let (mut players, mut addresses) = (None, Vec::new());
        for bind in binds {
            let opened = socket::player(*bind, &UdpOptions::default())?;
            addresses.push(opened.local);
            let socket = register(&mut driver, opened.fd)?;
            players = players.or(Some(socket));
        }
        let players =
            players.ok_or_else(|| StartError::other("bind", io::ErrorKind::InvalidInput.into()))?;
        let link = match behind {
            None => None,
            Some(to) => {
                let opened =
                    socket::udp_link(&UdpOptions { kernel_time: false, ..UdpOptions::default() })?;
                let socket = register(&mut driver, opened.fd)?;
                Some(Link { socket, to: to.into(), ports: vec![0; 1 << INDEX_BITS] })
            }
        };
        Ok(Self { driver, players, link, addresses })
    }

    /// Runs until `is_over` says so, which is asked at least ten times a second.
    pub fn run(&mut self, is_over: impl Fn() -> bool) -> io::Result<()> {
        while !is_over() {
            self.driver.turn(Wait::AtMost(Duration::from_millis(100)))?;
            for index in 0..self.driver.rx().len() {
                self.pass_on(index);
            }
            self.flush();
        }
        Ok(())
    }

    fn pass_on(&mut self, index: usize) {
        let Batches { rx, tx, .. } = self.driver.batches();
        let meta = rx.metas()[index];
        let target = match &mut self.link {
            None => TxTarget { socket: meta.socket, peer: Some(meta.peer), source: meta.local },
            Some(link) if meta.socket == self.players => {
                link.ports[place(meta.peer.ip())] = meta.peer.port();
                let source = match meta.peer.ip() {
                    IpAddr::V4(ip) => LocalIp::v4(ip.octets(), 0),
                    IpAddr::V6(_) => return,
                };
                TxTarget { socket: link.socket, peer: Some(link.to), source }
            }
            Some(link) => {
                let IpAddr::V4(ip) = meta.local.ip() else { return };
                let port = link.ports[place(ip.into())];
                let peer = Some(Endpoint::v4(ip.octets(), port));
                TxTarget { socket: self.players, peer, source: LocalIp::UNSPECIFIED }
            }
        };
        let bytes = rx.bytes(index);
        if let Some(room) = tx.room() {
            room.send_copy(bytes, target, 0);
        }
        if tx.small_left() == 0 {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.driver.tx().is_empty() {
            self.driver.flush();
        }
    }
}

fn place(ip: IpAddr) -> usize {
    match ip {
        IpAddr::V4(ip) => u32::from(ip) as usize & ((1 << INDEX_BITS) - 1),
        IpAddr::V6(_) => 0,
    }
}

/// What tells addresses of a loopback network, or of a block of players', from each other.
const INDEX_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::players::{FIRST_PLAYER, loopback_address};

    #[test]
    fn no_two_players_share_a_place_whatever_their_thread() {
        let place_of = |thread: u32| {
            place(loopback_address(FIRST_PLAYER + (thread << 20), 7).to_be_bytes().into())
        };
        let places: std::collections::HashSet<_> = (0..15).map(place_of).collect();
        assert_eq!(places.len(), 15);
    }
}
