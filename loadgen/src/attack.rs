//! Attackers: hostile traffic beside honest players.
//!
//! An attacker is a thread with a driver and addresses of its own (127.1.0.0 to 127.15.255.255 on
//! loopback, which no player has), so everything that the gateway sends back to it is counted:
//! bytes out over bytes in is the amplification. Forgeries *at* live sessions leave through a copy
//! of the honest players' socket, with their very addresses and ports; it is only ever sent
//! through, so the players still hear everything.
//!
//! What an attacker could know is respected: junk and forgeries are made without any key, replays
//! repeat what was really on the wire, and tokens are valid where an attack is about valid tokens.

mod kind;
mod netcode;
mod plain;
mod unreal;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_core::netcode::Client;
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, StartError, Wait,
};
use ringgate_os::clock::Clock;
use ringgate_os::signals;

pub use self::kind::{AttackStats, Kind, Options, Orders};
use self::kind::{FIRST_ADDRESS, Recording, random_address};
use self::unreal::UnrealForger;
use crate::players::Protocol;
use crate::rng::Rng;

/// An attacker that is ready.
#[derive(Debug)]
pub struct Attacker {
    options: Options,
    driver: AnyDriver,
    /// Its own socket.
    own: SocketId,
    /// Sends through the players' socket and never receives from it: this driver takes no turns.
    players_socket: Option<(AnyDriver, SocketId)>,
    rng: Rng,
    recording: Recording,
    /// What is known of an Unreal listener.
    forger: Option<UnrealForger>,
    stats: AttackStats,
    made: u64,
}

impl Attacker {
    /// Opens sockets. `players_socket` is a copy of the one that players send from.
    pub fn open(options: Options, players_socket: Option<OwnedFd>) -> Result<Self, StartError> {
        let small =
            DriverOptions { tx_datagrams: BATCH as u16, tx_bundles: 0, ..DriverOptions::default() };
        let mut driver = ringgate_io::open(options.io, &small)?;
        let fail = |why| StartError::other("register a socket", why);
        let opened = socket::player(SocketAddr::from(([0, 0, 0, 0], 0)), &UdpOptions::default())?;
        let own = driver.register(opened.fd, SocketKind::Datagram).map_err(fail)?;
        let players_socket = match players_socket {
            None => None,
            Some(fd) => {
                let mut driver = ringgate_io::open(Choice::Mmsg, &small)?;
                let socket = driver.register(fd, SocketKind::Datagram).map_err(fail)?;
                Some((driver, socket))
            }
        };
        Ok(Self {
            options,
            driver,
            own,
            players_socket,
            rng: Rng::new(0xbad),
            recording: Recording { packets: Vec::new(), from: FIRST_ADDRESS },
            forger: None,
            stats: AttackStats::default(),
            made: 0,
        })
    }

    /// Gets ready, which is this thread's business because a ring belongs to the thread of its
    /// first turn, attacks until told to stop sending, and listens until told to stop that too.
    pub fn run(&mut self, orders: &Orders) -> io::Result<AttackStats> {
        self.prepare()?;
        let clock = Clock::start();
        let is_interrupted = || signals::kept().is_some();
        while !orders.stop_sending.load(Ordering::Relaxed) && !is_interrupted() {
            self.listen(Duration::from_millis(1))?;
            let due =
                (u128::from(clock.now_ns()) * u128::from(self.options.rate) / 1_000_000_000) as u64;
            let behind = due.saturating_sub(self.made);
            // What would have to be made up for at once is not: an attacker's burst would be
            // another attack.
            let skipped = behind.saturating_sub(self.options.rate / 20 + 1);
            self.stats.unsent += skipped;
            self.made += skipped;
            let datagrams = (behind - skipped).min(BATCH as u64);
            self.take_tokens(self.made + datagrams)?;
            self.send(datagrams as usize);
        }
        while !orders.stop_listening.load(Ordering::Relaxed) {
            self.listen(Duration::from_millis(10))?;
        }
        Ok(self.stats)
    }

