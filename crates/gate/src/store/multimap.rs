//! A bounded number of small records, found by hash: what the claims are kept in.
//!
//! Everything is reserved at the start and nothing is moved or rehashed later, so a lock over a
//! multimap is held for a few cache misses at a time. The index is seven eighths full at most: a
//! record is found after four or five adjacent cells, and that there is none is known after thirty.
//! That would cost a packet much, but costs a handshake little, and it takes half the memory of a
//! map.

use crate::ids::Id;
use crate::store::entry::Entry;
use crate::store::index::Index;

/// A record that can stand at an entry which is not in use, and then names another such entry.
pub(crate) trait Record: Copy {
    /// Makes it a record that is not in use, and names the next of those.
    fn vacate(&mut self, next: u32);

    /// What [`vacate`](Self::vacate) has named.
    fn next_vacant(&self) -> u32;
}

/// A bounded multimap of `T` by hash. Records with equal keys may lie in it side by side.
pub(crate) struct Multimap<T> {
    index: Index,
    records: Vec<T>,
    /// How many records are not in use. Invariant: `vacant` is the first of them, and each names
    /// the next.
    vacant_count: usize,
    vacant: u32,
    capacity: usize,
}

impl<T: Record> Multimap<T> {
    /// One for so many records.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            index: Index::new(capacity * 8 / 7 + 1),
            records: Vec::with_capacity(capacity),
            vacant_count: 0,
            vacant: 0,
            capacity,
        }
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len() - self.vacant_count
    }

    /// Whether there is no room for another.
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Where the first record lies with that hash that `is_it`.
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(&T) -> bool) -> Option<Entry<T>> {
        let found = self.index.find(hash, |number| is_it(&self.records[number as usize]));
        found.map(Entry::numbered)
    }

    /// Adds a record; `None` when it is full.
    pub(crate) fn insert(&mut self, hash: u32, record: T) -> Option<Entry<T>> {
        if self.is_full() {
            return None;
        }
        let entry = if self.vacant_count > 0 {
            let entry = Entry::numbered(self.vacant);
            let place = &mut self.records[entry.index()];
            self.vacant = place.next_vacant();
            self.vacant_count -= 1;
            *place = record;
            entry
        } else {
            self.records.push(record);
            Entry::at(self.records.len() - 1)
        };
        self.index.insert(hash, entry.number());
        Some(entry)
    }

    /// Takes a record out that was found.
    pub(crate) fn remove(&mut self, hash: u32, entry: Entry<T>) -> T {
        self.index.remove(hash, entry.number());
        let place = &mut self.records[entry.index()];
        let removed = *place;
        place.vacate(self.vacant);
        self.vacant = entry.number();
        self.vacant_count += 1;
        removed
    }

    /// The record of an entry that was found.
    pub(crate) fn at(&self, entry: Entry<T>) -> &T {
        &self.records[entry.index()]
    }

    /// The record of an entry that was found.
    pub(crate) fn at_mut(&mut self, entry: Entry<T>) -> &mut T {
        &mut self.records[entry.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    impl Record for u32 {
        fn vacate(&mut self, next: u32) {
            *self = next;
        }

        fn next_vacant(&self) -> u32 {
            *self
        }
    }

    fn hash(n: u32) -> u32 {
        n.wrapping_mul(0x9e37_79b9)
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(steps in prop::collection::vec(0u32..40, 1..400)) {
            let mut map = Multimap::new(24);
            let mut model: HashMap<u32, Entry<u32>> = HashMap::new();
            for n in steps {
                match model.remove(&n) {
                    Some(position) => prop_assert_eq!(map.remove(hash(n), position), n),
                    None => match map.insert(hash(n), n) {
                        Some(position) => { model.insert(n, position); }
                        None => prop_assert_eq!(model.len(), 24),
                    },
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert_eq!(map.is_full(), model.len() == 24);
                for n in 0..40 {
                    let found = map.find(hash(n), |record| *record == n);
                    prop_assert_eq!(found, model.get(&n).copied());
                    prop_assert_eq!(found.map(|position| *map.at(position)), found.map(|_| n));
                }
            }
        }
    }
}
