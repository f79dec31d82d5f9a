//! Workers with engine-like servers behind them and engine-like players in front.

use super::super::games::{Game, Heard};
use super::super::rig::{Fleet, OUR_USER, Rig, bundle_backend, listener, udp_backend};
use crate::counters::Counters;
use crate::ids::ListenerId;
use crate::setup::{Duplicates, Limits, Listener, Protocol, Setup, Unreal};
use ringgate_batch::{Endpoint, IoEvent, LocalIp};
use ringgate_bots::unreal::peer::Peer;
use ringgate_bots::unreal::{StandIn, Tally};
use ringgate_core::crypto::cookie::CookieMac;
use ringgate_core::drops::DropReason;
use ringgate_core::limits::UNREAL_BYTES_MAX;
use ringgate_core::proto::unreal::bits::{BitReader, BitWriter};
use ringgate_core::proto::unreal::client::{Client, Event, Profile};
use ringgate_core::proto::unreal::handshake::{Base, Tail};
use ringgate_core::proto::unreal::notify::{Header, Sender};
use ringgate_core::proto::unreal::prefix::Framing;
use ringgate_core::secret::CookieSecret;
use ringgate_link::bundle::{Hello, SessionId, VERSION_MIN, VERSION_PLAIN};
use std::collections::HashMap;

pub(in crate::tests) const BASE: Base = Base {
    version_min: 3,
    version: 4,
    sent_count: 0,
    network_version: 0x1234_5678,
    network_features: 1,
};

pub(in crate::tests) fn rules() -> Unreal {
    Unreal {
        framing: Framing::default(),
        learns_base: true,
        versions: 3..=4,
        network_versions: None,
        duplicates: Duplicates::Notify,
        gap_limit: 0,
        idle_timeout_ns: 30_000_000_000,
    }
}

pub(in crate::tests) fn unreal_listener(backends: &[u16]) -> Listener {
    let protocol = Protocol::Unreal(rules());
    Listener { protocol, limits: Limits::UNREAL, ..listener("ue", backends) }
}

/// One listener and so many servers, with four slots each.
pub(in crate::tests) fn unreal_setup(servers: u16) -> Setup {
    let backends = (0..servers).map(|n| udp_backend(&format!("game-{n}"), &server_at(n), 4));
    let numbers: Vec<_> = (0..servers).collect();
    Setup::new(vec![unreal_listener(&numbers)], backends.collect(), 77)
}

pub(in crate::tests) fn rules_mut(setup: &mut Setup) -> &mut Unreal {
    let Protocol::Unreal(rules) = &mut setup.listeners[ListenerId(0)].protocol else {
        panic!("Unreal")
    };
    rules
}

/// The same with servers behind agents.
pub(in crate::tests) fn linked_setup(servers: u16) -> Setup {
    let backends: Vec<_> = (0..servers).map(|n| bundle_backend(&format!("game-{n}"), 4)).collect();
    Setup { backends: backends.into(), ..unreal_setup(servers) }
}

fn server_at(number: u16) -> String {
    format!("127.0.0.1:{}", 7000 + number)
}

/// Numbers that look random and are the same in every run.
pub(in crate::tests) struct Dice(pub(in crate::tests) u64);

impl Dice {
    pub(in crate::tests) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(in crate::tests) fn tail(&mut self) -> Tail {
        Tail::draw(&std::array::from_fn(|_| self.roll(256) as u8))
    }
}

pub(in crate::tests) struct Server {
    at: Endpoint,
    pub(in crate::tests) stand_in: StandIn,
    /// A server that loads a level hears nothing.
    pub(in crate::tests) is_deaf: bool,
}

impl Server {
    pub(in crate::tests) fn tally(&self) -> Tally {
        self.stand_in.tally
    }
}

/// What a worker's packets look like to a server: the player's loopback address, the worker's port.
fn seen_from(worker: usize, source: LocalIp) -> Endpoint {
    let std::net::IpAddr::V4(ip) = source.ip() else { panic!("IPv4") };
    Endpoint::v4(ip.octets(), 4000 + worker as u16)
}

