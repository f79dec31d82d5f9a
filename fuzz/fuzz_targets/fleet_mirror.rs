//! A mirror whose etcd answers whatever it likes, and that knows the fleet's key: it never holds
//! what is not below its prefix, and its changes add up to what it holds. The input seals with that
//! key, too. While another history is told, nothing that was known is lifted or goes back, and what
//! is newer than all that was known is obeyed; while much of a kind is missed, nothing of that kind
//! goes that has not taken leave.
#![no_main]

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use ringgate_core::secret::Key;
use ringgate_fleet::epochs::Validity;
use ringgate_fleet::etcd::Error;
use ringgate_fleet::etcd::kv::{Header, KeyValue, Ranged};
use ringgate_fleet::etcd::watch::{Event, Watched};
use ringgate_fleet::keyspace::Class;
use ringgate_fleet::mirror::{Ask, Doubt, Machine, Options, Reads, Truth};
use ringgate_fleet::seal::FleetKey;
use ringgate_fleet::values::{Confirmation, Stored};

const PREFIX: &str = "/f/truth/";

/// Places: bans, backends, keys, a gateway, leases that are given up, an operator's word.
const PLACES: u8 = 24;

/// Of the word that an operator says.
const CONFIRM: u8 = 20;

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let mut left = data;
    while let Some((&[kind, wait, len], rest)) = left.split_first_chunk() {
        let (message, rest) = rest.split_at(rest.len().min(usize::from(len)));
        left = rest;
        world.step(kind, wait, message);
    }
});

struct World {
    machine: Machine,
    now_ms: u64,
    question: u64,
    stream: u64,
    heard: BTreeMap<Bytes, Bytes>,
    /// What etcd calls itself, and how far it says that it is.
    header: Header,
    /// What was sealed for which place, and how new it says that it is.
    sealed: HashMap<(Bytes, Bytes), u64>,
}

/// What a mirror is told at once.
#[derive(Default)]
struct Told {
    kvs: Vec<KeyValue>,
    /// It is a whole list, before which so many were read.
    lists: Option<u64>,
    /// An operator has looked.
    is_confirmed: bool,
}

impl World {
    fn new() -> Self {
        let options = Options::new(PREFIX, Reads::new(Some(fleet_key(9))), 1);
        Self {
            machine: Machine::new(options, Truth::default()),
            now_ms: 0,
            question: 0,
            stream: 0,
            heard: BTreeMap::new(),
            header: Header { cluster_id: 7, member_id: 1, revision: 10, raft_term: 2 },
            sealed: HashMap::new(),
        }
    }

    fn step(&mut self, kind: u8, wait: u8, message: &[u8]) {
        self.now_ms += u64::from(wait) * 50;
        for _ in 0..16 {
            match self.machine.poll(self.now_ms) {
                Some(Ask::Range { question: asked, .. }) => self.question = asked,
                Some(Ask::Watch { stream: opened, .. }) => self.stream = opened,
                Some(_) => {}
                None => break,
            }
        }
        let (question, stream, now_ms) = (self.question, self.stream, self.now_ms);
        match kind % 8 {
            0 => {
                let answer = Ranged::decode(&message.to_vec().into());
                self.tell(&Told::default(), |machine| {
                    machine.handle_ranged(now_ms, question, answer)
                });
            }
            1 => match Watched::decode(&message.to_vec().into()) {
                Ok(watched) => {
                    self.tell(&Told::default(), |machine| {
                        machine.handle_watched(now_ms, stream, watched)
                    });
                }
                Err(why) => {
                    self.tell(&Told::default(), |it| it.handle_watch_end(now_ms, stream, &why))
                }
            },
            2 => self
                .tell(&Told::default(), |it| it.handle_watch_end(now_ms, stream, &Error::Timeout)),
            3 => {
                if let Some((number, _)) = self.machine.status().doubt {
                    let told = Told { is_confirmed: true, ..Told::default() };
                    self.tell(&told, |machine| _ = machine.confirm(now_ms, number));
                }
            }
            4 => self.list(message),
            5 => self.watch(message),
            _ => self.rewrite(message),
        }
    }

