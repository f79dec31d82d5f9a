//! Slots behind agents that are killed and cut off, with players who wait at gateways meanwhile:
//! services promise nothing that an agent has given away already, and nobody is sent away.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringgate_fleet::keyspace::Place;
use ringgate_fleet::values::{Backend, Reach};
use ringgate_trunk::protocol::rolls::Rolls;

use super::fleet::{Fate, NOW, Office, Store, anywhere, backend, gateway, name, with_key};
use crate::book::Now;
use crate::random::Random;

/// What a player with a token does.
#[derive(Clone, Copy, Debug)]
struct Player {
    until_s: u64,
    /// The gateway that has let it in.
    at: Option<usize>,
    /// Whether the agent knows.
    is_announced: bool,
}

/// One game process behind an agent, and the gateways' links to it.
struct Hosted {
    rolls: Rolls,
    starts: u32,
    /// Whether it stands in etcd.
    is_registered: bool,
    players: Vec<Player>,
    /// Since when each gateway's link is gone.
    gone_since_s: [Option<u64>; GATES.len()],
    /// Since when there is something to tell that was not.
    untold_since_s: Option<u64>,
}

/// A world in which agents, services, players and time go on by chance.
struct World {
    store: Store,
    offices: Vec<Office>,
    hosted: Vec<Hosted>,
    random: Random,
    now: Now,
    slots: u32,
    counts: BTreeMap<&'static str, u32>,
}

impl World {
    fn new(seed: u64, services: usize, backends: usize, slots: u32) -> Self {
        let mut store = Store::default();
        with_key(&mut store);
        for (at, gate) in GATES.iter().enumerate() {
            let address = format!("192.0.2.{}:40000", at + 1);
            store.put(&Place::Gateway(name(gate)), &gateway("edge", &address));
        }
        let hosted = |_| Hosted {
            rolls: Rolls::default(),
            starts: 0,
            is_registered: false,
            players: Vec::new(),
            gone_since_s: [Some(0); GATES.len()],
            untold_since_s: None,
        };
        let offices = ["t1", "t2"][..services].iter().map(|it| Office::open(it, &mut store));
        let offices = offices.collect();
        let hosted = (0..backends).map(hosted).collect();
        let (random, counts) = (Random::new(seed), BTreeMap::new());
        let mut world = Self { store, offices, hosted, random, now: NOW, slots, counts };
        for at in 0..backends {
            world.start(at);
            world.tell(at);
        }
        world
    }

    /// An agent starts, and knows nothing of who waits.
    fn start(&mut self, at: usize) {
        let (now_s, slots) = (self.now.unix_s, self.slots);
        let hosted = &mut self.hosted[at];
        hosted.starts += 1;
        hosted.rolls = Rolls::default();
        hosted.rolls.set_slots([(NAME, slots)]);
        hosted.rolls.start(now_s * NS_PER_S);
        hosted.rolls.set_grace(GRACE_S as u32 * 1000);
        hosted.players.iter_mut().for_each(|player| player.is_announced = false);
        hosted.gone_since_s.iter_mut().for_each(|since_s| *since_s = since_s.or(Some(now_s)));
        if hosted.is_registered {
            self.tell(at);
        }
    }