/// What an agent has for one worker and one server: as the agent does, it gives each session that
/// it is told of an address, and keeps that while the link is gone.
pub(in crate::tests) struct Agent {
    game: Option<Game>,
    addresses: HashMap<SessionId, LocalIp>,
    given: u8,
    /// What it was told but payloads, since the last look.
    pub(in crate::tests) told: Vec<Heard>,
}

impl Agent {
    fn new() -> Self {
        Self { game: None, addresses: HashMap::new(), given: 0, told: Vec::new() }
    }

    /// Says hello as an agent does for a server.
    fn join(&mut self, rig: &mut Rig, name: &str) {
        let game = Game::connect(rig, OUR_USER);
        let (version_min, version_max) = (VERSION_MIN, VERSION_PLAIN as u8);
        game.say(rig, |w| w.hello(&Hello { version_min, version_max, pid: 1, name }));
        self.game = Some(game);
    }

    /// What it was told, as packets for the server.
    fn hear(&mut self, rig: &mut Rig) -> Vec<(SessionId, LocalIp, Vec<u8>)> {
        let mut packets = Vec::new();
        for heard in self.game.as_ref().map_or_else(Vec::new, |game| game.hear(rig)) {
            match heard {
                Heard::Payload(session, bytes) => {
                    let address = self.addresses.get(&session).expect("announced before");
                    packets.push((session, *address, bytes));
                    continue;
                }
                Heard::OpenedPlain(session, _) => {
                    self.given += 1;
                    let address = LocalIp::v4([127, 2, 0, self.given], 0);
                    self.addresses.entry(session).or_insert(address);
                }
                Heard::Closed(session, _) => {
                    self.addresses.remove(&session);
                }
                _ => {}
            }
            self.told.push(heard);
        }
        packets
    }

    /// What it knows sessions by, those of the gateway's own included.
    pub(in crate::tests) fn sessions(&self) -> Vec<SessionId> {
        self.addresses.keys().copied().collect()
    }
}

pub(in crate::tests) struct Arena {
    pub(in crate::tests) fleet: Fleet,
    pub(in crate::tests) servers: Vec<Server>,
    pub(in crate::tests) dice: Dice,
    /// Every loopback address that a handshake packet came from, in order.
    pub(in crate::tests) seen: Vec<Endpoint>,
    /// By worker and server, where servers are behind agents.
    pub(in crate::tests) agents: Vec<Vec<Agent>>,
}

impl Arena {
    /// Workers that have heard from their servers.
    pub(in crate::tests) fn new(setup: Setup, workers: u16) -> Self {
        let framing = setup.listeners[ListenerId(0)].unreal().expect("Unreal").framing;
        let servers = vec![(framing, BASE); setup.backends.len()];
        Self::speaking(setup, workers, &servers)
    }

    /// The same with servers that speak each in its own way.
    pub(in crate::tests) fn speaking(
        setup: Setup,
        workers: u16,
        servers: &[(Framing, Base)],
    ) -> Self {
        let server = |(number, &(framing, base)): (usize, &(Framing, Base))| Server {
            at: super::super::rig::endpoint(&server_at(number as u16)),
            stand_in: stand_in(framing, base, 1 + number as u8),
            is_deaf: false,
        };
        let mut arena = Self {
            servers: servers.iter().enumerate().map(server).collect(),
            fleet: Fleet::new(setup, workers),
            dice: Dice(1),
            seen: Vec::new(),
            agents: Vec::new(),
        };
        arena.settle();
        arena
    }

    /// Workers that have heard from their servers over agents.
    pub(in crate::tests) fn linked(setup: Setup, workers: u16) -> Self {
        let servers = setup.backends.len();
        let mut arena = Self::new(setup, workers);
        let agents = || (0..servers).map(|_| Agent::new()).collect();
        arena.agents = (0..workers).map(|_| agents()).collect();
        for server in 0..servers {
            arena.link(server);
        }
        arena
    }

