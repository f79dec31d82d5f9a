//! A list on its way in: page by page, all of them as of one revision, none of it believed yet.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::face::Options;
use super::truth::{Entry, Truth};
use crate::etcd::kv::{Header, Range, Ranged, end_of_prefix, key_after};

/// A list that is being read, page by page, at one revision.
#[derive(Debug, Default)]
pub(super) struct Staging {
    /// The first page's: the list is as of its revision.
    header: Option<Header>,
    entries: BTreeMap<Bytes, Entry>,
    bytes: usize,
}

impl Staging {
    /// What to ask for next. All pages are as of the first one's revision.
    pub(super) fn next_page(&self, options: &Options) -> Range {
        let last = self.entries.last_key_value();
        Range {
            key: last.map_or_else(|| options.prefix.clone(), |(key, _)| key_after(key)),
            end: end_of_prefix(&options.prefix),
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
            let last = self.entries.last_key_value().map_or(&[][..], |(key, _)| key);
            if !kv.key.starts_with(&options.prefix) || kv.key <= last {
                return Err("a page holds keys that were not asked for");
            }
            self.bytes += kv.key.len() + kv.value.len();
            self.entries.insert(Bytes::copy_from_slice(&kv.key), Entry::of(kv));
        }
        if self.entries.len() > options.keys_max || self.bytes > options.bytes_max {
            return Err("there are more keys than this mirror may copy");
        }
        Ok(())
    }

    pub(super) fn into_truth(self) -> Truth {
        let header = self.header.unwrap_or_default();
        Truth {
            cluster_id: header.cluster_id,
            revision: header.revision,
            raft_term: header.raft_term,
            entries: self.entries,
        }
    }
}
