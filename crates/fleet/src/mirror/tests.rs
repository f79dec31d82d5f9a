//! The mirror's machine against a store that behaves as etcd does: first what each failure does,
//! then all failures at once, by seed.

mod doubts;
mod sim;
mod store;

use bytes::Bytes;

use super::face::{Ask, Options};
use super::judge::{Doubt, Loss};
use super::machine::Machine;
use super::reads::Reads;
use super::truth::Truth;
use crate::etcd::kv::Ranged;
use crate::etcd::watch::{ALL_WATCHES, Watched};
use crate::etcd::{Code, Error};
use crate::keyspace::Class;
use store::Store;

const PREFIX: &str = "/f/truth/";

fn options() -> Options {
    Options { page_keys: 3, ..Options::new(PREFIX, Reads::default(), 1) }
}

fn backend(index: usize) -> Bytes {
    format!("{PREFIX}backend/b{index}").into()
}

/// A store with some backends.
fn store_of(backends: usize) -> Store {
    let mut store = Store::new(7);
    for index in 0..backends {
        store.put(&backend(index), "ready");
    }
    store
}

/// A machine and a store that speak without a network in between.
struct Pair {
    machine: Machine,
    store: Store,
    now_ms: u64,
    stream: u64,
    next: i64,
    asks: Vec<&'static str>,
}

impl Pair {
    fn new(store: Store) -> Self {
        Self::with(store, Reads::default())
    }

    fn with(store: Store, reads: Reads) -> Self {
        let machine = Machine::new(Options { reads, ..options() }, Truth::default());
        let mut pair = Self { machine, store, now_ms: 0, stream: 0, next: 0, asks: Vec::new() };
        pair.settle();
        pair
    }

    /// Until nothing is left to do now.
    fn settle(&mut self) {
        loop {
            while let Some(ask) = self.machine.poll(self.now_ms) {
                self.answer(ask);
            }
            if !self.pump() {
                return;
            }
        }
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            Ask::Range { question, range } => {
                self.asks.push(if range.count_only { "count" } else { "page" });
                let answer = self.store.range(&range);
                self.machine.handle_ranged(self.now_ms, question, answer);
            }
            Ask::Watch { stream, from_revision } => {
                self.asks.push("watch");
                (self.stream, self.next) = (stream, from_revision);
                let created =
                    Watched { header: self.store.header(), created: true, ..Watched::default() };
                self.machine.handle_watched(self.now_ms, stream, created);
            }
            Ask::Progress => {
                self.asks.push("progress");
                let header = self.store.header();
                let watched = Watched { header, watch_id: ALL_WATCHES, ..Watched::default() };
                self.machine.handle_watched(self.now_ms, self.stream, watched);
            }
            Ask::CloseWatch => {
                self.asks.push("close");
                self.stream = 0;
            }
            Ask::LeaveMember => self.asks.push("leave"),
        }
    }

    /// Tells the watch what has happened. False if nothing has.
    fn pump(&mut self) -> bool {
        if self.stream == 0 {
            return false;
        }
        let watched = self.store.watched(self.next, 1000);
        if watched.events.is_empty() && !watched.canceled {
            return false;
        }
        self.next = self.store.revision + 1;
        self.machine.handle_watched(self.now_ms, self.stream, watched);
        true
    }

    fn wait(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = self.machine.next_ms().clamp(self.now_ms + 1, until);
            self.settle();
        }
    }

    fn lose_stream(&mut self) {
        let why = Error::Transport("reset".into());
        self.machine.handle_watch_end(self.now_ms, self.stream, &why);
        self.stream = 0;
    }

    #[track_caller]
    fn assert_same(&self) {
        assert_eq!(self.machine.status().doubt, None);
        assert!(self.machine.truth().entries.iter().eq(self.store.entries().iter()));
    }

    fn doubt(&self) -> Option<(u64, Doubt)> {
        self.machine.status().doubt.clone()
    }
}

fn lost(had: usize, left: usize) -> Doubt {
    Doubt::ManyGone(vec![Loss { class: Class::Backends, had, left }])
}

#[test]
fn a_mirror_lists_in_pages_of_one_revision_and_watches_from_the_next() {
    let pair = Pair::new(store_of(7));
    assert_eq!(pair.asks, ["page", "page", "page", "watch"]);
    assert_eq!(pair.next, pair.store.revision + 1);
    pair.assert_same();
}

