//! What a registration does next, as a state machine without sockets and clocks.

mod words;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::etcd::Error;
use crate::etcd::kv::Range;
use crate::etcd::lease::Lease;
use crate::etcd::txn::{Compare, Decided, Delete, Op, Put, Txn};
pub use words::Words;

/// What the shell shall do. Answers name the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Make a lease.
    Grant(i64),
    /// Give this lease its time again.
    KeepAlive(i64),
    /// Decide this.
    Decide(Txn),
    /// End this lease.
    Revoke(i64),
}

/// How it stands with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not written yet, or not any more.
    Absent,
    /// It is there, under an earlier lease of ours.
    Former {
        /// The revision that last changed it.
        mod_revision: i64,
    },
    /// It is there, and not as it should be.
    Outdated,
    /// It is there, as it should be.
    Written,
    /// Another process has this name.
    Taken {
        /// The other's lease.
        by: i64,
        /// When it is tried again.
        again_ms: u64,
    },
    /// It is to go.
    Leaving,
}

/// What a process hands to its successor. Whoever hands it over must not keep the lease alive any
/// more, and must not revoke it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// The lease; 0 for none.
    pub lease: i64,
    /// Earlier leases, whose keys may still be there.
    pub former: Vec<i64>,
    /// Which keys may stand under it.
    #[serde(with = "in_text")]
    pub keys: Vec<Bytes>,
    /// The highest counter of what was written as the fleet's word.
    #[serde(default)]
    pub said: u64,
}

/// Keys as text, which ours are.
mod in_text {
    use bytes::Bytes;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(keys: &[Bytes], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(keys.iter().map(|key| String::from_utf8_lossy(key)))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Vec<Bytes>, D::Error> {
        let keys = Vec::<String>::deserialize(from)?;
        Ok(keys.into_iter().map(Bytes::from).collect())
    }
}

impl Handed {
    /// Leases of processes before, the newest first: what stands under them is this one's.
    pub fn of_leases(leases: Vec<i64>) -> Self {
        let former = leases.into_iter().rev().collect();
        Self { former, ..Self::default() }
    }

    /// Leases under which something may stand, the newest first.
    pub fn leases(&self) -> Vec<i64> {
        let held = Some(self.lease).filter(|lease| *lease != 0);
        held.into_iter().chain(self.former.iter().rev().copied()).collect()
    }
}

/// Keys under one lease.
#[derive(Debug)]
pub struct Registration {
    ttl_s: i64,
    items: BTreeMap<Bytes, Item>,
    /// What is written before all others.
    first: Bytes,
    /// What was written last: the others are next.
    last: Bytes,
    /// Where it was written of which items that they have ended, the oldest first.
    ended: VecDeque<Bytes>,
    lease: Option<Held>,
    former: VecDeque<i64>,
    asked: Option<Asked>,
    question: u64,
    backoff: Backoff,
    rest_until_ms: u64,
    stops: bool,
    lost: u64,
    last_error: Option<String>,
    /// etcd takes no writes, because it has no space left.
    lacks_space: bool,
    words: Option<Words>,
    /// The highest counter of the process before.
    said: u64,
    farewell: Farewell,
}

/// How far it is told that everything goes because its owner wants that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    Owed,
    /// Under this lease.
    Told(i64),
    Said,
}

#[derive(Debug)]
struct Item {
    value: Bytes,
    standing: Standing,
    /// The revision at which it was last seen under our lease; 0 where it was not.
    revision: i64,
    /// It is to go as soon as that is written.
    is_last: bool,
    /// It is written, and somebody has seen that it may not be there.
    is_doubted: bool,
}

impl Item {
    const fn new(value: Bytes, standing: Standing) -> Self {
        Self { value, standing, revision: 0, is_last: false, is_doubted: false }
    }
}

#[derive(Clone, Copy, Debug)]
struct Held {
    id: i64,
    /// Until when it lives for certain, by the time at which it was asked for.
    good_until_ms: u64,
    renew_at_ms: u64,
}

#[derive(Debug)]
struct Asked {
    number: u64,
    at_ms: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Farewell,
    Lease,
    Revoke,
    Item { key: Bytes, value: Bytes, was: Standing },
}

