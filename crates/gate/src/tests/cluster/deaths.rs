//! Three gateways, the agent that arbitrates, and players, by seed: gateways die, sleep, are cut
//! off and are upgraded.
//!
//! Whatever happens, the game gets nothing twice and no number is sealed twice under a key (the
//! rigs judge that). Where one thing happens at a time, nobody loses a session, and in the end each
//! session has one gateway.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use super::super::clients::{Library, Player};
use super::super::rig::{Fleet, Rig, home, plain_setup};
use super::super::unreal::rig::Dice;
use super::agent::Agent;
use crate::ids::{BackendId, MemberId};
use crate::mail::{ForwardedDatagram, Mail};
use crate::shared::claims::Claims;
use crate::shared::standbys::Standbys;
use crate::shared::whereabouts::{PARTS, Whereabouts};
use crate::store::table::Address;
use ringgate_batch::{Endpoint, IoEvent};
use ringgate_cluster::{Incarnation, SessionId, appoint};
use ringgate_core::netcode::Client;

/// A datagram on its way to the router.
struct Flight {
    due: u64,
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

struct World {
    gates: [Fleet; GATES],
    states: [State; GATES],
    incarnations: [Incarnation; GATES],
    /// No word passes between these members until then.
    cut: Option<(usize, usize, u64)>,
    /// The agent has no link to this gateway until then.
    away: Option<(usize, u64)>,
    /// Since when each has heard nothing of each.
    silent_since: [[Option<u64>; GATES]; GATES],
    is_gone: [[bool; GATES]; GATES],
    /// Which process each has met of each, itself included.
    met: [[Option<Arc<Whereabouts>>; GATES]; GATES],
    /// Who stands by for what each gateway has, and with which revision.
    standbys: [BTreeMap<SessionId, (usize, u32)>; GATES],
    /// Where others stand by, as each knows.
    stands: [HashSet<(Address, usize)>; GATES],
    /// No hand-over is rehearsed: what is stood by for would be lost.
    stay: Vec<Arc<Claims>>,
    agent: Agent,
    players: Vec<Player<Client>>,
    doors: Vec<usize>,
    flights: Vec<Flight>,
    dice: Dice,
    step: u64,
    sent: BTreeSet<Vec<u8>>,
    heard: BTreeSet<Vec<u8>>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut setup = plain_setup();
        setup.backends[BackendId(0)].slots = 50;
        setup.is_clustered = true;
        let mut gates: [Fleet; GATES] = Fleet::several(&setup, 1 + (seed % 2) as u16);
        let rig = &mut gates[0].rigs[0];
        let players: Vec<_> = (0..PLAYERS)
            .map(|number| {
                let token = rig.token(u64::from(number) + 1);
                Player::new(rig, home(number), &token)
            })
            .collect();
        let mut world = Self {
            gates,
            states: std::array::from_fn(|_| State::Up),
            incarnations: std::array::from_fn(|at| Incarnation(at as u16)),
            cut: None,
            away: None,
            silent_since: Default::default(),
            is_gone: Default::default(),
            met: Default::default(),
            standbys: Default::default(),
            stands: Default::default(),
            stay: Vec::new(),
            agent: Agent::new(1000),
            doors: (0..players.len()).map(|at| at % GATES).collect(),
            players,
            flights: Vec::new(),
            dice: Dice(seed),
            step: 0,
            sent: BTreeSet::new(),
            heard: BTreeSet::new(),
        };
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
        self.standbys[at].clear();
        self.link(at);
    }

    fn link(&mut self, at: usize) {
        for (worker, rig) in self.gates[at].rigs.iter_mut().enumerate() {
            self.agent.join((at, worker), rig, self.incarnations[at]);
        }
    }

    fn unlink(&mut self, at: usize) {
        for ((_, worker), lane) in self.agent.lose(at) {
            let rig = &mut self.gates[at].rigs[worker];
            rig.take_on(lane.game.link);
            rig.host.notice(IoEvent::Closed { socket: lane.game.link });
        }
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
        let is_cut =
            self.cut.is_some_and(|(a, b, _)| (a, b) == (at, other) || (b, a) == (at, other));
        self.is_up(at) && self.is_up(other) && !is_cut
    }

