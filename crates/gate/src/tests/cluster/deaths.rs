//! Three gateways, the agent that arbitrates, and players, by seed: gateways die, sleep, are cut
//! off, leave, give sessions away and are upgraded, and sessions end.
//!
//! Whatever happens, the game gets nothing twice and no number is sealed twice under a key (the
//! rigs judge that), and what has ended stays ended. Where one thing happens at a time, nobody
//! loses a session, and in the end each session has one gateway.

mod network;
mod peers;
mod plain;
mod unreal;
mod wild;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

use super::super::clients::{Library, Player};
use super::super::rig::{Fleet, Rig, bundle_backend, home, netcode_rules, plain_setup};
use super::super::unreal::rig::Dice;
use super::agent::{Agent, Behind, ToldApart, ZONE};
use crate::ids::{BackendId, MemberId};
use crate::mail::Mail;
use crate::setup::Setup;
use crate::shared::claims::Claims;
use crate::shared::standbys::Standbys;
use crate::shared::whereabouts::Whereabouts;
use crate::store::table::Address;
use ringgate_batch::{Endpoint, IoEvent};
use ringgate_cluster::{Incarnation, SessionId};
use ringgate_core::netcode::Client;
use ringgate_link::bundle::Move;

/// A datagram on its way to the router.
struct Flight {
    due: u64,
    /// Whose it is.
    number: usize,
    from: Endpoint,
    bytes: Vec<u8>,
}

/// How it stands with a gateway.
enum State {
    Up,
    /// Takes no turns until then; what comes waits in its sockets.
    Asleep(u64, Vec<(Endpoint, Vec<u8>)>),
    /// Comes back then, as another process.
    Dead(u64),
}

/// What players speak in a world.
trait Plays: Library + Sized {
    /// What stands in front of all that they say.
    const HEAD_BYTES: usize;
    /// Whether a session goes along when its player's port changes.
    const HAS_PORTS: bool;
    /// Whether the agent speaks for a server, which answers by itself.
    const IS_BEHIND: bool = false;
    /// In how many turns everybody has come, though some datagrams are lost.
    const COMING: usize = 200;

    fn setup(seed: u64) -> Setup;

    fn join(rig: &mut Rig, number: u16) -> Player<Self>;

    /// What the game has got with a payload.
    fn said(payload: &[u8]) -> Option<Vec<u8>> {
        Some(payload[Self::HEAD_BYTES.min(payload.len())..].to_vec())
    }
}

impl Plays for Client {
    const HEAD_BYTES: usize = 0;
    const HAS_PORTS: bool = true;

    /// In every other world the agent delivers messages: what is said passes as it is. In the
    /// others players go from one game process behind it to another, and back.
    fn setup(seed: u64) -> Setup {
        let mut setup = plain_setup();
        setup.backends[BackendId(0)].slots = 50;
        netcode_rules(&mut setup).delivers = seed % 2 == 1;
        if seed.is_multiple_of(2) {
            setup.backends.push(bundle_backend("zone", 50));
            netcode_rules(&mut setup).moves = [0, 1].map(BackendId).to_vec();
        }
        setup
    }

    fn join(rig: &mut Rig, number: u16) -> Player<Self> {
        let token = rig.token(u64::from(number) + 1);
        Player::new(rig, home(number), &token)
    }
}

struct World<P> {
    gates: [Fleet; GATES],
    states: [State; GATES],
    incarnations: [Incarnation; GATES],
    /// No word passes between these members until then.
    cuts: Vec<(usize, usize, u64)>,
    /// The agent has no link to a gateway until then.
    away: [Option<u64>; GATES],
    /// The agent reads nothing of a gateway until then, and from that moment on the link is over.
    unread: [Option<u64>; GATES],
    /// A gateway takes no new players, and gives away those that it has.
    leaves: [bool; GATES],
    /// Since when each has heard nothing of each.
    silent_since: [[Option<u64>; GATES]; GATES],
    is_gone: [[bool; GATES]; GATES],
    /// Which process each has met of each, itself included.
    met: [[Option<Arc<Whereabouts>>; GATES]; GATES],
    /// Who stands by for what each gateway has, and with which revision.
    appointed: [BTreeMap<SessionId, (usize, u32)>; GATES],
    /// Who could, as each knows.
    able: [Vec<(Incarnation, MemberId)>; GATES],
    /// Where others stand by, as each knows.
    stands: [HashSet<(Address, usize)>; GATES],
    /// No hand-over is rehearsed: what is stood by for would be lost.
    stay: Vec<Arc<Claims>>,
    agent: Agent,
    players: Vec<Player<P>>,
    /// What each has in front of all that it says, and is nobody else's.
    names: Vec<u64>,
    doors: Vec<usize>,
    /// Of so many datagrams, one has the router change its mind.
    steadiness: u64,
    flights: Vec<Flight>,
    /// What somebody has listened to.
    recorded: Vec<(Endpoint, Vec<u8>)>,
    dice: Dice,
    step: u64,
    heard: BTreeSet<Vec<u8>>,
    /// What players have said.
    said: BTreeSet<Vec<u8>>,
    /// Whose payloads the game has got in this turn.
    speakers: BTreeSet<u64>,
}