impl Registration {
    /// Nothing yet, under a lease of `ttl_s` seconds.
    pub const fn new(ttl_s: i64, seed: u64) -> Self {
        Self {
            ttl_s,
            items: BTreeMap::new(),
            first: Bytes::new(),
            last: Bytes::new(),
            ended: VecDeque::new(),
            lease: None,
            former: VecDeque::new(),
            asked: None,
            question: 0,
            backoff: Backoff::new(BACKOFF_FIRST_MS, BACKOFF_LAST_MS, seed),
            rest_until_ms: 0,
            stops: false,
            lost: 0,
            last_error: None,
            lacks_space: false,
            words: None,
            said: 0,
            farewell: Farewell::Said,
        }
    }

    /// What a predecessor has handed over. To be told by `set` what shall stay before it is polled:
    /// the keys that are not set again go.
    pub fn adopt(ttl_s: i64, seed: u64, handed: Handed) -> Self {
        let mut registration = Self::new(ttl_s, seed);
        registration.former = handed.former.into();
        registration.said = handed.said;
        if handed.lease != 0 {
            let held = Held { id: handed.lease, good_until_ms: 0, renew_at_ms: 0 };
            registration.lease = Some(held);
        }
        let (ended, items): (Vec<_>, Vec<_>) =
            handed.keys.into_iter().partition(|key| is_word_of_an_end(key));
        registration.ended = ended.into();
        let leaves = |key| (key, Item::new(Bytes::new(), Standing::Leaving));
        registration.items = items.into_iter().map(leaves).collect();
        registration
    }

    /// This key is written before all others: its owner's own.
    pub fn put_first(&mut self, key: Bytes) {
        self.first = key;
    }

    /// Has the fleet's key vouch for what is written from now on, and for the end of it.
    pub fn vouch_with(&mut self, words: Words) {
        self.words = Some(words.behind(self.said));
        self.farewell = Farewell::Owed;
    }

    /// Whether etcd refused the last write for want of space.
    pub const fn lacks_space(&self) -> bool {
        self.lacks_space
    }

    /// What a successor has to know. With keys of which it is not certain that they stand: one that
    /// nobody named any more would stand for ever.
    pub fn handed(&self) -> Handed {
        let may_stand = |item: &Item| !matches!(item.standing, Standing::Taken { .. });
        let keys = self.items.iter().filter(|(_, item)| may_stand(item));
        Handed {
            lease: self.lease.map_or(0, |held| held.id),
            former: self.former.iter().copied().collect(),
            keys: keys.map(|(key, _)| key).chain(&self.ended).cloned().collect(),
            said: self.words.as_ref().map_or(self.said, Words::said),
        }
    }

    /// This key shall have this value.
    pub fn set(&mut self, key: Bytes, value: Bytes) {
        let standing = match self.items.get(&key) {
            Some(item)
                if item.value == value && item.standing != Standing::Leaving && !item.is_last =>
            {
                return;
            }
            Some(item) => match item.standing {
                Standing::Written | Standing::Leaving => Standing::Outdated,
                other => other,
            },
            None => Standing::Absent,
        };
        let revision = self.items.get(&key).map_or(0, |item| item.revision);
        self.items.insert(key, Item { revision, ..Item::new(value, standing) });
    }

    /// This key shall go, once mirrors can have seen this value there: the last word of an owner
    /// that has no fleet key to seal one with.
    pub fn retire(&mut self, key: &Bytes, value: Bytes) {
        let stands = |it: &Item| matches!(it.standing, Standing::Written | Standing::Outdated);
        match self.items.get_mut(key) {
            Some(item) if self.words.is_none() && stands(item) => {
                (item.value, item.standing, item.is_last) = (value, Standing::Outdated, true);
            }
            _ => self.remove(key),
        }
    }

    /// This key shall go.
    pub fn remove(&mut self, key: &Bytes) {
        if let Some(item) = self.items.get_mut(key) {
            item.standing = Standing::Leaving;
        }
    }

    /// Somebody has seen that this key is not there, or not ours: it is looked at, and written
    /// again where that is so.
    pub fn doubt(&mut self, key: &Bytes) {
        if let Some(item) = self.items.get_mut(key) {
            item.is_doubted = item.standing == Standing::Written;
        }
    }

    /// Everything shall go. [`Registration::has_stopped`] says when it has.
    pub const fn stop(&mut self) {
        self.stops = true;
    }

    /// Whether everything shall go.
    pub const fn is_stopping(&self) -> bool {
        self.stops
    }

