//! Writes: puts, deletes, and transactions, which are "if all of this is so, do that, else the
//! other". All that must be decided by one of several processes is decided by one of these.

use bytes::Bytes;

use super::error::Error;
use super::kv::{Header, KeyValue, Range, Ranged};
use super::wire::{Reader, Writer};

/// Writes one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Put {
    /// Where.
    pub key: Bytes,
    /// What.
    pub value: Bytes,
    /// With which lease it ends; 0 for none.
    pub lease: i64,
}

impl Put {
    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.bytes(1, &self.key);
        writer.bytes(2, &self.value);
        writer.int(3, self.lease);
    }
}

/// Removes a key, or all up to `end`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// The first key.
    pub key: Bytes,
    /// The first key behind; empty for one key.
    pub end: Bytes,
}

impl Delete {
    pub(crate) fn encode(&self, writer: &mut Writer) {
        writer.bytes(1, &self.key);
        writer.bytes(2, &self.end);
    }
}

/// What has to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// There is no such key.
    Absent(Bytes),
    /// The key ends with this lease.
    Lease(Bytes, i64),
    /// The key was last changed at this revision.
    Unchanged(Bytes, i64),
}

impl Compare {
    fn encode(&self, writer: &mut Writer) {
        // Field 1, the kind of comparison, stays at its default: equal.
        let (key, target, field, value) = match self {
            Self::Absent(key) => (key, TARGET_CREATE, 5, 0),
            Self::Unchanged(key, revision) => (key, TARGET_MOD, 6, *revision),
            Self::Lease(key, lease) => (key, TARGET_LEASE, 8, *lease),
        };
        writer.uint(2, target);
        writer.bytes(3, key);
        writer.int(field, value);
    }
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads.
    Range(Range),
    /// Writes.
    Put(Put),
    /// Removes.
    Delete(Delete),
    /// Is decided by itself.
    Txn(Txn),
}

impl Op {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Range(range) => writer.message(1, |it| range.encode(it)),
            Self::Put(put) => writer.message(2, |it| put.encode(it)),
            Self::Delete(delete) => writer.message(3, |it| delete.encode(it)),
            Self::Txn(txn) => writer.message(4, |it| txn.put(it)),
        }
    }
}

/// If all comparisons hold, `then`, and `or_else` otherwise, at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// What has to be so.
    pub when: Vec<Compare>,
    /// What is done then.
    pub then: Vec<Op>,
    /// What is done otherwise.
    pub or_else: Vec<Op>,
}

impl Txn {
    /// The key's lease says who owns it: creates it if it is absent, and otherwise reads it.
    pub fn claim(put: Put) -> Self {
        let key = put.key.clone();
        Self {
            when: vec![Compare::Absent(key.clone())],
            then: vec![Op::Put(put)],
            or_else: vec![Op::Range(Range::one(key))],
        }
    }

    /// Removes a key unless somebody has changed it since this revision.
    pub fn remove(key: Bytes, revision: i64) -> Self {
        let when = vec![Compare::Unchanged(key.clone(), revision)];
        let then = vec![Op::Delete(Delete { key, end: Bytes::new() })];
        Self { when, then, or_else: Vec::new() }
    }

    /// All of these at one revision, each decided by itself: at most [`AT_A_TIME`], which have no
    /// key in common.
    pub fn each(txns: impl IntoIterator<Item = Self>) -> Self {
        Self { then: txns.into_iter().map(Op::Txn).collect(), ..Self::default() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.put(&mut writer);
        writer.into_bytes()
    }

    fn put(&self, writer: &mut Writer) {
        for compare in &self.when {
            writer.message(1, |it| compare.encode(it));
        }
        for op in &self.then {
            writer.message(2, |it| op.encode(it));
        }
        for op in &self.or_else {
            writer.message(3, |it| op.encode(it));
        }
    }
}

/// How a transaction went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// Who has answered, and when.
    pub header: Header,
    /// Whether the comparisons held.
    pub held: bool,
    /// What the ranges have found, all of them in one list.
    pub found: Vec<KeyValue>,
    /// How each went that was decided by itself. They have no header.
    pub each: Vec<Self>,
}

impl Decided {
    /// Reads an answer.
    pub fn decode(message: &Bytes) -> Result<Self, Error> {
        Self::decode_within(message, message, true)
    }

    /// `is_outer`: none that we ask for has one that has others within.
    fn decode_within(whole: &Bytes, message: &[u8], is_outer: bool) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut decided = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => decided.header = Header::decode(value.bytes()?)?,
                2 => decided.held = value.boolean()?,
                3 => decided.take_step(whole, value.bytes()?, is_outer)?,
                _ => {}
            }
        }
        Ok(decided)
    }

    /// What has come of one step.
    fn take_step(&mut self, whole: &Bytes, step: &[u8], is_outer: bool) -> Result<(), Error> {
        let mut reader = Reader::new(step);
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => self.found.extend(Ranged::decode_within(whole, value.bytes()?)?.kvs),
                4 if is_outer => {
                    self.each.push(Self::decode_within(whole, value.bytes()?, false)?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the comparisons of all held.
    pub fn have_all_held(&self) -> bool {
        self.held && self.each.iter().all(|it| it.held)
    }
}

const TARGET_CREATE: u64 = 1;
const TARGET_MOD: u64 = 2;
const TARGET_LEASE: u64 = 4;
/// etcd takes 128 steps, those of a transaction within another one behind that one's.
pub const AT_A_TIME: usize = 100;
