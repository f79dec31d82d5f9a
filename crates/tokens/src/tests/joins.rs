//! Promises of backends that tell whose players have come: a login counts once, and nobody else's
//! slot is given away for it.

use std::collections::BTreeMap;

use ringgate_core::netcode::destination::{self, Join};
use ringgate_fleet::joins::Joins;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::values::{Backend, Gateway, Reach};
use ringgate_trunk::protocol::rolls::Rolls;

use super::fleet::{NOW, Office, Store, anywhere, backend, gateway, host, name, with_key};
use super::slots::meet;
use crate::book::Now;
use crate::choose::Speaks;
use crate::desk::{Placed, Request};
use crate::refusal::Refusal;
use crate::wanted::{OWN_BYTES, Where, user_data};

fn later(seconds: u64) -> Now {
    Now { unix_s: NOW.unix_s + seconds, ms: NOW.ms + seconds * 1000 }
}

/// What is told of the only token of a request when it is used.
pub(super) fn join(placed: &Placed, client: u64) -> Option<Join> {
    let tag = placed.tags.first().copied();
    let data = user_data(placed.chosen.backend.as_str(), &[0; OWN_BYTES], tag);
    destination::join(client, &data)
}

/// A gateway's or an agent's own count of one backend.
#[derive(Default)]
struct Counter {
    used: u32,
    joins: Joins,
}

/// A host whose gateway tells who has come.
struct Fleet {
    store: Store,
    counters: BTreeMap<Name, Counter>,
}

impl Fleet {
    fn new(backends: u32, slots: u32) -> Self {
        let mut store = Store::default();
        with_key(&mut store);
        host(&mut store, "one", 0..backends, slots);
        let mut gateway: Gateway = gateway("one", "192.0.2.1:40000");
        gateway.listeners[0].tags = true;
        store.put(&Place::Gateway(name("g-one")), &gateway);
        Self { store, counters: BTreeMap::new() }
    }

    fn come(&mut self, placed: &Placed, client: u64) {
        let counter = self.counters.entry(placed.chosen.backend.clone()).or_default();
        counter.used += 1;
        if let Some(join) = join(placed, client) {
            counter.joins.note(join);
        }
    }

    fn leave(&mut self, backend: &Name) {
        self.counters.get_mut(backend).expect("somebody came").used -= 1;
    }

    /// What is due once in a second.
    fn tell(&mut self, offices: &mut [Office], now: Now) {
        for (name, counter) in &mut self.counters {
            counter.joins.show_next();
            self.store.tell_joined(name, counter.used, Some(counter.joins.shown().clone()));
        }
        for office in offices {
            office.mirror_at(&self.store, now);
            office.tidy(&mut self.store, now);
        }
    }

    fn ask(&mut self, office: &mut Office, client: u64, now: Now) -> Result<Placed, Refusal> {
        ask_at(&mut self.store, office, &anywhere(), client, now)
    }
}

fn ask_at(
    store: &mut Store,
    office: &mut Office,
    place: &Where,
    client: u64,
    now: Now,
) -> Result<Placed, Refusal> {
    let (speaks, clients) = (Speaks::Netcode(None), &[client][..]);
    let request = Request { place, speaks, count: 1, clients, expire_s: Some(240), elsewhere: &[] };
    office.ask_for(store, &request, now)
}

#[test]
fn players_who_come_and_go_are_not_refused_while_most_slots_are_free() {
    for services in [&["t1"][..], &["t1", "t2"]] {
        let mut fleet = Fleet::new(4, 120);
        let open = |service: &&str| Office::open(service, &mut fleet.store);
        let mut offices: Vec<_> = services.iter().map(open).collect();
        meet(&mut offices, &mut fleet.store, NOW);
        let mut there: Vec<Option<Name>> = vec![None; 44];
        // Each place has a player for two seconds, and a second later the next.
        for second in 0..300_u64 {
            let now = later(second);
            for player in 0..there.len() {
                match (second + player as u64) % 3 {
                    0 => {
                        let office = &mut offices[player % services.len()];
                        let client = second * 100 + player as u64;
                        let placed = fleet.ask(office, client, now);
                        let placed =
                            placed.unwrap_or_else(|why| panic!("{why:?} after {second} s"));
                        fleet.come(&placed, client);
                        there[player] = Some(placed.chosen.backend);
                    }
                    2 => there[player].take().into_iter().for_each(|it| fleet.leave(&it)),
                    _ => {}
                }
            }
            fleet.tell(&mut offices, now);
        }
        let promised: u64 = offices.iter().map(|it| it.desk.book().sums()[1]).sum();
        assert_eq!(promised, 0, "each of them has come");
    }
}

