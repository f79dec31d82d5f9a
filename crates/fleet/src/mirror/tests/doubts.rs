//! What is held back, and what is not: departures that their owners told, the death of one owner,
//! absence alone, and histories that were rewritten.

use ringgate_core::secret::{KEY_BYTES, Key};

use super::super::reads::Reads;
use super::{Doubt, PREFIX, Pair, Store};
use crate::epochs::Validity;
use crate::etcd::kv::Header;
use crate::seal::FleetKey;
use crate::values::{Confirmation, Stored};

fn of_host(host: &str, state: &str) -> String {
    format!(
        r#"{{"v":1,"instance":"i","host":"{host}","group":"arena","reach":{{"udp":"127.0.0.1:7000"}},"slots":8,"used":0,"state":"{state}"}}"#
    )
}

fn key(kind: &str, name: &str) -> String {
    format!("{PREFIX}{kind}/{name}")
}

fn backend_of(lease: i64, index: usize) -> String {
    key("backend", &format!("h{lease}-{index}"))
}

/// Hosts, each a lease of its own, with so many backends each.
fn hosts(hosts: i64, backends: usize) -> Store {
    let mut store = Store::new(7);
    for lease in 1..=hosts {
        for index in 0..backends {
            let value = of_host(&format!("h{lease}"), "ready");
            store.put_under(lease, backend_of(lease, index).as_bytes(), &value);
        }
    }
    store
}

fn holds(pair: &Pair, key: &str) -> bool {
    pair.machine.truth().entries.contains_key(key.as_bytes())
}

#[test]
fn the_death_of_one_of_two_hosts_is_news() {
    let mut pair = Pair::new(hosts(2, 4));
    pair.store.revoke(1);
    pair.settle();
    pair.assert_same();
    assert_eq!(pair.machine.truth().entries.len(), 4);
}

#[test]
fn backends_that_said_that_they_drain_may_go() {
    let mut pair = Pair::new(hosts(4, 4));
    for lease in 1..=3 {
        for index in 0..4 {
            let value = of_host(&format!("h{lease}"), "draining");
            pair.store.put_under(lease, backend_of(lease, index).as_bytes(), &value);
        }
    }
    pair.settle();
    (1..=3).for_each(|lease| pair.store.revoke(lease));
    pair.settle();
    pair.assert_same();
    assert_eq!(pair.machine.truth().entries.len(), 4);
}

#[test]
fn what_has_died_long_ago_is_not_missed_when_others_take_their_leave() {
    let mut pair = Pair::new(hosts(20, 1));
    (1..=9).for_each(|lease| pair.store.revoke(lease));
    pair.settle();
    pair.assert_same();
    pair.wait(60_000);
    for lease in 10..=19 {
        let backend = backend_of(lease, 0);
        let value = of_host(&format!("h{lease}"), "draining");
        pair.store.put_under(lease, backend.as_bytes(), &value);
        pair.store.delete(backend.as_bytes());
        pair.settle();
        pair.assert_same();
    }
    assert_eq!(pair.machine.truth().entries.len(), 1);
}

