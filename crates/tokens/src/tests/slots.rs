//! Slots that several services promise at the same time: whatever happens, no backend gets more
//! players than it has slots, and what is free comes back.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use ringgate_fleet::keyspace::Name;

use super::fleet::{Fate, NOW, Office, RULES, Store, anywhere, host, name, with_key};
use crate::book::Now;
use crate::choose::Speaks;
use crate::desk::{Request, Rules};
use crate::fleet::LEASE_MARGIN_S;
use crate::random::Random;
use crate::refusal::Refusal;

fn later(seconds: u64) -> Now {
    Now { unix_s: NOW.unix_s + seconds, ms: NOW.ms + seconds * 1000 }
}

#[test]
fn a_burst_fills_every_server_and_overfills_none() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..20, 50);
    let mut offices: Vec<_> =
        ["t1", "t2", "t3"].map(|service| Office::open(service, &mut store)).into();
    for office in &mut offices {
        office.mirror(&store);
    }
    let mut players: HashMap<Name, u32> = HashMap::new();
    let mut refused = 0;
    for at in 0..1100 {
        match offices[at % 3].ask(&mut store, &anywhere(), 1, NOW) {
            Ok(placed) => *players.entry(placed.chosen.backend).or_default() += 1,
            Err(why) => {
                assert_eq!(why, Refusal::NoSlot);
                refused += 1;
            }
        }
    }
    assert!(players.values().all(|count| *count <= 50), "{players:?}");
    let placed: u32 = players.values().sum();
    assert_eq!(placed + refused, 1100);
    // Free slots may stay in a block of another service until it gives them back.
    assert!(placed >= 900, "{placed} of 1000");
}

#[test]
fn players_who_have_come_make_room_for_those_who_follow() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 100);
    let mut office = Office::open("t", &mut store);
    for _ in 0..60 {
        assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    }
    store.tell(&name("b0"), 60);
    office.mirror(&store);
    // They would count twice for as long as their tokens live, were they not known to have come.
    for _ in 0..40 {
        assert!(office.ask(&mut store, &anywhere(), 1, later(2)).is_ok());
    }
    assert_eq!(office.ask(&mut store, &anywhere(), 1, later(2)).unwrap_err(), Refusal::NoSlot);
}

#[test]
fn who_came_with_a_token_that_has_ended_is_not_taken_for_somebody_else() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 4);
    let mut office = Office::open("t", &mut store);
    assert!(office.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    store.tell(&name("b0"), 1);
    // The block has room for one more, so nobody looks at the backend before this promise is made.
    assert!(office.ask(&mut store, &anywhere(), 1, later(50)).is_ok());
    office.mirror(&store);
    for _ in 0..2 {
        assert!(office.ask(&mut store, &anywhere(), 1, later(51)).is_ok());
    }
    assert_eq!(office.ask(&mut store, &anywhere(), 1, later(51)).unwrap_err(), Refusal::NoSlot);
}

#[test]
fn what_is_not_used_is_given_back() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 10);
    let mut one = Office::open("t1", &mut store);
    let mut two = Office::open("t2", &mut store);
    one.mirror(&store);
    assert!(one.ask(&mut store, &anywhere(), 1, NOW).is_ok());
    let full = |office: &mut Office, store: &mut Store, now| {
        let mut count = 0;
        while office.ask(store, &anywhere(), 1, now).is_ok() {
            count += 1;
        }
        count
    };
    assert_eq!(full(&mut two, &mut store, NOW), 5, "the other one has half of them");
    one.tidy(&mut store, later(6));
    assert_eq!(full(&mut two, &mut store, later(6)), 4);
    assert!(one.ask(&mut store, &anywhere(), 1, later(6)).is_err());
    // Nobody came with any of these tokens.
    for office in [&mut one, &mut two] {
        office.tidy(&mut store, later(60));
    }
    assert_eq!(full(&mut one, &mut store, later(60)), 10);
    assert_eq!(one.desk.book().sums(), (10, 10));
}

#[test]
fn players_who_go_together_stay_together() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..3, 10);
    let mut office = Office::open("t", &mut store);
    for _ in 0..3 {
        assert!(office.ask(&mut store, &anywhere(), 7, NOW).is_ok());
    }
    assert_eq!(office.ask(&mut store, &anywhere(), 7, NOW).unwrap_err(), Refusal::NoSlot);
    assert!(office.ask(&mut store, &anywhere(), 3, NOW).is_ok());
}

/// What a player with a token does.
#[derive(Clone, Copy)]
struct Player {
    backend: u32,
    until_s: u64,
    has_come: bool,
}

#[test]
fn no_token_outlives_the_lease_of_its_slots() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 10);
    let rules = Rules { serves_away: false, ..RULES };
    let mut office = Office::with_rules("t", 1, rules, &mut store);
    let mut ask = |office: &mut Office, expire_s| {
        let (place, speaks) = (anywhere(), Speaks::Netcode(None));
        let request = Request { place: &place, speaks, count: 1, expire_s: Some(expire_s) };
        office.ask_for(&mut store, &request, NOW).err()
    };
    assert_eq!(ask(&mut office, 30), None);
    // From now on it is cut off: when its lease ends, others promise these slots.
    office.desk.set_mirror(true, false);
    office.desk.set_leased(NOW.ms + 40_000);
    assert_eq!(ask(&mut office, 30), Some(Refusal::EtcdAway));
    assert_eq!(ask(&mut office, 20), None);
}

