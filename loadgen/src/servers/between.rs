//! A bad network as a process: takes datagrams for a server, and does to them on the way what the
//! settings say. Any game can be pointed at it.
//!
//! Every player gets a socket of its own towards the server, so that the server tells players apart
//! as it would without it, and a path of its own, so that the same seed treats each the same way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp, Port, RxMeta, SocketId, TxTarget};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    AnyDriver, Choice, Driver, DriverOptions, SocketDriver, SocketKind, StartError, Wait,
};

use crate::players::impair::{Fate, Impairments, Path};

/// What has come of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Came in, from either side.
    pub arrived: u64,
    /// Went on, copies among them.
    pub sent: u64,
    /// Were lost as the settings say.
    pub lost: u64,
    /// Were delayed or held back as the settings say.
    pub delayed: u64,
    /// Found no socket or no memory.
    pub refused: u64,
}

/// The process between players and a server.
#[derive(Debug)]
pub struct Between {
    driver: AnyDriver,
    outside: SocketId,
    /// Where players reach it.
    pub address: SocketAddr,
    server: SocketAddr,
    settings: Impairments,
    players: HashMap<Endpoint, Player>,
    /// Whose socket towards the server that is.
    homes: HashMap<SocketId, Endpoint>,
    /// The first that is due comes first.
    delayed: BinaryHeap<Reverse<Delayed>>,
    delays: u64,
    players_so_far: u32,
    looked_ns: u64,
    /// What has come of datagrams.
    pub passed: Passed,
}

#[derive(Debug)]
struct Player {
    socket: SocketId,
    opened_ns: u64,
    /// The address of ours that it speaks to.
    local: LocalIp,
    path: Path,
    /// A datagram that waits until the next one has left.
    held: Option<Vec<u8>>,
    heard_ns: u64,
}

/// When it is due, how many were delayed before it, whose it is, whether it is for the server, and
/// what it says.
type Delayed = (u64, u64, Endpoint, bool, Vec<u8>);

impl Between {
    /// Listens at an address for players of that server.
    pub fn open(
        listen: SocketAddr,
        server: SocketAddr,
        settings: &Impairments,
    ) -> Result<Self, StartError> {
        let options =
            DriverOptions { tx_datagrams: 512, tx_bundles: 0, ..DriverOptions::default() };
        let mut driver = ringgate_io::open(Choice::Auto, &options)?;
        let options =
            UdpOptions { kernel_time: false, may_fragment: true, ..UdpOptions::default() };
        let opened = socket::player(listen, &options)?;
        let outside = driver
            .register(opened.fd, SocketKind::Datagram)
            .map_err(|why| StartError::other("register a socket", why))?;
        Ok(Self {
            driver,
            outside,
            address: opened.local,
            server,
            settings: settings.clone(),
            players: HashMap::new(),
            homes: HashMap::new(),
            delayed: BinaryHeap::new(),
            delays: 0,
            players_so_far: 0,
            looked_ns: 0,
            passed: Passed::default(),
        })
    }

    /// Passes on what has arrived and what is due, and waits for a moment if nothing is.
    pub fn turn(&mut self, now_ns: impl Fn() -> u64) -> io::Result<()> {
        let due_ns = self.delayed.peek().map_or(u64::MAX, |Reverse((due_ns, ..))| *due_ns);
        let wait_ns = due_ns.saturating_sub(now_ns()).min(PAUSE_NS_MAX);
        self.driver.turn(Wait::AtMost(Duration::from_nanos(wait_ns)))?;
        let now_ns = now_ns();
        // Before what has come after it.
        self.release(now_ns);
        for index in 0..self.driver.rx().len() {
            let rx = self.driver.rx();
            let (meta, bytes) = (rx.metas()[index], rx.bytes(index).to_vec());
            self.handle_datagram(now_ns, &meta, bytes);
        }
        self.driver.flush();
        self.forget_silent(now_ns);
        Ok(())
    }

    /// Another network from now on. What is under way goes by the one before.
    pub fn set(&mut self, settings: Impairments) {
        self.settings = settings;
        self.players.values_mut().for_each(|player| player.path.start_anew());
    }

    fn handle_datagram(&mut self, now_ns: u64, meta: &RxMeta, bytes: Vec<u8>) {
        self.passed.arrived += 1;
        if meta.socket == self.outside {
            self.handle_up(now_ns, meta, bytes);
        } else if let Some(home) = self.homes.get(&meta.socket).copied() {
            self.handle_down(now_ns, home, bytes);
        } else {
            self.passed.refused += 1;
        }
    }

