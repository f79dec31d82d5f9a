//! A driver with its batches, and the waiting that every test of it needs.
//!
//! [`on_both_drivers`] runs the same function on either driver. Where io_uring is missing the uring
//! half skips aloud; with `REQUIRE_URING=1` in the environment it fails instead.

use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Endpoint, IoEvent, LocalIp, RxMeta, SendFailure, SocketId, TxTarget};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, Wait,
};
use ringgate_os::clock::Clock;

/// Runs each function as a test on both drivers.
macro_rules! on_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod mmsg {
            $( #[test] fn $name() {
                super::$name(&mut crate::io_rig::Rig::mmsg());
            } )+
        }
        mod uring {
            $( #[test] fn $name() {
                if let Some(mut rig) = crate::io_rig::Rig::uring() {
                    super::$name(&mut rig);
                }
            } )+
        }
    };
}
pub(crate) use on_both_drivers;

pub(crate) struct Rig {
    pub(crate) driver: AnyDriver,
}

/// What turns have brought, copied out of the batch.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) datagrams: Vec<(RxMeta, Vec<u8>)>,
    pub(crate) events: Vec<IoEvent>,
}

impl Rig {
    pub(crate) fn mmsg() -> Self {
        Self::open(Choice::Mmsg).expect("mmsg works everywhere")
    }

    pub(crate) fn uring() -> Option<Self> {
        match Self::open(Choice::Uring) {
            Ok(rig) => Some(rig),
            Err(why) => {
                let required = std::env::var_os("REQUIRE_URING").is_some_and(|v| v == "1");
                assert!(!required, "REQUIRE_URING=1, but: {why}");
                eprintln!("SKIPPED: {why}");
                None
            }
        }
    }

    /// Another driver of the same kind.
    pub(crate) fn alike(&self) -> Self {
        let choice = if self.driver.name() == "uring" { Choice::Uring } else { Choice::Mmsg };
        Self::open(choice).expect("there is one already")
    }

    /// Whether io_uring works here. Asked in a thread of its own: a ring that is closed interrupts
    /// what the thread that opened it waits for next, and a test waits for answers.
    pub(crate) fn uring_works() -> bool {
        let asked = std::thread::spawn(|| Self::uring().is_some()).join();
        asked.unwrap_or_else(|why| std::panic::resume_unwind(why))
    }

    fn open(choice: Choice) -> Result<Self, io::StartError> {
        let options =
            DriverOptions { tx_datagrams: 512, tx_bundles: 8, ..DriverOptions::default() };
        Ok(Self { driver: io::open(choice, &options)? })
    }

    /// A registered player socket and the address to reach it at.
    pub(crate) fn player(&mut self, address: &str) -> (SocketId, SocketAddr) {
        let socket = socket::player(address.parse().expect("literal"), &UdpOptions::default())
            .expect("loopback can be bound");
        let local = socket.local;
        let id = self.driver.register(socket.fd, SocketKind::Datagram).expect("registers");
        (id, local)
    }

    /// Puts a datagram into the outgoing batch.
    pub(crate) fn queue(&mut self, target: TxTarget, bytes: &[u8]) {
        let room = self.driver.tx().room().expect("a free slot");
        room.send_copy(bytes, target, 0);
    }

    /// Sends what is queued. Returns the failures by the entry's position.
    pub(crate) fn flush(&mut self) -> Vec<(usize, SendFailure)> {
        self.driver.flush();
        let tx = self.driver.tx();
        let entries = tx.sent();
        let position = |entry: &ringgate_batch::TxEntry| {
            entries
                .iter()
                .position(|e| e.offset() == entry.offset())
                .expect("an entry of the batch")
        };
        tx.failures().map(|(entry, _, why)| (position(entry), why)).collect()
    }

    /// Turns until `enough`, for as long as a very slow machine may need.
    pub(crate) fn turn_until(&mut self, enough: impl Fn(&Seen) -> bool) -> Seen {
        let mut seen = Seen::default();
        let clock = Clock::start();
        while clock.now_ns() < PATIENCE.as_nanos() as u64 {
            self.turn_once(Wait::AtMost(Duration::from_millis(20)), &mut seen);
            if enough(&seen) {
                return seen;
            }
        }
        panic!("not enough has arrived: {seen:?}");
    }

    pub(crate) fn turn_once(&mut self, wait: Wait, seen: &mut Seen) {
        self.driver.turn(wait).expect("the driver lives");
        let rx = self.driver.rx();
        seen.events.extend_from_slice(&rx.events);
        for (meta, bytes) in rx.iter_mut() {
            seen.datagrams.push((*meta, bytes.to_vec()));
        }
    }

    /// Turns until `count` datagrams have arrived.
    pub(crate) fn receive(&mut self, count: usize) -> Vec<(RxMeta, Vec<u8>)> {
        self.turn_until(|seen| seen.datagrams.len() >= count).datagrams
    }

    /// Turns without waiting until nothing arrives.
    pub(crate) fn settle(&mut self) {
        let mut seen = Seen::default();
        while {
            self.turn_once(Wait::No, &mut seen);
            !self.driver.rx().is_empty()
        } {}
    }
}

/// To `peer` through `socket`, from whatever address the socket has.
pub(crate) fn to(socket: SocketId, peer: SocketAddr) -> TxTarget {
    TxTarget { socket, peer: Some(Endpoint::from(peer)), source: LocalIp::UNSPECIFIED }
}

/// Back to where a datagram came from, leaving from where it had been sent to.
pub(crate) fn answer(meta: &RxMeta) -> TxTarget {
    TxTarget { socket: meta.socket, peer: Some(meta.peer), source: meta.local }
}

/// A plain socket of the standard library, to play the other side.
pub(crate) fn outsider(address: &str) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind(address).expect("loopback can be bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    socket
}

/// Receives one datagram.
pub(crate) fn hear(socket: &std::net::UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    let (len, from) = socket.recv_from(&mut buffer).expect("a datagram within a minute");
    (buffer[..len].to_vec(), from)
}

const PATIENCE: Duration = Duration::from_mins(1);
