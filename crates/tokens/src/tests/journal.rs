//! What a service has promised and written down: the next start takes over just that after a kill,
//! and believes nothing where something may be missing.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use ringgate_core::netcode::destination::Join;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_fleet::values::{Block, Stored};

use super::fleet::{NOW, Office, RULES, Store, anywhere, gateway, host, keyspace, name, with_key};
use super::slots::{fill, later, meet};
use crate::book::Now;
use crate::choose::Speaks;
use crate::desk::{Request, Rules};
use crate::journal::{Before, Disk, Journal, Promised, take_records};

/// A disk that several starts have, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedDisk(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
pub(super) struct Memory {
    boot: u32,
    list: Option<Vec<u8>>,
    files: BTreeMap<u64, Vec<u8>>,
    takes_records: bool,
    takes_lists: bool,
}

impl SharedDisk {
    pub(super) fn new() -> Self {
        let memory = Memory { takes_records: true, takes_lists: true, ..Memory::default() };
        Self(Arc::new(Mutex::new(memory)))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().expect("no test panics with it")
    }

    /// A kill has torn the last record: of one more promise so many bytes are there, or a few less
    /// than all.
    pub(super) fn tear(&self, len: usize) {
        let record = promised(3).record();
        let torn = &record[..len.min(record.len() - 1)];
        let mut memory = self.memory();
        memory.files.last_entry().into_iter().for_each(|mut it| it.get_mut().extend(torn));
    }

    /// The machine has lost its power, and each file what is behind a place.
    pub(super) fn lose_power(&self, len: usize) {
        let mut memory = self.memory();
        memory.boot += 1;
        memory.files.values_mut().for_each(|file| file.truncate(len));
    }

    /// What the next start finds.
    fn found(&self, now: Now) -> Before {
        Journal::begin(Box::new(self.clone()), &keyspace(), &name("t.9"), now).1
    }
}

fn written(is_written: bool) -> io::Result<()> {
    if is_written { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}

impl Disk for SharedDisk {
    fn identity(&self) -> String {
        self.memory().boot.to_string()
    }

    fn list(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.memory().list.clone())
    }

    fn set_list(&mut self, text: Option<&str>) -> io::Result<()> {
        let mut memory = self.memory();
        written(memory.takes_lists)?;
        memory.list = text.map(|it| it.as_bytes().to_vec());
        Ok(())
    }

    fn records(&self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        Ok(self.memory().files.clone().into_iter().collect())
    }

    fn add(&mut self, until_s: u64, record: &[u8], _: Now) -> io::Result<()> {
        let mut memory = self.memory();
        written(memory.takes_records)?;
        memory.files.entry(until_s / SPAN_S).or_default().extend(record);
        Ok(())
    }

    fn replace(&mut self, file: u64, records: &[u8]) -> io::Result<()> {
        self.memory().files.insert(file, records.to_vec());
        Ok(())
    }

    fn leases(&self) -> Vec<i64> {
        Vec::new()
    }

    fn set_leases(&mut self, _: &[i64]) -> io::Result<()> {
        Ok(())
    }

    fn forget_ended(&mut self, now: Now) -> io::Result<()> {
        self.memory().files.retain(|span, _| now.unix_s < (span + 1) * SPAN_S);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.memory().files.clear();
        Ok(())
    }
}

/// A service has promised so many slots for so many seconds each, and was killed.
fn after_a_kill(promised: &[(u32, u64)], backends: u32, slots: u32) -> (Store, Office) {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..backends, slots);
    let mut office = Office::open("t", &mut store);
    let (place, speaks) = (anywhere(), Speaks::Netcode(None));
    let clients: Vec<_> = (1..).take(promised.iter().map(|it| it.0 as usize).sum()).collect();
    let mut clients = clients.iter();
    for &(count, expire_s) in promised {
        for client in clients.by_ref().take(count as usize) {
            let clients = std::slice::from_ref(client);
            let expire_s = Some(expire_s);
            let request =
                Request { place: &place, speaks, count: 1, clients, expire_s, elsewhere: &[] };
            assert!(office.ask_for(&mut store, &request, NOW).is_ok());
        }
    }
    (store, office)
}

#[test]
fn a_service_that_was_killed_holds_what_it_has_promised_and_for_no_longer() {
    for (at_s, free) in [(5, 50), (20, 480)] {
        let (mut store, killed) = after_a_kill(&[(430, 5)], 4, 120);
        let mut next = killed.follow(2, &mut store, NOW);
        next.take_over(&mut store, NOW);
        assert_eq!(fill(&mut next, &mut store, later(at_s)), free, "after {at_s} s");
    }
}