#[test]
fn changes_are_told_once() {
    let mut pair = Pair::new(store_of(2));
    assert_eq!(pair.machine.take_changes().len(), 2);
    pair.store.put(&backend(0), "draining");
    pair.store.delete(&backend(1));
    pair.settle();
    let changes = pair.machine.take_changes();
    assert_eq!(changes[0].value.as_deref(), Some(&b"draining"[..]));
    assert_eq!((&changes[1].key, &changes[1].value), (&backend(1), &None));
    assert!(pair.machine.take_changes().is_empty());
}

#[test]
fn a_watch_that_breaks_is_resumed_without_a_list() {
    let mut pair = Pair::new(store_of(5));
    pair.asks.clear();
    pair.lose_stream();
    pair.store.put(&backend(9), "ready");
    pair.wait(1000);
    assert_eq!(pair.asks[..4], ["close", "leave", "count", "watch"]);
    assert_eq!(pair.machine.status().lists, 1);
    pair.assert_same();
}

#[test]
fn after_a_compaction_everything_is_listed_and_only_differences_are_told() {
    let mut pair = Pair::new(store_of(5));
    pair.machine.take_changes();
    pair.lose_stream();
    pair.store.delete(&backend(1));
    pair.store.put(&backend(2), "draining");
    pair.store.compact();
    pair.wait(1000);
    assert_eq!(pair.machine.status().lists, 2);
    assert_eq!(pair.machine.take_changes().len(), 2);
    pair.assert_same();
}

#[test]
fn a_watch_that_is_silent_and_dead_is_found_and_its_member_left() {
    let mut pair = Pair::new(store_of(5));
    pair.asks.clear();
    let until = pair.now_ms + 60_000;
    while !pair.asks.contains(&"leave") {
        assert!(pair.now_ms < until, "nobody has noticed");
        pair.now_ms = pair.machine.next_ms();
        while let Some(ask) = pair.machine.poll(pair.now_ms) {
            // The count is answered, the stream is not.
            if ask != Ask::Progress {
                pair.answer(ask);
            }
        }
    }
}

#[test]
fn a_member_that_cannot_ask_its_leader_is_left() {
    let mut pair = Pair::new(store_of(5));
    pair.asks.clear();
    pair.now_ms = pair.machine.next_ms();
    let Some(Ask::Range { question, .. }) = pair.machine.poll(pair.now_ms) else { panic!() };
    pair.machine.handle_ranged(pair.now_ms, question, Err(Error::Timeout));
    pair.settle();
    assert!(pair.asks.contains(&"leave"));
    assert!(!pair.machine.status().is_current);
}

#[test]
fn an_event_that_was_lost_is_found_by_counting() {
    let mut pair = Pair::new(store_of(5));
    pair.store.put(&backend(9), "ready");
    pair.next = pair.store.revision + 1;
    pair.wait(30_000);
    assert_eq!(pair.machine.status().disagreements, 1);
    pair.assert_same();
}

#[test]
fn a_notice_of_progress_that_overtakes_events_loses_none() {
    let mut pair = Pair::new(store_of(5));
    pair.store.put(&backend(9), "ready");
    let header = pair.store.header();
    let watched = Watched { header, watch_id: ALL_WATCHES, ..Watched::default() };
    pair.machine.handle_watched(pair.now_ms, pair.stream, watched);
    pair.lose_stream();
    pair.wait(1000);
    pair.assert_same();
}

#[test]
fn the_watchs_own_notice_saves_a_list_after_a_compaction() {
    let mut pair = Pair::new(store_of(5));
    for _ in 0..10 {
        pair.store.put(b"/elsewhere", "x");
    }
    let watched = Watched { header: pair.store.header(), ..Watched::default() };
    pair.machine.handle_watched(pair.now_ms, pair.stream, watched);
    pair.store.compact();
    pair.lose_stream();
    pair.wait(1000);
    assert_eq!(pair.machine.status().lists, 1);
    pair.assert_same();
}

#[test]
fn another_cluster_is_not_believed_until_an_operator_confirms() {
    let mut pair = Pair::new(store_of(5));
    let before = pair.machine.truth().clone();
    pair.store = Store::new(8);
    pair.store.put(&backend(0), "ready");
    pair.lose_stream();
    pair.wait(60_000);
    let (number, doubt) = pair.doubt().unwrap();
    assert_eq!(doubt, Doubt::ClusterChanged { known: 7, told: 8 });
    assert_eq!(pair.machine.truth(), &before);
    assert!(!pair.machine.confirm(pair.now_ms, number + 1), "that is another doubt");
    assert!(pair.machine.confirm(pair.now_ms, number));
    pair.settle();
    pair.assert_same();
}