    fn handle_up(&mut self, now_ns: u64, meta: &RxMeta, bytes: Vec<u8>) {
        let home = meta.peer;
        let is_known = self.players.contains_key(&home) || self.welcome(now_ns, meta);
        let Some(player) = self.players.get_mut(&home).filter(|_| is_known) else {
            self.passed.refused += 1;
            return;
        };
        player.heard_ns = now_ns;
        player.local = meta.local;
        match self.settings.outgoing(&mut player.path, now_ns, bytes.len()) {
            Fate::Lose => self.passed.lost += 1,
            Fate::Delay(later_ns) => self.delay(now_ns + later_ns, home, true, bytes),
            Fate::Hold => {
                self.passed.delayed += 1;
                // Held twice in a row, the first one travels after all.
                if let Some(before) = player.held.replace(bytes) {
                    self.send_up(now_ns, home, &before);
                }
            }
            fate => {
                let held = player.held.take();
                for _ in 0..=u8::from(fate == Fate::Twice) {
                    self.send_up(now_ns, home, &bytes);
                }
                if let Some(held) = held {
                    self.send_up(now_ns, home, &held);
                }
            }
        }
    }

    fn handle_down(&mut self, now_ns: u64, home: Endpoint, bytes: Vec<u8>) {
        let Some(player) = self.players.get_mut(&home) else { return };
        match self.settings.incoming(&mut player.path, now_ns) {
            Fate::Lose => self.passed.lost += 1,
            Fate::Delay(later_ns) => self.delay(now_ns + later_ns, home, false, bytes),
            Fate::Hold | Fate::Pass | Fate::Twice => self.send_down(home, &bytes),
        }
    }

    fn delay(&mut self, due_ns: u64, home: Endpoint, is_up: bool, bytes: Vec<u8>) {
        if self.delayed.len() == DELAYED_MAX {
            self.passed.refused += 1;
            return;
        }
        self.passed.delayed += 1;
        self.delays += 1;
        self.delayed.push(Reverse((due_ns, self.delays, home, is_up, bytes)));
    }

    /// Sends what was delayed until now.
    fn release(&mut self, now_ns: u64) {
        while let Some(Reverse((due_ns, ..))) = self.delayed.peek()
            && *due_ns <= now_ns
        {
            let Some(Reverse((_, _, home, is_up, bytes))) = self.delayed.pop() else { return };
            if is_up {
                self.send_up(now_ns, home, &bytes);
            } else {
                self.send_down(home, &bytes);
            }
        }
    }

    fn send_up(&mut self, now_ns: u64, home: Endpoint, bytes: &[u8]) {
        self.switch_port(now_ns, home);
        let Some(player) = self.players.get(&home) else { return };
        let source = LocalIp::UNSPECIFIED;
        self.send(TxTarget { socket: player.socket, peer: None, source }, bytes);
    }

    fn send_down(&mut self, home: Endpoint, bytes: &[u8]) {
        let Some(player) = self.players.get(&home) else { return };
        let target = TxTarget { socket: self.outside, peer: Some(home), source: player.local };
        self.send(target, bytes);
    }

    fn send(&mut self, target: TxTarget, bytes: &[u8]) {
        if self.driver.tx().small_left() == 0 {
            self.driver.flush();
        }
        if let Some(room) = self.driver.tx().room() {
            room.send_copy(bytes, target, 0);
            self.passed.sent += 1;
        }
    }

    /// Makes a socket for a player who was not here before.
    fn welcome(&mut self, now_ns: u64, meta: &RxMeta) -> bool {
        if self.players.len() == PLAYERS_MAX {
            return false;
        }
        let Ok(socket) = self.driver.open(&Port::Session { address: self.server }) else {
            return false;
        };
        let path = Path::new(self.settings.seed, self.players_so_far);
        self.players_so_far += 1;
        let local = meta.local;
        let player =
            Player { socket, opened_ns: now_ns, local, path, held: None, heard_ns: now_ns };
        self.players.insert(meta.peer, player);
        self.homes.insert(socket, meta.peer);
        true
    }

    /// Gives a player another socket, as a NAT would, if it is time for that.
    fn switch_port(&mut self, now_ns: u64, home: Endpoint) {
        let Some(every_ns) = self.settings.nat_switch_ns() else { return };
        let Some(player) = self.players.get_mut(&home) else { return };
        if now_ns - player.opened_ns < every_ns {
            return;
        }
        let Ok(socket) = self.driver.open(&Port::Session { address: self.server }) else { return };
        let before = std::mem::replace(&mut player.socket, socket);
        player.opened_ns = now_ns;
        self.homes.remove(&before);
        self.homes.insert(socket, home);
        // What still has to leave by it leaves first.
        self.driver.flush();
        self.driver.close(before);
    }

    /// Closes the sockets of players who have said nothing for long.
    fn forget_silent(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) < LOOK_NS {
            return;
        }
        self.looked_ns = now_ns;
        let (driver, homes) = (&mut self.driver, &mut self.homes);
        self.players.retain(|_, player| {
            let is_here = now_ns.saturating_sub(player.heard_ns) < SILENT_NS;
            if !is_here {
                homes.remove(&player.socket);
                driver.close(player.socket);
            }
            is_here
        });
    }
}

/// Each has a descriptor.
const PLAYERS_MAX: usize = 4096;

/// Some hundred megabytes at the most.
const DELAYED_MAX: usize = 200_000;

/// A player who has been silent for so long has left.
const SILENT_NS: u64 = 60_000_000_000;

const LOOK_NS: u64 = 1_000_000_000;

/// An idle process looks around this often.
const PAUSE_NS_MAX: u64 = 50_000_000;
