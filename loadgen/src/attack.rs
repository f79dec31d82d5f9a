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

mod unreal;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp, SocketId, TxTarget};
use ringgate_core::netcode::{Client, ConnectToken};
use ringgate_core::proto::netcode::VERSION_INFO;
use ringgate_core::proto::netcode::packet::PacketKind;
use ringgate_core::proto::netcode::request::{REQUEST_BYTES, encode_request};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{AnyDriver, Choice, Driver, DriverOptions, SocketKind, StartError, Wait};
use ringgate_os::clock::{self, Clock};
use ringgate_os::signals;

use self::unreal::{Arsenal, Weapon};
use crate::books::Hostile;
use crate::rng::Rng;
use crate::swarm::{Protocol, loopback_address};

/// What an attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Random bytes of random length from random addresses.
    Junk,
    /// Connection requests that look right and hold no valid token, from random addresses.
    ForgedRequest,
    /// One valid token's request, from ever new addresses.
    ReplayedToken,
    /// A real session's packets, recorded and sent again, from its address and from others.
    ReplayedCapture,
    /// Payloads with live players' addresses and tags that are guessed.
    ForgedPayload,
    /// Goodbyes with live players' addresses and tags that are guessed.
    ForgedDisconnect,
    /// Valid requests from ever new addresses whose challenge is never answered.
    SlowHandshake,
    /// Random bytes behind the right magic, from random addresses.
    UnrealJunk,
    /// Initial connects from random addresses, whose challenges nobody answers.
    UnrealInitial,
    /// Responses to challenges that were never sent, with cookies that are guessed.
    UnrealForgedResponse,
    /// A valid response, from its own address again and again, and from others.
    UnrealReplayedResponse,
    /// Claims of other players' sessions, with cookies that are guessed, from an address that
    /// proves itself.
    UnrealForgedRestart,
    /// Game packets from addresses that nobody plays at: bait for requests to restart.
    UnrealGame,
    /// Game packets with live players' addresses and numbers that are guessed.
    UnrealForgedGame,
}

impl Kind {
    /// What the attacker needs to know for it, where it is about Unreal.
    const fn weapon(self) -> Option<Weapon> {
        Some(match self {
            Self::UnrealJunk => Weapon::Junk,
            Self::UnrealInitial => Weapon::Initial,
            Self::UnrealForgedResponse => Weapon::ForgedResponse,
            Self::UnrealReplayedResponse => Weapon::Response,
            Self::UnrealForgedRestart => Weapon::ForgedRestart,
            Self::UnrealGame | Self::UnrealForgedGame => Weapon::Game,
            _ => return None,
        })
    }

    /// Whether it has live players' addresses.
    const fn wears_mask(self) -> bool {
        matches!(self, Self::ForgedPayload | Self::ForgedDisconnect | Self::UnrealForgedGame)
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        use clap::ValueEnum;
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it makes sense against players of that protocol.
    pub const fn suits(self, protocol: &Protocol) -> bool {
        matches!(self, Self::Junk)
            || matches!(protocol, Protocol::Unreal(_)) == self.weapon().is_some()
    }
}

/// What an attack is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do.
    pub kind: Kind,
    /// Datagrams per second.
    pub rate: u64,
    /// The gateway.
    pub server: SocketAddr,
    /// The protocol id, which anybody can learn from a request on the wire.
    pub protocol_id: u64,
    /// What honest players speak, with tokens for attacks that need valid ones.
    pub protocol: Protocol,
    /// Players whose addresses forgeries bear, and the first of these addresses.
    pub victims: (u32, u32),
    /// Driver.
    pub io: Choice,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harvest {
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes in them.
    pub sent_bytes: u64,
    /// Datagrams that were due and not sent, because the kernel or this machine could not.
    pub unsent: u64,
    /// Datagrams that came back.
    pub answers: u64,
    /// Bytes in them.
    pub answer_bytes: u64,
    /// Payloads that the attacker's own session sent while it was recorded.
    pub payloads: u64,
    /// And what came back of them.
    pub payload_answers: u64,
}

impl Options {
    /// The address of some live player.
    fn victim(&self, rng: &mut Rng) -> u32 {
        let (count, first) = self.victims;
        loopback_address(first, rng.below(u64::from(count.max(1))) as u32)
    }
}

impl Harvest {
    /// What the books need to know of it.
    pub const fn hostile(&self) -> Hostile {
        Hostile {
            sent: self.sent,
            answers: self.answers,
            payloads: self.payloads,
            payload_answers: self.payload_answers,
        }
    }

