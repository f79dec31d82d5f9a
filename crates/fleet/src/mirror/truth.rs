//! What is known: the keys below one prefix, and as of when.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::etcd::kv::{Header, KeyValue};
use crate::keyspace::Class;

/// What stands at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value, in memory of its own: it must not keep the answer alive that brought it.
    pub value: Bytes,
    /// The revision that last changed it.
    pub mod_revision: i64,
    /// How often it was written since it was created.
    pub version: i64,
    /// The lease with which it ends; 0 for none.
    pub lease: i64,
}

impl Entry {
    pub(crate) fn of(kv: &KeyValue) -> Self {
        let value = Bytes::copy_from_slice(&kv.value);
        let KeyValue { mod_revision, version, lease, .. } = *kv;
        Self { value, mod_revision, version, lease }
    }
}

/// Something that has become otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which key.
    pub key: Bytes,
    /// What stands there now; `None` if it is gone.
    pub value: Option<Bytes>,
    /// The revision that has made it so; `None` where a list was compared, in which it may have
    /// been so for long.
    pub revision: Option<i64>,
}

/// All keys, and the revision at which they were so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// Which cluster told it; 0 while nothing is known.
    pub cluster_id: u64,
    /// Everything up to here is in.
    pub revision: i64,
    /// The newest election that was seen.
    pub raft_term: u64,
    /// The newest word that the fleet's key has vouched for, of each kind.
    pub newest: [u64; KINDS],
    /// What stands where.
    pub entries: BTreeMap<Bytes, Entry>,
}

impl Truth {
    /// Whether anything was ever told.
    pub const fn is_known(&self) -> bool {
        self.cluster_id != 0
    }

    /// Bytes of all keys and values but bans, and of bans.
    pub(super) fn bytes(&self) -> [usize; 2] {
        let mut bytes = [0; 2];
        for (key, entry) in &self.entries {
            let is_ban = Class::of(key) == Some(Class::Bans);
            bytes[usize::from(is_ban)] += key.len() + entry.value.len();
        }
        bytes
    }

    /// Which history this is, and up to where.
    pub const fn header(&self) -> Header {
        let (cluster_id, revision, raft_term) = (self.cluster_id, self.revision, self.raft_term);
        Header { cluster_id, member_id: 0, revision, raft_term }
    }

    /// Becomes `next`, and says what that changes. What was the newest word stays that.
    pub(super) fn replace(&mut self, mut next: Self) -> Vec<Change> {
        next.newest = self.newest;
        let mut changes = Vec::new();
        for key in self.entries.keys().filter(|key| !next.entries.contains_key(*key)) {
            changes.push(Change { key: key.clone(), value: None, revision: None });
        }
        for (key, entry) in &next.entries {
            if self.entries.get(key).is_none_or(|had| had.value != entry.value) {
                let value = Some(entry.value.clone());
                changes.push(Change { key: key.clone(), value, revision: None });
            }
        }
        *self = next;
        changes
    }
}

/// Of words, the kind of an operator's: behind the classes.
pub(super) const CONFIRM_KIND: usize = Class::ALL.len();
/// Kinds of words that are counted.
pub const KINDS: usize = CONFIRM_KIND + 1;