impl<P: Plays> World<P> {
    fn new(seed: u64) -> Self {
        let mut setup = P::setup(seed);
        setup.cluster = Some("fra".into());
        let mut gates: [Fleet; GATES] = Fleet::several(&setup, 1 + (seed % 2) as u16);
        let rig = &mut gates[0].rigs[0];
        let players: Vec<_> = (0..PLAYERS).map(|number| P::join(rig, number)).collect();
        let mut world = Self {
            gates,
            states: std::array::from_fn(|_| State::Up),
            incarnations: std::array::from_fn(|at| Incarnation(at as u16)),
            cuts: Vec::new(),
            away: Default::default(),
            unread: Default::default(),
            leaves: Default::default(),
            silent_since: Default::default(),
            is_gone: Default::default(),
            met: Default::default(),
            appointed: Default::default(),
            able: Default::default(),
            stands: Default::default(),
            stay: Vec::new(),
            agent: Agent::new(1000),
            names: (1..=u64::from(PLAYERS)).collect(),
            doors: (0..players.len()).map(|at| at % GATES).collect(),
            steadiness: [30, 300][(seed / 2 % 2) as usize],
            players,
            flights: Vec::new(),
            recorded: Vec::new(),
            dice: Dice(seed),
            step: 0,
            heard: BTreeSet::new(),
            said: BTreeSet::new(),
            speakers: BTreeSet::new(),
        };
        world.agent.takes_players_only = true;
        if P::IS_BEHIND {
            world.agent.behind = Some(Behind::new());
            world.agent.told_apart = ToldApart::Nothing;
        }
        (0..GATES).for_each(|at| world.begin(at));
        world
    }

    /// A process begins.
    fn begin(&mut self, at: usize) {
        self.standbys_of(at).set_incarnation(self.incarnations[at]);
        self.stay.push(Arc::clone(self.claims_of(at)));
        self.met[at] = Default::default();
        (self.silent_since[at], self.is_gone[at]) = Default::default();
        self.stands[at].clear();
        self.appointed[at].clear();
        self.able[at].clear();
        self.leaves[at] = false;
        self.link(at);
    }

    fn link(&mut self, at: usize) {
        if self.away[at].is_some() || self.agent.lanes.contains_key(&(at, 0)) {
            return;
        }
        for (worker, rig) in self.gates[at].rigs.iter_mut().enumerate() {
            self.agent.join((at, worker), rig, self.incarnations[at]);
            if rig.host.gate().setup().backends.ids().count() > 1 {
                self.agent.join((at, worker + ZONE), rig, self.incarnations[at]);
            }
        }
    }

    fn unlink(&mut self, at: usize) {
        self.unread[at] = None;
        for ((_, worker), lane) in self.agent.lose(at) {
            let rig = &mut self.gates[at].rigs[worker % ZONE];
            rig.take_on(lane.game.link);
            rig.host.notice(IoEvent::Closed { socket: lane.game.link });
        }
    }

    /// The agent reads what has waited for it, and finds that the link is over: its answers are
    /// lost.
    fn read_late(&mut self, at: usize) {
        self.agent.reads_late = Some(at);
        for (worker, rig) in self.gates[at].rigs.iter_mut().enumerate() {
            for link in [worker, worker + ZONE] {
                self.agent.hear((at, link), rig);
            }
        }
        self.agent.reads_late = None;
        self.unlink(at);
    }

    /// Whether the agent and a gateway hear each other.
    fn is_read(&self, at: usize) -> bool {
        self.is_up(at) && self.unread[at].is_none()
    }

    fn rig(&mut self, at: usize) -> &mut Rig {
        &mut self.gates[at].rigs[0]
    }

    fn claims_of(&self, at: usize) -> &Arc<Claims> {
        self.gates[at].rigs[0].host.gate().claims()
    }