#[test]
fn a_restored_etcd_is_not_believed_even_when_its_revisions_have_grown() {
    let mut pair = Pair::new(store_of(5));
    let backup = pair.store.clone();
    pair.store.put(&backend(9), "ready");
    pair.settle();
    pair.store = backup;
    pair.lose_stream();
    pair.wait(1000);
    assert!(matches!(pair.doubt(), Some((1, Doubt::RevisionWentBack { .. }))));
    for _ in 0..10 {
        pair.store.put(b"/elsewhere", "x");
    }
    pair.wait(60_000);
    let (number, _) = pair.doubt().expect("it stands");
    assert!(pair.machine.truth().entries.contains_key(&backend(9)));
    assert!(pair.machine.confirm(pair.now_ms, number));
    pair.settle();
    pair.assert_same();
}

#[test]
fn each_other_history_is_noted_when_it_is_first_seen() {
    let mut pair = Pair::new(store_of(5));
    let at = |pair: &Pair| pair.machine.status().rewritten_at_ms;
    pair.wait(60_000);
    assert_eq!(at(&pair), None);
    let mut seen = Vec::new();
    for cluster in [8, 9] {
        pair.store = Store::new(cluster);
        pair.lose_stream();
        pair.wait(60_000);
        let first = at(&pair).expect("it was seen");
        pair.store.put(&backend(0), "ready");
        pair.wait(60_000);
        assert_eq!(at(&pair), Some(first), "it is the same one");
        seen.push(first);
    }
    assert!(seen[0] < seen[1]);
    let (number, _) = pair.doubt().expect("it stands");
    assert!(pair.machine.confirm(pair.now_ms, number));
    pair.settle();
    pair.assert_same();
    assert_eq!(at(&pair), Some(seen[1]), "an operator believes it");
}

#[test]
fn an_etcd_whose_new_history_is_the_longer_one_is_known_by_what_it_says_of_old_keys() {
    for (is_same_revision, told) in [(true, "draining"), (false, "ready")] {
        let mut pair = Pair::new(store_of(5));
        let at = pair.machine.truth().entries[&backend(3)].mod_revision;
        pair.store = Store::new(7);
        for index in if is_same_revision { 0..3 } else { 0..0 } {
            pair.store.put(&backend(index), "ready");
        }
        pair.store.put(&backend(3), told);
        while pair.store.revision < 20 {
            pair.store.put(b"/elsewhere", "x");
        }
        pair.lose_stream();
        pair.wait(60_000);
        let told = if is_same_revision { at } else { 2 };
        assert_eq!(pair.doubt(), Some((1, Doubt::RevisionWentBack { known: at, told })));
        assert_eq!(pair.machine.truth().entries.len(), 5);
        assert!(pair.machine.confirm(pair.now_ms, 1));
        pair.settle();
        pair.assert_same();
    }
}

#[test]
fn half_of_the_backends_gone_at_once_are_put_back_and_held() {
    let mut pair = Pair::new(store_of(20));
    pair.machine.take_changes();
    for index in 0..12 {
        pair.store.delete(&backend(index));
        pair.settle();
    }
    let (number, doubt) = pair.doubt().unwrap();
    assert_eq!(doubt, lost(20, 8));
    assert_eq!(pair.machine.truth().entries.len(), 20);
    pair.store.delete(&backend(12));
    pair.wait(60_000);
    let (worse, doubt) = pair.doubt().unwrap();
    assert!(worse > number, "more have gone since");
    assert_eq!(doubt, lost(20, 7));
    assert!(!pair.machine.confirm(pair.now_ms, number));
    assert!(pair.machine.confirm(pair.now_ms, worse));
    pair.settle();
    pair.assert_same();
    assert_eq!(pair.machine.truth().entries.len(), 7);
}

#[test]
fn a_doubt_ends_by_itself_when_what_was_gone_is_back() {
    let mut pair = Pair::new(store_of(20));
    for index in 0..12 {
        pair.store.delete(&backend(index));
    }
    pair.settle();
    assert!(pair.doubt().is_some());
    for index in 0..12 {
        pair.store.put(&backend(index), "ready");
    }
    pair.wait(20_000);
    pair.assert_same();
}