    fn turn(&mut self, speaks: bool) {
        self.step += 1;
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
        self.cut = self.cut.filter(|(.., until)| *until > step);
        if let Some((at, _)) = self.away.take_if(|(_, until)| *until <= step)
            && self.is_up(at)
        {
            self.link(at);
        }
        for at in 0..GATES {
            match std::mem::replace(&mut self.states[at], State::Up) {
                State::Asleep(until, waiting) if until <= step => {
                    for (from, bytes) in waiting {
                        let worker = self.dice.roll(self.gates[at].rigs.len() as u64) as usize;
                        self.gates[at].rigs[worker].push(from, &bytes);
                    }
                    if !self.agent.lanes.contains_key(&(at, 0)) {
                        self.link(at);
                    }
                }
                State::Dead(until) if until <= step => {
                    let highest = self.incarnations.iter().map(|it| it.0).max();
                    self.incarnations[at] = Incarnation(highest.unwrap_or(0) + 1);
                    self.gates[at] = self.gates[at].restarted(at as u8);
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

    fn live(&mut self, number: usize, speaks: bool) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        let player = &mut self.players[number];
        if speaks && player.library.is_connected() && self.dice.roll(3) == 0 {
            let text = format!("{number}: {}", self.step).into_bytes();
            let bytes = player.library.payload(now_ns, &text);
            self.send(number, &bytes);
            self.sent.insert(text);
        }
        for bytes in self.players[number].library.poll(now_ns) {
            self.send(number, &bytes);
        }
    }

    fn send(&mut self, number: usize, bytes: &[u8]) {
        let from = self.players[number].home;
        for _ in 0..[0, 1, 1, 1, 1, 1, 1, 1, 1, 2][self.dice.roll(10) as usize] {
            // Some come so late that another gateway has the session by then.
            let late = if self.dice.roll(50) == 0 { 100 } else { 4 };
            let due = self.step + self.dice.roll(late);
            self.flights.push(Flight { due, from, bytes: bytes.to_vec() });
        }
    }

    /// Has the router send what is due where it sends each player's datagrams just now: not for
    /// long to one that is silent.
    fn arrive(&mut self) {
        let step = self.step;
        for Flight { from, bytes, .. } in
            self.flights.extract_if(.., |it| it.due <= step).collect::<Vec<_>>()
        {
            let number = self.players.iter().position(|it| it.home == from).expect("a player's");
            let door = self.doors[number];
            if self.dice.roll(30) == 0 || !self.is_up(door) && self.dice.roll(20) == 0 {
                self.doors[number] = self.dice.roll(GATES as u64) as usize;
            }
            let worker = self.dice.roll(self.gates[door].rigs.len() as u64) as usize;
            match &mut self.states[door] {
                State::Up => self.gates[door].rigs[worker].deliver(from, &bytes),
                State::Asleep(_, waiting) => waiting.push((from, bytes)),
                State::Dead(_) => {}
            }
        }
    }

    /// Carries mail between workers, and datagrams between members.
    fn carry(&mut self) {
        loop {
            let mut departures: Vec<(usize, MemberId, ForwardedDatagram)> = Vec::new();
            for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
                self.gates[at].deliver_mail();
                for rig in &mut self.gates[at].rigs {
                    let some = rig.host.take_for_members().into_iter();
                    departures.extend(some.map(|(to, datagram)| (at, to, datagram)));
                }
            }
            if departures.is_empty() {
                return;
            }
            for (from, MemberId(to), datagram) in departures {
                if self.hears(to.into(), from) {
                    self.land(from, to.into(), &datagram);
                }
            }
        }
    }

    fn land(&mut self, from: usize, to: usize, datagram: &ForwardedDatagram) {
        let rigs = &mut self.gates[to].rigs;
        let (address, workers) = (*datagram.address(), rigs.len() as u16);
        let takers = rigs[0].host.gate().claims().takers(&address, datagram.is_lost(), workers);
        for worker in takers.iter() {
            let datagram = ForwardedDatagram::of_member(
                (MemberId(from as u8), worker),
                address,
                (datagram.bind(), datagram.local()),
                datagram.is_lost(),
                datagram.bytes(),
            );
            let rig = &mut rigs[worker.index()];
            rig.mail(Mail::Datagram(datagram.expect("it was received")));
            rig.turn();
        }
    }

    /// The agent hears all, says what follows, and the game answers some players.
    fn arbitrate(&mut self) {
        for round in 0..2 {
            for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
                for (worker, rig) in self.gates[at].rigs.iter_mut().enumerate() {
                    self.agent.hear((at, worker), rig);
                    self.agent.speak((at, worker), rig);
                    rig.turn();
                }
            }
            if round == 0 {
                self.answer();
            }
        }
        for payload in std::mem::take(&mut self.agent.handed) {
            let text = String::from_utf8_lossy(&payload).into_owned();
            assert!(self.heard.insert(payload), "twice: {text}");
        }
    }

    fn answer(&mut self) {
        let mut held = self.agent.held();
        held.sort_unstable();
        for id in held {
            let Some(((at, worker), session)) = self.agent.home(id) else { continue };
            if self.is_up(at) && self.dice.roll(5) == 0 {
                let lane = &self.agent.lanes[&(at, worker)];
                let rig = &mut self.gates[at].rigs[worker];
                lane.game.push(rig, |writer| writer.payload(session, b"down"));
            }
        }
    }

    /// Members say who has come and gone, and notice who is silent.
    fn meet(&mut self) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        for at in 0..GATES {
            for other in (0..GATES).filter(|other| *other != at) {
                if !self.is_up(at) {
                    continue;
                }
                let member = MemberId(other as u8);
                if !self.hears(at, other) {
                    let since = *self.silent_since[at][other].get_or_insert(self.step);
                    if self.step >= since + SILENT && !self.is_gone[at][other] {
                        self.is_gone[at][other] = true;
                        self.standbys_of(at).set_gone(member, now_ns);
                        self.whereabouts_of(at).forget(member);
                        self.met[at][other] = None;
                    }
                    continue;
                }
                self.silent_since[at][other] = None;
                let theirs = self.whereabouts_of(other);
                let known = self.met[at][other].replace(Arc::clone(&theirs));
                let is_same = known.as_ref().is_some_and(|it| Arc::ptr_eq(it, &theirs));
                if std::mem::take(&mut self.is_gone[at][other]) && self.is_same_process(at, other) {
                    self.standbys_of(at).set_back(member, self.incarnations[other]);
                }
                if !is_same {
                    let own = self.whereabouts_of(at);
                    own.forget(member);
                    for address in (0..PARTS).flat_map(|part| theirs.own_part(part)) {
                        assert!(own.learn(&address, member, now_ns));
                    }
                }
            }
        }
        for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
            let mut unheard = BTreeSet::new();
            self.whereabouts_of(at).take_changes(usize::MAX, |address, is_held| {
                for other in (0..GATES).filter(|it| *it != at) {
                    if !self.hears(at, other) {
                        unheard.insert(other);
                        continue;
                    }
                    let (theirs, member) = (self.whereabouts_of(other), MemberId(at as u8));
                    if is_held {
                        assert!(theirs.learn(&address, member, now_ns));
                    } else {
                        theirs.unlearn(&address, member);
                    }
                }
            });
            // They meet anew, and are told all.
            for other in unheard {
                self.met[other][at] = None;
            }
            self.standbys_of(at).expire(now_ns);
        }
        self.know_stands();
    }

    /// Whether the process of a member is the one that has given another one its records.
    fn is_same_process(&self, at: usize, other: usize) -> bool {
        self.standbys[other].values().any(|(standby, _)| *standby == at)
    }

    /// A datagram whose owner is gone goes to the standby.
    fn know_stands(&mut self) {
        let now_ns = self.gates[0].rigs[0].now.mono_ns;
        for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
            let whereabouts = self.whereabouts_of(at);
            for other in 0..GATES {
                let stands: HashSet<Address> = if other != at && self.hears(at, other) {
                    let theirs = self.standbys_of(other);
                    (0..PARTS).flat_map(|part| theirs.stands_part(part)).collect()
                } else {
                    HashSet::new()
                };
                let gone = |it: &(Address, usize)| it.1 == other && !stands.contains(&it.0);
                let member = MemberId(other as u8);
                for (address, _) in self.stands[at].extract_if(|it| gone(it)).collect::<Vec<_>>() {
                    if self.whereabouts_of(other).worker_of(&address).is_none() {
                        whereabouts.unlearn(&address, member);
                    }
                }
                for address in stands {
                    if whereabouts.find(&address).is_none()
                        && self.stands[at].insert((address, other))
                    {
                        assert!(whereabouts.learn(&address, member, now_ns));
                    }
                }
            }
        }
    }

    /// Each gives what it has to those that stand by for it.
    fn stand_by(&mut self) {
        for at in (0..GATES).filter(|at| matches!(self.states[*at], State::Up)) {
            let own = self.standbys_of(at);
            let mut ended = Vec::new();
            own.take_changes(usize::MAX, |session, now| {
                if now.is_none() {
                    ended.push(session);
                }
            });
            for session in ended {
                if let Some((standby, _)) = self.standbys[at].remove(&session)
                    && self.hears(standby, at)
                {
                    self.standbys_of(standby).stand_down(MemberId(at as u8), session);
                }
            }
            for session in (0..PARTS).flat_map(|part| own.own_part(part)) {
                let others = (0..GATES).filter(|it| *it != at && self.hears(at, *it));
                let incarnations = others.clone().map(|it| self.incarnations[it]);
                let chosen = appoint(session, self.incarnations[at], incarnations);
                let Some(standby) =
                    others.clone().find(|it| Some(self.incarnations[*it]) == chosen)
                else {
                    continue;
                };
                let kept = own.with_own(session, |address, record| (address, record.clone()));
                let (address, record) = kept.expect("it was listed");
                let given = (standby, record.revision);
                let before = self.standbys[at].insert(session, given);
                if before == Some(given) {
                    continue;
                }
                if let Some((before, _)) = before.filter(|it| it.0 != standby)
                    && self.hears(before, at)
                {
                    self.standbys_of(before).stand_down(MemberId(at as u8), session);
                }
                let theirs = self.standbys_of(standby);
                assert!(theirs.stand_by(MemberId(at as u8), address, record));
            }
        }
    }

    fn receive(&mut self) {
        for at in 0..GATES {
            for worker in 0..self.gates[at].rigs.len() {
                let rig = &mut self.gates[at].rigs[worker];
                self.players.iter_mut().for_each(|player| player.receive(rig));
            }
        }
    }

    /// Something happens. Returns how long it may take until all is well again.
    fn happen(&mut self) -> u64 {
        let at = self.dice.roll(GATES as u64) as usize;
        if !self.is_up(at) {
            return 0;
        }
        match self.dice.roll(5) {
            0 | 1 => {
                self.agent.lose(at);
                for worker in 0..self.gates[at].rigs.len() {
                    self.gates[at].rigs[worker].sent.clear();
                }
                let back = 50 + self.dice.roll(300);
                self.states[at] = State::Dead(self.step + back);
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
                self.cut = Some((at, other, self.step + back));
                back
            }
            _ => {
                let back = 20 + self.dice.roll(100);
                self.unlink(at);
                self.away = Some((at, self.step + back));
                back
            }
        }
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
        let step = self.step;
        for number in 0..self.players.len() {
            let is_its = |text: &&Vec<u8>| {
                let text = String::from_utf8_lossy(text);
                let (whose, when) = text.split_once(": ").expect("it was written here");
                whose.parse() == Ok(number) && when.parse::<u64>().is_ok_and(|it| it + 100 > step)
            };
            let heard = self.heard.iter().filter(is_its).count();
            assert!(heard > 10, "seed {seed}, step {step}: {heard} of player {number}");
        }
        assert!(self.heard.len() > before);
        let sessions = self.gates.iter().flat_map(|it| &it.rigs).map(Rig::sessions);
        assert_eq!(
            sessions.sum::<usize>(),
            self.players.len(),
            "seed {seed}: each has one gateway"
        );
    }
}

