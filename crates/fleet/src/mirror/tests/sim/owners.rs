//! A fleet that lives in the simulated store: hosts with backends under a lease each, which come,
//! drain, and die without a word, backends that end in order, an operator who bans and lifts, and
//! at last somebody who deletes everything. What a living host has told is never lost, what was
//! said last is never forgotten for what was said before, and a ban holds.

use std::collections::{BTreeMap, BTreeSet};

use super::super::doubts::{fleet_key, word};
use super::super::{PREFIX, Store};
use super::World;
use crate::mirror::Machine;

#[derive(Default)]
pub(super) struct Fleet {
    hosts: Vec<Host>,
    counter: u64,
    leases: i64,
    /// Of living hosts, and known.
    seen: BTreeSet<String>,
    /// How new what is known is, or was.
    newest: BTreeMap<String, u64>,
    /// Bans that were made while something was in doubt.
    urgent: BTreeSet<String>,
    /// Times that backends were missed, that many were believed to be gone, and urgent bans.
    pub(super) met: [u64; 3],
    was_missed: bool,
    /// The number of the history that was in doubt, before.
    in_doubt: Option<u64>,
}

#[derive(Clone)]
struct Host {
    name: String,
    /// 0 while it is not there.
    lease: i64,
    drains: bool,
    /// What it has told of each in this life is newer.
    since: [u64; BACKENDS],
}

impl Fleet {
    pub(super) fn new(store: &mut Store, lives: bool) -> Self {
        let mut fleet = Self::default();
        for index in (0..HOSTS).filter(|_| lives) {
            let name = format!("h{index}");
            fleet.hosts.push(Host { name, lease: 0, drains: false, since: [0; BACKENDS] });
            fleet.come(store, index);
        }
        fleet
    }

    fn come(&mut self, store: &mut Store, index: usize) {
        self.leases += 1;
        self.hosts[index].lease = self.leases;
        (self.hosts[index].drains, self.hosts[index].since) = (false, [self.counter; BACKENDS]);
        (0..BACKENDS).for_each(|at| self.tell(store, index, at));
    }