    /// A whole list, as the store says that it is.
    fn list(&mut self, message: &[u8]) {
        let mut kvs = BTreeMap::new();
        for chunk in message.chunks_exact(3) {
            let kv = self.key_value(chunk, 1, self.header.revision);
            kvs.insert(kv.key.clone(), kv);
        }
        let kvs: Vec<_> = kvs.into_values().collect();
        let answer =
            Ranged { header: self.header, count: kvs.len() as i64, kvs: kvs.clone(), more: false };
        let (question, now_ms) = (self.question, self.now_ms);
        let lists = Some(self.machine.status().lists);
        let told = Told { kvs, lists, ..Told::default() };
        self.tell(&told, |it| it.handle_ranged(now_ms, question, Ok(answer)));
    }

    /// What has changed since, each a revision of its own.
    fn watch(&mut self, message: &[u8]) {
        let mut events = Vec::new();
        for chunk in message.chunks_exact(3) {
            self.header.revision += 1;
            let mut kv = self.key_value(chunk, 1, self.header.revision);
            let written = events.iter().rev().find(|it: &&Event| it.kv.key == kv.key);
            let known = self.machine.truth().entries.get(&kv.key).map(|it| it.version);
            let before = written.map(|it| it.kv.version).or(known).unwrap_or(0);
            let is_delete = chunk[1] & 0x40 != 0;
            kv.version = if is_delete { 0 } else { before + 1 + i64::from(chunk[1] == 0x80) };
            events.push(Event { is_delete, kv });
        }
        let (stream, now_ms) = (self.stream, self.now_ms);
        let created = !message.is_empty();
        let kvs = events.iter().map(|it| it.kv.clone()).collect();
        let watched = Watched { header: self.header, created, events, ..Watched::default() };
        let told = Told { kvs, ..Told::default() };
        self.tell(&told, |machine| machine.handle_watched(now_ms, stream, watched));
    }

    /// From now on etcd tells another history.
    fn rewrite(&mut self, message: &[u8]) {
        let Some((&[cluster, back, term], _)) = message.split_first_chunk() else { return };
        let Header { cluster_id, revision, raft_term, .. } = &mut self.header;
        *cluster_id = 7 + u64::from(cluster % 3);
        *revision = (*revision + i64::from(back.cast_signed())).max(1);
        *raft_term = (*raft_term + u64::from(term % 3)).saturating_sub(1).max(1);
    }

    /// What stands at a place: nobody's word, the fleet's, another fleet's, or the fleet's about
    /// another place.
    fn key_value(&mut self, chunk: &[u8], version: i64, mod_revision: i64) -> KeyValue {
        let (place, what, counter) = (chunk[0] % PLACES, chunk[1], u64::from(chunk[2]));
        let key = key(place);
        let at = if what & 3 == 3 { self::key((place + 1) % PLACES) } else { key.clone() };
        let fleet = fleet_key(if what & 3 == 2 { 3 } else { 9 });
        let value = match what & 3 {
            _ if Class::of(&key) == Some(Class::Keys) => {
                let validity = Validity { from: counter, mint_until: 1000, accept_until: 2000 };
                let sealed = fleet.seal(&at, validity, &Key::from_bytes([7; 32]));
                sealed.expect("random bytes").encode().expect("a sound value")
            }
            0 => self.value(place, what),
            _ => fleet.vouch(&at, &self.value(place, what), counter).expect("random bytes"),
        };
        if matches!(what & 3, 1) || (Class::of(&key) == Some(Class::Keys) && what & 3 == 0) {
            let is_key = Class::of(&key) == Some(Class::Keys);
            let counter = if is_key { counter.max(1) } else { counter };
            self.sealed.insert((key.clone(), value.clone()), counter);
        }
        let lease = i64::from(what >> 4 & 3);
        KeyValue { key, value, mod_revision, version, lease, ..KeyValue::default() }
    }