#[test]
fn slots_of_players_who_have_come_are_held_by_no_block() {
    let mut fleet = Fleet::new(1, 480);
    let mut offices = [Office::open("t1", &mut fleet.store), Office::open("t2", &mut fleet.store)];
    let mut used = 0;
    // The first service is busy all the time, and leaves the most to the other.
    for second in 0..60_u64 {
        for client in second * 10..second * 10 + 10 {
            let at = usize::from(!client.is_multiple_of(10) && client >= 200);
            if let Ok(placed) = fleet.ask(&mut offices[at], client, later(second)) {
                fleet.come(&placed, client);
                used += 1;
            }
        }
        fleet.tell(&mut offices, later(second));
        assert!(used <= 480);
        // What is free may be in the block of either.
        assert!(used >= ((second + 1) * 10).min(480) * 3 / 4, "{used} after {second} s");
    }
}

#[test]
fn a_token_that_was_used_settles_its_own_promise_and_no_other() {
    let mut fleet = Fleet::new(1, 3);
    let mut office = Office::open("t", &mut fleet.store);
    let sums = |office: &Office| office.desk.book().sums()[1];
    let first = fleet.ask(&mut office, 1, NOW).unwrap();
    let again = fleet.ask(&mut office, 1, NOW).unwrap();
    let other = fleet.ask(&mut office, 2, NOW).unwrap();
    assert_eq!(sums(&office), 2);
    // It may leave and come again with its other token.
    fleet.come(&again, 1);
    fleet.tell(std::slice::from_mut(&mut office), later(1));
    assert_eq!(sums(&office), 2);
    assert!(fleet.ask(&mut office, 3, later(1)).is_err(), "one is there, and two may come");
    fleet.leave(&name("b0"));
    fleet.come(&first, 1);
    fleet.tell(std::slice::from_mut(&mut office), later(2));
    assert_eq!(sums(&office), 1);
    assert!(fleet.ask(&mut office, 3, later(2)).is_ok());
    assert!(fleet.ask(&mut office, 4, later(2)).is_err(), "client 2 may still come");
    // The same is told again, and one is told whom nobody knows.
    let counter = fleet.counters.get_mut(&name("b0")).expect("it has players");
    counter.joins.note(Join(7));
    fleet.tell(std::slice::from_mut(&mut office), later(3));
    assert_eq!(sums(&office), 2);
    fleet.come(&other, 2);
    fleet.tell(std::slice::from_mut(&mut office), later(4));
    assert_eq!(sums(&office), 1);
}

#[test]
fn what_is_heard_while_slots_are_leased_frees_none_that_the_decision_has_counted() {
    let mut fleet = Fleet::new(1, 4);
    let mut office = Office::open("t", &mut fleet.store);
    let backend = name("b0");
    let first = fleet.ask(&mut office, 1, NOW).unwrap();
    // A decision reads that nobody is there; while it is written, the player comes.
    let read = office.read(&mut fleet.store, &backend, NOW);
    fleet.come(&first, 1);
    let counter = fleet.counters.get_mut(&backend).expect("it has a player");
    counter.joins.show_next();
    fleet.store.tell_joined(&backend, counter.used, Some(counter.joins.shown().clone()));
    office.desk.book_mut().open(&backend, NOW.unix_s).is_leasing = true;
    office.mirror_at(&fleet.store, NOW);
    office.write(&mut fleet.store, &backend, (read, 4), NOW);
    let all = (2..9).filter(|client| fleet.ask(&mut office, *client, NOW).is_ok()).count();
    assert_eq!(all, 3, "one of four is taken");
}

#[test]
fn a_service_that_has_just_started_guesses_nothing_while_etcd_is_there() {
    let mut fleet = Fleet::new(1, 2);
    let mut before = Office::open("t", &mut fleet.store);
    assert!((1..3).all(|client| fleet.ask(&mut before, client, NOW).is_ok()));
    let mut next = Office::start("t", 2, &mut fleet.store);
    // It knows the fleet, and has no lease yet; or it has lost the one that it had.
    next.desk.set_leased(0);
    assert_eq!(fleet.ask(&mut next, 3, NOW).unwrap_err(), Refusal::NotKnownYet);
    assert_eq!(next.desk.readiness(NOW), Err(Refusal::NotKnownYet));
    next.desk.set_leased(u64::MAX);
    assert_eq!(fleet.ask(&mut next, 3, NOW).unwrap_err(), Refusal::NoSlot);
    // Where etcd grants none it is as good as away, and the operator wants tokens all the same.
    next.desk.set_leased(0);
    next.desk.miss_lease();
    assert!(fleet.ask(&mut next, 3, NOW).is_ok());
}