/// A world in which everybody plays.
fn playing(seed: u64) -> World {
    let mut world = World::new(seed);
    for _ in 0..200 {
        world.turn(false);
    }
    world.everybody_is_connected(seed);
    world
}

#[test]
fn nobody_loses_a_session_to_one_thing_at_a_time() {
    let mut taken_over = 0;
    for seed in 0..SEEDS {
        let mut world = playing(seed);
        for _ in 0..4 {
            let until = world.step + world.happen();
            while world.step < until {
                world.turn(true);
            }
            world.all_is_well(seed);
            if world.dice.roll(3) == 0 {
                let at = world.dice.roll(GATES as u64) as usize;
                world.upgrade(at);
            }
        }
        taken_over += (0..GATES).map(|at| world.standbys_of(at).counts().taken_over).sum::<u64>();
    }
    assert!(taken_over > 2 * SEEDS, "{taken_over}");
}

#[test]
fn whatever_happens_at_once_nothing_is_twice() {
    for seed in 100..100 + SEEDS {
        let mut world = playing(seed);
        for _ in 0..1500 {
            if world.dice.roll(60) == 0 {
                world.happen();
            }
            world.turn(true);
        }
        assert!(!world.heard.is_empty());
    }
}

impl World {
    /// Another process goes on in the place of a gateway's.
    fn upgrade(&mut self, at: usize) {
        self.carry();
        self.gates[at].hand_over();
        self.stay.push(Arc::clone(self.claims_of(at)));
        // It stands by for nobody, and is given all anew.
        for other in 0..GATES {
            self.standbys[other].retain(|_, (standby, _)| *standby != at);
        }
        self.met[at] = Default::default();
        for _ in 0..10 {
            self.turn(true);
        }
    }
}

const GATES: usize = 3;
const PLAYERS: u16 = 5;

/// How long a member is silent before it is taken to be gone, in turns.
const SILENT: u64 = 20;

const SEEDS: u64 = 8;
