//! Slots that several services promise at the same time: whatever happens, no backend gets more
//! players than it has slots, and what is free comes back.

use std::collections::{BTreeMap, BTreeSet, HashMap};

#[cfg(test)]
use proptest::prelude::*;
use ringgate_core::netcode::destination::Join;
use ringgate_fleet::joins::Joins;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::values::{Backend, Block, Listener, State, Stored};

use super::fleet::{
    Fate, NOW, Office, RULES, Store, anywhere, backend as made, gateway, host, name, with_key,
};
use super::joins::join;
use super::journal::SharedDisk;
use crate::book::Now;
use crate::choose::Speaks;
use crate::desk::{LEASE_MARGIN_S, Request, Rules};
use crate::refusal::Refusal;
use crate::wanted::Where;

pub(super) fn later(seconds: u64) -> Now {
    Now { unix_s: NOW.unix_s + seconds, ms: NOW.ms + seconds * 1000 }
}

#[test]
fn a_burst_fills_every_server_and_overfills_none() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..20, 50);
    let mut offices: Vec<_> =
        ["t1", "t2", "t3"].map(|service| Office::open(service, &mut store)).into();
    meet(&mut offices, &mut store, NOW);
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
    let mut offices = ["t1", "t2"].map(|service| Office::open(service, &mut store));
    meet(&mut offices, &mut store, NOW);
    let [mut one, mut two] = offices;
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
    assert_eq!(one.desk.book().sums(), [10, 10, 0]);
}

/// All of these services hear of each other, and of that.
pub(super) fn meet(offices: &mut [Office], store: &mut Store, now: Now) {
    for _ in 0..2 {
        for office in &mut *offices {
            office.mirror(store);
            office.keep_company(store, now);
        }
    }
}

/// So many players as get a token, one after the other.
pub(super) fn fill(office: &mut Office, store: &mut Store, now: Now) -> usize {
    std::iter::from_fn(|| office.ask(store, &anywhere(), 1, now).ok()).count()
}

/// A service has promised so many slots for so many seconds each, and was told to end.
fn after_the_end(promised: &[(u32, u64)], backends: u32, slots: u32) -> Store {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..backends, slots);
    let mut office = Office::open("t", &mut store);
    let (place, speaks) = (anywhere(), Speaks::Netcode(None));
    for &(count, expire_s) in promised {
        let expire_s = Some(expire_s);
        let request =
            Request { place: &place, speaks, count: 1, clients: &[], expire_s, elsewhere: &[] };
        for _ in 0..count {
            assert!(office.ask_for(&mut store, &request, NOW).is_ok());
        }
    }
    office.end(&mut store, NOW);
    store
}

#[test]
fn a_service_that_has_ended_holds_what_it_has_promised_and_for_no_longer() {
    for service in ["t", "other"] {
        let mut store = after_the_end(&[(430, 5)], 4, 120);
        let mut next = Office::start(service, 2, &mut store);
        assert_eq!(fill(&mut next, &mut store, later(5)), 50, "tokens are on their way");
        assert_eq!(fill(&mut next, &mut store, later(20)), 430, "nobody came with any");
    }
}

#[test]
fn each_promise_of_a_service_that_has_ended_holds_until_its_own_token_ends() {
    for service in ["t", "other"] {
        for (at_s, free) in [(1, 50), (21, 80), (74, 80), (78, 100)] {
            let mut store = after_the_end(&[(30, 5), (20, 60)], 1, 100);
            let mut next = Office::start(service, 2, &mut store);
            assert_eq!(fill(&mut next, &mut store, later(at_s)), free, "{service} after {at_s} s");
            let is_taken_over = service == "t";
            assert_eq!(store.blocks(&name("b0")), if is_taken_over { 1 } else { 2 });
        }
    }
}

#[test]
fn a_block_that_anybody_may_have_written_takes_no_memory_and_gives_nothing_away() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 100);
    let until_s = NOW.unix_s + 50;
    let promised = vec![(until_s, u32::MAX)];
    let block = Block { slots: u32::MAX, promised, closed: true };
    for start in ["t.00000007", "t.00000008"] {
        store.put(&Place::Block(name("b0"), name(start)), &block);
    }
    let mut office = Office::open("t", &mut store);
    assert_eq!(fill(&mut office, &mut store, NOW), 0, "so much is taken");
    assert_eq!(office.desk.book().sums()[1], 0);
    assert_eq!(fill(&mut office, &mut store, later(51)), 100);
    let more = Block { slots: 1, promised: vec![(until_s, 1), (until_s, 1)], closed: true };
    assert!(more.encode().is_err(), "more than there is");
}