    /// The agent of a server connects to each worker.
    pub(in crate::tests) fn link(&mut self, server: usize) {
        for (rig, agents) in self.fleet.rigs.iter_mut().zip(&mut self.agents) {
            agents[server].join(rig, &format!("game-{server}"));
        }
        self.pass(500);
    }

    /// It is gone.
    pub(in crate::tests) fn unlink(&mut self, server: usize) {
        for (rig, agents) in self.fleet.rigs.iter_mut().zip(&mut self.agents) {
            agents[server].game.take().expect("it is linked").crash(rig);
        }
        self.settle();
    }

    /// Says something in the name of the agent of the first server, to the first worker.
    pub(in crate::tests) fn agent_says(
        &mut self,
        write: impl FnOnce(&mut ringgate_link::bundle::Writer<'_>) -> bool,
    ) {
        let game = self.agents[0][0].game.as_ref().expect("it is linked");
        game.say(&mut self.fleet.rigs[0], write);
        self.settle();
    }

    pub(in crate::tests) fn rig(&mut self) -> &mut Rig {
        &mut self.fleet.rigs[0]
    }

    pub(in crate::tests) fn now_ns(&self) -> u64 {
        self.fleet.rigs[0].now.mono_ns
    }

    /// The sum over all workers.
    pub(in crate::tests) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.fleet.rigs.iter().for_each(|rig| sum.merge(rig.counters()));
        sum
    }

    pub(in crate::tests) fn drops(&self, why: DropReason) -> u64 {
        self.counters().drops.of(why)
    }