    fn step(&mut self) {
        for office in &mut self.offices {
            let lost = self.random.below(8) == 0;
            office.fate = if lost { Fate::Lost } else { Fate::Answered };
        }
        let at = self.random.below(self.hosted.len());
        match self.random.below(40) {
            0..14 => self.ask(),
            14..20 => self.come(at),
            20..23 => self.leave(at),
            23 => self.end(at),
            24 => self.cut(at),
            25..30 => self.link(at),
            30..33 => self.announce(at, 3),
            33..37 => self.pass(),
            _ => {
                let office = self.random.below(self.offices.len());
                self.offices[office].mirror(&self.store);
            }
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn ask(&mut self) {
        let office = self.random.below(self.offices.len());
        if let Ok(placed) = self.offices[office].ask(&mut self.store, &anywhere(), 1, self.now) {
            let at: usize = placed.chosen.backend.as_str()[1..].parse().expect("our names");
            let until_s = self.now.unix_s + placed.expire_s;
            let player = Player { until_s, at: None, is_announced: false };
            self.hosted[at].players.push(player);
            self.count("promised");
        }
    }

    /// A player comes to a gateway that leads there, and is announced at once.
    fn come(&mut self, at: usize) {
        let gate = self.random.below(GATES.len());
        let (now_s, hosted) = (self.now.unix_s, &mut self.hosted[at]);
        let comes = |it: &&mut Player| it.at.is_none() && now_s < it.until_s;
        if hosted.gone_since_s[gate].is_some() {
            return;
        }
        if let Some(player) = hosted.players.iter_mut().find(comes) {
            assert!(hosted.rolls.open(NAME, &GATES[gate].into()), "there is a slot for it");
            (player.at, player.is_announced) = (Some(gate), true);
            self.tell_in_time(at);
            self.count("came");
        }
    }

    /// A player leaves; the agent hears of it where it knew of the player.
    fn leave(&mut self, at: usize) {
        let hosted = &mut self.hosted[at];
        let there = |it: &Player| it.at.is_some();
        let Some(which) = hosted.players.iter().position(there) else { return };
        let player = hosted.players.remove(which);
        if let (Some(gate), true) = (player.at, player.is_announced) {
            hosted.rolls.close(NAME, &GATES[gate].into());
        }
        self.tell_in_time(at);
    }

    /// An agent is killed and started again, before its lease has ended or after.
    fn end(&mut self, at: usize) {
        if self.random.below(2) == 0 {
            self.unregister(at);
        }
        self.start(at);
        self.count("killed");
    }

    fn unregister(&mut self, at: usize) {
        self.store.remove(&Place::Backend(name(&format!("b{at}"))));
        self.hosted[at].is_registered = false;
    }

    /// A gateway and an agent lose each other.
    fn cut(&mut self, at: usize) {
        let gate = self.random.below(GATES.len());
        let (now_s, hosted) = (self.now.unix_s, &mut self.hosted[at]);
        if hosted.gone_since_s[gate].is_some() {
            return;
        }
        hosted.gone_since_s[gate] = Some(now_s);
        let own = hosted.players.iter_mut().filter(|it| it.at == Some(gate));
        let gone = own.map(|it| u32::from(std::mem::take(&mut it.is_announced))).sum();
        hosted.rolls.lose(NAME, &GATES[gate].into(), gone);
        self.tell_in_time(at);
        self.count("cut");
    }

    /// They find each other, and the gateway says how many wait.
    fn link(&mut self, at: usize) {
        let gate = self.random.below(GATES.len());
        let hosted = &mut self.hosted[at];
        if hosted.gone_since_s[gate].take().is_some() {
            let own = hosted.players.iter().filter(|it| it.at == Some(gate)).count();
            hosted.rolls.hear(NAME, &GATES[gate].into(), own as u32, GRACE_S as u32 * 1000);
        }
        self.tell(at);
    }

    /// Those who waited are announced, one after the other.
    fn announce(&mut self, at: usize, count: usize) {
        let hosted = &mut self.hosted[at];
        let gone = hosted.gone_since_s;
        let waits =
            |it: &&mut Player| it.at.is_some_and(|gate| gone[gate].is_none()) && !it.is_announced;
        for player in hosted.players.iter_mut().filter(waits).take(count) {
            let gate = GATES[player.at.expect("it waits there")];
            assert!(hosted.rolls.open(NAME, &gate.into()), "its slot is kept");
            player.is_announced = true;
        }
        self.tell_in_time(at);
    }

    /// Three seconds.
    fn pass(&mut self) {
        (self.now.unix_s, self.now.ms) = (self.now.unix_s + 3, self.now.ms + 3000);
        let now_s = self.now.unix_s;
        for at in 0..self.hosted.len() {
            let hosted = &mut self.hosted[at];
            for (gate, since_s) in hosted.gone_since_s.iter().enumerate() {
                if since_s.is_some_and(|since_s| now_s >= since_s + GRACE_S) {
                    hosted.players.retain(|it| it.at != Some(gate));
                }
            }
            // A gateway announces within a pause of a player.
            self.announce(at, usize::MAX);
            self.hosted[at].rolls.keep(now_s * NS_PER_S, &GATES);
            let is_told = |since_s| now_s < since_s + 12;
            if self.hosted[at].untold_since_s.is_none_or(|since_s| !is_told(since_s)) {
                self.tell(at);
            }
        }
        for office in &mut self.offices {
            office.tidy(&mut self.store, self.now);
        }
    }

    /// One word in three comes late. A lease would be over before it is told.
    fn tell_in_time(&mut self, at: usize) {
        let is_late = self.random.below(3) == 0;
        let (now_s, hosted) = (self.now.unix_s, &mut self.hosted[at]);
        if is_late && hosted.is_registered {
            hosted.untold_since_s.get_or_insert(now_s);
        } else if hosted.untold_since_s.is_none() {
            self.tell(at);
        }
    }

    fn tell(&mut self, at: usize) {
        let hosted = &mut self.hosted[at];
        hosted.rolls.keep(self.now.unix_s * NS_PER_S, &GATES);
        let told = Backend {
            instance: format!("i{}", hosted.starts),
            reach: Reach::Agent(format!("agent-{at}")),
            gateways: GATES.map(str::to_owned).into(),
            used: hosted.rolls.used(NAME, &GATES).map_or(self.slots, |used| used.all),
            ..backend("elsewhere", self.slots)
        };
        (hosted.is_registered, hosted.untold_since_s) = (true, None);
        self.store.put(&Place::Backend(name(&format!("b{at}"))), &told);
    }

    /// Whether nobody was promised what there is not, and nobody is there beyond it.
    fn is_sound(&self) -> bool {
        let now_s = self.now.unix_s;
        self.hosted.iter().all(|hosted| {
            let all = hosted.players.iter();
            let may_come = |it: &&Player| it.at.is_some() || now_s < it.until_s;
            all.filter(may_come).count() <= self.slots as usize && hosted.rolls.refused() == [0; 2]
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_server_behind_an_agent_is_promised_to_more_than_it_takes(
        seed: u64, services in 1_usize..3, backends in 1_usize..3, slots in 1_u32..9,
    ) {
        let mut world = World::new(seed, services, backends, slots);
        for _ in 0..500 {
            world.step();
            prop_assert!(world.is_sound());
        }
    }
}

#[test]
fn worlds_are_busy() {
    let mut world = World::new(7, 2, 2, 6);
    (0..3000).for_each(|_| world.step());
    let least = world.counts.values().min().copied().unwrap_or_default();
    assert!(world.counts.len() == 4 && least > 20, "{:?}", world.counts);
}

const NAME: &str = "it";
const GATES: [&str; 2] = ["g1", "g2"];
const GRACE_S: u64 = 20;
const NS_PER_S: u64 = 1_000_000_000;
