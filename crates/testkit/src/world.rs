//! A world: a gateway of several workers, players who come and go, game processes that crash,
//! attackers, a bad network.
//!
//! Everything happens in steps of a virtual clock: what is under way arrives, players and attackers
//! act, game processes read and answer, workers take their turns. After each step everything that
//! must hold is looked at; the first thing that does not ends the run as a [`Violation`].

mod births;
mod gateway;
mod inspection;
mod unreal;

use std::collections::HashMap;

use super::arena::{Referee, Server};
use super::attacker::Attacker;
use super::game::{Answer, Game, Guest};
use super::judge::{Judge, Violation};
use super::netcode::Cipher;
use super::network::{Datagram, Faults, Network};
use super::plan::{GameLink, Plan};
use super::player::{Deed, Player, Whereabouts};
use super::random::Random;
use super::shooter::Shooter;
use super::worker::{Arrival, Worker};
use ringgate_batch::{Endpoint, IoEvent, SocketId};
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_gate::{Claims, Counters, Now};

/// A simulated world.
pub struct World {
    plan: Plan,
    /// Since the world began.
    now_ns: u64,
    /// How far the gateway's clocks are ahead of everybody else's.
    gateway_ahead: Ahead,
    random: Random,
    workers: Vec<Worker>,
    claims: std::sync::Arc<Claims>,
    players: Vec<Player>,
    cipher: Cipher,
    attacker: Attacker,
    outside: Outside,
    looked_ns: u64,
    shooters: Vec<Shooter>,
    /// The randomness of the Unreal game.
    shooting: Random,
    /// What attackers have recorded of it.
    shot_tape: Vec<Datagram>,
}

/// A difference between two clocks.
#[derive(Clone, Copy, Debug, Default)]
struct Ahead {
    mono_ns: u64,
    unix_s: i64,
}

/// What the workers' sockets lead to.
struct Outside {
    now_ns: u64,
    network: Network,
    random: Random,
    judge: Judge,
    games: Vec<Game>,
    links: Vec<GameLink>,
    link_max: usize,
    /// Who lives at an address, and how good the way there is.
    homes: HashMap<Endpoint, Home>,
    /// The gateway's public addresses: listener and bind.
    public: HashMap<Endpoint, (u16, u16)>,
    /// The workers' sockets for players and for udp links, which have the same ids in all of them.
    player_sockets: HashMap<(u16, u16), SocketId>,
    udp_link: SocketId,
    roles: HashMap<(usize, SocketId), Role>,
    /// Refusals that workers have not heard of yet.
    refusals: Vec<(usize, IoEvent)>,
    tape: Vec<Datagram>,
    unreal_listener: Option<u16>,
    servers: Vec<Server>,
    referee: Referee,
    /// Who of the Unreal game lives at an address, and how good the way there is.
    shooter_homes: HashMap<Endpoint, (usize, Faults)>,
    /// What went by on the way to the Unreal listener in this step.
    shot_tape: Vec<Datagram>,
}

struct Home {
    player: usize,
    path: Faults,
}

/// What a worker's socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Link { game: u16 },
    LinkListener,
    Player { listener: u16, bind: u16 },
    Session { game: u16 },
    UdpLink,
}

/// How a world ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// All workers' counters.
    pub counters: Counters,
    /// Attempts of players to take part.
    pub lives: usize,
    /// Payloads that players have said.
    pub said: u64,
    /// Payloads that game processes have heard.
    pub heard: u64,
    /// Payloads that servers of the Unreal game have heard.
    pub shots_heard: u64,
    /// Sessions that there were at once, at most.
    pub sessions_peak: usize,
}

impl World {
    /// Runs to the end, and after that until everybody has gone home.
    pub fn run(mut self) -> Result<Report, Violation> {
        let mut peak = 0;
        while self.now_ns < self.plan.lasts_ns {
            self.step()?;
            peak = peak
                .max(self.workers.iter().map(|worker| worker.host.gate().session_count()).sum());
        }
        self.calm_down()?;
        self.send_home()?;
        Ok(self.report(peak))
    }

    fn report(&self, sessions_peak: usize) -> Report {
        let mut counters = Counters::default();
        self.workers.iter().for_each(|worker| counters.merge(worker.host.gate().counters()));
        let lives = self.outside.judge.lives();
        Report {
            counters,
            lives: lives.len(),
            said: lives.iter().map(|life| life.up.said).sum(),
            heard: lives.iter().map(|life| life.up.heard()).sum(),
            shots_heard: self.outside.referee.heard_in_all(),
            sessions_peak,
        }
    }

