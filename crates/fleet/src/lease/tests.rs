//! Registrations against a few leases and keys that behave as etcd's do, then against all
//! failures by seed.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringgate_core::secret::{KEY_BYTES, Key};

use super::machine::{Ask, Registration, Standing, Words};
use crate::backoff::Backoff;
use crate::etcd::kv::{Header, KeyValue};
use crate::etcd::lease::Lease;
use crate::etcd::txn::{Compare, Decided, Op, Txn};
use crate::etcd::{Code, Error};
use crate::keyspace::Keyspace;
use crate::seal::FleetKey;

const TTL_S: i64 = 9;

/// What a server keeps.
#[derive(Default)]
struct Server {
    revision: i64,
    last_lease: i64,
    /// Leases, and when they end.
    leases: BTreeMap<i64, u64>,
    keys: BTreeMap<Bytes, KeyValue>,
}

enum Answer {
    Lease(Result<Lease, Error>),
    Decided(Result<Decided, Error>),
}

impl Server {
    fn answer(&mut self, now_ms: u64, ask: Ask) -> Answer {
        let ends_ms = now_ms + TTL_S as u64 * 1000;
        match ask {
            Ask::Grant(ttl_s) => {
                self.last_lease += 1;
                self.leases.insert(self.last_lease, ends_ms);
                Answer::Lease(Ok(Lease { id: self.last_lease, ttl_s }))
            }
            Ask::KeepAlive(id) => {
                let ttl_s = self.leases.get_mut(&id).map_or(0, |ends| {
                    *ends = ends_ms;
                    TTL_S
                });
                Answer::Lease(Ok(Lease { id, ttl_s }))
            }
            Ask::Revoke(id) => {
                self.end(id);
                Answer::Lease(Ok(Lease { id, ttl_s: 0 }))
            }
            Ask::Decide(txn) => Answer::Decided(self.decide(&txn)),
        }
    }

    fn end(&mut self, id: i64) {
        self.leases.remove(&id);
        self.keys.retain(|_, kv| kv.lease != id);
    }

    fn expire(&mut self, now_ms: u64) {
        let ended: Vec<_> =
            self.leases.iter().filter(|it| *it.1 <= now_ms).map(|it| *it.0).collect();
        for id in ended {
            self.end(id);
        }
    }

    fn decide(&mut self, txn: &Txn) -> Result<Decided, Error> {
        let held = txn.when.iter().all(|it| match it {
            Compare::Absent(key) => !self.keys.contains_key(key),
            Compare::Lease(key, lease) => self.keys.get(key).map_or(0, |kv| kv.lease) == *lease,
            Compare::Unchanged(key, revision) => {
                self.keys.get(key).map_or(0, |kv| kv.mod_revision) == *revision
            }
        });
        let mut found = Vec::new();
        for op in if held { &txn.then } else { &txn.or_else } {
            match op {
                Op::Range(range) => found.extend(self.keys.get(&range.key).cloned()),
                Op::Delete(delete) => drop(self.keys.remove(&delete.key)),
                Op::Txn(_) => panic!("no registration asks for several decisions"),
                Op::Put(put) if put.lease != 0 && !self.leases.contains_key(&put.lease) => {
                    return Err(Error::status(Code::NOT_FOUND, "requested lease not found"));
                }
                Op::Put(put) => {
                    self.revision += 1;
                    let (key, value) = (put.key.clone(), put.value.clone());
                    let (mod_revision, lease) = (self.revision, put.lease);
                    let kv = KeyValue { key, value, mod_revision, lease, ..KeyValue::default() };
                    self.keys.insert(put.key.clone(), kv);
                }
            }
        }
        let header = Header { revision: self.revision, ..Header::default() };
        Ok(Decided { header, held, found, each: Vec::new() })
    }

    fn value(&self, key: &str) -> Option<&[u8]> {
        self.keys.get(key.as_bytes()).map(|kv| &kv.value[..])
    }
}

fn settle(registration: &mut Registration, server: &mut Server, now_ms: u64) {
    server.expire(now_ms);
    for _ in 0..100 {
        let Some((question, ask)) = registration.poll(now_ms) else { return };
        match server.answer(now_ms, ask) {
            Answer::Lease(answer) => registration.handle_lease(now_ms, question, answer),
            Answer::Decided(answer) => registration.handle_decided(now_ms, question, answer),
        }
    }
    panic!("it does not come to rest");
}