#[test]
fn a_client_has_one_promise_in_a_group_and_is_sent_to_the_same_server_again() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..3, 500);
    let mut office = Office::open("t", &mut store);
    let mut ask = |store: &mut Store, place: &Where, clients: &[u64], now| {
        let (speaks, count) = (Speaks::Netcode(None), clients.len() as u32);
        let request = Request { place, speaks, count, clients, expire_s: Some(30), elsewhere: &[] };
        let placed = office.ask_for(store, &request, now).map(|it| it.chosen.backend);
        (placed, office.desk.book().sums()[1])
    };
    let first = ask(&mut store, &anywhere(), &[7], NOW);
    let (Ok(backend), 1) = first.clone() else { panic!("{first:?}") };
    for seconds in 0..1500 {
        assert_eq!(ask(&mut store, &anywhere(), &[7], later(seconds / 60)), first);
    }
    // The promise lasts as long as the last of its tokens.
    assert_eq!(ask(&mut store, &anywhere(), &[8], later(25 + 44)).1, 2);
    let named = |text: &str| Where { backend: Some(name(text)), ..anywhere() };
    assert_eq!(ask(&mut store, &named(backend.as_str()), &[7], later(30)).0, first.0);
    let other = ["b0", "b1"].into_iter().find(|it| *it != backend.as_str()).unwrap();
    // Players who go together go there too, and each of them counts once.
    let (together, sum) = ask(&mut store, &anywhere(), &[7, 9, 9, 10], later(30));
    assert_eq!((together, sum), (first.0.clone(), 4));
    // Whoever names another backend meanwhile takes no slot there.
    let there = ask(&mut store, &named(other), &[7], later(30));
    assert_eq!(there, (Err(Refusal::PromisedElsewhere), 4));
    // Where nobody can play there any more, the promise is worth nothing.
    let state = State::Draining;
    store.put(&Place::Backend(backend.clone()), &Backend { state, ..made("one", 500) });
    office.mirror(&store);
    let request = Request {
        place: &anywhere(),
        speaks: Speaks::Netcode(None),
        count: 1,
        clients: &[7],
        expire_s: None,
        elsewhere: &[],
    };
    let placed = office.ask_for(&mut store, &request, later(31)).unwrap();
    assert_ne!(placed.chosen.backend, backend);
}

#[test]
fn a_client_with_a_promise_gets_no_slot_elsewhere_in_its_group() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 3);
    let mut us = gateway("two", "192.0.2.9:40000");
    us.region = "us".into();
    us.listeners.push(Listener { group: "side".into(), ..us.listeners[0].clone() });
    store.put(&Place::Gateway(name("g-two")), &us);
    let labels = BTreeMap::from([("map".to_owned(), "desert".to_owned())]);
    let other = Backend { labels: labels.clone(), ..made("two", 9) };
    store.put(&Place::Backend(name("b1")), &other);
    let of_another_group = Backend { group: "side".into(), ..made("two", 9) };
    store.put(&Place::Backend(name("b2")), &of_another_group);
    let mut office = Office::open("t", &mut store);
    let group = Some(name("main"));
    let in_main = Where { group, ..anywhere() };
    let ask = |office: &mut Office, store: &mut Store, place: &Where, clients: &[u64]| {
        let (speaks, count) = (Speaks::Netcode(None), clients.len() as u32);
        let request = Request { place, speaks, count, clients, expire_s: None, elsewhere: &[] };
        let placed = office.ask_for(store, &request, NOW).map(|it| it.chosen.backend);
        (placed, office.desk.book().sums()[1])
    };
    let named = |text: &str| Where { backend: Some(name(text)), ..anywhere() };
    assert_eq!(ask(&mut office, &mut store, &named("b0"), &[7]), (Ok(name("b0")), 1));
    let labelled = Where { labels, ..in_main.clone() };
    let in_us = Where { regions: vec![name("us")], ..in_main.clone() };
    for place in [named("b1"), labelled, in_us] {
        for clients in [&[7][..], &[8, 7]] {
            let refused = (Err(Refusal::PromisedElsewhere), 1);
            assert_eq!(ask(&mut office, &mut store, &place, clients), refused, "{place:?}");
        }
    }
    // There is no room for so many companions; and two who are expected at two places.
    let refused = (Err(Refusal::PromisedElsewhere), 1);
    assert_eq!(ask(&mut office, &mut store, &in_main, &[7, 8, 9, 10]), refused);
    assert_eq!(ask(&mut office, &mut store, &named("b1"), &[8]), (Ok(name("b1")), 2));
    assert_eq!(ask(&mut office, &mut store, &in_main, &[7, 8]).0, refused.0);
    // Another group has nothing to do with that.
    assert_eq!(ask(&mut office, &mut store, &named("b2"), &[7]), (Ok(name("b2")), 3));
    // Of two players one has come: whose promise is left is not known for certain.
    assert_eq!(ask(&mut office, &mut store, &named("b0"), &[9]), (Ok(name("b0")), 4));
    store.tell(&name("b0"), 1);
    office.lease(&mut store, &name("b0"), 1, NOW);
    assert_eq!(office.desk.book().sums()[1], 3);
    assert_eq!(ask(&mut office, &mut store, &named("b1"), &[9]).0, refused.0);
    for _ in 0..3 {
        let again = ask(&mut office, &mut store, &in_main, &[9]);
        assert_eq!(again, (Ok(name("b0")), 4), "a slot of its own, once");
    }
    // Nobody is led there any more: the promise is worth nothing.
    store.remove(&Place::Gateway(name("g-one")));
    let gone = super::fleet::keyspace().key(&Place::Gateway(name("g-one")));
    office.desk.learn(&gone, None);
    assert_eq!(ask(&mut office, &mut store, &in_main, &[9]).0, Ok(name("b1")));
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