    fn standbys_of(&self, at: usize) -> Arc<Standbys> {
        Arc::clone(self.claims_of(at).standbys().expect("a cluster"))
    }

    fn whereabouts_of(&self, at: usize) -> Arc<Whereabouts> {
        Arc::clone(self.claims_of(at).whereabouts().expect("a cluster"))
    }

    fn is_up(&self, at: usize) -> bool {
        matches!(self.states[at], State::Up)
    }

    fn hears(&self, at: usize, other: usize) -> bool {
        let mut cuts = self.cuts.iter();
        let is_cut = cuts.any(|&(a, b, _)| (a, b) == (at, other) || (b, a) == (at, other));
        self.is_up(at) && self.is_up(other) && !is_cut
    }

    fn turn(&mut self, speaks: bool) {
        self.step += 1;
        self.speakers.clear();
        self.change_states();
        for number in 0..self.players.len() {
            self.live(number, speaks);
        }
        self.arrive();
        for at in 0..GATES {
            for rig in &mut self.gates[at].rigs {
                rig.jump(10);
            }
            if self.is_up(at) {
                self.gates[at].rigs.iter_mut().for_each(Rig::turn);
            }
        }
        self.carry();
        self.arbitrate();
        self.carry();
        self.meet();
        self.stand_by();
        self.receive();
    }

    fn change_states(&mut self) {
        let step = self.step;
        self.cuts.retain(|(.., until)| *until > step);
        for at in 0..GATES {
            if self.unread[at].is_some_and(|until| until <= step) {
                self.read_late(at);
                self.away[at] = Some(step + 1 + self.dice.roll(100));
            }
        }
        for at in 0..GATES {
            if self.away[at].take_if(|until| *until <= step).is_some() && self.is_up(at) {
                self.link(at);
            }
        }
        for at in 0..GATES {
            match std::mem::replace(&mut self.states[at], State::Up) {
                State::Asleep(until, waiting) if until <= step => {
                    for (from, bytes) in waiting {
                        let worker = self.dice.roll(self.gates[at].rigs.len() as u64) as usize;
                        self.gates[at].rigs[worker].push(from, &bytes);
                    }
                    self.link(at);
                }
                State::Dead(until) if until <= step => {
                    let highest = self.incarnations.iter().map(|it| it.0).max();
                    self.incarnations[at] = Incarnation(highest.unwrap_or(0) + 1);
                    self.gates[at] = self.gates[at].restarted();
                    self.begin(at);
                }
                other => self.states[at] = other,
            }
        }
        // Its trunk has been silent for too long.
        for at in 0..GATES {
            if let State::Asleep(until, _) = &self.states[at]
                && until - step < 100
                && self.agent.lanes.contains_key(&(at, 0))
                && self.dice.roll(40) == 0
            {
                self.unlink(at);
            }
        }
        let now_s = self.rig(0).now.unix_s;
        self.agent.arbiter.pass_time(now_s, |_| 20, |_| ());
    }

    /// Something happens. Returns how long it may take until all is well again.
    fn happen(&mut self) -> u64 {
        let at = self.dice.roll(GATES as u64) as usize;
        if !self.is_up(at) {
            return 0;
        }
        match self.dice.roll(6) {
            0 | 1 => {
                let back = 50 + self.dice.roll(300);
                self.die(at, back);
                back
            }
            2 => {
                let back = 20 + self.dice.roll(300);
                self.states[at] = State::Asleep(self.step + back, Vec::new());
                back
            }
            3 => {
                let back = 20 + self.dice.roll(200);
                let other = (at + 1 + self.dice.roll(GATES as u64 - 1) as usize) % GATES;
                self.cuts.push((at, other, self.step + back));
                back
            }
            4 => {
                let until = self.step + 20 + self.dice.roll(60);
                let is_stopped = self.dice.roll(2) == 0;
                for it in (0..GATES).filter(|it| *it == at || is_stopped) {
                    let is_linked = self.agent.lanes.contains_key(&(it, 0));
                    self.unread[it] = Some(until).filter(|_| is_linked && self.is_up(it));
                }
                until - self.step + 100
            }
            _ => {
                let back = 20 + self.dice.roll(100);
                self.unlink(at);
                self.away[at] = Some(self.step + back);
                back
            }
        }
    }

    fn die(&mut self, at: usize, back: u64) {
        self.agent.lose(at);
        self.unread[at] = None;
        self.gates[at].rigs.iter_mut().for_each(|rig| rig.sent.clear());
        self.states[at] = State::Dead(self.step + back);
    }