    fn value(&self, place: u8, what: u8) -> Bytes {
        let state = if what & 4 == 0 { "ready" } else { "draining" };
        let Header { cluster_id, revision, .. } = self.header;
        match place {
            4..=18 => format!(r#"{{"v":1,"host":"h{}","state":"{state}"}}"#, place % 3).into(),
            CONFIRM => {
                let cluster = format!("{cluster_id:x}");
                let word = Confirmation { cluster, revision, at: 1, by: String::new() };
                word.encode().expect("a sound value")
            }
            _ => format!(r#"{{"v":1,"until":{what}}}"#).into(),
        }
    }

    /// Tells the mirror something, and looks at what that has changed.
    fn tell(&mut self, told: &Told, tell: impl FnOnce(&mut Machine)) {
        let before = self.machine.truth().clone();
        let doubt = self.machine.status().doubt.clone();
        tell(&mut self.machine);
        for change in self.machine.take_changes() {
            match change.value {
                Some(value) => drop(self.heard.insert(change.key, value)),
                None => drop(self.heard.remove(&change.key)),
            }
        }
        let (entries, status) = (&self.machine.truth().entries, self.machine.status());
        assert!(entries.keys().all(|key| key.starts_with(PREFIX.as_bytes())));
        assert!(self.heard.iter().eq(entries.iter().map(|(key, entry)| (key, &entry.value))));
        if status.is_rewritten() {
            let is_read = told.lists.is_some_and(|lists| status.lists > lists);
            self.check_rewritten(&before, if is_read { &told.kvs } else { &[] });
        }
        if let (Some((_, Doubt::ManyGone(had))), Some((_, Doubt::ManyGone(has)))) =
            (&doubt, &status.doubt)
        {
            let is_missed =
                |class| [had, has].iter().all(|it| it.iter().any(|loss| loss.class == class));
            self.check_missed(&before, told, is_missed);
        }
    }

    /// Of what is missed nothing goes whose owner has not taken leave, unless an operator says so.
    fn check_missed(&self, before: &Truth, told: &Told, is_missed: impl Fn(Class) -> bool) {
        let truth = self.machine.truth();
        let is_told = |key: &Bytes| told.kvs.iter().any(|kv| kv.key == *key);
        if told.is_confirmed || is_told(&key(CONFIRM)) {
            return;
        }
        for (key, entry) in &before.entries {
            let gone = Bytes::from(format!("{PREFIX}gone/{}", entry.lease));
            let has_left = entry.value.windows(8).any(|it| it == b"draining")
                || is_told(&gone)
                || truth.entries.contains_key(&gone);
            let stays = !Class::of(key).is_some_and(&is_missed) || has_left || is_told(key);
            assert!(stays || truth.entries.contains_key(key), "{key:?} is missed, and was let go");
        }
    }

    /// Another history is told: what was known stays, but for what is newer than that.
    fn check_rewritten(&self, before: &Truth, list: &[KeyValue]) {
        let Truth { entries, .. } = self.machine.truth();
        let counter =
            |key: &Bytes, value: &Bytes| self.sealed.get(&(key.clone(), value.clone())).copied();
        for (key, was) in &before.entries {
            let is = entries.get(key).expect("nothing is lifted in doubt");
            let newer = || counter(key, &is.value) > counter(key, &was.value);
            assert!(is.value == was.value || newer(), "{key:?} has gone back");
        }
        for kv in list {
            let Some((class, counter)) = Class::of(&kv.key).zip(counter(&kv.key, &kv.value)) else {
                continue;
            };
            let is = entries.get(&kv.key).map(|it| &it.value);
            let is_news = counter > before.newest[class as usize];
            assert!(!is_news || is == Some(&kv.value), "{:?} is newer than all", kv.key);
        }
    }
}

fn key(place: u8) -> Bytes {
    let key = match place {
        0..=3 => format!("ban/client/{place}"),
        4..=17 => format!("backend/b{place}"),
        18 => "gateway/g".to_owned(),
        19 => "service/s".to_owned(),
        CONFIRM => "confirm".to_owned(),
        21 | 22 => format!("gone/{}", place - 20),
        _ => "key/main/1".to_owned(),
    };
    format!("{PREFIX}{key}").into()
}

fn fleet_key(byte: u8) -> FleetKey {
    FleetKey::new(Key::from_bytes([byte; 32]))
}
