//! All failures at once, by seed: answers that take their time and overtake each other, streams
//! that break, stall or tell things twice, members without a leader, compaction, restored backups,
//! and a server that loses events. At every moment the copy is the state of some revision, and in
//! the end it is the store's. `owners` has a fleet live in it that may be hurt.

mod owners;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::super::face::{Ask, Options};
use super::super::machine::Machine;
use super::super::reads::Reads;
use super::super::truth::Truth;
use super::doubts::fleet_key;
use super::store::Store;
use super::{backend, options};
use crate::backoff::Backoff;
use crate::etcd::Error;
use crate::etcd::kv::{Range, Ranged};
use crate::etcd::watch::{ALL_WATCHES, Watched};

/// What a run may meet.
#[derive(Clone, Copy)]
struct Weather {
    /// Histories are rewritten.
    restores: bool,
    /// The server forgets to tell events.
    loses: bool,
    /// Hosts come, drain and die, and operators ban.
    owners: bool,
}

struct World {
    machine: Machine,
    store: Store,
    /// Histories that were, besides the one that is.
    past: Vec<Store>,
    weather: Weather,
    random: Backoff,
    now_ms: u64,
    /// What is under way, unordered.
    under_way: Vec<(u64, Delivery)>,
    stream: Option<Stream>,
    /// The member cannot serve until it is left.
    is_cut_off: bool,
    backup: Store,
    /// What somebody knows who only hears of changes.
    heard: BTreeMap<Bytes, Bytes>,
    confirms: u64,
    fleet: owners::Fleet,
    /// What was looked at last.
    looked: (i64, u64, u64),
}

enum Delivery {
    Ranged(u64, Result<Ranged, Error>),
    Watched(u64, Watched),
    End(u64),
}

struct Stream {
    number: u64,
    next: i64,
    /// Nothing of this stream arrives earlier than what was sent before it.
    last_at_ms: u64,
    is_stalled: bool,
    told: VecDeque<Watched>,
}