    /// A gateway gives away what it has, and ends. Returns how long it may take until all is well
    /// again.
    fn leave(&mut self, at: usize, seed: u64) {
        self.say_leaving(at);
        for _ in 0..400 {
            self.turn(true);
        }
        let left: usize = self.gates[at].rigs.iter().map(Rig::sessions).sum();
        assert_eq!(left, 0, "seed {seed}, step {}: gateway {at} gives all away", self.step);
        self.die(at, 50);
        for _ in 0..50 {
            self.turn(true);
        }
    }

    fn say_leaving(&mut self, at: usize) {
        self.leaves[at] = true;
        self.standbys_of(at).set_leaving(true, true);
        for rig in &mut self.gates[at].rigs {
            rig.mail(Mail::Drain { left_ms: 600_000 });
        }
    }

    /// Most of what a player has said in the last moments has reached the game.
    fn is_heard(&self, number: usize, seed: u64) {
        let (name, step) = (self.names[number], self.step);
        let texts: Vec<_> =
            (step - 100..step - 5).map(|it| format!("{name}: {it}").into_bytes()).collect();
        let count = |of: &BTreeSet<Vec<u8>>| texts.iter().filter(|it| of.contains(*it)).count();
        let (said, heard) = (count(&self.said), count(&self.heard));
        let what =
            format!("seed {seed}, step {step}: of {said} of player {number} {heard} are heard");
        assert!(said > 0 && heard * 2 > said, "{what}");
    }

    /// What those are called that gateways have.
    fn sessions(&self) -> BTreeSet<SessionId> {
        self.agent.held().into_iter().collect()
    }

    /// Each has one session, and is heard.
    fn all_have_come(&self) -> bool {
        self.sessions().len() == self.players.len()
            && self.players.iter().all(|player| player.library.is_connected())
    }

    fn everybody_is_connected(&self, seed: u64) {
        for (number, player) in self.players.iter().enumerate() {
            let step = self.step;
            assert!(player.library.is_connected(), "seed {seed}, step {step}: player {number}");
        }
    }

    /// Everything that was sent in the last moments has arrived, by one gateway.
    fn all_is_well(&mut self, seed: u64) {
        for _ in 0..300 {
            self.turn(true);
        }
        self.everybody_is_connected(seed);
        let before = self.heard.len();
        for _ in 0..100 {
            self.turn(true);
        }
        (0..self.players.len()).for_each(|number| self.is_heard(number, seed));
        assert!(self.heard.len() > before);
        let has_settled = self.settles(self.players.len());
        let at = self.gates.each_ref().map(|it| it.rigs.iter().map(Rig::sessions).sum::<usize>());
        assert!(has_settled, "seed {seed}, step {}: each has one gateway, {at:?}", self.step);
    }

    /// Whether gateways have so many sessions. One that is given away is at two for a moment.
    fn settles(&mut self, players: usize) -> bool {
        (0..5).any(|_| {
            let sessions = self.gates.iter().flat_map(|it| &it.rigs).map(Rig::sessions);
            let has_settled = sessions.sum::<usize>() == players;
            if !has_settled {
                self.turn(true);
            }
            has_settled
        })
    }
}

/// A world in which everybody plays.
fn playing<P: Plays>(seed: u64) -> World<P> {
    let mut world = World::new(seed);
    for _ in 0..P::COMING {
        world.turn(false);
    }
    // An engine answers each challenge, to whichever gateway its datagrams come. So it may come
    // late, and have two sessions until the one that it does not play by has been silent for long.
    while P::IS_BEHIND && world.step < P::COMING as u64 + 5000 && !world.all_have_come() {
        world.turn(false);
    }
    world.everybody_is_connected(seed);
    world
}

#[test]
fn nobody_loses_a_session_to_one_thing_at_a_time() {
    one_thing_at_a_time_happens::<Client>(0);
}

#[test]
fn no_plain_session_is_lost_to_one_thing_at_a_time() {
    one_thing_at_a_time_happens::<plain::Source>(301);
}

#[test]
fn no_unreal_session_is_lost_to_one_thing_at_a_time() {
    one_thing_at_a_time_happens::<unreal::Engine>(601);
}

