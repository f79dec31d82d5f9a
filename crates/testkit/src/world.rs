//! A world: a gateway of several workers, players who come and go, game processes that crash,
//! attackers, a bad network.
//!
//! Everything happens in steps of a virtual clock: what is under way arrives, players and attackers
//! act, game processes read and answer, workers take their turns. After each step everything that
//! must hold is looked at; the first thing that does not ends the run as a [`Violation`].

mod addresses;
mod gateway;
mod hand_over;
mod inspection;
mod listeners;
mod lives;
mod messages;
mod plain;
mod plain_game;
mod setup;
mod state;
mod turnover;
mod unreal;
mod unreal_setup;

use crate::judge::Violation;
use crate::network::Datagram;
use crate::player::{Deed, Whereabouts};
use crate::random::Random;
use crate::worker::Arrival;
use ringgate_batch::Endpoint;
use ringgate_core::limits::{DATAGRAM_BYTES_MAX, PAYLOAD_BYTES_MAX};
use ringgate_gate::{BindId, Counters, ListenerId};

pub use state::World;
use state::{Outside, S};

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
    pub unreal_heard: u64,
    /// Payloads that servers of the plain game have heard.
    pub plain_heard: u64,
    /// Whole messages that players have sent and game processes have heard, and the other way
    /// around.
    pub messages: [u64; 2],
    /// Sessions that there were at once, at most.
    pub sessions_peak: usize,
    /// Times that workers have waited for more.
    pub gathers: u64,
    /// Times that the gateway was handed over to another process.
    pub hand_overs: u64,
}

impl World {
    /// Runs to the end, and after that until all players have left.
    pub fn run(mut self) -> Result<Report, Violation> {
        let mut peak = 0;
        while self.now_ns < self.plan.lasts_ns {
            self.step()?;
            peak = peak
                .max(self.workers.iter().map(|worker| worker.host.gate().session_count()).sum());
        }
        self.fall_silent()?;
        self.wait_until_all_left()?;
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
            gathers: self.workers.iter().map(|worker| worker.host.gathers().count).sum(),
            unreal_heard: self.outside.unreal_judge.heard_in_all(),
            plain_heard: self.outside.plain.as_ref().map_or(0, plain_game::PlainGame::heard_in_all),
            messages: [
                lives.iter().map(|life| life.messages_up.heard()).sum(),
                lives.iter().map(|life| life.messages_down.heard()).sum(),
            ],
            sessions_peak,
            hand_overs: self.hand_over.count,
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
        for player in 0..self.unreal_players.len() {
            self.act_unreal(player);
        }
        self.act_plain();
        self.attack();
        self.attack_unreal();
        self.run_games();
        self.run_servers();
        self.run_plain_servers();
        self.jump();
        self.turn_listeners();
        for worker in 0..self.workers.len() {
            self.run_worker(worker);
        }
        self.hand_over_now_and_then();
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
                    self.outside.unreal_judge.came(datagram.from, datagram.bytes.len());
                }
                self.deliver_to_worker(listener, bind, datagram);
                continue;
            }
            if self.outside.deliver_to_plain_player(&datagram) {
                continue;
            }
            if self.deliver_to_unreal_player(&datagram) {
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
            match life.take(&mut self.cipher, self.now_ns, from, bytes) {
                Some(packet) if life.delivers => self.outside.take_packet(life, packet),
                Some(payload) => self.outside.judge.hear_down(life.number, payload),
                None => {}
            }
        }
    }

    /// Picks the worker as the kernel does: by a hash of both addresses.
    fn deliver_to_worker(&mut self, listener: ListenerId, bind: BindId, datagram: Datagram) {
        let worker = self.worker_of(&datagram.from, &datagram.to);
        let socket = self.outside.player_sockets[&(worker, listener, bind)];
        if !self.outside.roles.contains_key(&(worker, socket)) {
            // It has closed: the kernel throws away what comes.
            return;
        }
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
        let Self { players, cipher, outside, plan, now_ns, random, messages_random, .. } = self;
        let player = &mut players[at];
        let life = match &mut player.whereabouts {
            Whereabouts::Away(until_ns) if *now_ns >= *until_ns && *now_ns < plan.lasts_ns => {
                return self.begin_life(at);
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
                Deed::Talk if life.delivers => outside.write_message(life, messages_random),
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
        if outside.send_messages(life, cipher, &player.path) {
            player.spoke_ns = *now_ns;
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
    fn fall_silent(&mut self) -> Result<(), Violation> {
        let quiet_until_ns = self.now_ns + QUIET_NS;
        self.silence_players(quiet_until_ns);
        self.silence_unreal_players(quiet_until_ns);
        if let Some(plain) = &mut self.outside.plain {
            plain.fall_silent(quiet_until_ns);
        }
        while self.now_ns < quiet_until_ns {
            self.step()?;
        }
        if self.plan.is_fair() {
            self.require_that_all_arrived();
            self.require_that_all_unreal_arrived();
            self.require_that_all_plain_arrived();
        }
        if self.plan.delivering > 0 {
            self.wait_until_messages_have_arrived()?;
            self.require_that_reports_are_true();
            self.silence_players(self.now_ns);
        }
        self.outside.judge.verdict()
    }

    /// Nobody says anything more, and all leave then; who has messages to wait for leaves later.
    fn silence_players(&mut self, leaves_ns: u64) {
        let is_waiting = self.now_ns < leaves_ns;
        for player in &mut self.players {
            if let Whereabouts::Here(life) = &mut player.whereabouts {
                life.fall_silent(if life.delivers && is_waiting { u64::MAX } else { leaves_ns });
            }
        }
    }

    /// Everybody has left, some without a word: after the longest timeout nothing may be left of
    /// them.
    fn wait_until_all_left(&mut self) -> Result<(), Violation> {
        let timeout_ns = self.plan.timeout_s as u64 * S + self.plan.path.slowest_ns();
        let empty_ns =
            self.now_ns + 2 * timeout_ns + QUIET_NS + unreal_setup::patience_ns(&self.plan);
        while self.now_ns < empty_ns {
            self.step()?;
        }
        self.require_that_nothing_is_left();
        self.require_that_messages_are_accounted_for();
        self.outside.judge.verdict()
    }
}

/// Sessions are looked at one by one so often.
const LOOK_EVERY_NS: u64 = 100_000_000;

/// Long enough for everything that is under way to arrive.
const QUIET_NS: u64 = S;