impl World {
    fn new(seed: u64, weather: Weather) -> Self {
        let mut store = Store::new(7);
        for index in (0..20).filter(|_| !weather.owners) {
            store.put(&backend(index), "first");
        }
        let fleet = owners::Fleet::new(&mut store, weather.owners);
        let reads = Reads::new(Some(fleet_key()));
        Self {
            machine: Machine::new(Options { reads, ..options() }, Truth::default()),
            fleet,
            backup: store.clone(),
            store,
            past: Vec::new(),
            weather,
            random: Backoff::new(1, 1, seed),
            now_ms: 0,
            under_way: Vec::new(),
            stream: None,
            is_cut_off: false,
            heard: BTreeMap::new(),
            confirms: 0,
            looked: (0, 0, 0),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random.random() % bound
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    fn send(&mut self, delivery: Delivery) {
        let at_ms = self.now_ms + self.below(80);
        self.under_way.push((at_ms, delivery));
    }

    /// Sends on the stream: in its order.
    fn say(&mut self, watched: Watched) {
        let delay = self.below(60);
        let Some(stream) = &mut self.stream else { return };
        stream.last_at_ms = stream.last_at_ms.max(self.now_ms + delay);
        stream.told.push_back(watched.clone());
        stream.told.truncate(4);
        let (number, at_ms) = (stream.number, stream.last_at_ms);
        self.under_way.push((at_ms, Delivery::Watched(number, watched)));
    }

    fn step(&mut self, is_stormy: bool) {
        self.now_ms += 1 + self.below(40);
        if is_stormy {
            if self.weather.owners {
                self.live();
            } else {
                self.write();
            }
            self.fail();
        }
        self.pump(is_stormy);
        self.deliver();
        while let Some(ask) = self.machine.poll(self.now_ms) {
            self.answer(ask, is_stormy);
        }
        self.hear();
    }

    fn write(&mut self) {
        for _ in 0..self.random.random() % 4 {
            let (one, other) = (backend(self.below(30) as usize), backend(self.below(30) as usize));
            let value = self.below(1000).to_string();
            match self.below(8) {
                0 => self.store.delete(&one),
                1 => self.store.write(&[(&one, Some(&value)), (&other, None)]),
                2 => self.store.put(b"/elsewhere", &value),
                _ => self.store.put(&one, &value),
            }
        }
    }

    fn fail(&mut self) {
        if self.chance(60) {
            self.store.compact();
        }
        if self.chance(80)
            && let Some(stream) = self.stream.take()
        {
            self.send(Delivery::End(stream.number));
        }
        if self.chance(150)
            && let Some(stream) = &mut self.stream
        {
            stream.is_stalled = true;
        }
        if self.chance(200) {
            self.is_cut_off = true;
        }
        if self.chance(100) {
            self.store.raft_term += 1;
        }
        let again = self.stream.as_ref().and_then(|stream| stream.told.back().cloned());
        if self.chance(20)
            && let Some(again) = again
        {
            self.say(again);
        }
        if self.chance(400) {
            self.backup = self.store.clone();
        }
        if self.weather.restores && self.chance(700) {
            self.restore();
        }
        if let Some((number, _)) = self.machine.status().doubt
            && self.chance(300)
        {
            self.confirms += u64::from(self.machine.confirm(self.now_ms, number));
        }
    }

    fn restore(&mut self) {
        let mut restored = self.backup.clone();
        // A history that has grown past the other one while nobody looked cannot be told from it.
        if self.weather.owners || self.chance(2) {
            restored.cluster_id += 1 + self.past.len() as u64;
        }
        self.past.push(std::mem::replace(&mut self.store, restored));
        self.fleet.register_again(&mut self.store);
        if let Some(stream) = self.stream.take() {
            self.send(Delivery::End(stream.number));
        }
    }

    /// Tells the stream what has happened.
    fn pump(&mut self, is_stormy: bool) {
        let revisions = 1 + self.below(5) as i64;
        let Some(stream) = &mut self.stream else { return };
        if stream.is_stalled || self.is_cut_off || stream.next > self.store.revision {
            return;
        }
        let mut watched = self.store.watched(stream.next, revisions);
        if watched.canceled {
            self.say(watched);
            self.stream = None;
            return;
        }
        stream.next = (stream.next + revisions).min(self.store.revision + 1);
        let is_synced = stream.next > self.store.revision;
        if self.weather.loses && is_stormy && self.chance(30) {
            watched.events.pop();
        }
        if watched.events.is_empty() {
            if is_synced && self.chance(3) {
                self.say(watched);
            }
            return;
        }
        while watched.events.len() > 1 && self.chance(3) {
            let rest = watched.events.split_off(1);
            let first = std::mem::replace(&mut watched.events, rest);
            let header = watched.header;
            let fragment =
                Watched { header, is_fragment: true, events: first, ..Watched::default() };
            self.say(fragment);
            if let Some(stream) = &mut self.stream {
                // A part is not told twice.
                stream.told.clear();
            }
        }
        self.say(watched);
    }

    fn deliver(&mut self) {
        let now_ms = self.now_ms;
        let mut due: Vec<_> = self.under_way.extract_if(.., |it| it.0 <= now_ms).collect();
        due.sort_by_key(|it| it.0);
        for (at_ms, delivery) in due {
            match delivery {
                Delivery::Ranged(question, answer) => {
                    self.machine.handle_ranged(at_ms, question, answer);
                }
                Delivery::Watched(stream, watched) => {
                    self.machine.handle_watched(at_ms, stream, watched);
                }
                Delivery::End(stream) => {
                    let why = Error::Transport("reset".into());
                    self.machine.handle_watch_end(at_ms, stream, &why);
                }
            }
            self.look();
        }
    }

    fn answer(&mut self, ask: Ask, is_stormy: bool) {
        match ask {
            Ask::Range { question, range } => {
                let answer = self.range(&range, is_stormy);
                self.send(Delivery::Ranged(question, answer));
            }
            Ask::Watch { stream, from_revision } => {
                let (number, next, told) = (stream, from_revision, VecDeque::new());
                let (last_at_ms, is_stalled) = (self.now_ms, false);
                self.stream = Some(Stream { number, next, last_at_ms, is_stalled, told });
                let header = self.store.header();
                self.say(Watched { header, created: true, ..Watched::default() });
            }
            Ask::Progress => {
                let is_deaf = self.stream.as_ref().is_none_or(|stream| stream.is_stalled);
                if !is_deaf && !self.is_cut_off {
                    // It overtakes what the stream has under way.
                    let number = self.stream.as_ref().map_or(0, |stream| stream.number);
                    let header = self.store.header();
                    let watch_id = ALL_WATCHES;
                    let watched = Watched { header, watch_id, ..Watched::default() };
                    self.send(Delivery::Watched(number, watched));
                }
            }
            Ask::CloseWatch => self.stream = None,
            Ask::LeaveMember => self.is_cut_off = false,
        }
    }

    fn range(&mut self, range: &Range, is_stormy: bool) -> Result<Ranged, Error> {
        if self.is_cut_off || (is_stormy && self.chance(15)) {
            // The client leaves a member that has failed by itself.
            self.is_cut_off = false;
            return Err(Error::Timeout);
        }
        self.store.range(range)
    }

    fn hear(&mut self) {
        for change in self.machine.take_changes() {
            match change.value {
                Some(value) => drop(self.heard.insert(change.key, value)),
                None => drop(self.heard.remove(&change.key)),
            }
        }
        let values = self.machine.truth().entries.iter().map(|(key, it)| (key, &it.value));
        assert!(self.heard.iter().eq(values), "changes do not add up");
        self.fleet.look(&self.machine);
        self.look();
    }

    /// The copy is what stood in some history at its revision.
    fn look(&mut self) {
        let (truth, status) = (self.machine.truth(), self.machine.status());
        let point = (truth.revision, status.events, status.lists);
        let is_held = self.machine.status().doubt.is_some();
        if self.weather.loses || is_held || !truth.is_known() || self.looked == point {
            return;
        }
        self.looked = point;
        let mut histories = self.past.iter().chain([&self.store]);
        let is_state = |store: &Store| {
            store.revision >= truth.revision && store.entries_at(truth.revision) == truth.entries
        };
        assert!(histories.any(is_state), "the copy is no state of revision {}", truth.revision);
    }

    /// The weather clears: the copy becomes the store.
    fn settle(&mut self) {
        if self.weather.owners {
            // Nobody confirms for a while: what is urgent holds all the same.
            self.pass(60_000, false);
            self.fleet.look_at_urgent(&self.machine);
            self.pass(600_000, true);
            self.erase();
        }
        if self.weather.loses {
            // An update that was lost is found by the next one.
            (0..30).for_each(|index| self.store.put(&backend(index), "last"));
        }
        self.pass(600_000, true);
        assert!(self.machine.status().is_current, "{:?}", self.machine.status());
        assert_eq!(self.machine.truth().entries, self.store.entries());
    }

    fn pass(&mut self, ms: u64, confirms: bool) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.step(false);
            if let Some((number, _)) = self.machine.status().doubt
                && confirms
            {
                self.machine.confirm(self.now_ms, number);
            }
            // What is due is due: nothing happens in between.
            let next = self.under_way.iter().map(|it| it.0).min().unwrap_or(u64::MAX);
            let next = next.min(self.machine.next_ms()).min(until_ms);
            self.now_ms = self.now_ms.max(next.saturating_sub(40));
        }
    }
}

