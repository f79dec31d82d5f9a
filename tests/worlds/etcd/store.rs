//! What stands in etcd: keys with their history, leases, and what follows from a question.

use std::collections::BTreeMap;

use bytes::Bytes;
use ringgate_fleet::etcd::wire::Writer;
use ringgate_fleet::etcd::{Code, Error};

use super::messages::{Compare, Op, Put, Range, Request, Span, Txn, message};

/// Everything at one moment, and what has happened since the last compaction.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pub(crate) cluster_id: u64,
    pub(crate) raft_term: u64,
    pub(crate) revision: i64,
    compacted: i64,
    keys: BTreeMap<Vec<u8>, Entry>,
    history: Vec<Change>,
    leases: BTreeMap<i64, Lease>,
    next_lease: i64,
}

/// What stands at a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) value: Vec<u8>,
    created: i64,
    modified: i64,
    version: i64,
    pub(crate) lease: i64,
}

/// What has happened to a key.
#[derive(Clone, Debug)]
struct Change {
    key: Vec<u8>,
    /// None where it is gone.
    entry: Option<Entry>,
    revision: i64,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    ttl_s: i64,
    ends_ms: u64,
}

impl Store {
    pub(crate) const fn new(cluster_id: u64) -> Self {
        Self {
            cluster_id,
            raft_term: 2,
            revision: 1,
            compacted: 0,
            keys: BTreeMap::new(),
            history: Vec::new(),
            leases: BTreeMap::new(),
            // Another history has other leases.
            next_lease: 0x1000 * cluster_id as i64,
        }
    }