#[test]
fn others_have_what_a_killed_service_has_not_promised_once_its_next_start_is_there() {
    for (at_s, free) in [(1, 60), (21, 80), (74, 80), (78, 100)] {
        let (mut store, killed) = after_a_kill(&[(20, 5), (20, 60)], 1, 100);
        let other = Office::open("other", &mut store);
        let mut offices = [killed, other];
        meet(&mut offices, &mut store, NOW);
        let [killed, mut other] = offices;
        assert!(other.ask(&mut store, &anywhere(), 51, NOW).is_err(), "its block has the half");
        let mut next = killed.follow(2, &mut store, NOW);
        meet(std::slice::from_mut(&mut next), &mut store, NOW);
        meet(std::slice::from_mut(&mut other), &mut store, NOW);
        next.take_over(&mut store, NOW);
        next.tidy(&mut store, later(at_s));
        assert_eq!(fill(&mut other, &mut store, later(at_s)), free, "after {at_s} s");
    }
}

#[test]
fn a_promise_of_a_killed_service_is_settled_when_its_player_is_there() {
    let mut store = Store::default();
    with_key(&mut store);
    host(&mut store, "one", 0..1, 4);
    let mut tells = gateway("one", "192.0.2.1:40000");
    tells.listeners[0].tags = true;
    store.put(&Place::Gateway(name("g-one")), &tells);
    let mut office = Office::open("t", &mut store);
    let (place, speaks) = (anywhere(), Speaks::Netcode(None));
    let mut joins = ringgate_fleet::joins::Joins::default();
    for client in 1..=4 {
        let request = Request {
            place: &place,
            speaks,
            count: 1,
            clients: &[client],
            expire_s: None,
            elsewhere: &[],
        };
        let placed = office.ask_for(&mut store, &request, NOW).expect("there is room");
        joins.note(super::joins::join(&placed, client).expect("a tag"));
    }
    let mut next = office.follow(2, &mut store, NOW);
    assert_eq!(fill(&mut next, &mut store, later(1)), 0);
    // A player may have come and another one have the slot: no client has one for certain.
    let promised = next.desk.book().promised(3, NOW.unix_s, |_| true);
    assert_eq!(promised, Some((&name("b0"), false)));
    // All of them come, and two leave again.
    joins.show_next();
    store.tell_joined(&name("b0"), 2, Some(joins.shown().clone()));
    next.mirror_at(&store, later(2));
    assert_eq!(fill(&mut next, &mut store, later(2)), 2);
}

/// Callers may ask for less than they could before.
const LOWERED: Rules = Rules { expire_max_s: 30, ..RULES };

#[test]
fn promises_of_an_earlier_start_stand_under_a_lease_that_outlives_them() {
    let (mut store, killed) = after_a_kill(&[(1, 300)], 1, 9);
    let lease_s = |office: &Office, at_s| office.desk.lease_s(later(at_s));
    assert_eq!(lease_s(&killed, 0), 340);
    let next = Office::on(killed.disk, ("t", 2), (LOWERED, later(1)), &mut store);
    assert_eq!([1, 200, 270, 400].map(|at_s| lease_s(&next, at_s)), [339, 140, 70, 70]);
}

#[test]
fn what_a_start_has_left_stays_under_its_own_lease_where_that_lives_longer_than_ours() {
    for (left_s, blocks) in [(29, 2), (71, 1)] {
        let (mut store, ended) = after_a_kill(&[(3, 30), (2, 55)], 1, 9);
        ended.end(&mut store, NOW);
        let mut next = Office::on(SharedDisk::new(), ("t", 2), (LOWERED, NOW), &mut store);
        next.desk.set_leased(NOW.ms + left_s * 1000);
        let request = Request {
            place: &anywhere(),
            speaks: Speaks::Netcode(None),
            count: 1,
            clients: &[],
            expire_s: Some(5),
            elsewhere: &[],
        };
        let placed = std::iter::from_fn(|| next.ask_for(&mut store, &request, NOW).ok());
        assert_eq!((placed.count(), store.blocks(&name("b0"))), (4, blocks), "{left_s} s");
    }
}

#[test]
fn a_promise_that_was_taken_over_outlives_the_next_kill() {
    let (mut store, ended) = after_a_kill(&[(30, 60)], 1, 100);
    let disk = ended.disk.clone();
    ended.end(&mut store, NOW);
    assert_eq!(disk.found(NOW), Before::default(), "all of it stands in etcd");
    // One takes it from what stands in etcd, and the one behind that from what is written.
    let mut second = Office::start("t", 2, &mut store);
    assert!(second.ask(&mut store, &anywhere(), 1, later(1)).is_ok());
    let mut third = second.follow(3, &mut store, later(2));
    third.take_over(&mut store, later(2));
    let mut fourth = third.follow(4, &mut store, later(3));
    assert_eq!(fill(&mut fourth, &mut store, later(3)), 69);
}

