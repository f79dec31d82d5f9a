//! A list on its way in: page by page, all of them as of one revision, none of it believed yet.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::face::Options;
use super::truth::{Entry, Truth};
use crate::etcd::kv::{Header, Range, Ranged, end_of_prefix, key_after};
use crate::keyspace::Class;

/// A list that is being read, page by page, at one revision.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// The first page's: the list is as of its revision.
    header: Option<Header>,
    entries: BTreeMap<Bytes, Entry>,
    bytes: usize,
    /// The last key that was told.
    last: Option<Bytes>,
    /// Bans that are copied, their bytes, and those for which there is no room.
    bans: usize,
    ban_bytes: usize,
    left_out: usize,
    /// There is more besides bans than may be copied: only they are read on.
    is_of_bans: bool,
}

/// What was listed.
#[derive(Debug)]
pub(super) struct Listed {
    /// All of it, or only its bans.
    pub(super) truth: Truth,
    /// Bans for which there was no room.
    pub(super) left_out: usize,
    /// There is more besides bans than may be copied.
    pub(super) is_of_bans: bool,
}

impl Staging {
    /// What to ask for next. All pages are as of the first one's revision.
    pub(super) fn next_page(&self, options: &Options) -> Range {
        let part = if self.is_of_bans { options.bans() } else { options.prefix.clone() };
        let last = self.last.as_ref().filter(|last| **last > part);
        Range {
            end: end_of_prefix(&part),
            key: last.map_or(part, |key| key_after(key)),
            limit: options.page_keys,
            revision: self.header.map_or(0, |header| header.revision),
            count_only: false,
        }
    }

    /// Adds a page, or says what is wrong with it.
    pub(super) fn add(&mut self, options: &Options, page: &Ranged) -> Result<(), &'static str> {
        let header = *self.header.get_or_insert(page.header);
        if page.header.cluster_id != header.cluster_id || page.header.revision < header.revision {
            return Err("the cluster changed while it was listed");
        }
        if page.more && page.kvs.is_empty() {
            return Err("a page is empty and not the last");
        }
        for kv in &page.kvs {
            let is_next = self.last.as_ref().is_none_or(|last| kv.key > *last);
            if !kv.key.starts_with(&options.prefix) || !is_next {
                return Err("a page holds keys that were not asked for");
            }
            let key = Bytes::copy_from_slice(&kv.key);
            self.last = Some(key.clone());
            let bytes = kv.key.len() + kv.value.len();
            if Class::of(&key) == Some(Class::Bans) {
                if !options.has_room_for_ban(self.bans, self.ban_bytes + bytes) {
                    self.left_out += 1;
                    continue;
                }
                self.bans += 1;
                self.ban_bytes += bytes;
            } else if self.is_of_bans {
                continue;
            } else {
                self.bytes += bytes;
            }
            self.entries.insert(key, Entry::of(kv));
        }
        let others = self.entries.len() - self.bans;
        if others > options.keys_max || self.bytes > options.bytes_max {
            self.is_of_bans = true;
            self.bytes = 0;
            self.entries.retain(|key, _| Class::of(key) == Some(Class::Bans));
        }
        Ok(())
    }

    /// Whether nothing is to be asked for any more, after a page behind which there are others.
    pub(super) fn is_whole(&self, options: &Options) -> bool {
        let end = end_of_prefix(&options.bans());
        self.is_of_bans && self.last.as_ref().is_some_and(|last| *last >= end)
    }

    /// What was listed.
    pub(super) fn into_listed(self) -> Listed {
        let header = self.header.unwrap_or_default();
        let truth = Truth {
            cluster_id: header.cluster_id,
            revision: header.revision,
            raft_term: header.raft_term,
            entries: self.entries,
            ..Truth::default()
        };
        Listed { truth, left_out: self.left_out, is_of_bans: self.is_of_bans }
    }
}