    /// What stands below a prefix, by key.
    pub(crate) fn below<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Entry)> {
        let from = self.keys.range(prefix.as_bytes().to_vec()..);
        from.map(|(key, entry)| (str::from_utf8(key).expect("keys are text"), entry))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Writes as an operator does, under no lease.
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) {
        self.revision += 1;
        self.apply_put(&Put { key: key.into(), value: value.into(), lease: 0 });
    }

    /// Writes as an operator does, under a lease of its own that nobody keeps alive.
    pub(crate) fn put_for(&mut self, key: &str, value: &[u8], now_ms: u64, lasts_ms: u64) {
        self.next_lease += 1;
        let lease = Lease { ttl_s: lasts_ms.div_ceil(1000) as i64, ends_ms: now_ms + lasts_ms };
        self.leases.insert(self.next_lease, lease);
        self.revision += 1;
        let (key, value) = (key.into(), value.to_vec());
        self.apply_put(&Put { key, value, lease: self.next_lease });
    }

    /// Has a key go, as an operator does.
    pub(crate) fn delete(&mut self, key: &str) {
        self.revision += 1;
        self.apply_delete(&Span::one(key));
    }

    /// The same with all keys below a prefix.
    pub(crate) fn delete_below(&mut self, prefix: &str) {
        let keys: Vec<_> = self.below(prefix).map(|(key, _)| key.to_owned()).collect();
        for key in keys {
            self.delete(&key);
        }
    }

    pub(crate) fn compact(&mut self) {
        self.compacted = self.revision;
        self.history.clear();
    }

    /// Another history begins with this: leases have their whole time again.
    pub(crate) fn begin_anew(&mut self, now_ms: u64, next_lease: i64) {
        self.next_lease = next_lease;
        for lease in self.leases.values_mut() {
            lease.ends_ms = now_ms + lease.ttl_s as u64 * 1000;
        }
    }

    pub(crate) fn expire(&mut self, now_ms: u64) {
        let is_over = |it: &Lease| it.ends_ms <= now_ms;
        let over: Vec<_> =
            self.leases.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| *id).collect();
        for id in over {
            self.end_lease(id);
        }
    }

    /// A lease ends, and all that stands under it, at one revision.
    fn end_lease(&mut self, id: i64) {
        self.leases.remove(&id);
        let its = self.keys.iter().filter(|(_, entry)| entry.lease == id);
        let keys: Vec<_> = its.map(|(key, _)| key.clone()).collect();
        self.revision += i64::from(!keys.is_empty());
        for key in keys {
            self.apply_delete(&Span::one(key));
        }
    }

    /// The answer of a member to a question.
    pub(crate) fn answer(
        &mut self,
        now_ms: u64,
        member: u64,
        request: &Request,
    ) -> Result<Bytes, Error> {
        match request {
            Request::Range(range) => {
                let found = self.range(range)?;
                return Ok(message(|it| self.put_ranged(it, member, &found)));
            }
            Request::Txn(txn) => return self.decide(member, txn),
            Request::Grant(ttl_s) => {
                self.next_lease += 1;
                let (id, ttl_s) = (self.next_lease, (*ttl_s).max(2));
                let ends_ms = now_ms + ttl_s as u64 * 1000;
                self.leases.insert(id, Lease { ttl_s, ends_ms });
                return Ok(self.told_lease(member, id, ttl_s));
            }
            Request::Put(put) => {
                self.check_lease(put)?;
                self.revision += 1;
                self.apply_put(put);
            }
            Request::Delete(span) => {
                self.revision += 1;
                if self.apply_delete(span) == 0 {
                    self.revision -= 1;
                }
            }
            Request::Revoke(id) => {
                if !self.leases.contains_key(id) {
                    return Err(lease_not_found());
                }
                self.end_lease(*id);
            }
        }
        Ok(message(|it| it.message(1, |it| self.put_header(it, member))))
    }

    /// Gives a lease its whole time again.
    pub(crate) fn keep_alive(&mut self, now_ms: u64, id: i64) -> Bytes {
        let ttl_s = self.leases.get_mut(&id).map_or(0, |lease| {
            lease.ends_ms = now_ms + lease.ttl_s as u64 * 1000;
            lease.ttl_s
        });
        self.told_lease(1, id, ttl_s)
    }

    fn told_lease(&self, member: u64, id: i64, ttl_s: i64) -> Bytes {
        message(|it| {
            it.message(1, |it| self.put_header(it, member));
            it.int(2, id);
            it.int(3, ttl_s);
        })
    }

    fn decide(&mut self, member: u64, txn: &Txn) -> Result<Bytes, Error> {
        check_count(txn, OPS_MAX)?;
        check_steps(&flat(&txn.then))?;
        check_steps(&flat(&txn.or_else))?;
        self.check_leases(txn)?;
        let before = self.revision;
        self.revision += 1;
        let (decided, has_written) = self.apply(txn)?;
        if !has_written {
            self.revision = before;
        }
        Ok(message(|it| self.put_decided(it, member, &decided)))
    }

    /// The steps that are to be done, and whether those of `then`.
    fn steps<'a>(&self, txn: &'a Txn) -> (&'a [Op], bool) {
        let held = txn.when.iter().all(|compare| self.holds(compare));
        (if held { &txn.then } else { &txn.or_else }, held)
    }

    fn check_leases(&self, txn: &Txn) -> Result<(), Error> {
        self.steps(txn).0.iter().try_for_each(|step| match step {
            Op::Put(put) => self.check_lease(put),
            Op::Txn(txn) => self.check_leases(txn),
            Op::Range(_) | Op::Delete(_) => Ok(()),
        })
    }

    /// Does all of it, and says whether it has written anything.
    fn apply(&mut self, txn: &Txn) -> Result<(Decided, bool), Error> {
        let (steps, held) = self.steps(txn);
        let (mut done, mut has_written) = (Vec::new(), false);
        for step in steps {
            done.push(match step {
                Op::Range(range) => Done::Found(self.range(range)?),
                Op::Put(put) => {
                    has_written = true;
                    self.apply_put(put);
                    Done::Written
                }
                Op::Delete(span) => {
                    has_written |= self.apply_delete(span) > 0;
                    Done::Written
                }
                Op::Txn(txn) => {
                    let (decided, has) = self.apply(txn)?;
                    has_written |= has;
                    Done::Decided(decided)
                }
            });
        }
        Ok((Decided { held, done }, has_written))
    }

    fn put_decided(&self, writer: &mut Writer, member: u64, decided: &Decided) {
        writer.message(1, |it| self.put_header(it, member));
        writer.boolean(2, decided.held);
        for done in &decided.done {
            writer.message(3, |it| match done {
                Done::Found(found) => it.message(1, |it| self.put_ranged(it, member, found)),
                Done::Written => it.message(2, |_| {}),
                Done::Decided(decided) => it.message(4, |it| self.put_decided(it, member, decided)),
            });
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = self.keys.get(&compare.key);
        let number = |of: fn(&Entry) -> i64| entry.map_or(0, of);
        let found = match compare.of {
            0 => number(|it| it.version),
            1 => number(|it| it.created),
            2 => number(|it| it.modified),
            4 => number(|it| it.lease),
            other => panic!("nobody compares {other}"),
        };
        found == compare.is
    }

    fn check_lease(&self, put: &Put) -> Result<(), Error> {
        let is_there = put.lease == 0 || self.leases.contains_key(&put.lease);
        if is_there { Ok(()) } else { Err(lease_not_found()) }
    }

    fn apply_put(&mut self, put: &Put) {
        let revision = self.revision;
        let entry = self.keys.entry(put.key.clone()).or_default();
        if entry.version == 0 {
            entry.created = revision;
        }
        entry.version += 1;
        entry.modified = revision;
        entry.value.clone_from(&put.value);
        entry.lease = put.lease;
        let entry = Some(entry.clone());
        self.history.push(Change { key: put.key.clone(), entry, revision });
    }

    fn apply_delete(&mut self, span: &Span) -> usize {
        let keys: Vec<_> = if span.end.is_empty() {
            self.keys.contains_key(&span.key).then(|| span.key.clone()).into_iter().collect()
        } else {
            self.keys.keys().filter(|key| span.has(key)).cloned().collect()
        };
        for key in &keys {
            self.keys.remove(key);
            self.history.push(Change { key: key.clone(), entry: None, revision: self.revision });
        }
        keys.len()
    }

    fn range(&self, range: &Range) -> Result<Found, Error> {
        let revision = if range.revision == 0 { self.revision } else { range.revision };
        if revision < self.compacted {
            let why = "etcdserver: mvcc: required revision has been compacted";
            return Err(Error::status(Code::OUT_OF_RANGE, why));
        }
        if revision > self.revision {
            let why = "etcdserver: mvcc: required revision is a future revision";
            return Err(Error::status(Code::OUT_OF_RANGE, why));
        }
        let all = self.keys_at(&range.span, revision);
        let count = all.len();
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let taken = if range.count_only { 0 } else { limit };
        let kvs: Vec<_> = all.into_iter().take(taken).collect();
        let more = !range.count_only && count > kvs.len();
        Ok(Found { kvs, more, count })
    }

    /// What stood there at a revision that is not compacted.
    fn keys_at(&self, span: &Span, revision: i64) -> Vec<(Vec<u8>, Entry)> {
        let own = |(key, entry): (&Vec<u8>, &Entry)| (key.clone(), entry.clone());
        if span.end.is_empty() {
            return self.keys.get_key_value(&span.key).map(own).into_iter().collect();
        }
        let now = self.keys.range(span.key.clone()..).take_while(|(key, _)| span.has(key));
        let mut keys: BTreeMap<_, _> = now.map(own).collect();
        for change in self.history.iter().rev().take_while(|it| it.revision > revision) {
            if span.has(&change.key) {
                self.undo(&mut keys, change);
            }
        }
        keys.into_iter().collect()
    }

    /// A key as it was before a change, as far as that is remembered; it was nowhere else.
    fn undo(&self, keys: &mut BTreeMap<Vec<u8>, Entry>, change: &Change) {
        let earlier = |it: &&Change| it.key == change.key && it.revision < change.revision;
        match self.history.iter().rev().find(earlier).map(|it| &it.entry) {
            Some(Some(entry)) => drop(keys.insert(change.key.clone(), entry.clone())),
            _ => drop(keys.remove(&change.key)),
        }
    }

    /// What a watch is told that begins.
    pub(crate) fn created(&self, member: u64) -> Bytes {
        message(|it| {
            it.message(1, |it| self.put_header(it, member));
            it.boolean(3, true);
        })
    }

    /// The answer to a question for progress.
    pub(crate) fn progress(&self, member: u64) -> Bytes {
        message(|it| {
            it.message(1, |it| self.put_header(it, member));
            it.int(2, -1);
        })
    }

    /// What a watch of these keys is told of all that has happened since.
    pub(crate) fn watched(&self, member: u64, span: &Span, from: i64) -> Option<Bytes> {
        if from <= self.compacted {
            return Some(message(|it| {
                it.message(1, |it| self.put_header(it, member));
                it.boolean(4, true);
                it.int(5, self.compacted);
            }));
        }
        let is_told = |it: &&Change| span.has(&it.key);
        let since = self.history.iter().rev().take_while(|it| it.revision >= from);
        let mut told: Vec<_> = since.filter(is_told).collect();
        told.reverse();
        if told.is_empty() {
            return None;
        }
        Some(message(|it| {
            it.message(1, |it| self.put_header(it, member));
            for change in told {
                it.message(11, |it| put_change(it, change));
            }
        }))
    }

    fn put_header(&self, writer: &mut Writer, member: u64) {
        writer.uint(1, self.cluster_id);
        writer.uint(2, member);
        writer.int(3, self.revision);
        writer.uint(4, self.raft_term);
    }

    fn put_ranged(&self, writer: &mut Writer, member: u64, found: &Found) {
        writer.message(1, |it| self.put_header(it, member));
        for (key, entry) in &found.kvs {
            writer.message(2, |it| put_entry(it, key, entry));
        }
        writer.boolean(3, found.more);
        writer.int(4, found.count as i64);
    }
}