#[test]
fn a_confirmation_is_for_what_the_operator_has_seen() {
    let mut pair = Pair::new(store_of(20));
    for index in 0..10 {
        pair.store.delete(&backend(index));
    }
    pair.settle();
    let (number, _) = pair.doubt().unwrap();
    for index in 10..20 {
        pair.store.delete(&backend(index));
    }
    assert!(pair.machine.confirm(pair.now_ms, number));
    pair.settle();
    let (worse, _) = pair.doubt().expect("all of them were not spoken of");
    assert_ne!(worse, number);
}

#[test]
fn backends_that_are_replaced_and_few_that_go_are_believed() {
    let mut pair = Pair::new(store_of(20));
    for index in 0..20 {
        pair.store.put(&backend(100 + index), "ready");
        pair.store.delete(&backend(index));
    }
    pair.settle();
    pair.assert_same();
    let mut pair = Pair::new(store_of(3));
    (0..3).for_each(|index| pair.store.delete(&backend(index)));
    pair.settle();
    pair.assert_same();
    assert!(pair.machine.truth().entries.is_empty());
}

#[test]
fn what_is_slowly_gone_is_believed() {
    let mut pair = Pair::new(store_of(20));
    for index in 0..18 {
        pair.store.delete(&backend(index));
        pair.wait(6_000);
    }
    pair.assert_same();
}

#[test]
fn a_copy_from_disk_is_compared_and_an_old_one_does_not_say_how_many_there_are() {
    let store = store_of(20);
    let known = Pair::new(store.clone()).machine.truth().clone();
    // One that another process knew until now does.
    for (agreed_at_ms, missed) in [(None, 0), (Some(0), 15)] {
        let mut pair = Pair::new(store.clone());
        (0..15).for_each(|index| pair.store.delete(&backend(index)));
        pair.machine = Machine::new(Options { agreed_at_ms, ..options() }, known.clone());
        pair.store.compact();
        pair.stream = 0;
        pair.wait(1000);
        assert_eq!(pair.machine.truth().entries.len(), 5 + missed);
        assert_eq!(pair.doubt().is_some(), missed > 0);
        assert_eq!(pair.machine.take_changes().len(), 15 - missed);
    }
}

#[test]
fn a_mirror_does_not_grow_beyond_its_bounds() {
    let mut pair = Pair::new(store_of(5));
    pair.machine =
        Machine::new(Options { keys_max: 9, bytes_max: 5_000, ..options() }, Truth::default());
    pair.stream = 0;
    pair.settle();
    pair.assert_same();
    // Much is written, and little is kept.
    for index in 0..100 {
        pair.store.put(&backend(0), &index.to_string().repeat(50));
        pair.settle();
    }
    pair.assert_same();
    pair.store.put(&backend(1), &"x".repeat(6_000));
    pair.wait(60_000);
    assert!(!pair.machine.status().is_current);
    pair.store.put(&backend(1), "x");
    pair.wait(60_000);
    pair.assert_same();
    let service = |index: usize| format!("{PREFIX}service/{index}").into_bytes();
    (5..20).for_each(|index| pair.store.put(&service(index), "x"));
    pair.wait(60_000);
    assert!(!pair.machine.status().is_current);
    assert!(pair.machine.truth().entries.len() < 25);
    (5..20).for_each(|index| pair.store.delete(&service(index)));
    pair.wait(60_000);
    pair.assert_same();
}

#[test]
fn bans_beyond_what_is_copied_take_nothing_else_along() {
    let ban = |index: usize| format!("{PREFIX}ban/client/{index}").into_bytes();
    let mut pair = Pair::new(store_of(5));
    let bounds = Options { bans_max: 4, keys_max: 6, ..options() };
    pair.machine = Machine::new(bounds, Truth::default());
    pair.stream = 0;
    (0..3).for_each(|index| pair.store.put(&ban(index), "x"));
    pair.settle();
    (3..9).for_each(|index| pair.store.put(&ban(index), "x"));
    pair.store.put(&ban(8), "y");
    pair.store.put(&backend(1), "draining");
    pair.wait(60_000);
    let entries = |pair: &Pair| pair.machine.truth().entries.clone();
    assert_eq!(entries(&pair)[&backend(1)].value, "draining");
    assert_eq!((entries(&pair).len(), pair.machine.status().bans_left_out), (9, 5));
    assert!(pair.machine.status().is_current);
    let status = pair.machine.status();
    assert_eq!((status.disagreements, status.lists), (0, 1), "bans count apart from the others");
    // A list leaves as many out.
    pair.store.compact();
    pair.lose_stream();
    pair.store.put(&ban(9), "x");
    pair.store.compact();
    pair.wait(60_000);
    assert_eq!((entries(&pair).len(), pair.machine.status().bans_left_out), (9, 6));
    // Lifting some makes room for others.
    (0..6).for_each(|index| pair.store.delete(&ban(index)));
    pair.wait(60_000);
    assert_eq!(pair.machine.status().bans_left_out, 0);
    pair.assert_same();
}