#[test]
fn what_one_process_announces_and_takes_away_is_news() {
    let mut store = Store::new(7);
    for (lease, host) in [(1, "h1"), (2, "h2")] {
        let value = format!(r#"{{"host":"{host}"}}"#);
        store.put_under(lease, key("gateway", host).as_bytes(), &value);
    }
    for index in 0..40 {
        store.put_under(1, backend_of(1, index).as_bytes(), &of_host("h1", "ready"));
    }
    let mut pair = Pair::new(store);
    for index in 0..40 {
        pair.store.delete(backend_of(1, index).as_bytes());
        pair.settle();
    }
    pair.assert_same();
    assert_eq!(pair.machine.truth().entries.len(), 2);
}

#[test]
fn while_backends_are_missed_everything_else_goes_on() {
    let mut pair = Pair::new(hosts(4, 4));
    (1..=3).for_each(|lease| pair.store.revoke(lease));
    pair.settle();
    assert!(matches!(pair.doubt(), Some((_, Doubt::ManyGone { .. }))));
    assert_eq!(pair.machine.truth().entries.len(), 16, "they are held");
    // A ban, a drain, a key and another backend come, and one that was missed is back.
    let ban = key("ban", "client/7");
    pair.store.put(ban.as_bytes(), r#"{"v":1,"until":9}"#);
    pair.store.put(backend_of(4, 0).as_bytes(), &of_host("h4", "draining"));
    pair.store.put(key("key", "main/2").as_bytes(), "{}");
    pair.store.put_under(1, backend_of(1, 0).as_bytes(), &of_host("h1", "starting"));
    pair.settle();
    let value =
        |key: String| pair.machine.truth().entries.get(key.as_bytes()).unwrap().value.clone();
    assert!(holds(&pair, &ban) && holds(&pair, &key("key", "main/2")));
    assert_eq!(value(backend_of(4, 0)), of_host("h4", "draining"));
    assert_eq!(value(backend_of(1, 0)), of_host("h1", "starting"));
    assert!(pair.machine.status().is_current, "what is told is known");
}

pub(super) fn fleet_key() -> FleetKey {
    FleetKey::new(Key::from_bytes([9; KEY_BYTES]))
}

/// The fleet's word at a key.
pub(super) fn word(key: &str, value: &str, counter: u64) -> String {
    let word = fleet_key().vouch(key.as_bytes(), value.as_bytes(), counter).unwrap();
    String::from_utf8(word.to_vec()).unwrap()
}

fn put_word(store: &mut Store, key: &str, value: &str, counter: u64) {
    store.put(key.as_bytes(), &word(key, value, counter));
}

const BAN: &str = r#"{"v":1,"until":9}"#;

fn ban(client: u64) -> String {
    key("ban", &format!("client/{client}"))
}

/// A fleet of two hosts whose backends are vouched for, with a ban.
fn vouched() -> Pair {
    let mut store = hosts(2, 4);
    for lease in 1..=2 {
        for index in 0..4 {
            let (key, value) = (backend_of(lease, index), of_host(&format!("h{lease}"), "ready"));
            store.put_under(lease, key.as_bytes(), &word(&key, &value, 100));
        }
    }
    put_word(&mut store, &ban(1), BAN, 100);
    Pair::with(store, Reads::new(Some(fleet_key())))
}

fn starts_anew(pair: &mut Pair, store: Store) {
    pair.store = store;
    pair.lose_stream();
    pair.wait(60_000);
}

#[test]
fn in_an_emptied_etcd_new_bans_drains_and_keys_hold_and_nothing_is_lifted() {
    let mut pair = vouched();
    let before = pair.machine.truth().entries.clone();
    starts_anew(&mut pair, Store::new(8));
    assert!(pair.machine.status().is_rewritten());
    assert!(pair.machine.status().held_back().contains(&("all", 1)));
    assert_eq!(pair.machine.truth().entries, before);
    // One that is the fleet's and new, one that is nobody's, and one that is old.
    put_word(&mut pair.store, &ban(2), BAN, 101);
    pair.store.put(ban(3).as_bytes(), BAN);
    put_word(&mut pair.store, &ban(4), BAN, 99);
    let drained = backend_of(1, 0);
    put_word(&mut pair.store, &drained, &of_host("h1", "draining"), 102);
    let (place, validity) =
        (key("key", "main/2"), Validity { from: 1, mint_until: 2, accept_until: 3 });
    let sealed = fleet_key().seal(place.as_bytes(), validity, &Key::from_bytes([1; 32])).unwrap();
    let sealed = String::from_utf8(sealed.encode().unwrap().to_vec()).unwrap();
    pair.store.put(place.as_bytes(), &sealed);
    pair.wait(60_000);
    assert!(pair.doubt().is_some());
    assert!(holds(&pair, &ban(1)) && holds(&pair, &ban(2)) && holds(&pair, &place));
    assert!(!holds(&pair, &ban(3)) && !holds(&pair, &ban(4)));
    let value = &pair.machine.truth().entries[drained.as_bytes()].value;
    assert!(value.windows(8).any(|it| it == b"draining"));
    assert_eq!(pair.machine.truth().entries.len(), before.len() + 2);
}

#[test]
fn what_a_backup_brings_back_is_not_obeyed() {
    let mut pair = vouched();
    let key = backend_of(2, 1);
    put_word(&mut pair.store, &key, &of_host("h2", "draining"), 110);
    put_word(&mut pair.store, &ban(7), BAN, 110);
    pair.settle();
    let backup = pair.store.clone();
    put_word(&mut pair.store, &key, &of_host("h2", "ready"), 120);
    pair.store.delete(ban(7).as_bytes());
    pair.settle();
    let before = pair.machine.truth().entries.clone();
    starts_anew(&mut pair, backup);
    assert!(pair.machine.status().is_rewritten());
    assert_eq!(pair.machine.truth().entries, before);
    // Nor after a restart: the copy knows how new the newest was.
    let bytes = crate::copy::encode(&PREFIX.into(), pair.machine.truth(), 1);
    let known = crate::copy::decode(&bytes).unwrap().truth;
    let reads = Reads::new(Some(fleet_key()));
    pair.machine = super::Machine::new(super::Options { reads, ..super::options() }, known);
    pair.wait(60_000);
    assert_eq!(pair.machine.truth().entries, before);
}

#[test]
fn an_operators_word_is_obeyed_once_and_for_what_it_is_about() {
    let confirm = |cluster: u64, revision: i64| {
        let word =
            Confirmation { cluster: format!("{cluster:x}"), revision, at: 1, by: String::new() };
        String::from_utf8(word.encode().unwrap().to_vec()).unwrap()
    };
    let at = format!("{PREFIX}confirm");
    let mut pair = vouched();
    starts_anew(&mut pair, Store::new(8));
    pair.store.put(at.as_bytes(), &confirm(8, 1));
    put_word(&mut pair.store, &at, &confirm(7, 1), 200);
    pair.wait(60_000);
    assert!(pair.doubt().is_some(), "nobody's, and about another cluster");
    put_word(&mut pair.store, &at, &confirm(8, 1), 201);
    pair.wait(60_000);
    pair.assert_same();
    // The same word is no word about what is gone later.
    let mut store = Store::new(9);
    put_word(&mut store, &at, &confirm(9, 1), 201);
    starts_anew(&mut pair, store);
    assert!(pair.doubt().is_some());
    // Of what is missed, that which had gone by then.
    let mut pair = vouched();
    (0..4).for_each(|index| pair.store.delete(backend_of(1, index).as_bytes()));
    (0..2).for_each(|index| pair.store.delete(backend_of(2, index).as_bytes()));
    pair.settle();
    assert!(pair.doubt().is_some());
    let looked = pair.store.revision;
    pair.store.delete(backend_of(2, 2).as_bytes());
    put_word(&mut pair.store, &at, &confirm(7, looked), 300);
    pair.settle();
    assert_eq!(pair.machine.truth().entries.len(), 3, "a backend, a ban, the word");
    pair.assert_same();
}

#[test]
fn what_stood_under_a_lease_that_was_given_up_may_go() {
    let mut pair = Pair::with(hosts(4, 4), Reads::new(Some(fleet_key())));
    for lease in 1..=3 {
        let at = key("gone", &lease.to_string());
        put_word(&mut pair.store, &at, r#"{"v":1}"#, 5);
    }
    (1..=3).for_each(|lease| pair.store.revoke(lease));
    pair.settle();
    assert_eq!(pair.doubt(), None);
    // The same where everything is listed anew.
    let mut pair = Pair::with(hosts(4, 4), Reads::new(Some(fleet_key())));
    pair.lose_stream();
    for lease in 1..=3 {
        let at = key("gone", &lease.to_string());
        put_word(&mut pair.store, &at, r#"{"v":1}"#, 5);
        pair.store.revoke(lease);
    }
    pair.store.compact();
    pair.wait(1000);
    pair.assert_same();
    // Nobody's word does not count.
    let mut pair = Pair::with(hosts(4, 4), Reads::new(Some(fleet_key())));
    (1..=3)
        .for_each(|lease| pair.store.put(key("gone", &lease.to_string()).as_bytes(), r#"{"v":1}"#));
    (1..=3).for_each(|lease| pair.store.revoke(lease));
    pair.settle();
    assert!(pair.doubt().is_some());
}

fn gone(backend: &str) -> String {
    backend.replace("/truth/backend/", "/truth/gone/backend/")
}

/// A backend ends in order: its owner says so in the transaction that removes its key.
fn ends(store: &mut Store, backend: &str, counter: u64) {
    let at = gone(backend);
    let said = word(&at, r#"{"v":1}"#, counter);
    store.write(&[(at.as_bytes(), Some(&said)), (backend.as_bytes(), None)]);
}

#[test]
fn backends_whose_owner_has_told_their_end_may_go() {
    let all = || (1..=2).flat_map(|lease| (0..4).map(move |index| backend_of(lease, index)));
    for is_listed in [false, true] {
        let mut pair = vouched();
        if is_listed {
            pair.lose_stream();
        }
        all().for_each(|key| ends(&mut pair.store, &key, 101));
        if is_listed {
            pair.store.compact();
        }
        pair.wait(1000);
        pair.assert_same();
        // What was told of them goes with their owners, and is not missed.
        all().for_each(|key| pair.store.delete(gone(&key).as_bytes()));
        pair.wait(1000);
        pair.assert_same();
    }
    // A word that is nobody's, or older than what stood there, does not count.
    for (key, counter) in [("nobody's", 101), ("ours", 99)] {
        let mut pair = vouched();
        for backend in all() {
            let at = gone(&backend);
            let said = match key {
                "ours" => word(&at, r#"{"v":1}"#, counter),
                _ => r#"{"v":1}"#.to_owned(),
            };
            let steps = [(at.as_bytes(), Some(&*said)), (backend.as_bytes(), None)];
            pair.store.write(&steps);
        }
        pair.settle();
        assert!(pair.doubt().is_some(), "{key}");
    }
}

#[test]
fn what_one_owner_had_is_missed_where_nobody_else_renews() {
    let mut store = hosts(1, 8);
    store.put_under(1, key("gateway", "g").as_bytes(), r#"{"host":"h1"}"#);
    let mut pair = Pair::new(store);
    (0..8).for_each(|index| pair.store.delete(backend_of(1, index).as_bytes()));
    pair.settle();
    assert!(pair.doubt().is_some());
    assert_eq!(pair.machine.truth().entries.len(), 9);
}

/// All keys of a prefix, as `etcdctl del --prefix` deletes them: at one revision.
fn erase(store: &mut Store) {
    let entries = store.entries();
    let steps: Vec<(&[u8], _)> = entries.keys().map(|key| (&**key, None)).collect();
    store.write(&steps);
}

#[test]
fn in_an_etcd_that_somebody_has_emptied_bans_hold() {
    for (hosts_of_it, is_listed) in [(2, false), (2, true), (0, false)] {
        let mut pair = vouched();
        let lifted = ban(5);
        put_word(&mut pair.store, &lifted, BAN, 100);
        for lease in hosts_of_it + 1..=2 {
            (0..4).for_each(|it| ends(&mut pair.store, &backend_of(lease, it), 101));
        }
        put_word(&mut pair.store, &backend_of(9, 9), "{}", 100);
        pair.settle();
        // One that is lifted is lifted.
        pair.store.delete(lifted.as_bytes());
        pair.settle();
        pair.assert_same();
        if is_listed {
            pair.lose_stream();
        }
        erase(&mut pair.store);
        if is_listed {
            pair.store.compact();
        }
        pair.wait(60_000);
        assert!(holds(&pair, &ban(1)), "{hosts_of_it} {is_listed}");
        let held = pair.machine.status().held_back();
        assert!(held.contains(&("bans", 1)) && held.contains(&("all", 0)), "{held:?}");
        assert!(pair.machine.status().is_current, "{:?}", pair.machine.status());
        // Nor when everything is listed anew.
        pair.lose_stream();
        pair.store.compact();
        put_word(&mut pair.store, &ban(6), BAN, 102);
        pair.wait(60_000);
        assert!(holds(&pair, &ban(1)) && holds(&pair, &ban(6)));
        // One that is made now is lifted as ever.
        pair.store.delete(ban(6).as_bytes());
        pair.wait(60_000);
        assert!(!holds(&pair, &ban(6)));
        let (number, _) = pair.doubt().expect("it stands");
        assert!(pair.machine.confirm(pair.now_ms, number));
        pair.wait(60_000);
        pair.assert_same();
    }
}

#[test]
fn an_answer_from_another_history_says_of_nothing_whose_it_is() {
    let pair = vouched();
    let (status, known) = (pair.machine.status(), pair.machine.truth().header());
    let trusts = |told: Header| status.trusts(&known, Some(&told));
    assert!(status.trusts(&known, None) && trusts(known));
    assert!(trusts(Header { revision: known.revision + 9, raft_term: 9, ..known }));
    assert!(!trusts(Header { cluster_id: 8, ..known }));
    assert!(!trusts(Header { revision: known.revision - 1, ..known }));
    assert!(!trusts(Header { raft_term: known.raft_term - 1, ..known }), "as a backup begins");
    let mut pair = vouched();
    starts_anew(&mut pair, Store::new(8));
    assert!(!pair.machine.status().trusts(&known, None));
}