fn registered() -> (Registration, Server) {
    let (mut registration, mut server) = (Registration::new(TTL_S, 1), Server::default());
    registration.set("k".into(), "one".into());
    settle(&mut registration, &mut server, 0);
    assert!(registration.is_registered(0));
    (registration, server)
}

#[test]
fn a_lease_is_kept_alive_at_a_third_of_its_time() {
    let (mut registration, mut server) = registered();
    assert_eq!(registration.next_ms(), 3_000);
    for now_ms in (3_000..60_000).step_by(3_000) {
        settle(&mut registration, &mut server, now_ms);
    }
    assert_eq!(server.value("k"), Some(&b"one"[..]));
    assert_eq!(server.last_lease, 1);
}

#[test]
fn a_lease_is_good_from_when_it_was_asked_for() {
    let mut registration = Registration::new(TTL_S, 1);
    registration.set("k".into(), "one".into());
    let (question, _) = registration.poll(0).unwrap();
    registration.handle_lease(8_000, question, Ok(Lease { id: 1, ttl_s: TTL_S }));
    assert!(matches!(registration.poll(8_000), Some((_, Ask::KeepAlive(1)))));
    assert!(!registration.is_registered(9_000));
}

#[test]
fn a_lease_that_has_ended_is_replaced_and_the_key_written_again() {
    let (mut registration, mut server) = registered();
    settle(&mut registration, &mut server, 20_000);
    assert_eq!((registration.lost(), server.last_lease), (1, 2));
    assert_eq!(server.value("k"), Some(&b"one"[..]));
}

#[test]
fn a_key_under_an_earlier_lease_of_ours_is_taken_over() {
    let (mut registration, mut server) = registered();
    // The server forgets the lease and not the key, as one from a backup does.
    server.leases.clear();
    settle(&mut registration, &mut server, 3_000);
    assert_eq!(server.keys[&b"k"[..]].lease, 2);
    assert!(registration.is_registered(3_000));
}

#[test]
fn a_name_that_is_taken_is_left_alone_until_it_is_free() {
    let (_, mut server) = registered();
    let mut other = Registration::new(TTL_S, 2);
    other.set("k".into(), "other".into());
    settle(&mut other, &mut server, 1_000);
    assert!(matches!(other.standing(b"k"), Some(Standing::Taken { by: 1, .. })));
    assert_eq!(server.value("k"), Some(&b"one"[..]));
    settle(&mut other, &mut server, 20_000);
    // Its own lease has ended as well, so that comes first.
    settle(&mut other, &mut server, 20_001);
    assert_eq!(server.value("k"), Some(&b"other"[..]));
}

#[test]
fn keys_change_and_go_while_their_lease_stays() {
    let (mut registration, mut server) = registered();
    registration.set("k".into(), "two".into());
    registration.set("l".into(), "new".into());
    settle(&mut registration, &mut server, 1);
    assert_eq!((server.value("k"), server.value("l")), (Some(&b"two"[..]), Some(&b"new"[..])));
    registration.remove(&"k".into());
    settle(&mut registration, &mut server, 2);
    assert_eq!((server.value("k"), registration.standing(b"k")), (None, None));
    assert_eq!(server.last_lease, 1);
    registration.stop();
    settle(&mut registration, &mut server, 3);
    assert!(registration.has_stopped() && server.keys.is_empty());
}

#[test]
fn a_key_that_is_removed_while_it_is_written_goes() {
    let (mut registration, mut server) = registered();
    registration.set("k".into(), "two".into());
    let (question, ask) = registration.poll(1).unwrap();
    registration.remove(&"k".into());
    let Answer::Decided(answer) = server.answer(1, ask) else { panic!() };
    registration.handle_decided(1, question, answer);
    settle(&mut registration, &mut server, 1);
    assert_eq!(server.value("k"), None);
}

#[test]
fn a_write_whose_answer_is_lost_is_found_to_be_done() {
    let (mut registration, mut server) = registered();
    registration.set("l".into(), "new".into());
    let (question, ask) = registration.poll(1).unwrap();
    server.answer(1, ask);
    registration.handle_decided(1, question, Err(Error::Timeout));
    settle(&mut registration, &mut server, 1_000);
    assert!(registration.is_registered(1_000));
}

