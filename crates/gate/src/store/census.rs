//! How many there are of something in each block or address: exact counts in bounded memory.
//!
//! An area is remembered while it has at least one, so a census needs no more room than there are
//! things to be counted. Areas are found by a keyed hash, so that an attacker who chooses addresses
//! cannot make them collide.

use crate::store::area::Area;
use crate::store::entry::Entry;
use crate::store::hash::HashKey;
use crate::store::multimap::{Multimap, Record};

pub(crate) struct Census {
    key: HashKey,
    counts: Multimap<Count>,
}

/// The count of an area, in two words.
#[derive(Clone, Copy)]
struct Count {
    prefix: u64,
    tag: u32,
    /// Invariant: at least 1 in a record that is in use.
    things: u32,
}

const _: () = assert!(size_of::<Count>() == 16);

impl Record for Count {
    fn vacate(&mut self, next: u32) {
        self.things = next;
    }

    fn next_vacant(&self) -> u32 {
        self.things
    }
}

impl Census {
    /// A census of at most `counted_max` things, each in one area.
    pub(crate) fn new(counted_max: usize, key: HashKey) -> Self {
        Self { key, counts: Multimap::new(counted_max) }
    }

    /// How many an area has.
    pub(crate) fn of(&self, area: &Area) -> u32 {
        self.find(area).1.map_or(0, |position| self.counts.at(position).things)
    }

    /// One more.
    pub(crate) fn enter(&mut self, area: &Area) {
        let (hash, found) = self.find(area);
        match found {
            Some(position) => self.counts.at_mut(position).things += 1,
            None => {
                let fresh = Count { prefix: area.prefix, tag: area.tag, things: 1 };
                let inserted = self.counts.insert(hash, fresh);
                debug_assert!(inserted.is_some(), "there are no more areas than counted things");
            }
        }
    }

    /// One less.
    pub(crate) fn leave(&mut self, area: &Area) {
        let (hash, found) = self.find(area);
        let Some(position) = found else {
            debug_assert!(false, "who leaves has entered");
            return;
        };
        let known = self.counts.at_mut(position);
        known.things -= 1;
        if known.things == 0 {
            self.counts.remove(hash, position);
        }
    }

    fn find(&self, area: &Area) -> (u32, Option<Entry<Count>>) {
        let hash = area.hash(self.key) as u32;
        let is_it = |known: &Count| known.prefix == area.prefix && known.tag == area.tag;
        (hash, self.counts.find(hash, is_it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ListenerId;
    use proptest::prelude::*;
    use ringgate_batch::Endpoint;
    use std::collections::HashMap;

    fn area(n: u8) -> Area {
        Area::address(ListenerId(0), &Endpoint::v4([192, 0, 2, n], 1))
    }

    proptest! {
        #[test]
        fn agrees_with_a_hash_map(steps in prop::collection::vec((0u8..9, any::<bool>()), 1..300)) {
            let mut census = Census::new(40, HashKey::new([1, 2]));
            let mut model: HashMap<u8, u32> = HashMap::new();
            for (n, enters) in steps {
                let total: u32 = model.values().sum();
                let count = model.entry(n).or_default();
                if enters && total < 40 {
                    census.enter(&area(n));
                    *count += 1;
                } else if *count > 0 {
                    census.leave(&area(n));
                    *count -= 1;
                }
                for n in 0..9 {
                    prop_assert_eq!(census.of(&area(n)), model.get(&n).copied().unwrap_or(0));
                }
                let alive = model.values().filter(|count| **count > 0).count();
                prop_assert_eq!(census.counts.len(), alive, "nobody is remembered for nothing");
            }
        }
    }
}