    /// Whether nothing is left to do after [`Registration::stop`].
    pub const fn has_stopped(&self) -> bool {
        self.stops && self.lease.is_none() && self.asked.is_none()
    }

    /// How it stands with a key; `None` if it is none of ours.
    pub fn standing(&self, key: &[u8]) -> Option<Standing> {
        self.items.get(key).map(|item| item.standing)
    }

    /// Whether everything is written, under a lease that lives for certain.
    pub fn is_registered(&self, now_ms: u64) -> bool {
        self.lease.is_some_and(|held| now_ms < held.good_until_ms)
            && self.items.values().all(|item| item.standing == Standing::Written)
    }

    /// Whether this key is written, if not as it should be now, under a lease that lives for
    /// certain.
    pub fn stands(&self, key: &[u8], now_ms: u64) -> bool {
        let is_there = matches!(self.standing(key), Some(Standing::Written | Standing::Outdated));
        is_there && self.lease.is_some_and(|held| now_ms < held.good_until_ms)
    }

    /// The lease that is held; 0 for none.
    pub fn lease_id(&self) -> i64 {
        self.lease.map_or(0, |held| held.id)
    }

    /// How many leases have ended while this process lived.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// What went wrong last.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// What to do now, under the number that its answer has to name.
    pub fn poll(&mut self, now_ms: u64) -> Option<(u64, Ask)> {
        if self.asked.is_some() || now_ms < self.rest_until_ms {
            return None;
        }
        let (what, ask) = self.next_step(now_ms)?;
        self.question += 1;
        self.asked = Some(Asked { number: self.question, at_ms: now_ms, what });
        Some((self.question, ask))
    }

    /// When something is to be done without anything having come.
    pub fn next_ms(&self) -> u64 {
        if self.asked.is_some() {
            return u64::MAX;
        }
        let again = self.items.values().filter_map(|item| match item.standing {
            Standing::Taken { again_ms, .. } => Some(again_ms),
            Standing::Written if !item.is_doubted => None,
            _ => Some(0),
        });
        let next = self.lease.iter().map(|held| held.renew_at_ms).chain(again).min();
        next.unwrap_or(u64::MAX).max(self.rest_until_ms)
    }

    fn next_step(&mut self, now_ms: u64) -> Option<(What, Ask)> {
        let Some(held) = self.lease else {
            let wants = !self.stops && !self.items.is_empty();
            return wants.then_some((What::Lease, Ask::Grant(self.ttl_s)));
        };
        if self.stops
            && let Some(key) = self.outstanding()
        {
            return Some(self.write(key, held.id, now_ms));
        }
        if self.stops {
            return Some(match (self.farewell, &self.words) {
                (Farewell::Owed, Some(_)) => (What::Farewell, Ask::Grant(FAREWELL_S)),
                (Farewell::Told(lease), Some(words)) => {
                    (What::Farewell, Ask::Decide(words.farewell(held.id, lease, now_ms)))
                }
                _ => (What::Revoke, Ask::Revoke(held.id)),
            });
        }
        if now_ms >= held.renew_at_ms {
            return Some((What::Lease, Ask::KeepAlive(held.id)));
        }
        let key = self.next_due(now_ms)?.clone();
        Some(self.write(key, held.id, now_ms))
    }

    /// Each key has its turn: one that changes all the time delays no other. What is only to be
    /// looked at comes last.
    fn next_due(&self, now_ms: u64) -> Option<&Bytes> {
        let is_due = |(_, item): &(&Bytes, &Item)| match item.standing {
            Standing::Written => false,
            Standing::Taken { again_ms, .. } => now_ms >= again_ms,
            _ => true,
        };
        let first = self.items.get_key_value(&self.first).into_iter();
        let after = self.items.range::<Bytes, _>((Excluded(&self.last), Unbounded));
        let before = self.items.range::<Bytes, _>(..=&self.last);
        let mut all = first.chain(after).chain(before);
        let due = all.clone().find(is_due);
        due.or_else(|| all.find(|(_, item)| item.is_doubted)).map(|(key, _)| key)
    }

    /// What stands there and is to be another value before all of it goes: an etcd that does not
    /// take it is not asked again.
    fn outstanding(&self) -> Option<Bytes> {
        let is_outstanding = |(_, item): &(&Bytes, &Item)| item.standing == Standing::Outdated;
        let is_owed = self.backoff.failures() == 0;
        self.items.iter().filter(|_| is_owed).find(is_outstanding).map(|(key, _)| key.clone())
    }