    /// Bytes out of the gateway for each byte in.
    pub fn amplification(&self) -> f64 {
        if self.sent_bytes == 0 { 0.0 } else { self.answer_bytes as f64 / self.sent_bytes as f64 }
    }
}

/// How an attacker is told to end, in two steps: its last answers belong into the books as well.
#[derive(Debug, Default)]
pub struct Orders {
    /// Send nothing more.
    pub hold_fire: AtomicBool,
    /// Need not listen either.
    pub go_home: AtomicBool,
}

/// An attacker that is ready.
#[derive(Debug)]
pub struct Attacker {
    options: Options,
    driver: AnyDriver,
    /// Its own socket.
    own: SocketId,
    /// Sends through the players' socket and never receives from it: this driver takes no turns.
    mask: Option<(AnyDriver, SocketId)>,
    rng: Rng,
    /// What is sent again and again.
    recorded: Vec<Vec<u8>>,
    /// The address that the recording was made from.
    recorded_from: u32,
    /// What is known of an Unreal listener.
    arsenal: Option<Arsenal>,
    harvest: Harvest,
    made: u64,
}

impl Attacker {
    /// Opens sockets. `mask` is a copy of the players' socket.
    pub fn open(options: Options, mask: Option<OwnedFd>) -> Result<Self, StartError> {
        let small =
            DriverOptions { tx_datagrams: BATCH as u16, tx_bundles: 0, ..DriverOptions::default() };
        let mut driver = ringgate_io::open(options.io, &small)?;
        let fail = |why| StartError::other("register a socket", why);
        let opened = socket::player(SocketAddr::from(([0, 0, 0, 0], 0)), &UdpOptions::default())?;
        let own = driver.register(opened.fd, SocketKind::Datagram).map_err(fail)?;
        let mask = match mask {
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
            mask,
            rng: Rng::new(0xbad),
            recorded: Vec::new(),
            recorded_from: FIRST_ADDRESS,
            arsenal: None,
            harvest: Harvest::default(),
            made: 0,
        })
    }

    /// Gets ready, which is this thread's business because a ring belongs to the thread of its
    /// first turn, attacks until told to hold fire, and listens until told to go home.
    pub fn run(&mut self, orders: &Orders) -> io::Result<Harvest> {
        self.prepare()?;
        let clock = Clock::start();
        let is_interrupted = || signals::kept().is_some();
        while !orders.hold_fire.load(Ordering::Relaxed) && !is_interrupted() {
            self.listen(Duration::from_millis(1))?;
            let due =
                (u128::from(clock.now_ns()) * u128::from(self.options.rate) / 1_000_000_000) as u64;
            let behind = due.saturating_sub(self.made);
            // What would have to be made up for at once is not: an attacker's burst would be
            // another attack.
            let skipped = behind.saturating_sub(self.options.rate / 20 + 1);
            self.harvest.unsent += skipped;
            self.made += skipped;
            self.send((behind - skipped).min(BATCH as u64) as usize);
        }
        while !orders.go_home.load(Ordering::Relaxed) {
            self.listen(Duration::from_millis(10))?;
        }
        Ok(self.harvest)
    }

    fn listen(&mut self, at_most: Duration) -> io::Result<()> {
        self.driver.turn(Wait::AtMost(at_most))?;
        let is_netcode = matches!(self.options.protocol, Protocol::Netcode(_));
        for (meta, bytes) in self.driver.rx().iter_mut() {
            self.harvest.answers += 1;
            self.harvest.answer_bytes += meta.len() as u64;
            self.harvest.payload_answers += u64::from(is_netcode && is_payload(bytes));
        }
        Ok(())
    }

    fn send(&mut self, datagrams: usize) {
        for _ in 0..datagrams {
            let (address, len) = self.make();
            let target = self.target(address);
            let is_masked = self.options.kind.wears_mask();
            sender(&mut self.driver, &mut self.mask, is_masked).tx().commit(len, target, 0);
            self.made += 1;
        }
        self.flush(self.options.kind.wears_mask());
    }

    /// Sends what waits: behind the players' mask, or as the attacker's own.
    fn flush(&mut self, is_masked: bool) {
        let driver = sender(&mut self.driver, &mut self.mask, is_masked);
        driver.flush();
        let tx = driver.tx();
        let (mut failed, mut failed_bytes) = (0, 0);
        for (entry, _, _) in tx.failures() {
            failed += 1;
            failed_bytes += entry.len() as u64;
        }
        let all_bytes: u64 = tx.sent().iter().map(|entry| entry.len() as u64).sum();
        self.harvest.unsent += failed;
        self.harvest.sent += tx.sent().len() as u64 - failed;
        self.harvest.sent_bytes += all_bytes - failed_bytes;
    }