    /// Runs workers and servers until nothing is on the way between them.
    pub(in crate::tests) fn settle(&mut self) {
        for rig in &mut self.fleet.rigs {
            rig.turn();
        }
        loop {
            self.fleet.deliver_mail();
            let mut is_quiet = true;
            for worker in 0..self.fleet.rigs.len() {
                for (to, source, bytes) in self.fleet.rigs[worker].take_for_servers() {
                    is_quiet = false;
                    if let Some(answer) = self.at_server(worker, to, source, &bytes) {
                        self.fleet.rigs[worker].answer_udp(to, source, &answer);
                    }
                }
                is_quiet &= self.hear_agents(worker);
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Passes on what agents have heard of a worker. Whether it was nothing.
    fn hear_agents(&mut self, worker: usize) -> bool {
        let mut is_quiet = true;
        for at in 0..self.agents.get(worker).map_or(0, Vec::len) {
            let heard = self.agents[worker][at].hear(&mut self.fleet.rigs[worker]);
            for (session, source, bytes) in heard {
                is_quiet = false;
                let Some(answer) = self.at_server(worker, self.servers[at].at, source, &bytes)
                else {
                    continue;
                };
                let game = self.agents[worker][at].game.as_ref().expect("it was heard");
                game.say(&mut self.fleet.rigs[worker], |w| w.payload(session, &answer));
            }
        }
        is_quiet
    }

    fn at_server(
        &mut self,
        worker: usize,
        to: Endpoint,
        source: LocalIp,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        let (now_ns, tail) = (self.now_ns(), self.dice.tail());
        let server = self.servers.iter_mut().find(|server| server.at == to).expect("a server");
        if server.is_deaf {
            return None;
        }
        self.seen.push(seen_from(worker, source));
        let mut out = [0; UNREAL_BYTES_MAX];
        let from = seen_from(worker, source);
        let answered = server.stand_in.handle_datagram(now_ns, from, bytes, &tail, &mut out);
        answered.ok().filter(|len| *len > 0).map(|len| out[..len].to_vec())
    }

    /// Says something in a server's name to the player who was seen at `player`.
    pub(in crate::tests) fn say(&mut self, server: usize, player: Endpoint, bytes: &[u8]) {
        let worker = usize::from(player.port() - 4000);
        let at = self.servers[server].at;
        let ip = player.ip_bytes();
        let local = LocalIp::v4([ip[12], ip[13], ip[14], ip[15]], 0);
        self.fleet.rigs[worker].answer_udp(at, local, bytes);
        self.settle();
    }

    /// A datagram for a worker; returns what goes back to its sender.
    pub(in crate::tests) fn deliver(
        &mut self,
        worker: usize,
        from: Endpoint,
        bytes: &[u8],
    ) -> Vec<Vec<u8>> {
        self.fleet.rigs[worker].deliver(from, bytes);
        self.settle();
        self.take_for(from)
    }

    /// What was sent to somebody since the last look, by whichever worker.
    pub(in crate::tests) fn take_for(&mut self, to: Endpoint) -> Vec<Vec<u8>> {
        self.fleet.rigs.iter_mut().flat_map(|rig| rig.take_for(to)).collect()
    }

    /// Lets time pass for everybody.
    pub(in crate::tests) fn pass(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(50) {
            self.fleet.rigs.iter_mut().for_each(|rig| rig.jump(50));
            self.settle();
        }
    }

    /// Another process takes a server's place.
    pub(in crate::tests) fn restart(&mut self, number: usize, framing: Framing, session: u8) {
        self.servers[number].stand_in = stand_in(framing, BASE, session);
    }

    /// A server's process ends, and another one takes its place. The kernel says so once.
    pub(in crate::tests) fn restart_server(
        &mut self,
        number: usize,
        framing: Framing,
        session: u8,
    ) {
        self.restart(number, framing, session);
        let peer = self.servers[number].at;
        for rig in &mut self.fleet.rigs {
            rig.event(IoEvent::Unreachable { socket: super::super::rig::UDP_LINK, peer });
        }
    }
}

pub(in crate::tests) fn stand_in(framing: Framing, base: Base, session: u8) -> StandIn {
    let profile = Profile { framing, client_id: 0, base };
    let secrets = [5, 6].map(|byte| CookieSecret::from_bytes([byte; 64]));
    StandIn::new(&profile, session, 64, CookieMac::tag_once, secrets, 0)
}

/// A player whose datagrams arrive at one worker.
pub(in crate::tests) struct Player {
    pub(in crate::tests) client: Client,
    pub(in crate::tests) peer: Option<Peer>,
    pub(in crate::tests) home: Endpoint,
    pub(in crate::tests) worker: usize,
    pub(in crate::tests) framing: Framing,
    /// Handshake packets that were sent.
    pub(in crate::tests) sent: Vec<Vec<u8>>,
    /// Packets of the server's that were taken.
    pub(in crate::tests) packets: u64,
    /// Packets of the server's that came with a number that had come before.
    pub(in crate::tests) repeats: u64,
}

impl Player {
    pub(in crate::tests) fn new(arena: &Arena, client_id: u8) -> Self {
        let setup = arena.fleet.rigs[0].host.gate().setup();
        let framing = setup.listeners[ListenerId(0)].unreal().expect("Unreal").framing;
        Self::with_base(arena, framing, client_id, BASE)
    }

    pub(in crate::tests) fn with_base(
        arena: &Arena,
        framing: Framing,
        client_id: u8,
        base: Base,
    ) -> Self {
        Self::begun(&Profile { framing, client_id, base }, arena.now_ns())
    }

    /// One who comes now.
    pub(in crate::tests) fn begun(profile: &Profile, now_ns: u64) -> Self {
        let &Profile { framing, client_id, .. } = profile;
        Self {
            client: Client::new(profile, now_ns),
            peer: None,
            home: Endpoint::v4([10, 1, client_id, 7], 5000),
            worker: 0,
            framing,
            sent: Vec::new(),
            packets: 0,
            repeats: 0,
        }
    }

    /// A player who is in.
    pub(in crate::tests) fn connected(arena: &mut Arena, client_id: u8) -> Self {
        let mut player = Self::new(arena, client_id);
        player.connect(arena);
        player
    }

    pub(in crate::tests) fn connect(&mut self, arena: &mut Arena) {
        self.step(arena);
        self.step(arena);
        assert!(
            self.peer.is_some(),
            "{:?}",
            arena.counters().drops.iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        );
    }

    /// What the handshake has to say now, written but not sent.
    pub(in crate::tests) fn owed(&mut self, arena: &mut Arena) -> Option<Vec<u8>> {
        let tail = arena.dice.tail();
        self.owed_at(arena.now_ns(), &tail)
    }

    pub(in crate::tests) fn owed_at(&mut self, now_ns: u64, tail: &Tail) -> Option<Vec<u8>> {
        let mut buffer = [0; UNREAL_BYTES_MAX];
        let len = self.client.poll_transmit(now_ns, tail, &mut buffer)?;
        self.sent.push(buffer[..len].to_vec());
        self.sent.last().cloned()
    }

    /// Sends what the handshake owes, and takes in what comes back.
    pub(in crate::tests) fn step(&mut self, arena: &mut Arena) {
        if let Some(datagram) = self.owed(arena) {
            self.exchange(arena, &datagram);
        }
    }

    /// Sends a datagram and takes in what comes back; returns what that was.
    pub(in crate::tests) fn exchange(
        &mut self,
        arena: &mut Arena,
        datagram: &[u8],
    ) -> Vec<Vec<u8>> {
        let answers = arena.deliver(self.worker, self.home, datagram);
        for answer in &answers {
            self.take(arena, answer);
        }
        answers
    }

    pub(in crate::tests) fn take(&mut self, arena: &Arena, datagram: &[u8]) {
        self.take_at(arena.now_ns(), datagram);
    }

    pub(in crate::tests) fn take_at(&mut self, now_ns: u64, datagram: &[u8]) {
        match self.client.handle_datagram(now_ns, datagram) {
            Ok(Event::Connected(cookie)) => self.peer = Some(Peer::new(Sender::Client, &cookie)),
            Ok(Event::Game) => {
                let (_, reader) = self.framing.read(datagram).expect("read before");
                let Ok(header) = Header::read(reader) else { return };
                let peer = self.peer.as_mut().expect("connected");
                let is_repeat = header.sequence == peer.latest();
                match peer.handle_header(&header, true, |_, _| ()) {
                    Ok(()) => self.packets += 1,
                    Err(_) => self.repeats += u64::from(is_repeat),
                }
            }
            _ => {}
        }
    }

    /// A game packet with bits in place of bunches; `None` where too many are in flight.
    pub(in crate::tests) fn game(&mut self, bits: u64) -> Option<Vec<u8>> {
        let mut payload = [0; 32];
        let mut out = BitWriter::new(&mut payload);
        // No packet info, and a bunch that neither opens nor closes anything.
        out.write(0, 2);
        (0..2).for_each(|_| out.write(bits & ((1 << 60) - 1), 60));
        let payload = BitReader::new(&payload).take(122).expect("written");
        let mut buffer = [0; 256];
        let ids = self.client.ids();
        let peer = self.peer.as_mut().expect("connected");
        let len = peer.write(&self.framing, ids, payload, &mut buffer)?;
        Some(buffer[..len].to_vec())
    }

    /// Sends a game packet; whether its echo has come back.
    pub(in crate::tests) fn plays(&mut self, arena: &mut Arena) -> bool {
        let before = self.packets;
        let datagram = self.game(7).expect("few are in flight");
        self.exchange(arena, &datagram);
        self.packets > before
    }

    /// Another port, whose datagrams another worker may receive. Enough time passes for a client to
    /// follow a request.
    pub(in crate::tests) fn change_port(&mut self, arena: &mut Arena, worker: usize) {
        arena.pass(11_000);
        self.home = self.home.with_port(self.home.port() + 1);
        self.worker = worker;
    }

    /// Does what an engine does whose port has changed: goes on, is asked to restart, and comes
    /// back.
    pub(in crate::tests) fn restart(&mut self, arena: &mut Arena) {
        let datagram = self.game(8).expect("few are in flight");
        self.exchange(arena, &datagram);
        self.step(arena);
        self.step(arena);
    }
}