fn promised(number: u64) -> Promised {
    Promised {
        backend: name("b0"),
        until_s: NOW.unix_s + 10 + number,
        tokens: (0..number).map(|at| (at * 7, (at % 2 == 0).then_some(Join(at + 1)))).collect(),
        nameless: 3,
    }
}

fn journal(disk: &SharedDisk, owner: &str) -> Journal {
    Journal::begin(Box::new(disk.clone()), &keyspace(), &name(owner), NOW).0
}

fn starts(names: &[&str]) -> Vec<Name> {
    names.iter().map(|it| name(it)).collect()
}

#[test]
fn what_was_written_is_found_unless_something_may_be_missing() {
    let all: Vec<_> = (0..4).map(promised).collect();
    let disk = || {
        let disk = SharedDisk::new();
        let mut journal = journal(&disk, "t.1");
        for it in &all {
            journal.add(it, NOW);
        }
        disk
    };
    let whole = Before { starts: starts(&["t.1"]), promised: all.clone() };
    assert_eq!(disk().found(NOW), whole);
    assert_eq!(disk().found(later(13)).promised, all[..0], "all of it has ended");
    // A kill has torn the last record: nobody has heard of it.
    let torn = disk();
    let longer = promised(5).record();
    let span = all[3].until_s / SPAN_S;
    torn.memory().files.entry(span).or_default().extend(&longer[..longer.len() - 1]);
    assert_eq!(torn.found(NOW), whole);
    assert_eq!(torn.found(NOW).starts, starts(&["t.9", "t.1"]), "what is torn is cut off");
    assert_eq!(torn.found(NOW).promised, all);
    let doubtful: [fn(&mut Memory); 5] = [
        |it| it.boot = 7,
        |it| it.list = None,
        |it| it.list.as_mut().expect("it is there").extend(b"start /\n"),
        |it| it.files.values_mut().for_each(|file| file[20] ^= 1),
        |it| it.files.values_mut().for_each(|file| file.resize(70_000, 0xff)),
    ];
    for (at, harm) in doubtful.into_iter().enumerate() {
        let disk = disk();
        harm(&mut disk.memory());
        assert_eq!(disk.found(NOW), Before::default(), "{at}");
        assert!(disk.memory().files.is_empty(), "{at}: they would count twice");
        assert_eq!(disk.found(NOW).starts, starts(&["t.9"]), "{at}");
    }
}

#[test]
fn who_could_not_write_a_promise_is_not_believed_to_have_written_all() {
    for takes_lists in [true, false] {
        let disk = SharedDisk::new();
        let mut journal = journal(&disk, "t.1");
        journal.add(&promised(1), NOW);
        disk.memory().takes_records = false;
        disk.memory().takes_lists = takes_lists;
        journal.add(&promised(2), NOW);
        assert!(!journal.is_whole());
        disk.memory().takes_records = true;
        disk.memory().takes_lists = true;
        journal.add(&promised(3), NOW);
        journal.tidy(NOW);
        assert_eq!(disk.found(NOW), Before::default());
    }
}

#[test]
fn bytes_of_any_kind_are_no_promises() {
    let record = promised(3).record();
    for at in 0..record.len() {
        let mut bytes = record.clone();
        bytes[at] ^= 0x41;
        let mut found = Vec::new();
        let whole = take_records(&bytes, &mut found);
        assert!(whole.is_err() || whole == Ok(0), "{at}: {whole:?}");
        assert_eq!(found, []);
    }
    let many = Promised { tokens: vec![(u64::MAX, Some(Join(u64::MAX))); 256], ..promised(1) };
    let mut found = Vec::new();
    assert_eq!(take_records(&many.record(), &mut found), Ok(many.record().len()));
    assert_eq!(found, [many]);
}

#[test]
fn a_late_word_of_a_killed_service_changes_nothing() {
    let (mut store, killed) = after_a_kill(&[(30, 60)], 1, 100);
    let owner = killed.owner.clone();
    let mut next = killed.follow(2, &mut store, NOW);
    next.take_over(&mut store, NOW);
    assert_eq!(store.blocks(&name("b0")), 1);
    let block = Block { slots: 60, promised: vec![(NOW.unix_s + 60, 60)], closed: true };
    assert!(block.encode().is_ok());
    store.put(&Place::Block(name("b0"), owner), &block);
    assert_eq!(fill(&mut next, &mut store, later(1)), 70);
    assert_eq!(store.blocks(&name("b0")), 1);
}

const SPAN_S: u64 = 60;