    /// Writes the next datagram into the batch's slot. Returns the address it comes from, and its
    /// length.
    fn make(&mut self) -> (u32, usize) {
        let Self { options, rng, driver, mask, recorded, recorded_from, .. } = self;
        let tx = sender(driver, mask, options.kind.wears_mask()).tx();
        let slot = tx.slot().expect("a batch is as large as what is sent at once");
        let count = self.made as u32;
        match options.kind {
            Kind::Junk => {
                let len = rng.between(1, 1400) as usize;
                fill(rng, &mut slot[..len]);
                (random_address(rng.word()), len)
            }
            Kind::ForgedRequest => {
                fill(rng, &mut slot[..REQUEST_BYTES]);
                slot[0] = 0;
                slot[1..14].copy_from_slice(VERSION_INFO);
                slot[14..22].copy_from_slice(&options.protocol_id.to_le_bytes());
                slot[22..30].copy_from_slice(&(clock::unix_seconds() + 60).to_le_bytes());
                (random_address(rng.word()), REQUEST_BYTES)
            }
            Kind::ReplayedToken | Kind::SlowHandshake => {
                let bytes = &recorded[count as usize % recorded.len()];
                slot[..bytes.len()].copy_from_slice(bytes);
                (FIRST_ADDRESS + 1 + count % ADDRESSES, bytes.len())
            }
            Kind::ReplayedCapture => {
                let bytes = &recorded[count as usize % recorded.len()];
                slot[..bytes.len()].copy_from_slice(bytes);
                let len = bytes.len();
                let address =
                    if rng.below(2) == 0 { *recorded_from } else { random_address(rng.word()) };
                (address, len)
            }
            Kind::ForgedPayload | Kind::ForgedDisconnect => {
                let (kind, len) = match options.kind {
                    Kind::ForgedDisconnect => (PacketKind::Disconnect, 1 + 4 + 16),
                    _ => (PacketKind::Payload, 1 + 4 + 100 + 16),
                };
                fill(rng, &mut slot[..len]);
                slot[0] = 4 << 4 | kind as u8;
                // A plausible sequence: not too far from what a session has reached after some
                // seconds.
                slot[1..5].copy_from_slice(&(rng.below(2000) as u32).to_le_bytes());
                (options.victim(rng), len)
            }
            kind => {
                let Some((arsenal, weapon)) = self.arsenal.as_ref().zip(kind.weapon()) else {
                    unreachable!("whoever attacks Unreal has learned how")
                };
                let len = arsenal.write(weapon, rng, slot);
                let address = match kind {
                    Kind::UnrealForgedRestart => *recorded_from,
                    Kind::UnrealReplayedResponse if rng.below(2) == 0 => *recorded_from,
                    Kind::UnrealForgedGame => options.victim(rng),
                    _ => random_address(rng.word()),
                };
                (address, len)
            }
        }
    }

    fn target(&self, address: u32) -> TxTarget {
        let socket = match &self.mask {
            Some((_, socket)) if self.options.kind.wears_mask() => *socket,
            _ => self.own,
        };
        let source = LocalIp::v4(address.to_be_bytes(), 0);
        TxTarget { socket, peer: Some(Endpoint::from(self.options.server)), source }
    }