#[test]
fn bans_hold_however_much_there_is_of_everything_else() {
    let ban = |index: usize| format!("{PREFIX}ban/client/{index}").into_bytes();
    let before = |index: usize| format!("{PREFIX}agent/{index}").into_bytes();
    let behind = |index: usize| format!("{PREFIX}service/{index}").into_bytes();
    let bounds = Options { keys_max: 9, page_keys: 4, ..options() };
    for other in [&before as &dyn Fn(usize) -> Vec<u8>, &behind] {
        let mut pair = Pair::new(store_of(5));
        pair.machine = Machine::new(bounds.clone(), Truth::default());
        pair.stream = 0;
        (0..6).for_each(|index| pair.store.put(&ban(index), "x"));
        pair.settle();
        pair.assert_same();
        let bans = |pair: &Pair| {
            let keys = pair.machine.truth().entries.keys();
            keys.filter(|key| Class::of(key) == Some(Class::Bans)).count()
        };
        (0..40).for_each(|index| pair.store.put(&other(index), "x"));
        (6..12).for_each(|index| pair.store.put(&ban(index), "x"));
        pair.wait(60_000);
        assert!(!pair.machine.status().is_current);
        assert_eq!(bans(&pair), 12, "all of them");
        assert!(pair.machine.truth().entries.contains_key(&backend(1)[..]), "what was known stays");
        (0..9).for_each(|index| pair.store.delete(&ban(index)));
        pair.store.put(&ban(20), "x");
        pair.wait(60_000);
        assert_eq!(bans(&pair), 4);
        // One that begins with so much knows who is banned, and nothing else.
        let mut late = Machine::new(bounds.clone(), Truth::default());
        std::mem::swap(&mut late, &mut pair.machine);
        pair.stream = 0;
        pair.wait(60_000);
        assert_eq!((bans(&pair), pair.machine.truth().entries.len()), (4, 4));
        std::mem::swap(&mut late, &mut pair.machine);
        pair.stream = 0;
        (0..40).for_each(|index| pair.store.delete(&other(index)));
        pair.wait(60_000);
        pair.assert_same();
    }
}

#[test]
fn hostile_answers_end_in_a_wait_and_not_in_the_copy() {
    let listing = |pair: &mut Pair| {
        pair.machine = Machine::new(options(), Truth::default());
        let Some(Ask::Range { question, .. }) = pair.machine.poll(0) else { panic!() };
        question
    };
    let mut pair = Pair::new(store_of(2));
    let whole = pair.store.range(&crate::etcd::kv::Range::prefix(PREFIX.as_bytes())).unwrap();
    let twice = Ranged { kvs: [whole.kvs.clone(), whole.kvs.clone()].concat(), ..whole.clone() };
    let empty = Ranged { kvs: Vec::new(), more: true, ..whole.clone() };
    let mut foreign = whole.clone();
    foreign.kvs[0].key = "/other".into();
    for answer in [twice, empty, foreign] {
        let question = listing(&mut pair);
        pair.machine.handle_ranged(0, question, Ok(answer));
        assert!(!pair.machine.truth().is_known());
        assert!(pair.machine.next_ms() > 0 && pair.machine.status().last_error.is_some());
    }
    let question = listing(&mut pair);
    let refused = Error::status(Code::PERMISSION_DENIED, "etcdserver: permission denied");
    pair.machine.handle_ranged(0, question + 1, Ok(whole));
    assert!(!pair.machine.truth().is_known(), "nobody has asked that");
    pair.machine.handle_ranged(0, question, Err(refused));
    assert_eq!(pair.machine.poll(0), None);
}
