//! What a watch tells, put into the copy: in order, each change once, nothing left out that can be
//! found to be missing.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::truth::{Change, Entry};
use super::{Machine, TOO_MUCH};
use crate::etcd::watch::Event;
use crate::keyspace::Class;

impl Machine {
    /// Applies what has been told of one or more whole revisions.
    pub(super) fn apply(&mut self, now_ms: u64) {
        let floor = self.truth.revision;
        self.fragment_bytes = 0;
        self.recent.forget_old(now_ms);
        let mut others_went = BTreeSet::new();
        for event in std::mem::take(&mut self.fragments) {
            let revision = event.kv.mod_revision;
            if revision <= floor && !self.is_known_already(&event) {
                return self.relist("the watch told something late");
            }
            if revision <= floor {
                continue;
            }
            if revision < self.truth.revision {
                return self.relist("the watch told revisions out of order");
            }
            if !event.kv.key.starts_with(&self.options.prefix) {
                return self.relist("the watch told of a key that is not ours");
            }
            if !self.follows(&event) {
                return self.relist("the watch has lost something: a version is missing");
            }
            self.truth.revision = revision;
            self.status.events += 1;
            self.apply_one(now_ms, &event);
            if event.is_delete && Class::of(&event.kv.key) != Some(Class::Bans) {
                others_went.insert(revision);
            }
        }
        // Bans are lifted, and end, by themselves.
        if !others_went.is_empty() {
            let lifted = self.recent.take_bans(&others_went);
            self.put_back(lifted);
        }
        self.judge();
        let others = self.truth.entries.len() - self.held.len() - self.recent.left(Class::Bans);
        if others > self.options.keys_max || self.bytes > self.options.bytes_max {
            // What was deleted or replaced is still counted.
            [self.bytes, self.ban_bytes] = self.truth.bytes();
            self.is_too_much =
                others > self.options.keys_max || self.bytes > self.options.bytes_max;
        }
        if self.is_too_much {
            self.close_watch();
            self.rest(now_ms, TOO_MUCH.into());
        }
    }

    /// Whether an event of the past says what is known. One that does not may have been lost.
    fn is_known_already(&self, event: &Event) -> bool {
        let revision = event.kv.mod_revision;
        match self.truth.entries.get(&event.kv.key) {
            Some(entry) => {
                let held = self.held.get(&event.kv.key).copied();
                held.unwrap_or(entry.mod_revision) >= revision
            }
            None => event.is_delete || self.may_be_left_out(&event.kv.key),
        }
    }

    /// Whether nothing has happened to the key between what is known and this event.
    fn follows(&self, event: &Event) -> bool {
        let key = &event.kv.key;
        let known = self.truth.entries.get(key).filter(|_| !self.held.contains_key(key));
        event.is_delete
            || event.kv.version == known.map_or(0, |entry| entry.version) + 1
            || (known.is_none() && self.may_be_left_out(key))
    }

    fn may_be_left_out(&self, key: &[u8]) -> bool {
        self.status.bans_left_out > 0 && Class::of(key) == Some(Class::Bans)
    }

    fn apply_one(&mut self, now_ms: u64, event: &Event) {
        let class = Class::of(&event.kv.key);
        if event.is_delete {
            return self.take_away(now_ms, class, event);
        }
        let (key, entry) = (Bytes::copy_from_slice(&event.kv.key), Entry::of(&event.kv));
        let bytes = key.len() + entry.value.len();
        let had = self.truth.entries.get(&key);
        if class == Some(Class::Bans) {
            let bans = self.recent.left(Class::Bans);
            if had.is_none() && !self.options.has_room_for_ban(bans, self.ban_bytes + bytes) {
                // An older one that is written again has been left out before.
                self.status.bans_left_out += usize::from(entry.version == 1);
                return;
            }
            self.ban_bytes += bytes;
        } else {
            self.bytes += bytes;
        }
        let is_back = self.held.remove(&key).is_some();
        if let Some(class) = class.filter(|_| is_back || had.is_none()) {
            self.recent.came(now_ms, class, &key);
        }
        let differs = had.is_none_or(|had| had.value != entry.value);
        self.truth.entries.insert(key.clone(), entry.clone());
        if differs {
            let revision = Some(entry.mod_revision);
            let change = Change { key, value: Some(entry.value), revision };
            self.note_words(std::slice::from_ref(&change));
            self.changes.push(change);
        }
    }

    /// A key was deleted. It is known on where much of its kind is missed already.
    fn take_away(&mut self, now_ms: u64, class: Option<Class>, event: &Event) {
        let revision = event.kv.mod_revision;
        let Some(entry) = self.truth.entries.get(&event.kv.key) else {
            if self.may_be_left_out(&event.kv.key) {
                self.status.bans_left_out -= 1;
            }
            return;
        };
        let is_missed = class.is_some_and(Class::is_missed);
        let is_news = is_missed && self.has_taken_leave(&event.kv.key, entry, &self.truth);
        let is_held = is_missed && self.is_lacking(class) && !is_news;
        if let Some(class) = class
            && !self.held.contains_key(&event.kv.key)
        {
            self.recent.went(class);
        }
        if is_held {
            self.held.insert(Bytes::copy_from_slice(&event.kv.key), revision);
            return;
        }
        self.held.remove(&event.kv.key);
        if let Some((key, entry)) = self.truth.entries.remove_entry(&event.kv.key) {
            self.changes.push(Change { key: key.clone(), value: None, revision: Some(revision) });
            if class == Some(Class::Bans) {
                self.ban_bytes = self.ban_bytes.saturating_sub(key.len() + entry.value.len());
            }
            if let Some(class) = class.filter(|_| !is_news) {
                self.recent.remember(now_ms, class, revision, (key, entry));
            }
        }
    }
}