/// A client with tokens of one start of a service for one server. It is there once, as gateways
/// have it, and may leave and come again for as long as it has tokens.
struct Player {
    by: (Name, u64, u32),
    /// Until when each can be used, and what is told then.
    tokens: Vec<(u64, Option<Join>)>,
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
        let request = Request {
            place: &place,
            speaks,
            count: 1,
            clients: &[],
            expire_s: Some(expire_s),
            elsewhere: &[],
        };
        office.ask_for(&mut store, &request, NOW).err()
    };
    assert_eq!(ask(&mut office, 30), None);
    // From now on it is cut off: when its lease ends, others promise these slots.
    office.desk.set_mirror(true, false);
    office.desk.set_leased(NOW.ms + 40_000);
    assert_eq!(ask(&mut office, 30), Some(Refusal::EtcdAway));
    assert_eq!(ask(&mut office, 20), None);
}

/// Decisions, one byte each. When there are none left, the world is over.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn below(&mut self, end: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % end
    }
}

/// A world in which services, players and time go on as the choices say. A fuzzer makes them, too.
struct World<'a> {
    store: Store,
    offices: Vec<Office>,
    players: Vec<Player>,
    choices: Choices<'a>,
    now: Now,
    slots: u32,
    /// Backends that are cut off from etcd, and since when they have something to tell.
    untold: BTreeMap<u32, u64>,
    /// What those who count the players of each backend tell of who has come; `None` where they are
    /// of an earlier release.
    joins: BTreeMap<u32, Option<Joins>>,
    /// Services that have died, and until when the leases of their blocks live.
    dead: Vec<(u64, Name)>,
    starts: u32,
}

/// One world to its end. No server is ever promised to more than it takes.
pub(crate) fn play(input: &[u8]) {
    let mut world = World::new(Choices(input));
    while !world.choices.0.is_empty() {
        world.step();
        for backend in 0..world.joins.len() as u32 {
            let outstanding = world.outstanding(backend);
            assert!(outstanding <= world.slots, "{outstanding} for {} slots", world.slots);
        }
        world.nobody_has_two_promises();
    }
}

impl<'a> World<'a> {
    fn new(mut choices: Choices<'a>) -> Self {
        let open =
            |service: &&str, store: &mut Store| Office::with_rules(service, 1, WORLD_RULES, store);
        let (services, slots) = (1 + choices.below(3), 1 + choices.below(11) as u32);
        let backends = 1 + choices.below(4) as u32;
        let mut store = Store::default();
        with_key(&mut store);
        host(&mut store, "one", 0..backends, slots);
        let mut gateway = gateway("one", "192.0.2.1:40000");
        gateway.listeners[0].tags = true;
        store.put(&Place::Gateway(name("g-one")), &gateway);
        let offices =
            SERVICES[..services].iter().map(|service| open(service, &mut store)).collect();
        Self {
            store,
            offices,
            players: Vec::new(),
            choices,
            now: NOW,
            slots,
            untold: BTreeMap::new(),
            joins: (0..backends).map(|at| (at, Some(Joins::default()))).collect(),
            dead: Vec::new(),
            starts: 1,
        }
    }

