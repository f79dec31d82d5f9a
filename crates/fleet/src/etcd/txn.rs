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
}

impl Op {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Range(range) => writer.message(1, |it| range.encode(it)),
            Self::Put(put) => writer.message(2, |it| put.encode(it)),
            Self::Delete(delete) => writer.message(3, |it| delete.encode(it)),
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

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        for compare in &self.when {
            writer.message(1, |it| compare.encode(it));
        }
        for op in &self.then {
            writer.message(2, |it| op.encode(it));
        }
        for op in &self.or_else {
            writer.message(3, |it| op.encode(it));
        }
        writer.into_bytes()
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
}

impl Decided {
    /// Reads an answer.
    pub fn decode(message: &Bytes) -> Result<Self, Error> {
        let mut reader = Reader::new(message);
        let mut decided = Self::default();
        while let Some((number, value)) = reader.next_field()? {
            match number {
                1 => decided.header = Header::decode(value.bytes()?)?,
                2 => decided.held = value.boolean()?,
                3 => decided.found.extend(found_by(message, value.bytes()?)?),
                _ => {}
            }
        }
        Ok(decided)
    }
}

/// What one step has found: nothing, unless it was a range.
fn found_by(whole: &Bytes, step: &[u8]) -> Result<Vec<KeyValue>, Error> {
    let mut reader = Reader::new(step);
    let mut found = Vec::new();
    while let Some((number, value)) = reader.next_field()? {
        if number == 1 {
            found.extend(Ranged::decode_within(whole, value.bytes()?)?.kvs);
        }
    }
    Ok(found)
}

const TARGET_CREATE: u64 = 1;
const TARGET_MOD: u64 = 2;
const TARGET_LEASE: u64 = 4;