    fn step(&mut self) -> Result<(), Violation> {
        self.now_ns += self.plan.step_ns;
        self.outside.now_ns = self.now_ns;
        self.outside.judge.at(self.now_ns);
        self.deliver();
        for player in 0..self.players.len() {
            self.act(player);
        }
        for shooter in 0..self.shooters.len() {
            self.shoot(shooter);
        }
        self.attack();
        self.shoot_at_random();
        self.run_games();
        self.run_servers();
        self.jump();
        for worker in 0..self.workers.len() {
            self.run_worker(worker);
        }
        if self.now_ns >= self.looked_ns + LOOK_EVERY_NS {
            self.looked_ns = self.now_ns;
            self.look_at_sessions();
            self.look_at_unreal_silence();
        }
        self.outside.judge.verdict()
    }

    /// What has arrived goes to a worker or to a player.
    fn deliver(&mut self) {
        while let Some(mut datagram) = self.outside.network.arrived(self.now_ns) {
            if let Some(&(listener, bind)) = self.outside.public.get(&datagram.to) {
                if self.outside.unreal_listener == Some(listener) {
                    self.outside.referee.came(datagram.from, datagram.bytes.len());
                }
                self.deliver_to_worker(listener, bind, datagram);
                continue;
            }
            if self.deliver_to_shooter(&datagram) {
                continue;
            }
            let Some(home) = self.outside.homes.get(&datagram.to) else { continue };
            let Whereabouts::Here(life) = &mut self.players[home.player].whereabouts else {
                continue;
            };
            if life.home != datagram.to {
                continue;
            }
            let (from, bytes) = (datagram.from, &mut datagram.bytes);
            if let Some(payload) = life.take(&mut self.cipher, self.now_ns, from, bytes) {
                self.outside.judge.hear_down(life.number, payload);
            }
        }
    }

    /// Picks the worker as the kernel does: by a hash of both addresses.
    fn deliver_to_worker(&mut self, listener: u16, bind: u16, datagram: Datagram) {
        let worker = self.worker_of(&datagram.from, &datagram.to);
        let socket = self.outside.player_sockets[&(listener, bind)];
        let Datagram { from, bytes, .. } = datagram;
        let local = ringgate_batch::LocalIp::UNSPECIFIED;
        self.workers[worker].inbox.push_back(Arrival { socket, peer: from, local, bytes });
    }

    fn worker_of(&self, from: &Endpoint, to: &Endpoint) -> usize {
        let (high, low) = from.ip_words();
        let words = [high, low, u64::from(from.port()), u64::from(to.port()), to.ip_words().1];
        let mixed = words.iter().fold(self.plan.seed, |sum, word| Random::new(sum ^ word).word());
        (mixed % self.workers.len() as u64) as usize
    }

    /// A player does whatever is due.
    fn act(&mut self, at: usize) {
        let Self { players, cipher, outside, plan, now_ns, random, .. } = self;
        let player = &mut players[at];
        let life = match &mut player.whereabouts {
            Whereabouts::Away(until_ns) if *now_ns >= *until_ns && *now_ns < plan.lasts_ns => {
                return self.be_born(at);
            }
            Whereabouts::Away(_) => return,
            Whereabouts::Here(life) => life,
        };
        let mut packet = [0; DATAGRAM_BYTES_MAX];
        let mut ends = None;
        while let Some(deed) = life.next_deed(*now_ns, &plan.habits, random) {
            match deed {
                Deed::End { properly } => {
                    ends = Some(properly);
                    break;
                }
                Deed::Move => {
                    life.home = life.home.with_port(random.within(1024..65536) as u16);
                    outside.move_in(at, life.home, &player.path);
                    outside.judge.move_life(life.number, life.home);
                }
                Deed::Talk => {
                    let note = outside.judge.say_up(life.number);
                    let mut payload = [0; PAYLOAD_BYTES_MAX];
                    let payload = note.write(&mut payload, random.within(0..400) as usize);
                    let sent = cipher.say(&mut life.client, *now_ns, payload, &mut packet);
                    let len = sent.expect("it is connected");
                    player.spoke_ns = *now_ns;
                    outside.send_up(life.home, life.server, &packet[..len], &player.path);
                }
            }
        }
        while let Some(len) = life.poll(cipher, *now_ns, &mut packet) {
            player.spoke_ns = *now_ns;
            outside.send_up(life.home, life.server, &packet[..len], &player.path);
        }
        if let Some(properly) = ends {
            self.end_life(at, properly);
        }
    }

