//! A store that keeps its whole history and answers as etcd does: ranges at a revision, watches
//! from a revision, `compacted`.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::super::truth::Entry;
use super::PREFIX;
use crate::etcd::kv::{Header, KeyValue, Range, Ranged};
use crate::etcd::watch::{Event, Watched};
use crate::etcd::{Code, Error};

#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) cluster_id: u64,
    pub(super) raft_term: u64,
    pub(super) revision: i64,
    compacted: i64,
    history: Vec<Event>,
    versions: BTreeMap<Bytes, i64>,
}

impl Store {
    pub(super) fn new(cluster_id: u64) -> Self {
        Self {
            cluster_id,
            raft_term: 2,
            revision: 1,
            compacted: 0,
            history: Vec::new(),
            versions: BTreeMap::new(),
        }
    }

    pub(super) fn put(&mut self, key: &[u8], value: &str) {
        self.write(&[(key, Some(value))]);
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.write(&[(key, None)]);
    }

    /// Writes a key that ends with a lease.
    pub(super) fn put_under(&mut self, lease: i64, key: &[u8], value: &str) {
        self.write(&[(key, Some(value))]);
        if let Some(event) = self.history.last_mut() {
            event.kv.lease = lease;
        }
    }

    /// A lease ends, and all that stands under it, at one revision.
    pub(super) fn revoke(&mut self, lease: i64) {
        let entries = self.entries();
        let ends = entries.iter().filter(|(_, entry)| entry.lease == lease);
        let steps: Vec<(&[u8], _)> = ends.map(|(key, _)| (&**key, None)).collect();
        self.write(&steps);
    }

    /// A transaction: all of it at one revision.
    pub(super) fn write(&mut self, steps: &[(&[u8], Option<&str>)]) {
        self.revision += 1;
        for (key, value) in steps {
            let value = value.map(|value| Bytes::copy_from_slice(value.as_bytes()));
            let kv = KeyValue {
                key: Bytes::copy_from_slice(key),
                mod_revision: self.revision,
                ..KeyValue::default()
            };
            let is_delete = value.is_none();
            let version = self.versions.entry(kv.key.clone()).or_default();
            if is_delete && *version == 0 {
                // There is nothing to delete, so nothing happens.
                continue;
            }
            *version = if is_delete { 0 } else { *version + 1 };
            let kv = KeyValue { value: value.unwrap_or_default(), version: *version, ..kv };
            self.history.push(Event { is_delete, kv });
        }
    }

    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
    }

    pub(super) fn header(&self) -> Header {
        let Self { cluster_id, raft_term, revision, .. } = *self;
        Header { cluster_id, member_id: 1, revision, raft_term }
    }

    /// What stood below the prefix at a revision.
    pub(super) fn entries_at(&self, revision: i64) -> BTreeMap<Bytes, Entry> {
        let mut entries = BTreeMap::new();
        for event in self.history.iter().filter(|event| event.kv.mod_revision <= revision) {
            if !event.kv.key.starts_with(PREFIX.as_bytes()) {
                continue;
            }
            if event.is_delete {
                entries.remove(&event.kv.key);
            } else {
                entries.insert(event.kv.key.clone(), Entry::of(&event.kv));
            }
        }
        entries
    }

    pub(super) fn entries(&self) -> BTreeMap<Bytes, Entry> {
        self.entries_at(self.revision)
    }

    pub(super) fn range(&self, range: &Range) -> Result<Ranged, Error> {
        let revision = if range.revision == 0 { self.revision } else { range.revision };
        if revision < self.compacted {
            let message = "etcdserver: mvcc: required revision has been compacted";
            return Err(Error::status(Code::OUT_OF_RANGE, message));
        }
        if revision > self.revision {
            let message = "etcdserver: mvcc: required revision is a future revision";
            return Err(Error::status(Code::OUT_OF_RANGE, message));
        }
        let entries = self.entries_at(revision);
        let within = entries.range(range.key.clone()..range.end.clone());
        let limit = if range.limit == 0 { usize::MAX } else { range.limit as usize };
        let count = within.clone().count();
        let kvs = within.take(if range.count_only { 0 } else { limit }).map(|(key, entry)| {
            let Entry { value, mod_revision, version, lease } = entry.clone();
            KeyValue { key: key.clone(), value, create_revision: 0, mod_revision, version, lease }
        });
        let kvs: Vec<_> = kvs.collect();
        let more = !range.count_only && count > kvs.len();
        Ok(Ranged { header: self.header(), kvs, more, count: count as i64 })
    }

    /// What a watch from this revision is told next: so many revisions at most.
    pub(super) fn watched(&self, from: i64, revisions_max: i64) -> Watched {
        let mut watched = Watched { header: self.header(), ..Watched::default() };
        if from <= self.compacted {
            watched.canceled = true;
            watched.compact_revision = self.compacted;
            return watched;
        }
        let until = from.saturating_add(revisions_max);
        let is_told = |event: &&Event| {
            (from..until).contains(&event.kv.mod_revision)
                && event.kv.key.starts_with(PREFIX.as_bytes())
        };
        watched.events = self.history.iter().filter(is_told).cloned().collect();
        watched
    }
}