    fn prepare(&mut self) -> io::Result<()> {
        match self.options.kind {
            Kind::ReplayedToken => self.recorded.push(self.request(1)?),
            Kind::SlowHandshake => {
                for client in 0..SLOW_TOKENS {
                    let request = self.request(client)?;
                    self.recorded.push(request);
                }
            }
            Kind::ReplayedCapture => self.record()?,
            Kind::Junk | Kind::ForgedRequest | Kind::ForgedPayload | Kind::ForgedDisconnect => {}
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
        let arsenal = Arsenal::learn(profile, &mut rng, |datagram| self.ask(datagram))?;
        (self.arsenal, self.rng) = (Some(arsenal), rng);
        Ok(())
    }

    /// Sends a datagram until an answer comes.
    fn ask(&mut self, datagram: &[u8]) -> io::Result<Vec<u8>> {
        let clock = Clock::start();
        while clock.now_ns() < CAPTURE_NS_MAX {
            let target = TxTarget {
                socket: self.own,
                peer: Some(Endpoint::from(self.options.server)),
                source: LocalIp::v4(self.recorded_from.to_be_bytes(), 0),
            };
            let tx = self.driver.tx();
            if let Some(slot) = tx.slot() {
                slot[..datagram.len()].copy_from_slice(datagram);
                tx.commit(datagram.len(), target, 0);
            }
            self.flush(false);
            self.listen(ASK_EVERY)?;
            if let Some((_, answer)) = self.driver.rx().iter_mut().next() {
                return Ok(answer.to_vec());
            }
        }
        Err(io::Error::other("nobody answers the attacker's initial connect"))
    }

    /// A token of the attacker's own.
    fn token(&self, client: u64) -> io::Result<ConnectToken> {
        let Protocol::Netcode(tokens) = &self.options.protocol else {
            return Err(io::Error::other("this attack is one on netcode listeners"));
        };
        let token = tokens.take(ATTACKER_IDS + client, clock::unix_seconds());
        token.ok_or_else(|| io::Error::other("no connect token is left"))
    }

    /// A valid request.
    fn request(&self, client: u64) -> io::Result<Vec<u8>> {
        let token = self.token(client)?;
        let mut request = [0; REQUEST_BYTES];
        encode_request(&token, &mut request);
        Ok(request.to_vec())
    }

    /// Plays a session of its own and keeps what was sent.
    fn record(&mut self) -> io::Result<()> {
        let token = self.token(0)?;
        let mut client = Client::new(&token, 0).map_err(|why| io::Error::other(why.to_string()))?;
        let clock = Clock::start();
        let mut out = [0; 1536];
        while self.recorded.len() < CAPTURE_LEN {
            let now_ns = clock.now_ns();
            if now_ns > CAPTURE_NS_MAX {
                return Err(io::Error::other(
                    "the gateway did not let the attacker's own player in",
                ));
            }
            let first = self.recorded.len();
            if client.is_connected()
                && let Ok((_, bytes)) = client.write_payload(now_ns, &[7; 100], &mut out)
            {
                self.recorded.push(bytes.to_vec());
                self.harvest.payloads += 1;
            }
            while let Some((_, bytes)) = client.poll_transmit(now_ns, &mut out) {
                self.recorded.push(bytes.to_vec());
            }
            let target = self.target(self.recorded_from);
            for bytes in &self.recorded[first..] {
                let tx = self.driver.tx();
                let Some(slot) = tx.slot() else { break };
                slot[..bytes.len()].copy_from_slice(bytes);
                tx.commit(bytes.len(), target, 0);
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

/// What sends: behind the players' mask, or as the attacker's own.
fn sender<'a>(
    own: &'a mut AnyDriver,
    mask: &'a mut Option<(AnyDriver, SocketId)>,
    is_masked: bool,
) -> &'a mut AnyDriver {
    match mask {
        Some((driver, _)) if is_masked => driver,
        _ => own,
    }
}

/// Starts an attack in a thread of its own.
pub fn spawn(
    mut attacker: Attacker,
    orders: Arc<Orders>,
) -> io::Result<std::thread::JoinHandle<io::Result<Harvest>>> {
    std::thread::Builder::new().name("attacker".into()).spawn(move || attacker.run(&orders))
}

/// What the prefix says, which anybody can read.
fn is_payload(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & 15 == PacketKind::Payload as u8)
}

fn fill(rng: &mut Rng, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.word().to_le_bytes()[..chunk.len()]);
    }
}

fn random_address(word: u64) -> u32 {
    FIRST_ADDRESS + (word % u64::from(ADDRESSES)) as u32
}

/// 127.1.0.0: attackers live below the players.
const FIRST_ADDRESS: u32 = 0x7f01_0000;

/// Up to 127.15.255.255.
const ADDRESSES: u32 = 0x000f_0000;

/// Datagrams sent at once.
const BATCH: usize = 512;

/// Valid tokens of the slow handshakes: more than a gateway should be ready to wait for.
const SLOW_TOKENS: u64 = 20_000;

/// Attackers' client ids begin here; players' are below.
const ATTACKER_IDS: u64 = 1 << 63;

/// Packets of a capture.
const CAPTURE_LEN: usize = 200;

/// Between two initial connects of an attacker who has not been answered.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// A capture takes two round trips and some turns.
const CAPTURE_NS_MAX: u64 = 5_000_000_000;
