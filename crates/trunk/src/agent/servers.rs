//! Game servers on this host that speak plain UDP and know nothing of gateways: towards the gateway
//! the agent is their game process, and towards them it is their players, each with a loopback
//! address of its own.
//!
//! A server knows a player by that address alone, so a player keeps it while a trunk is down: who
//! is announced again afterwards is the same player to the server.

mod handed;

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::time::Duration;

use crate::protocol::relay::Game;
use ringgate_batch::{Driver, Endpoint, IoEvent, Port, SocketId, TxTarget, Wait};
use ringgate_io::{AnyDriver, Choice, DriverOptions, SocketDriver, StartError};
use ringgate_link::bundle::{
    Frame, LONG_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX, SessionId, ToGame, Writer,
};
use ringgate_os::diag::SocketTable;

use crate::agent::counts::{Counts, Drop};
use crate::agent::numbers::{Number, Numbers};
use crate::agent::options::{Backend, Link};

/// The servers of an agent, as one of its threads sees them.
#[derive(Debug)]
pub(crate) struct Servers {
    driver: AnyDriver,
    socket: SocketId,
    all: Vec<Server>,
    /// Asks the kernel who listens. `None` where it does not say: then a server is there until it
    /// refuses.
    table: Option<SocketTable>,
    numbers: Numbers,
    players: HashMap<SessionId, Number>,
    homes: HashMap<Number, Player>,
    scratch: Box<[u8]>,
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    address: SocketAddr,
    endpoint: Endpoint,
    pub(crate) is_there: bool,
    /// The config does not have it any more: nobody new comes, and who plays plays on.
    pub(crate) is_retired: bool,
}

impl Server {
    /// That of a backend, if it is one.
    fn of(backend: &Backend) -> Option<Self> {
        let Link::Udp(address) = backend.link else { return None };
        Some(Self {
            name: backend.name.clone(),
            address: address.into(),
            endpoint: SocketAddr::from(address).into(),
            is_there: false,
            is_retired: false,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.name, self.address) == (&other.name, other.address)
    }
}

/// A player of one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Player {
    /// Which of the thread's stations it belongs to.
    pub(crate) station: usize,
    pub(crate) session: SessionId,
    server: usize,
    bytes_max: usize,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Announced on this link.
    Here(Game),
    /// The link is gone since then; the player may be announced again.
    Kept { since_ns: u64 },
}

impl Servers {
    /// Those of the backends that speak plain UDP. `None` where there are none. What is waited for
    /// besides is readable.
    pub(crate) fn open(backends: &[Backend], beside: RawFd) -> Result<Option<Self>, StartError> {
        let Some(mut servers) = Self::without_socket(backends, beside)? else { return Ok(None) };
        servers.socket = servers.driver.open(&Port::UdpLink)?;
        Ok(Some(servers))
    }

    fn without_socket(backends: &[Backend], beside: RawFd) -> Result<Option<Self>, StartError> {
        let all: Vec<_> = backends.iter().filter_map(Server::of).collect();
        if all.is_empty() {
            return Ok(None);
        }
        let mut driver = ringgate_io::open(Choice::Mmsg, &DriverOptions::default())?;
        driver.watch(beside);
        Ok(Some(Self {
            driver,
            socket: SocketId(u32::MAX),
            all,
            table: SocketTable::open().ok(),
            numbers: Numbers::default(),
            players: HashMap::new(),
            homes: HashMap::new(),
            scratch: vec![0; 2048].into_boxed_slice(),
        }))
    }

    /// Waits, and takes in what the servers have sent.
    pub(crate) fn turn(&mut self, at_most: Duration) -> io::Result<()> {
        self.driver.turn(if at_most.is_zero() { Wait::No } else { Wait::AtMost(at_most) })
    }

    /// The servers, by number.
    pub(crate) fn all(&self) -> &[Server] {
        &self.all
    }

    /// Goes by another list: what is not in it is retired, and keeps its number for as long as a
    /// station has it at a link, or somebody plays there.
    pub(crate) fn set(&mut self, backends: &[Backend], is_linked: impl Fn(usize) -> bool) {
        let wanted: Vec<_> = backends.iter().filter_map(Server::of).collect();
        for server in &mut self.all {
            server.is_retired = !wanted.iter().any(|it| it.is_same(server));
        }
        for server in wanted {
            if self.all.iter().any(|it| it.is_same(&server)) {
                continue;
            }
            let is_free = |at: &usize| {
                let has_players = self.homes.values().any(|player| player.server == *at);
                self.all[*at].is_retired && !is_linked(*at) && !has_players
            };
            match (0..self.all.len()).find(is_free) {
                Some(at) => self.all[at] = server,
                None => self.all.push(server),
            }
        }
    }

    /// Looks who is there. Returns whether anything has changed.
    pub(crate) fn look(&mut self) -> bool {
        let Self { all, table, .. } = self;
        let mut has_changed = false;
        for server in all {
            let found = table.as_mut().map(|it| it.receiver(server.address, ASKED_FROM));
            let is_there = match found {
                Some(Ok(receiver)) => receiver.is_some(),
                Some(Err(_)) | None => true,
            };
            has_changed |= std::mem::replace(&mut server.is_there, is_there) != is_there;
        }
        has_changed
    }

    /// Those who have refused a datagram since the last turn are not there. Returns whether there
    /// was one.
    pub(crate) fn take_refusals(&mut self) -> bool {
        let Self { driver, all, .. } = self;
        let mut has_changed = false;
        for event in &driver.rx().events {
            let IoEvent::Unreachable { peer, .. } = event else { continue };
            for server in all.iter_mut().filter(|it| it.endpoint == *peer && it.is_there) {
                server.is_there = false;
                has_changed = true;
            }
        }
        has_changed
    }