#[test]
fn where_not_every_gateway_knows_tags_tokens_have_none() {
    let mut fleet = Fleet::new(1, 9);
    let mut office = Office::open("t", &mut fleet.store);
    assert_eq!(fleet.ask(&mut office, 1, NOW).unwrap().tags.len(), 1);
    fleet.store.put(&Place::Gateway(name("g-two")), &gateway("one", "192.0.2.2:40000"));
    office.mirror(&fleet.store);
    let both = Where { addresses: 2, ..anywhere() };
    let placed = ask_at(&mut fleet.store, &mut office, &both, 2, NOW).unwrap();
    assert_eq!((placed.chosen.gateways.len(), placed.tags.len()), (2, 0));
    assert_eq!(join(&placed, 2), None);
}

/// After the death of a gateway with everybody who plays, everybody plays again within two timeouts
/// and a second: their slots are kept for as long as they would wait for a link that is lost.
#[test]
fn a_full_server_is_full_again_within_two_timeouts_after_its_gateway_has_died() {
    let (slots, timeout_s, grace_s) = (100, 15, 5);
    let mut store = Store::default();
    with_key(&mut store);
    for (at, gate) in GATES.iter().enumerate() {
        let mut gateway = gateway("edge", &format!("192.0.2.{}:40000", at + 1));
        gateway.listeners[0].tags = true;
        store.put(&Place::Gateway(name(gate)), &gateway);
    }
    let rolls = Rolls::default();
    rolls.set_slots([("it", slots)]);
    for gate in GATES {
        rolls.hear("it", &gate.into(), 0, grace_s * 1000);
    }
    let mut joins = Joins::default();
    let tell = |store: &mut Store, joins: &mut Joins, gates: &[&str], now: Now| {
        rolls.keep(now.unix_s * 1_000_000_000, &GATES);
        joins.show_next();
        let told = Backend {
            reach: Reach::Agent("agent".into()),
            gateways: gates.iter().map(|it| (*it).to_owned()).collect(),
            used: rolls.used("it", &GATES).map_or(slots, |used| used.all),
            joined: Some(joins.shown().clone()),
            ..backend("elsewhere", slots)
        };
        store.put(&Place::Backend(name("b0")), &told);
    };
    tell(&mut store, &mut joins, &GATES[..1], NOW);
    let mut office = Office::open("t", &mut store);
    let come = |office: &mut Office, store: &mut Store, gate: &str, client, now| {
        let Ok(placed) = ask_at(store, office, &anywhere(), client, now) else { return None };
        assert!(rolls.open("it", &gate.into()), "there is a slot for whoever has a token");
        join(&placed, client)
    };
    for second in 0..10 {
        for client in second * 10..second * 10 + 10 {
            let came = come(&mut office, &mut store, GATES[0], client, later(second));
            if let Some(join) = came {
                joins.note(join);
            }
        }
        tell(&mut store, &mut joins, &GATES[..1], later(second));
        office.mirror_at(&store, later(second));
    }
    assert_eq!(rolls.used("it", &GATES).map(|it| it.all), Some(slots));

    rolls.lose("it", &GATES[0].into(), slots);
    let mut waiting: Vec<_> = (0..u64::from(slots)).collect();
    let died_s = 60;
    for second in 0..=2 * timeout_s + 1 {
        let now = later(died_s + second);
        // Until then they wait for the gateway.
        if second >= timeout_s {
            waiting.retain(|client| {
                let came = come(&mut office, &mut store, GATES[1], *client, now);
                if let Some(join) = came {
                    joins.note(join);
                }
                came.is_none()
            });
        }
        tell(&mut store, &mut joins, &GATES[1..], now);
        office.mirror_at(&store, now);
        office.tidy(&mut store, now);
    }
    assert_eq!(waiting.len(), 0, "still out");
}

const GATES: [&str; 2] = ["g1", "g2"];