#[test]
fn what_is_written_long_after_nobody_waits_for_it_does_not_come_back() {
    let (mut registration, mut server) = registered();
    registration.set("k".into(), "ready".into());
    let (question, late) = registration.poll(1).unwrap();
    registration.handle_decided(1, question, Err(Error::Timeout));
    registration.set("k".into(), "draining".into());
    settle(&mut registration, &mut server, 1_000);
    server.answer(1_000, late);
    assert_eq!(server.value("k"), Some(&b"draining"[..]));
    // The same where it was done before, and its answer was lost.
    registration.set("k".into(), "ready".into());
    let (question, lost) = registration.poll(1_001).unwrap();
    server.answer(1_001, lost);
    registration.handle_decided(1_001, question, Err(Error::Timeout));
    registration.set("k".into(), "draining".into());
    settle(&mut registration, &mut server, 2_500);
    assert_eq!(server.value("k"), Some(&b"draining"[..]));
    assert!(registration.is_registered(2_500));
}

#[test]
fn a_successor_keeps_what_it_names_and_lets_go_of_the_rest() {
    let (mut registration, mut server) = registered();
    registration.set("l".into(), "old".into());
    settle(&mut registration, &mut server, 1);
    let mut successor = Registration::adopt(TTL_S, 2, registration.handed());
    successor.set("k".into(), "one".into());
    settle(&mut successor, &mut server, 2);
    assert_eq!((server.value("k"), server.value("l")), (Some(&b"one"[..]), None));
    assert_eq!((server.last_lease, successor.lost()), (1, 0));
    assert!(successor.is_registered(2));
}

/// What was asked for when its predecessor came to rest may have been done or not: in both cases
/// what the successor does not name is gone, and what it names is there.
#[test]
fn a_successor_finds_what_was_under_way() {
    for is_done in [false, true] {
        for is_named in [false, true] {
            let (mut registration, mut server) = registered();
            registration.set("new".into(), "one".into());
            registration.remove(&"k".into());
            let ask = |registration: &mut Registration, server: &mut Server| {
                let (_, ask) = registration.poll(1).expect("there is something to do");
                if is_done {
                    server.answer(1, ask);
                }
                registration.give_up();
            };
            // The one that goes is asked for again and again: it is the first of the two.
            ask(&mut registration, &mut server);
            ask(&mut registration, &mut server);
            let mut successor = Registration::adopt(TTL_S, 2, registration.handed());
            if is_named {
                successor.set("new".into(), "one".into());
            }
            successor.set("k2".into(), "two".into());
            settle(&mut successor, &mut server, 2);
            assert!(successor.is_registered(2), "{is_done} {is_named}");
            assert_eq!(server.value("k"), None, "{is_done} {is_named}");
            assert_eq!(server.value("new").is_some(), is_named, "{is_done} {is_named}");
            assert_eq!(server.value("k2"), Some(&b"two"[..]));
            assert_eq!(server.last_lease, 1);
        }
    }
}

#[test]
fn a_server_that_is_away_does_not_keep_anybody_from_stopping() {
    let (mut registration, _) = registered();
    registration.stop();
    let mut now_ms = 0;
    while !registration.has_stopped() {
        assert!(now_ms < 60_000);
        now_ms = now_ms.max(registration.next_ms());
        if let Some((question, _)) = registration.poll(now_ms) {
            registration.handle_lease(now_ms, question, Err(Error::Timeout));
        }
        now_ms += 10;
    }
}

/// Two processes with one name, answers that are lost, leases that end, keys that are deleted: the
/// key is never another's than its lease says, and when all is well again, one of them has it.
#[test]
fn through_all_failures_one_has_the_name() {
    for seed in 0..200 {
        let mut random = Backoff::new(1, 1, seed);
        let mut server = Server::default();
        let mut both = [Registration::new(TTL_S, seed), Registration::new(TTL_S, seed + 1)];
        let mut now_ms = 0;
        for step in 0..400 {
            let is_stormy = step < 300;
            now_ms += random.random() % 400;
            server.expire(now_ms);
            if is_stormy && random.random().is_multiple_of(40) {
                server.keys.clear();
                for it in &mut both {
                    it.doubt(&"k".into());
                }
            }
            if is_stormy && random.random().is_multiple_of(60) {
                now_ms += 12_000;
            }
            for (index, registration) in both.iter_mut().enumerate() {
                registration.set("k".into(), index.to_string().into());
                let Some((question, ask)) = registration.poll(now_ms) else { continue };
                let fate = if is_stormy { random.random() % 6 } else { 9 };
                if fate == 0 {
                    registration.handle_lease(now_ms, question, Err(Error::Timeout));
                    registration.handle_decided(now_ms, question, Err(Error::Timeout));
                    continue;
                }
                match server.answer(now_ms, ask) {
                    _ if fate == 1 => {
                        registration.handle_lease(now_ms, question, Err(Error::Timeout));
                        registration.handle_decided(now_ms, question, Err(Error::Timeout));
                    }
                    Answer::Lease(it) => registration.handle_lease(now_ms, question, it),
                    Answer::Decided(it) => registration.handle_decided(now_ms, question, it),
                }
            }
            if let Some(kv) = server.keys.get(&b"k"[..]) {
                let owner: usize = std::str::from_utf8(&kv.value).unwrap().parse().unwrap();
                let other = both[1 - owner].lease_id();
                assert_ne!(kv.lease, other, "seed {seed}: it stands under another's lease");
            }
        }
        let has: Vec<_> = both.iter().map(|it| it.standing(b"k").unwrap()).collect();
        let written = has.iter().filter(|it| **it == Standing::Written).count();
        assert_eq!(written, 1, "seed {seed}: {has:?}");
    }
}