    /// The next step of a key. `lease` is held.
    fn write(&mut self, key: Bytes, lease: i64, now_ms: u64) -> (What, Ask) {
        let item = &self.items[&key];
        let (said, was) = (item.value.clone(), item.standing);
        let value = match &self.words {
            Some(words) => words.vouch(&key, &said, now_ms),
            None => said.clone(),
        };
        let mut txn = step(&key, (was, item.revision), Put { key: key.clone(), value, lease });
        if was == Standing::Leaving {
            // Before the end in the order of things, which is the order in which mirrors hear.
            txn.then.splice(..0, self.tell_end_of(&key, lease, now_ms));
        }
        self.last.clone_from(&key);
        (What::Item { key, value: said, was }, Ask::Decide(txn))
    }

    /// Says that what stood at a key has ended, in the place of the oldest such word where there
    /// are many.
    fn tell_end_of(&mut self, key: &[u8], lease: i64, now_ms: u64) -> Vec<Op> {
        let words = self.words.as_ref();
        let Some((words, at)) = words.and_then(|words| Some((words, words.end_of(key)?))) else {
            return Vec::new();
        };
        let mut ops = vec![Op::Put(words.gone(at.clone(), lease, now_ms))];
        self.ended.retain(|it| *it != at);
        self.ended.push_back(at);
        if self.ended.len() > ENDED_MAX {
            let oldest = self.ended.pop_front();
            ops.extend(oldest.map(|key| Op::Delete(Delete { key, end: Bytes::new() })));
        }
        ops
    }

    /// Nobody waits any more for the answer to what was asked last: it may have been done or not.
    pub fn give_up(&mut self) {
        self.asked = None;
    }

    /// The answer to a grant, to a keep-alive, or to a revocation.
    pub fn handle_lease(&mut self, now_ms: u64, question: u64, answer: Result<Lease, Error>) {
        let Some(asked) = self.asked.take_if(|asked| asked.number == question) else {
            return;
        };
        match (answer, asked.what) {
            // The end is not put off for it.
            (answer, What::Farewell) => {
                let lease = answer.map_or(0, |lease| lease.id);
                self.farewell = if lease == 0 { Farewell::Said } else { Farewell::Told(lease) };
            }
            (Err(why), _) => self.fail(now_ms, &why),
            (Ok(_), What::Revoke) => self.lease = None,
            (Ok(lease), _) if lease.ttl_s <= 0 || lease.id == 0 => self.lose(now_ms),
            (Ok(lease), _) => {
                self.backoff.reset();
                // From when it was asked: the server may have answered long ago.
                let ttl_ms = lease.ttl_s as u64 * 1000;
                self.lease = Some(Held {
                    id: lease.id,
                    good_until_ms: asked.at_ms + ttl_ms,
                    renew_at_ms: asked.at_ms + ttl_ms / 3,
                });
            }
        }
    }

    /// The answer to a transaction.
    pub fn handle_decided(&mut self, now_ms: u64, question: u64, answer: Result<Decided, Error>) {
        let Some(asked) = self.asked.take_if(|asked| asked.number == question) else {
            return;
        };
        let What::Item { key, value, was } = asked.what else {
            self.farewell = Farewell::Said;
            return;
        };
        match answer {
            Err(why) if why.is_lease_gone() => self.lose(now_ms),
            Err(why) => self.fail(now_ms, &why),
            Ok(decided) => {
                self.backoff.reset();
                // A look takes none.
                self.lacks_space &= was == Standing::Written;
                if was == Standing::Leaving {
                    self.settle_leaving(&key);
                } else {
                    self.settle(now_ms, &key, (&value, was), &decided);
                }
            }
        }
    }

    /// Whether the key was there or not: it is not any more, or it is another's.
    fn settle_leaving(&mut self, key: &Bytes) {
        match self.items.get_mut(key) {
            Some(item) if item.standing == Standing::Leaving => drop(self.items.remove(key)),
            Some(item) => item.standing = Standing::Absent,
            None => {}
        }
    }