    fn tell(&mut self, store: &mut Store, index: usize, at: usize) {
        self.counter += 1;
        let Host { name, lease, drains, .. } = self.hosts[index].clone();
        let state = if drains { "draining" } else { "ready" };
        let (key, value) =
            (backend(&name, at), format!(r#"{{"v":1,"host":"{name}","state":"{state}"}}"#));
        store.put_under(lease, key.as_bytes(), &word(&key, &value, self.counter));
    }

    fn go(&mut self, store: &mut Store, index: usize) {
        store.revoke(std::mem::take(&mut self.hosts[index].lease));
        let name = self.hosts[index].name.clone();
        for at in 0..BACKENDS {
            self.seen.remove(&backend(&name, at));
        }
    }

    /// A backend ends in order, and its owner says so as it takes its key away.
    fn end(&mut self, store: &mut Store, index: usize, at: usize) {
        self.counter += 1;
        self.hosts[index].since[at] = self.counter;
        let key = backend(&self.hosts[index].name, at);
        let gone = key.replace("/truth/", "/truth/gone/");
        let said = word(&gone, r#"{"v":1}"#, self.counter);
        store.write(&[(gone.as_bytes(), Some(&said)), (key.as_bytes(), None)]);
        self.seen.remove(&key);
    }

    /// Whoever lives finds its lease gone. Those of whom the backup knows that they lived, and do
    /// not any more, have their leases end.
    pub(super) fn register_again(&mut self, store: &mut Store) {
        if self.hosts.is_empty() {
            return;
        }
        for lease in 1..=self.leases {
            store.revoke(lease);
        }
        for index in 0..self.hosts.len() {
            if self.hosts[index].lease != 0 {
                let drains = self.hosts[index].drains;
                self.leases += 1;
                (self.hosts[index].lease, self.hosts[index].drains) = (self.leases, drains);
                (0..BACKENDS).for_each(|at| self.tell(store, index, at));
            }
        }
        // What was banned since is not banned there.
        self.urgent.clear();
    }

    /// Nobody who plays is hurt.
    pub(super) fn look(&mut self, machine: &Machine) {
        if self.hosts.is_empty() {
            return;
        }
        let entries = &machine.truth().entries;
        let status = machine.status();
        let in_doubt = status.doubt.as_ref().filter(|_| status.is_rewritten()).map(|it| it.0);
        if self.in_doubt.is_some() && in_doubt != self.in_doubt {
            // An operator has believed another history.
            self.newest.clear();
        }
        self.in_doubt = in_doubt;
        for host in self.hosts.iter().filter(|host| host.lease != 0) {
            for (key, since) in (0..).map(|at| backend(&host.name, at)).zip(host.since) {
                let told = entries.get(key.as_bytes());
                let counter = told.and_then(|it| fleet_key().vouched(key.as_bytes(), &it.value));
                if counter.is_some_and(|counter| counter > since) {
                    self.seen.insert(key);
                } else {
                    assert!(!self.seen.contains(&key), "{key} lives, and is not known any more");
                }
            }
        }
        for (key, entry) in entries {
            let Some(counter) = fleet_key().vouched(key, &entry.value) else { continue };
            let key = String::from_utf8(key.to_vec()).unwrap();
            let newest = self.newest.entry(key.clone()).or_default();
            assert!(counter >= *newest, "{key} is as it was before");
            // A ban that is gone comes back by another word alone.
            *newest = counter;
        }
        for (key, newest) in &mut self.newest {
            if key.contains("/ban/") && !entries.contains_key(key.as_bytes()) {
                *newest |= 1;
            }
        }
        let missed = status.doubt.is_some() && !status.is_rewritten();
        self.met[0] += u64::from(missed && !self.was_missed);
        self.was_missed = missed;
    }

    pub(super) fn look_at_urgent(&self, machine: &Machine) {
        for key in &self.urgent {
            assert!(machine.truth().entries.contains_key(key.as_bytes()), "{key} does not hold");
        }
    }
}

impl World {
    /// What hosts and operators do.
    pub(super) fn live(&mut self) {
        let (index, at) = (self.below(HOSTS as u64) as usize, self.below(BACKENDS as u64) as usize);
        let is_there = self.fleet.hosts[index].lease != 0;
        match self.below(40) {
            // Without a word, and perhaps others with it.
            0 if is_there => {
                self.fleet.go(&mut self.store, index);
                let other = (index + 1) % HOSTS;
                if self.chance(2) && self.fleet.hosts[other].lease != 0 {
                    self.fleet.go(&mut self.store, other);
                }
            }
            1 if is_there => {
                self.fleet.hosts[index].drains = true;
                (0..BACKENDS).for_each(|at| self.fleet.tell(&mut self.store, index, at));
                self.fleet.met[1] += 1;
            }
            2 if is_there && self.fleet.hosts[index].drains => {
                self.fleet.go(&mut self.store, index);
            }
            3..=5 if !is_there => self.fleet.come(&mut self.store, index),
            6 | 7 => self.ban(),
            8..=12 if is_there => self.fleet.tell(&mut self.store, index, at),
            13 | 14 if is_there => self.fleet.end(&mut self.store, index, at),
            _ => {}
        }
    }

    /// Somebody deletes all keys at once. Nobody loses anything by that, until that is confirmed.
    pub(super) fn erase(&mut self) {
        for index in 0..HOSTS {
            if self.fleet.hosts[index].lease == 0 {
                self.fleet.come(&mut self.store, index);
            }
            // Of one that drains it would be news.
            self.fleet.hosts[index].drains = false;
            (0..BACKENDS).for_each(|at| self.fleet.tell(&mut self.store, index, at));
        }
        self.ban();
        self.pass(60_000, true);
        let before: Vec<_> = self.machine.truth().entries.keys().cloned().collect();
        if self.chance(2) {
            self.stream = None;
            let why = crate::etcd::Error::Transport("reset".into());
            (0..9999).for_each(|it| self.machine.handle_watch_end(self.now_ms, it, &why));
        }
        let all = self.store.entries();
        self.store.write(&all.keys().map(|key| (&**key, None)).collect::<Vec<_>>());
        if self.chance(2) {
            self.store.compact();
        }
        self.pass(60_000, false);
        self.fleet.register_again(&mut self.store);
        self.pass(60_000, false);
        let entries = &self.machine.truth().entries;
        let parts = ["/truth/ban/", "/truth/backend/"];
        for key in before.iter().map(|key| std::str::from_utf8(key).expect("a key")) {
            let matters = parts.iter().any(|part| key.contains(part));
            assert!(!matters || entries.contains_key(key.as_bytes()), "{key} was lost");
        }
    }

    fn ban(&mut self) {
        let key = format!("{PREFIX}ban/client/{}", self.below(9));
        if self.chance(3) {
            self.fleet.urgent.remove(&key);
            return self.store.delete(key.as_bytes());
        }
        // Even numbers: an odd one is newer, and older than the next.
        self.fleet.counter = (self.fleet.counter | 1) + 1;
        let value = word(&key, r#"{"v":1,"until":9}"#, self.fleet.counter);
        self.store.put(key.as_bytes(), &value);
        if self.machine.status().is_rewritten() {
            self.fleet.met[2] += 1;
            self.fleet.urgent.insert(key);
        }
    }
}

fn backend(host: &str, at: usize) -> String {
    format!("{PREFIX}backend/{host}-{at}")
}

const HOSTS: usize = 4;
const BACKENDS: usize = 4;

const _: () = assert!(HOSTS * BACKENDS >= crate::mirror::judge::MANY);