/// What a range has found.
struct Found {
    kvs: Vec<(Vec<u8>, Entry)>,
    more: bool,
    count: usize,
}

/// How a transaction went.
struct Decided {
    held: bool,
    done: Vec<Done>,
}

/// What one step has done.
enum Done {
    Found(Found),
    Written,
    Decided(Decided),
}

fn put_entry(writer: &mut Writer, key: &[u8], entry: &Entry) {
    writer.bytes(1, key);
    writer.int(2, entry.created);
    writer.int(3, entry.modified);
    writer.int(4, entry.version);
    writer.bytes(5, &entry.value);
    writer.int(6, entry.lease);
}

fn put_change(writer: &mut Writer, change: &Change) {
    match &change.entry {
        Some(entry) => writer.message(2, |it| put_entry(it, &change.key, entry)),
        None => {
            writer.uint(1, 1);
            let gone = Entry { modified: change.revision, ..Entry::default() };
            writer.message(2, |it| put_entry(it, &change.key, &gone));
        }
    }
}

/// etcd refuses a transaction with too many steps, one within another behind that one's.
fn check_count(txn: &Txn, ops_max: usize) -> Result<(), Error> {
    let count = txn.when.len().max(txn.then.len()).max(txn.or_else.len());
    let Some(left) = ops_max.checked_sub(count) else {
        return Err(absurd("too many operations in txn request"));
    };
    txn.then.iter().chain(&txn.or_else).try_for_each(|step| match step {
        Op::Txn(txn) => check_count(txn, left),
        _ => Ok(()),
    })
}