    fn settle(&mut self, now_ms: u64, key: &Bytes, asked: (&Bytes, Standing), decided: &Decided) {
        let (value, was) = asked;
        let lease = self.lease.map_or(0, |held| held.id);
        let found = decided.found.first().map(|kv| (kv.lease, kv.mod_revision));
        let is_former = found.is_some_and(|(by, _)| self.former.contains(&by));
        let Some(item) = self.items.get_mut(key) else { return };
        if item.standing == Standing::Leaving {
            return;
        }
        item.is_doubted = false;
        item.revision = match found {
            _ if decided.held && was == Standing::Written => item.revision,
            _ if decided.held => decided.header.revision,
            Some((by, mod_revision)) if by == lease => mod_revision,
            _ => 0,
        };
        let (is_last, standing) = (item.is_last, &mut item.standing);
        *standing = match found {
            _ if decided.held && item.value == *value => Standing::Written,
            _ if decided.held => Standing::Outdated,
            None => Standing::Absent,
            Some((by, _)) if by == lease && lease != 0 => Standing::Outdated,
            Some((_, mod_revision)) if is_former => Standing::Former { mod_revision },
            Some((by, _)) => {
                let again_ms = now_ms + self.ttl_s.max(1) as u64 * 1000 / 3;
                Standing::Taken { by, again_ms }
            }
        };
        // What stands under another lease than this one's is let alone.
        if is_last && *standing != Standing::Outdated {
            *standing = Standing::Leaving;
        }
    }

    /// The lease has ended: everything is to be written again, under another one.
    fn lose(&mut self, now_ms: u64) {
        if let Some(held) = self.lease.take() {
            self.lost += 1;
            self.former.push_back(held.id);
            if self.former.len() > FORMER_MAX {
                self.former.pop_front();
            }
        }
        self.ended.clear();
        self.items.retain(|_, item| item.standing != Standing::Leaving && !item.is_last);
        for item in self.items.values_mut() {
            item.standing = Standing::Absent;
        }
        self.rest_until_ms = now_ms;
    }

    fn fail(&mut self, now_ms: u64, why: &Error) {
        self.last_error = Some(why.to_string());
        self.lacks_space |= why.lacks_space();
        // Once it must stop, there is no sense in waiting for a server that is away.
        if self.stops && self.backoff.failures() >= STOP_ATTEMPTS {
            self.lease = None;
        }
        self.rest_until_ms = now_ms + self.backoff.next_wait_ms();
    }
}

/// The transaction that brings a key one step nearer to where it should be. What is on its way to
/// etcd since before `revision` does not hold any more.
fn step(key: &Bytes, (standing, revision): (Standing, i64), put: Put) -> Txn {
    let lease = put.lease;
    let read = || vec![Op::Range(Range::one(key.clone()))];
    let is_ours = || vec![Compare::Lease(key.clone(), lease)];
    match standing {
        Standing::Absent | Standing::Taken { .. } => Txn::claim(put),
        Standing::Outdated | Standing::Written => {
            let mut when = is_ours();
            when.extend((revision > 0).then(|| Compare::Unchanged(key.clone(), revision)));
            // What stands there as it was written is only looked at.
            let then = (standing == Standing::Outdated).then_some(Op::Put(put));
            Txn { when, then: then.into_iter().collect(), or_else: read() }
        }
        Standing::Former { mod_revision } => Txn {
            when: vec![Compare::Unchanged(key.clone(), mod_revision)],
            then: vec![Op::Put(put)],
            or_else: read(),
        },
        Standing::Leaving => {
            let delete = Delete { key: key.clone(), end: Bytes::new() };
            Txn { when: is_ours(), then: vec![Op::Delete(delete)], or_else: Vec::new() }
        }
    }
}

/// What is written of keys that have ended stands apart from them.
fn is_word_of_an_end(key: &[u8]) -> bool {
    let part = b"/truth/gone/";
    key.windows(part.len()).any(|window| window == part)
}

const BACKOFF_FIRST_MS: u64 = 100;
const BACKOFF_LAST_MS: u64 = 3_000;
/// Leases that are remembered: those of a few restored backups.
const FORMER_MAX: usize = 8;
/// How long it is told that what stood under a lease was given up: longer than any mirror looks
/// back.
const FAREWELL_S: i64 = 3_600;
/// Of so many keys it stands under a lease that they have ended: all that may end at one host in
/// the time for which mirrors look back.
const ENDED_MAX: usize = 128;
/// How often a lease that is to end is asked to.
const STOP_ATTEMPTS: u32 = 3;