    /// Has a request for each of the first so many slow handshakes. All of them at once would take
    /// longer than a short attack lasts.
    fn take_tokens(&mut self, datagrams: u64) -> io::Result<()> {
        if self.options.kind == Kind::SlowHandshake {
            let packets = &mut self.recording.packets;
            for client in packets.len() as u64..datagrams.min(SLOW_TOKENS) {
                packets.push(netcode::request(&self.options.protocol, client)?);
            }
        }
        Ok(())
    }

    fn listen(&mut self, at_most: Duration) -> io::Result<()> {
        self.driver.turn(Wait::AtMost(at_most))?;
        let is_payload = |bytes: &[u8]| match self.options.protocol {
            Protocol::Netcode(_) | Protocol::Messages(..) => netcode::is_payload(bytes),
            Protocol::Plain(_) => true,
            Protocol::Unreal(_) => false,
        };
        for (meta, bytes) in self.driver.rx().iter_mut() {
            self.stats.answers += 1;
            self.stats.answer_bytes += meta.len() as u64;
            self.stats.payload_answers += u64::from(is_payload(bytes));
        }
        Ok(())
    }

    fn send(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            let (address, len) = self.make();
            let target = self.target(address);
            let spoofs_players = self.options.kind.spoofs_players();
            let tx = sender(&mut self.driver, &mut self.players_socket, spoofs_players).tx();
            tx.room().expect("made in it").send(len, target, 0);
            self.made += 1;
        }
        self.flush(self.options.kind.spoofs_players());
    }

    /// Sends what waits: through the players' socket, or through the attacker's own.
    fn flush(&mut self, spoofs_players: bool) {
        let driver = sender(&mut self.driver, &mut self.players_socket, spoofs_players);
        driver.flush();
        let tx = driver.tx();
        let (mut failed, mut failed_bytes) = (0, 0);
        for (entry, _, _) in tx.failures() {
            failed += 1;
            failed_bytes += entry.len() as u64;
        }
        let all_bytes: u64 = tx.sent().iter().map(|entry| entry.len() as u64).sum();
        self.stats.unsent += failed;
        self.stats.sent += tx.sent().len() as u64 - failed;
        self.stats.sent_bytes += all_bytes - failed_bytes;
        if matches!(self.options.protocol, Protocol::Plain(_)) {
            // Every datagram may be a payload.
            self.stats.payloads = self.stats.sent;
        }
    }

    /// Writes the next datagram into the batch's slot. Returns the address it comes from, and its
    /// length.
    fn make(&mut self) -> (u32, usize) {
        let Self { options, rng, driver, players_socket, recording, .. } = self;
        let tx = sender(driver, players_socket, options.kind.spoofs_players()).tx();
        let slot = tx.room().expect("a batch is as large as what is sent at once").slot;
        let count = self.made as u32;
        if let (Protocol::Plain(plain), true) = (&options.protocol, options.kind.is_plain()) {
            return plain::write(options.kind, plain, count, rng, slot);
        }
        let Some((forger, packet)) = self.forger.as_ref().zip(options.kind.packet()) else {
            return netcode::write(options, recording, count, rng, slot);
        };
        let len = forger.write(packet, rng, slot);
        let address = match options.kind {
            Kind::UnrealForgedRestart => recording.from,
            Kind::UnrealReplayedResponse if rng.below(2) == 0 => recording.from,
            Kind::UnrealForgedGame => options.victim(rng),
            _ => random_address(rng.word()),
        };
        (address, len)
    }

    fn target(&self, address: u32) -> TxTarget {
        let socket = match &self.players_socket {
            Some((_, socket)) if self.options.kind.spoofs_players() => *socket,
            _ => self.own,
        };
        let source = LocalIp::v4(address.to_be_bytes(), 0);
        TxTarget { socket, peer: Some(Endpoint::from(self.options.server)), source }
    }

    fn prepare(&mut self) -> io::Result<()> {
        match self.options.kind {
            Kind::ReplayedToken => {
                self.recording.packets.push(netcode::request(&self.options.protocol, 1)?);
            }
            Kind::ReplayedCapture => self.record()?,
            Kind::SlowHandshake
            | Kind::Junk
            | Kind::ForgedRequest
            | Kind::ForgedPayload
            | Kind::ForgedDisconnect => {}
            kind if kind.is_plain() => {}
            _ => self.learn()?,
        }
        Ok(())
    }

    /// Asks an Unreal listener what it is like.
    fn learn(&mut self) -> io::Result<()> {
        let Protocol::Unreal(setup) = &self.options.protocol else {
            return Err(io::Error::other("this attack is one on Unreal listeners: --unreal"));
        };
        let (profile, mut rng) = (setup.profile, self.rng);
        let forger = UnrealForger::learn(profile, &mut rng, |datagram| self.ask(datagram))?;
        (self.forger, self.rng) = (Some(forger), rng);
        Ok(())
    }

    /// Sends a datagram until an answer comes.
    fn ask(&mut self, datagram: &[u8]) -> io::Result<Vec<u8>> {
        let clock = Clock::start();
        while clock.now_ns() < CAPTURE_NS_MAX {
            let target = TxTarget {
                socket: self.own,
                peer: Some(Endpoint::from(self.options.server)),
                source: LocalIp::v4(self.recording.from.to_be_bytes(), 0),
            };
            let tx = self.driver.tx();
            if let Some(room) = tx.room() {
                room.send_copy(datagram, target, 0);
            }
            self.flush(false);
            self.listen(ASK_EVERY)?;
            if let Some((_, answer)) = self.driver.rx().iter_mut().next() {
                return Ok(answer.to_vec());
            }
        }
        Err(io::Error::other("nobody answers the attacker's initial connect"))
    }

    /// Plays a session of its own and keeps what was sent.
    fn record(&mut self) -> io::Result<()> {
        let token = netcode::token(&self.options.protocol, 0)?;
        let mut client = Client::new(&token, 0).map_err(|why| io::Error::other(why.to_string()))?;
        let clock = Clock::start();
        let mut out = [0; 1536];
        while self.recording.packets.len() < CAPTURE_LEN {
            let now_ns = clock.now_ns();
            if now_ns > CAPTURE_NS_MAX {
                return Err(io::Error::other(
                    "the gateway did not let the attacker's own player in",
                ));
            }
            let first = self.recording.packets.len();
            if client.is_connected()
                && let Ok((_, bytes)) = client.write_payload(now_ns, &[7; 100], &mut out)
            {
                self.recording.packets.push(bytes.to_vec());
                self.stats.payloads += 1;
            }
            while let Some((_, bytes)) = client.poll_transmit(now_ns, &mut out) {
                self.recording.packets.push(bytes.to_vec());
            }
            let target = self.target(self.recording.from);
            for bytes in &self.recording.packets[first..] {
                let tx = self.driver.tx();
                let Some(room) = tx.room() else { break };
                room.send_copy(bytes, target, 0);
            }
            self.flush(false);
            self.listen(Duration::from_millis(1))?;
            for (meta, bytes) in self.driver.rx().iter_mut() {
                let _ = client.handle_datagram(clock.now_ns(), meta.peer.into(), bytes);
            }
        }
        Ok(())
    }
}

/// The driver that sends: the one with the players' socket, or the attacker's own.
fn sender<'a>(
    own: &'a mut AnyDriver,
    players_socket: &'a mut Option<(AnyDriver, SocketId)>,
    spoofs_players: bool,
) -> &'a mut AnyDriver {
    match players_socket {
        Some((driver, _)) if spoofs_players => driver,
        _ => own,
    }
}

/// Starts an attack in a thread of its own.
pub fn spawn(
    mut attacker: Attacker,
    orders: Arc<Orders>,
) -> io::Result<std::thread::JoinHandle<io::Result<AttackStats>>> {
    std::thread::Builder::new().name("attacker".into()).spawn(move || attacker.run(&orders))
}

/// Datagrams sent at once.
const BATCH: usize = 512;

/// Valid tokens of the slow handshakes: more than a gateway should be ready to wait for.
const SLOW_TOKENS: u64 = 20_000;

/// Packets of a capture.
const CAPTURE_LEN: usize = 200;

/// Between two initial connects of an attacker who has not been answered.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A capture takes two round trips and some turns.
const CAPTURE_NS_MAX: u64 = 5_000_000_000;