#[test]
fn what_stands_is_looked_at_and_not_written_again() {
    let (mut registration, mut server) = registered();
    registration.set("l".into(), "two".into());
    settle(&mut registration, &mut server, 0);
    let before = server.keys.clone();
    for key in ["k", "l"] {
        registration.doubt(&key.into());
    }
    assert!(registration.is_registered(0) && registration.next_ms() == 0);
    settle(&mut registration, &mut server, 0);
    assert_eq!(server.keys, before);
    // What is news is not behind them.
    registration.doubt(&"k".into());
    registration.set("l".into(), "three".into());
    assert!(matches!(registration.poll(0), Some((_, Ask::Decide(txn))) if !txn.then.is_empty()));
    // What has gone, or is an older value of ours, is written.
    let (mut registration, mut server) = registered();
    for found in [None, Some("old")] {
        server.revision += 1;
        let mod_revision = server.revision;
        let kv = server.keys.remove(&b"k"[..]).expect("it stands");
        let old = found.map(|it| KeyValue { value: it.into(), mod_revision, ..kv });
        server.keys.extend(old.map(|it| (it.key.clone(), it)));
        registration.doubt(&"k".into());
        settle(&mut registration, &mut server, 0);
        assert_eq!(server.value("k"), Some(&b"one"[..]), "{found:?}");
    }
}

fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_bytes([9; KEY_BYTES]))
}

fn backend(name: &str) -> Bytes {
    format!("/f/truth/backend/{name}").into()
}

fn gone(name: &str) -> Bytes {
    format!("/f/truth/gone/backend/{name}").into()
}

/// One that has the fleet's key.
fn vouching() -> (Registration, Server) {
    let (mut registration, server) = (Registration::new(TTL_S, 1), Server::default());
    let keyspace = Keyspace::new("/f").expect("a prefix");
    registration.vouch_with(Words::new(keyspace, fleet_key(), 1_000_000));
    (registration, server)
}