/// A world in which services, players and time go on by chance.
struct World {
    store: Store,
    offices: Vec<Office>,
    players: Vec<Player>,
    random: Random,
    now: Now,
    slots: u32,
    /// Backends that are cut off from etcd, and since when they have something to tell.
    untold: BTreeMap<u32, u64>,
    /// Services that have died, and until when the leases of their blocks live.
    dead: Vec<(u64, Name)>,
    starts: u32,
}

impl World {
    fn new(seed: u64, services: usize, backends: u32, slots: u32) -> Self {
        let mut store = Store::default();
        with_key(&mut store);
        host(&mut store, "one", 0..backends, slots);
        let offices =
            SERVICES[..services].iter().map(|service| Office::open(service, &mut store)).collect();
        Self {
            store,
            offices,
            players: Vec::new(),
            random: Random::new(seed),
            now: NOW,
            slots,
            untold: BTreeMap::new(),
            dead: Vec::new(),
            starts: 1,
        }
    }

    fn step(&mut self) {
        self.has_weather();
        match self.random.below(40) {
            0..20 => self.ask(),
            20..28 => self.come(),
            28..32 => self.leave(),
            32 => self.restart(),
            33..36 => {
                self.now.unix_s += 3;
                self.now.ms += 3000;
                self.end_cuts();
                self.end_leases();
                for office in &mut self.offices {
                    office.tidy(&mut self.store, self.now);
                }
            }
            _ => {
                let at = self.random.below(self.offices.len());
                self.offices[at].mirror(&self.store);
            }
        }
    }

    /// A service dies, and another start of it knows nothing of what it has promised. Its blocks
    /// stay for as long as a token lives, and longer.
    fn restart(&mut self) {
        let at = self.random.below(self.offices.len());
        self.starts += 1;
        let next = Office::start(SERVICES[at], self.starts, &mut self.store);
        let dead = std::mem::replace(&mut self.offices[at], next);
        self.dead.push((self.now.unix_s + LEASE_LEFT_S, dead.owner));
    }

    fn end_leases(&mut self) {
        let now_s = self.now.unix_s;
        for (_, owner) in self.dead.extract_if(.., |(until_s, _)| now_s >= *until_s) {
            self.store.end_lease(&owner);
        }
    }

    /// One transaction in four is not answered, and what is on its way arrives when it likes.
    fn has_weather(&mut self) {
        for office in &mut self.offices {
            office.fate = match self.random.below(8) {
                0 => Fate::Lost,
                1 => Fate::Late,
                _ => Fate::Answered,
            };
        }
        if !self.store.late.is_empty() && self.random.below(3) == 0 {
            let at = self.random.below(self.store.late.len());
            let txn = self.store.late.swap_remove(at);
            let _ = self.store.txn(&txn);
        }
    }

    fn ask(&mut self) {
        let at = self.random.below(self.offices.len());
        if let Ok(placed) = self.offices[at].ask(&mut self.store, &anywhere(), 1, self.now) {
            let backend = placed.chosen.backend.as_str()[1..].parse().expect("our names");
            let until_s = self.now.unix_s + placed.expire_s;
            self.players.push(Player { backend, until_s, has_come: false });
        }
    }

    fn come(&mut self) {
        if self.players.is_empty() {
            return;
        }
        let at = self.random.below(self.players.len());
        let player = &mut self.players[at];
        if player.has_come || self.now.unix_s >= player.until_s {
            return;
        }
        player.has_come = true;
        self.tell_in_time(at);
    }

    fn leave(&mut self) {
        let there: Vec<_> =
            (0..self.players.len()).filter(|at| self.players[*at].has_come).collect();
        if let Some(at) = there.get(self.random.below(there.len().max(1))) {
            let player = self.players.swap_remove(*at);
            self.players.push(Player { until_s: 0, has_come: false, ..player });
            self.tell_in_time(self.players.len() - 1);
        }
    }

    /// One backend in three cannot tell at once. Its lease would be over before it is told.
    fn tell_in_time(&mut self, at: usize) {
        let backend = self.players[at].backend;
        if self.random.below(3) == 0 {
            self.untold.entry(backend).or_insert(self.now.unix_s);
        } else if !self.untold.contains_key(&backend) {
            self.tell(backend);
        }
    }

    fn end_cuts(&mut self) {
        let now_s = self.now.unix_s;
        let is_over = |since_s: &u64| now_s >= since_s + 12;
        let over = self.untold.iter().filter(|(_, since_s)| is_over(since_s));
        let over: Vec<_> = over.map(|(backend, _)| *backend).collect();
        for backend in over {
            self.untold.remove(&backend);
            self.tell(backend);
        }
    }

    fn tell(&mut self, backend: u32) {
        let is_there = |it: &&Player| it.has_come && it.backend == backend;
        let used = self.players.iter().filter(is_there).count() as u32;
        self.store.tell(&name(&format!("b{backend}")), used);
    }

    /// Players who are there or may still come.
    fn outstanding(&self, backend: u32) -> u32 {
        let may_come = |it: &&Player| it.has_come || self.now.unix_s < it.until_s;
        self.players.iter().filter(|it| it.backend == backend).filter(may_come).count() as u32
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_server_is_ever_promised_to_more_than_it_takes(
        seed: u64, services in 1_usize..4, backends in 1_u32..5, slots in 1_u32..12,
    ) {
        let mut world = World::new(seed, services, backends, slots);
        for _ in 0..400 {
            world.step();
            for backend in 0..backends {
                prop_assert!(world.outstanding(backend) <= world.slots);
            }
        }
    }
}

const SERVICES: [&str; 3] = ["t1", "t2", "t3"];

/// A token of these services lives for 30 s. When one dies, its lease was renewed 5 s ago at most.
const LEASE_LEFT_S: u64 = 30 + LEASE_MARGIN_S as u64 - 5;