/// With those of transactions within.
fn flat<'a>(steps: &'a [Op]) -> Vec<&'a Op> {
    let within = |step: &'a Op| if let Op::Txn(txn) = step { flat(&txn.then) } else { vec![step] };
    steps.iter().flat_map(within).collect()
}

/// etcd refuses a transaction that writes a key twice.
fn check_steps(steps: &[&Op]) -> Result<(), Error> {
    let put = |step: &Op| if let Op::Put(put) = step { Some(put.key.clone()) } else { None };
    let puts: Vec<_> = steps.iter().copied().filter_map(put).collect();
    let deletes = |step: &Op, key: &[u8]| matches!(step, Op::Delete(span) if span.has(key));
    let is_twice = |at: usize| puts[..at].contains(&puts[at]);
    let is_deleted = |key: &Vec<u8>| steps.iter().any(|step| deletes(step, key));
    if (0..puts.len()).any(is_twice) || puts.iter().any(is_deleted) {
        return Err(absurd("duplicate key given in txn request"));
    }
    Ok(())
}

fn absurd(why: &str) -> Error {
    Error::status(Code::INVALID_ARGUMENT, &format!("etcdserver: {why}"))
}

fn lease_not_found() -> Error {
    Error::status(Code::NOT_FOUND, "etcdserver: requested lease not found")
}

/// As etcd is configured unless it is told otherwise.
const OPS_MAX: usize = 128;