    /// Hands over what the servers have sent in the last turn, as payload records.
    pub(crate) fn take(
        &mut self,
        counts: &mut Counts,
        mut deliver: impl FnMut(Player, Game, &[u8]),
    ) {
        let Self { driver, socket, all, homes, scratch, .. } = self;
        let rx = driver.rx();
        for (index, meta) in rx.metas().iter().enumerate() {
            if meta.socket != *socket {
                continue;
            }
            let player = Number::of(&meta.local).and_then(|number| homes.get(&number));
            let Some(player) = player.filter(|it| all[it.server].endpoint == meta.peer) else {
                counts.drop(Drop::ServerStranger, 1);
                continue;
            };
            let bytes = rx.bytes(index);
            let Place::Here(game) = player.place else {
                counts.drop(Drop::LaneDown, 1);
                continue;
            };
            if bytes.is_empty() || meta.truncated || bytes.len() > player.bytes_max {
                counts.drop(Drop::PayloadLength, 1);
                continue;
            }
            counts.passed.datagrams_from_servers += 1;
            let mut writer = Writer::new(scratch);
            if writer.payload(player.session, bytes) {
                deliver(*player, game, writer.bytes());
            }
        }
    }

    /// What the gateway says to a server's link.
    pub(crate) fn hear(
        &mut self,
        (server, station, game): (usize, usize, Game),
        frame: Frame<'_>,
        counts: &mut Counts,
        now_ns: u64,
    ) {
        let player = |session, bytes_max| {
            let place = Place::Here(game);
            Player { station, session, server, bytes_max, place }
        };
        match ToGame::decode(frame) {
            Ok(ToGame::Payload { session, bytes }) => self.send(server, session, bytes, counts),
            Ok(ToGame::Opened(opened)) => {
                self.open_player(player(opened.session, PAYLOAD_BYTES_MAX), counts, now_ns);
            }
            Ok(ToGame::OpenedPlain(opened)) => {
                self.open_player(player(opened.session, LONG_PAYLOAD_BYTES_MAX), counts, now_ns);
            }
            Ok(ToGame::Closed { session, .. }) => self.close_player(session, now_ns),
            // Nothing else is of any use to a server that does not know of it.
            _ => {}
        }
    }

    /// A station's link to the gateway is gone: its players keep their addresses for a while.
    pub(crate) fn keep(&mut self, station: usize, server: usize, now_ns: u64) {
        for player in self.homes.values_mut() {
            if (player.station, player.server) == (station, server) {
                player.place = Place::Kept { since_ns: now_ns };
            }
        }
    }

    /// The same of one player.
    pub(crate) fn keep_player(&mut self, session: SessionId, now_ns: u64) {
        let home = self.players.get(&session).and_then(|number| self.homes.get_mut(number));
        if let Some(player) = home {
            player.place = Place::Kept { since_ns: now_ns };
        }
    }

    /// The gateway of these stations is another one than before: nobody comes back.
    pub(crate) fn forget_kept(&mut self, now_ns: u64) {
        self.close_all(now_ns, |player| matches!(player.place, Place::Kept { .. }));
    }

    /// Gives up those who were not announced again.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        self.close_all(now_ns, |player| match player.place {
            Place::Kept { since_ns } => since_ns + KEPT_NS <= now_ns,
            Place::Here(_) => false,
        });
    }

    /// Sends what was written.
    pub(crate) fn flush(&mut self, counts: &mut Counts) {
        if !self.driver.tx().is_empty() {
            self.driver.flush();
            counts.drop(Drop::ServerFull, self.driver.tx().failures().count() as u64);
        }
    }

    fn send(&mut self, server: usize, session: SessionId, bytes: &[u8], counts: &mut Counts) {
        let Some(number) = self.players.get(&session) else {
            return counts.drop(Drop::PlayerUnknown, 1);
        };
        let peer = Some(self.all[server].endpoint);
        let target = TxTarget { socket: self.socket, peer, source: number.address() };
        if self.driver.tx().small_left() == 0 {
            self.flush(counts);
        }
        if let Some(room) = self.driver.tx().room() {
            room.send_copy(bytes, target, 0);
            counts.passed.datagrams_to_servers += 1;
        }
    }

    fn open_player(&mut self, player: Player, counts: &mut Counts, now_ns: u64) {
        let number = match self.players.get(&player.session) {
            Some(number) => *number,
            None => match self.numbers.take(now_ns) {
                Some(number) => number,
                None => return counts.drop(Drop::AddressesTaken, 1),
            },
        };
        self.players.insert(player.session, number);
        self.homes.insert(number, player);
    }

    fn close_player(&mut self, session: SessionId, now_ns: u64) {
        if let Some(number) = self.players.remove(&session) {
            self.homes.remove(&number);
            self.numbers.give_back(number, now_ns);
        }
    }

    fn close_all(&mut self, now_ns: u64, is_meant: impl Fn(&Player) -> bool) {
        let gone = self.homes.values().filter(|it| is_meant(it)).map(|it| it.session);
        for session in gone.collect::<Vec<_>>() {
            self.close_player(session, now_ns);
        }
    }
}

/// Whoever asks the kernel who listens at an address asks as somebody.
const ASKED_FROM: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(127, 1, 0, 0)), 9);

/// The longest grace of a gateway is ten minutes; most players are given up long before.
const KEPT_NS: u64 = 600_000_000_000;