    /// A client is promised something at one server, whichever services have promised it.
    fn nobody_has_two_promises(&self) {
        for client in 0..CLIENTS as u64 {
            let now_s = self.now.unix_s;
            let promised = |it: &Office| {
                it.desk.book().promised(client, now_s, |_| true).map(|it| it.0.clone())
            };
            let at: BTreeSet<_> = self.offices.iter().filter_map(promised).collect();
            assert!(at.len() <= 1, "{client} has promises at {at:?}");
        }
    }

    fn step(&mut self) {
        self.has_weather();
        match self.choices.below(40) {
            0..20 => self.ask(),
            20..28 => self.come(),
            28..32 => self.leave(),
            32 => self.restart(),
            33 => self.kill_gateway(),
            34..36 => {
                self.now.unix_s += 3;
                self.now.ms += 3000;
                self.end_cuts();
                self.end_leases();
                for office in &mut self.offices {
                    office.tidy(&mut self.store, self.now);
                }
                // Whoever hears nothing for long is not there any more.
                for office in &mut self.offices {
                    office.mirror_services(&self.store, self.now);
                    office.keep_company(&mut self.store, self.now);
                }
            }
            _ => {
                let at = self.choices.below(self.offices.len());
                self.offices[at].mirror_at(&self.store, self.now);
                self.offices[at].keep_company(&mut self.store, self.now);
            }
        }
    }

    /// A gateway dies with its players, and another one goes on, perhaps of another release. What
    /// the first has not told is never heard.
    fn kill_gateway(&mut self) {
        let backend = self.choices.below(self.joins.len()) as u32;
        let is_told = self.choices.below(3) > 0;
        self.joins.insert(backend, is_told.then(Joins::default));
        let own = self.players.iter_mut().filter(|it| it.by.2 == backend);
        own.for_each(|it| it.has_come = false);
        self.untold.remove(&backend);
        self.tell(backend);
    }

    /// A service dies, or is told to end. Another start of it knows what it has promised, or
    /// nothing of it: then its blocks stay for as long as a token lives, and longer.
    fn restart(&mut self) {
        let at = self.choices.below(self.offices.len());
        self.starts += 1;
        let mut dead = self.offices.remove(at);
        self.dead.push((self.now.unix_s + LEASE_LEFT_S, dead.owner.clone()));
        let (is_ended, is_known) = (self.choices.below(3) == 0, self.choices.below(3) > 0);
        let (service, disk) = (dead.desk.service().clone(), dead.disk.clone());
        let owner = dead.owner.clone();
        if is_ended {
            dead.fate = self.fate();
            self.end(dead);
        } else {
            match self.choices.below(6) {
                0 => disk.tear(self.choices.below(30)),
                1 => disk.lose_power(self.choices.below(256)),
                _ => {}
            }
        }
        let disk = if is_known { disk } else { SharedDisk::new() };
        let of = (service.as_str(), self.starts);
        let mut next = Office::on(disk, of, (WORLD_RULES, self.now), &mut self.store);
        if self.choices.below(2) == 0 {
            next.take_over(&mut self.store, self.now);
            let has_all = next.desk.book().before().contains(&owner);
            let blocks = self.backends().filter_map(|at| self.store.block(&at, &owner));
            assert!(!has_all || blocks.count() == 0, "its blocks are taken over");
        }
        self.offices.insert(at, next);
    }

    /// A service that is told to end gives back what it has not promised.
    fn end(&mut self, mut office: Office) {
        let (owner, now) = (office.owner.clone(), self.now);
        let is_answered = matches!(office.fate, Fate::Answered);
        let mut pending = |at: &Name| office.desk.book_mut().open(at, now.unix_s).pending();
        let promised: Vec<_> = self.backends().map(|at| (pending(&at), at)).collect();
        office.end(&mut self.store, now);
        for (count, at) in promised.iter().filter(|_| is_answered) {
            let left = self.store.block(at, &owner).map_or(0, |it| it.holds(now.unix_s));
            assert!(left <= *count, "{left} slots stay behind for {count} promises");
        }
    }

    fn backends(&self) -> impl Iterator<Item = Name> {
        self.joins.keys().map(|at| name(&format!("b{at}")))
    }

    fn end_leases(&mut self) {
        let now_s = self.now.unix_s;
        for (_, owner) in self.dead.extract_if(.., |(until_s, _)| now_s >= *until_s) {
            self.store.end_lease(&owner);
        }
    }

    /// One transaction in four is not answered, and what is on its way arrives when it likes.
    fn has_weather(&mut self) {
        for at in 0..self.offices.len() {
            self.offices[at].fate = self.fate();
        }
        if !self.store.late.is_empty() && self.choices.below(3) == 0 {
            let at = self.choices.below(self.store.late.len());
            let txn = self.store.late.swap_remove(at);
            let _ = self.store.txn(&txn);
        }
    }