fn one_thing_at_a_time_happens<P: Plays>(first_seed: u64) {
    let (mut worlds, mut taken_over, mut moved, mut gone_over) = (0, 0, 0, 0);
    for seed in seeds(first_seed) {
        worlds += 1;
        let mut world = playing::<P>(seed);
        for round in 0..4 {
            if round == 2 {
                // All tokens expire.
                let rigs = world.gates.iter_mut().flat_map(|it| &mut it.rigs);
                rigs.for_each(|rig| rig.step_wall_clock(3600));
            }
            world.move_some();
            let sessions = world.sessions();
            let until = world.step + world.happen();
            // Every other world's players have other ports before anybody knows of it.
            if seed % 2 == 1 {
                world.change_ports();
            }
            while world.step < until {
                world.turn(true);
            }
            world.all_is_well(seed);
            assert_eq!(world.sessions(), sessions, "seed {seed}, step {}", world.step);
            let at = world.dice.roll(GATES as u64) as usize;
            match world.dice.roll(6) {
                0 | 1 => world.upgrade(at),
                2 => world.hand_back(at),
                3 => world.leave(at, seed),
                _ => world.change_ports(),
            }
            for _ in 0..50 {
                world.turn(true);
            }
        }
        let counts = (0..GATES).map(|at| world.standbys_of(at).counts());
        let sums = counts.fold((0, 0), |sum, it| (sum.0 + it.taken_over, sum.1 + it.moved));
        (taken_over, moved) = (taken_over + sums.0, moved + sums.1);
        let alone: u64 = (0..GATES).map(|at| world.standbys_of(at).counts().alone).sum();
        assert_eq!(alone, 0, "seed {seed}: all may go on at another gateway");
        gone_over += world.agent.moved;
    }
    assert_eq!(gone_over > 0, P::HAS_PORTS, "players are moved");
    assert!(taken_over - moved > worlds && moved > 0, "{taken_over} {moved}");
}

impl<P: Plays> World<P> {
    /// Another process goes on in the place of a gateway's.
    fn upgrade(&mut self, at: usize) {
        self.carry();
        self.gates[at].hand_over();
        self.stay.push(Arc::clone(self.claims_of(at)));
        // It stands by for nobody, and is given all anew.
        for other in 0..GATES {
            self.appointed[other].retain(|_, (standby, _)| *standby != at);
            self.able[other].clear();
        }
        self.able[at].clear();
        self.met[at] = Default::default();
        for _ in 0..10 {
            self.turn(true);
        }
    }

    /// One was about to, and the first goes on after all.
    fn hand_back(&mut self, at: usize) {
        for rig in &mut self.gates[at].rigs {
            rig.host.gate_mut().resume_after_failed_hand_over();
        }
    }

    /// Players go from one game process to the other, until all of them are there.
    fn move_some(&mut self) {
        for _ in 0..2 {
            for _ in 0..self.players.len() {
                self.ask_to_move();
            }
            for _ in 0..60 {
                self.turn(true);
            }
        }
    }

    /// A game process that has a player wants it to go to the other one.
    fn ask_to_move(&mut self) {
        let mut held = self.agent.held();
        held.sort_unstable();
        let id = held[self.dice.roll(held.len() as u64) as usize];
        let Some(((at, link), session)) = self.agent.home(id) else { return };
        if !self.is_read(at) || !self.agent.lanes.contains_key(&(at, ZONE)) {
            return;
        }
        let backend = if link < ZONE { "zone" } else { "arena" };
        let (ticket, time_ms, message, data) = (7, 500, None, &b""[..]);
        let confirms = self.dice.roll(2) == 0;
        let asked = Move { session, backend, ticket, time_ms, confirms, message, data };
        let (lane, rigs) = (&self.agent.lanes[&(at, link)], &mut self.gates[at].rigs);
        lane.game.push(&mut rigs[link % ZONE], |writer| writer.move_session(&asked));
    }

    fn change_ports(&mut self) {
        if !P::HAS_PORTS {
            return;
        }
        for (number, player) in self.players.iter_mut().enumerate() {
            if self.flights.iter().all(|it| it.number != number) {
                player.home = player.home.with_port(5000 + self.dice.roll(4) as u16);
            }
        }
    }
}

/// A few, or those that `GATE_WORLD_SEEDS` names: `100..2100`.
fn seeds(first: u64) -> Range<u64> {
    let Ok(named) = std::env::var("GATE_WORLD_SEEDS") else { return first..first + SEEDS };
    let (from, to) = named.split_once("..").expect("two numbers");
    let number = |text: &str| text.parse().expect("a number");
    number(from)..number(to)
}

const GATES: usize = 3;
const PLAYERS: u16 = 5;

/// How long a member is silent before it is taken to be gone, in turns.
const SILENT: u64 = 20;

const SEEDS: u64 = 8;