    fn attack(&mut self) {
        let now_unix_s = self.gate_now().unix_s;
        for Datagram { from, to, bytes } in self.outside.tape.drain(..) {
            self.attacker.overhear(from, to, &bytes, &mut self.random);
        }
        let attacks = if self.now_ns < self.plan.lasts_ns { self.plan.attacks } else { 0 };
        for _ in 0..attacks {
            if let Some(datagram) = self.attacker.strike(&mut self.random, now_unix_s) {
                let Outside { network, random, .. } = &mut self.outside;
                network.send(self.now_ns, datagram, &self.plan.attackers_path(), random);
            }
        }
    }

    /// Everybody stays and says nothing more, so that what is under way can arrive; in a fair world
    /// all of it has to.
    fn calm_down(&mut self) -> Result<(), Violation> {
        let quiet_until_ns = self.now_ns + QUIET_NS;
        for player in &mut self.players {
            if let Whereabouts::Here(life) = &mut player.whereabouts {
                life.fall_silent(quiet_until_ns);
            }
        }
        self.cease_fire(quiet_until_ns);
        while self.now_ns < quiet_until_ns {
            self.step()?;
        }
        if self.plan.is_fair() {
            self.require_that_all_arrived();
            self.require_that_all_shots_arrived();
        }
        self.outside.judge.verdict()
    }

    /// Everybody has left, some without a word: after the longest timeout nothing may be left of
    /// them.
    fn send_home(&mut self) -> Result<(), Violation> {
        let timeout_ns = self.plan.timeout_s as u64 * S + self.plan.path.delay_ns.end;
        let empty_ns = self.now_ns + 2 * timeout_ns + QUIET_NS + unreal::patience_ns(&self.plan);
        while self.now_ns < empty_ns {
            self.step()?;
        }
        self.require_that_nothing_is_left();
        self.outside.judge.verdict()
    }

    fn gate_now(&self) -> Now {
        let Ahead { mono_ns, unix_s } = self.gateway_ahead;
        let unix = UNIX_START_S + self.now_ns / S;
        Now { mono_ns: S + self.now_ns + mono_ns, unix_s: unix.saturating_add_signed(unix_s) }
    }
}

impl Outside {
    /// A player sends a datagram.
    fn send_up(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8], path: &Faults) {
        let datagram = Datagram { from, to, bytes: bytes.to_vec() };
        self.network.send(self.now_ns, datagram, path, &mut self.random);
        self.tap(from, to, bytes);
    }

    fn tap(&mut self, from: Endpoint, to: Endpoint, bytes: &[u8]) {
        if self.tape.len() < TAPE_PER_STEP {
            self.tape.push(Datagram { from, to, bytes: bytes.to_vec() });
        }
    }

    fn move_in(&mut self, player: usize, home: Endpoint, path: &Faults) {
        self.homes.insert(home, Home { player, path: path.clone() });
    }

    /// What a game process answers goes to the worker that has its player.
    fn answer(&mut self, game: u16, answer: Answer, workers: &mut [Worker]) {
        let nobody = Endpoint::v4([0; 4], 0);
        let mut local = ringgate_batch::LocalIp::UNSPECIFIED;
        let (worker, socket, peer, bytes) = match answer {
            Answer::Bundle(worker, bytes) => {
                let link = self.games[usize::from(game)].links[worker].as_ref();
                let Some(socket) = link.map(|link| link.socket) else { return };
                (worker, socket, nobody, bytes)
            }
            Answer::Payload(Guest::Loopback(worker, address), bytes) => {
                local = address;
                (worker, self.udp_link, gateway::game_address(game, GameLink::Udp), bytes)
            }
            Answer::Payload(Guest::Socket(worker, socket), bytes) => {
                (worker, socket, nobody, bytes)
            }
            Answer::Payload(Guest::Session(_), _) => return,
        };
        workers[worker].inbox.push_back(Arrival { socket, peer, local, bytes });
    }
}

const S: u64 = 1_000_000_000;

/// When the world begins, by the clock that tokens go by.
const UNIX_START_S: u64 = 1_700_000_000;

/// Sessions are looked at one by one so often.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// Long enough for everything that is under way to arrive.
const QUIET_NS: u64 = S;

/// What attackers can record in a step.
const TAPE_PER_STEP: usize = 8;