#[test]
fn what_goes_is_told_by_its_owner_in_the_transaction_that_removes_it() {
    let (mut registration, mut server) = vouching();
    for name in ["one", "two"] {
        registration.set(backend(name), r#"{"v":1}"#.into());
    }
    settle(&mut registration, &mut server, 0);
    registration.remove(&backend("one"));
    let (question, ask) = registration.poll(5).expect("it is to go");
    let Answer::Decided(answer) = server.answer(5, ask) else { panic!() };
    registration.handle_decided(5, question, answer);
    assert!(!server.keys.contains_key(&backend("one")));
    let said = &server.keys[&gone("one")];
    assert_eq!(fleet_key().vouched(&said.key, &said.value), Some(1_000_005));
    assert_eq!(said.lease, registration.lease_id(), "it goes with its owner");
    // There are few of them, however many go, a successor knows of them, and all go at the end.
    for round in 0..300 {
        let name = backend(&format!("b{round}"));
        registration.set(name.clone(), r#"{"v":1}"#.into());
        settle(&mut registration, &mut server, 6 + round);
        registration.remove(&name);
        settle(&mut registration, &mut server, 6 + round);
        if round == 150 {
            registration = Registration::adopt(TTL_S, 2, registration.handed());
            let keyspace = Keyspace::new("/f").expect("a prefix");
            // The host's clock was set back.
            registration.vouch_with(Words::new(keyspace, fleet_key(), 1_000));
            registration.set(backend("two"), r#"{"v":1}"#.into());
        }
    }
    let told = server.keys.keys().filter(|key| key.starts_with(b"/f/truth/gone/")).count();
    assert_eq!(told, 128);
    let last = &server.keys[&gone("b299")];
    assert!(fleet_key().vouched(&last.key, &last.value) > Some(1_000_156), "it is newer");
    assert!(server.keys.contains_key(&gone("b299")) && server.keys.contains_key(&gone("b172")));
    assert!(registration.is_registered(305));
    registration.stop();
    settle(&mut registration, &mut server, 400);
    let left: Vec<_> = server.keys.keys().collect();
    assert_eq!(left.len(), 1, "the word that all of it is gone: {left:?}");
}

/// Thirty-two names change faster than they can be written. Who comes behind them is written all
/// the same, and before long.
#[test]
fn who_changes_all_the_time_keeps_nobody_else_from_being_written() {
    let (mut registration, mut server) = (Registration::new(TTL_S, 1), Server::default());
    let flaps = |registration: &mut Registration, round: u64| {
        for index in 0..32 {
            registration.set(format!("a{index:02}").into(), round.to_string().into());
        }
    };
    flaps(&mut registration, 0);
    settle(&mut registration, &mut server, 0);
    registration.set("z".into(), "late".into());
    for step in 1..=40 {
        // Each answer takes a while, and they all change meanwhile.
        flaps(&mut registration, step);
        let (question, ask) = registration.poll(step).expect("there is something to do");
        let Answer::Decided(answer) = server.answer(step, ask) else { panic!() };
        registration.handle_decided(step, question, answer);
    }
    assert_eq!(server.value("z"), Some(&b"late"[..]));
    for index in 0..32 {
        assert_ne!(server.value(&format!("a{index:02}")), Some(&b"0"[..]), "a{index}");
    }
}

#[test]
fn what_was_said_last_is_written_before_the_end() {
    let (mut registration, mut server) = registered();
    registration.set("k".into(), "draining".into());
    registration.set("new".into(), "never to be there".into());
    registration.stop();
    let mut seen = Vec::new();
    while let Some((question, ask)) = registration.poll(1) {
        match server.answer(1, ask) {
            Answer::Lease(it) => registration.handle_lease(1, question, it),
            Answer::Decided(it) => registration.handle_decided(1, question, it),
        }
        seen.extend(server.value("k").map(<[u8]>::to_vec));
        assert_eq!(server.value("new"), None);
    }
    assert_eq!(seen, [b"draining"]);
    assert!(registration.has_stopped() && server.keys.is_empty());
    // An etcd that does not take it keeps nobody from ending.
    let (mut registration, mut server) = registered();
    registration.set("k".into(), "draining".into());
    registration.stop();
    let (question, _) = registration.poll(1).expect("its last word");
    registration.handle_decided(1, question, Err(Error::Timeout));
    settle(&mut registration, &mut server, 1_000);
    assert!(registration.has_stopped() && server.keys.is_empty());
}

/// Whoever has no key of the fleet cannot vouch for an end: that it drains is seen of it last.
#[test]
fn what_retires_is_seen_so_before_it_goes() {
    let (mut registration, mut server) = registered();
    let step = |registration: &mut Registration, server: &mut Server| {
        let (question, ask) = registration.poll(1).expect("there is something to do");
        let Answer::Decided(answer) = server.answer(1, ask) else { panic!() };
        registration.handle_decided(1, question, answer);
    };
    registration.retire(&"k".into(), "draining".into());
    step(&mut registration, &mut server);
    assert_eq!(server.value("k"), Some(&b"draining"[..]));
    step(&mut registration, &mut server);
    assert_eq!((server.value("k"), registration.standing(b"k")), (None, None));
    // Who comes back meanwhile stays, and what stands nowhere is not written for it.
    registration.set("k".into(), "one".into());
    settle(&mut registration, &mut server, 1);
    registration.retire(&"k".into(), "one".into());
    registration.set("k".into(), "one".into());
    registration.set("new".into(), "one".into());
    registration.retire(&"new".into(), "draining".into());
    settle(&mut registration, &mut server, 1);
    assert_eq!((server.value("k"), server.value("new")), (Some(&b"one"[..]), None));
    // The same where somebody has deleted it.
    server.keys.clear();
    registration.retire(&"k".into(), "draining".into());
    settle(&mut registration, &mut server, 1);
    assert_eq!((server.value("k"), registration.standing(b"k")), (None, None));
}