fn run(seeds: std::ops::Range<u64>, weather: Weather) -> Vec<World> {
    let run_one = |seed| {
        // A failure names its seed.
        eprintln!("seed {seed}");
        let mut world = World::new(seed, weather);
        for _ in 0..1500 {
            world.step(true);
        }
        world.settle();
        world
    };
    seeds.map(run_one).collect()
}

/// As many as `cargo test` plays, or so many times as many.
fn seeds(count: u64) -> u64 {
    let times = std::env::var("RINGGATE_MIRROR_TIMES").ok().and_then(|it| it.parse().ok());
    count * times.unwrap_or(1)
}

#[test]
fn through_all_failures_the_copy_is_the_state_of_a_revision() {
    let worlds = run(0..seeds(10), Weather { restores: false, loses: false, owners: false });
    // The runs have met what they are for.
    let lists: u64 = worlds.iter().map(|world| world.machine.status().lists).sum();
    let watches: u64 = worlds.iter().map(|world| world.machine.status().watches).sum();
    let events: u64 = worlds.iter().map(|world| world.machine.status().events).sum();
    assert!(lists > 20 && watches > lists && events > 4000, "{lists} {watches} {events}");
}

#[test]
fn rewritten_histories_are_never_mixed() {
    let worlds = run(100..100 + seeds(8), Weather { restores: true, loses: false, owners: false });
    assert!(worlds.iter().map(|world| world.confirms).sum::<u64>() > 0);
    assert!(worlds.iter().map(|world| world.past.len()).sum::<usize>() > 4);
}

#[test]
fn a_server_that_loses_events_is_found_out() {
    let worlds = run(200..200 + seeds(8), Weather { restores: false, loses: true, owners: false });
    let found: u64 = worlds.iter().map(|world| world.machine.status().disagreements).sum();
    assert!(found > 0);
}

#[test]
fn nobody_who_plays_is_hurt_whoever_goes_and_whatever_is_restored() {
    let worlds = run(300..300 + seeds(5), Weather { restores: true, loses: false, owners: true });
    let met = worlds.iter().fold([0; 4], |sum, world| {
        let [missed, believed, urgent] = world.fleet.met;
        [sum[0] + missed, sum[1] + believed, sum[2] + urgent, sum[3] + world.past.len() as u64]
    });
    assert!(met.iter().all(|count| *count > 3), "the runs have met what they are for: {met:?}");
}