    fn fate(&mut self) -> Fate {
        match self.choices.below(8) {
            0 => Fate::Lost,
            1 => Fate::Late,
            _ => Fate::Answered,
        }
    }

    /// A client asks a service, perhaps not for the first time.
    fn ask(&mut self) {
        let at = self.choices.below(self.offices.len());
        let client = self.choices.below(CLIENTS) as u64;
        let named = self.choices.below(4) == 0;
        let backend = named.then(|| name(&format!("b{}", self.choices.below(4))));
        let place = Where { backend, ..anywhere() };
        let placed = self.ask_for(at, client, &place);
        // Whoever asks once more gets the same server, and no second slot.
        if placed.is_some() && self.choices.below(4) == 0 {
            let pending = self.offices[at].desk.book().sums()[1];
            assert_eq!(self.ask_for(at, client, &anywhere()), placed);
            assert_eq!(self.offices[at].desk.book().sums()[1], pending);
        }
    }

    fn ask_for(&mut self, at: usize, client: u64, place: &Where) -> Option<Name> {
        let (speaks, count) = (Speaks::Netcode(None), 1);
        let expire_s = Some(10 + self.choices.below(20) as u64);
        let request =
            Request { place, speaks, count, clients: &[client], expire_s, elsewhere: &[] };
        let office = &mut self.offices[at];
        let placed = office.ask_for(&mut self.store, &request, self.now).ok()?;
        let backend = placed.chosen.backend.as_str()[1..].parse().expect("our names");
        let by = (office.owner.clone(), client, backend);
        let token = (self.now.unix_s + placed.expire_s, join(&placed, client));
        match self.players.iter_mut().find(|it| it.by == by) {
            Some(player) => player.tokens.push(token),
            None => self.players.push(Player { by, tokens: vec![token], has_come: false }),
        }
        Some(placed.chosen.backend)
    }

    fn come(&mut self) {
        if self.players.is_empty() {
            return;
        }
        let at = self.choices.below(self.players.len());
        let player = &mut self.players[at];
        let token = player.tokens.iter().position(|(until_s, _)| self.now.unix_s < *until_s);
        let Some(token) = token.filter(|_| !player.has_come) else { return };
        let (_, join) = player.tokens.swap_remove(token);
        player.has_come = true;
        let joins = self.joins.get_mut(&player.by.2).and_then(Option::as_mut);
        if let Some((joins, join)) = joins.zip(join) {
            joins.note(join);
        }
        self.tell_in_time(at);
    }

    fn leave(&mut self) {
        let there: Vec<_> =
            (0..self.players.len()).filter(|at| self.players[*at].has_come).collect();
        if let Some(at) = there.get(self.choices.below(there.len().max(1))) {
            self.players[*at].has_come = false;
            self.tell_in_time(*at);
        }
    }

    /// One backend in three cannot tell at once. Its lease would be over before it is told.
    fn tell_in_time(&mut self, at: usize) {
        let (.., backend) = self.players[at].by;
        if self.choices.below(3) == 0 {
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
        let used = self.clients(backend, |it| it.has_come);
        let joined = self.joins.get_mut(&backend).and_then(Option::as_mut).map(|joins| {
            joins.show_next();
            joins.shown().clone()
        });
        self.store.tell_joined(&name(&format!("b{backend}")), used, joined);
    }

    /// Players who are there or may still come.
    fn outstanding(&self, backend: u32) -> u32 {
        let now_s = self.now.unix_s;
        self.clients(backend, |it| it.has_come || it.tokens.iter().any(|(end_s, _)| now_s < *end_s))
    }

    fn clients(&self, backend: u32, is_meant: impl Fn(&Player) -> bool) -> u32 {
        let of = |it: &&Player| it.by.2 == backend && is_meant(it);
        self.players.iter().filter(of).map(|it| it.by.1).collect::<BTreeSet<_>>().len() as u32
    }
}

#[cfg(test)]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_server_is_ever_promised_to_more_than_it_takes(
        input in proptest::collection::vec(any::<u8>(), 3_000),
    ) {
        play(&input);
    }
}

/// More than there are slots, and few enough to ask twice.
const CLIENTS: usize = 80;

/// Where etcd gives no answer, nobody can know what others have promised.
const WORLD_RULES: Rules = Rules { serves_away: false, ..RULES };

const SERVICES: [&str; 3] = ["t1", "t2", "t3"];

/// A token of these services lives for 30 s. When one dies, its lease was renewed 5 s ago at most.
const LEASE_LEFT_S: u64 = 30 + 15 + LEASE_MARGIN_S as u64 - 5;
