//! Finds positions by hash: open addressing with linear probing over 8-byte cells, in zeroed memory
//! of a fixed size.
//!
//! A cell holds a 32-bit hash and a position, so almost every probe of a cell with another hash
//! ends without a look at what lies at the position. Where a hash belongs is its share of the whole
//! table (a multiplication, no modulo), so a table is exactly as large as was asked for, and not
//! the next power of two. Nothing grows and nothing is rehashed; a page of cells takes memory when
//! its first cell is written.
//!
//! Several positions may have the same hash, and the same key too, as long as they are few.

use ringgate_batch::prefetch_line;

/// A fixed number of cells of `hash << 32 | position + 1`; 0 is empty.
pub(crate) struct Index {
    cells: Vec<u64>,
}

impl Index {
    /// Bytes of one cell.
    pub(crate) const CELL_BYTES: usize = size_of::<u64>();

    /// An index of so many cells. Its user keeps at least one of them empty.
    pub(crate) fn new(cells: usize) -> Self {
        Self { cells: vec![0; cells.max(CELLS_MIN)] }
    }

    /// How many cells there are.
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    /// The first position with that hash that `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let cell = self.cells[at];
            if cell == 0 {
                return None;
            }
            if hash_of(cell) == hash && is_it(position_of(cell)) {
                return Some(position_of(cell));
            }
            at = self.behind(at);
        }
    }

    /// Has the memory fetched where the probing for a hash begins.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u32) {
        prefetch_line(&self.cells[self.home(hash)], 0);
    }

    /// Where the cells lie.
    pub(crate) fn memory(&self) -> std::ops::Range<*const u8> {
        let cells = self.cells.as_ptr_range();
        cells.start.cast()..cells.end.cast()
    }

    /// Adds a position. There must be a cell left beyond the one it takes.
    pub(crate) fn insert(&mut self, hash: u32, position: u32) {
        let mut at = self.home(hash);
        while self.cells[at] != 0 {
            at = self.behind(at);
        }
        self.cells[at] = cell(hash, position);
    }

    /// Removes a position and shifts its followers back, so that no probe ever meets a tombstone.
    pub(crate) fn remove(&mut self, hash: u32, position: u32) {
        let mut hole = self.home(hash);
        while self.cells[hole] != cell(hash, position) {
            debug_assert!(self.cells[hole] != 0, "only what was added is removed");
            hole = self.behind(hole);
        }
        let mut at = hole;
        loop {
            at = self.behind(at);
            let follower = self.cells[at];
            if follower == 0 {
                break;
            }
            // A follower may fill the hole if its home does not lie cyclically in (hole, at].
            if self.distance(self.home(hash_of(follower)), at) >= self.distance(hole, at) {
                self.cells[hole] = follower;
                hole = at;
            }
        }
        self.cells[hole] = 0;
    }

    /// Where the probing for a hash begins.
    #[inline]
    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.cells.len() as u64) >> 32) as usize
    }

    #[inline]
    fn behind(&self, at: usize) -> usize {
        if at + 1 == self.cells.len() { 0 } else { at + 1 }
    }

    /// How many steps lead from one cell to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.cells.len() - from }
    }
}

const fn cell(hash: u32, position: u32) -> u64 {
    (hash as u64) << 32 | (position as u64 + 1)
}

const fn hash_of(cell: u64) -> u32 {
    (cell >> 32) as u32
}

const fn position_of(cell: u64) -> u32 {
    (cell as u32).wrapping_sub(1)
}

/// An index for no positions still has a cell where every hash begins.
const CELLS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every position whose hash is `hash`, in ascending order.
    fn all(index: &Index, hash: u32) -> Vec<u32> {
        let mut found = Vec::new();
        index.find(hash, |position| {
            found.push(position);
            false
        });
        found.sort_unstable();
        found
    }

    proptest! {
        /// Few hashes, crowded at both ends of the table, so that runs wrap around and keys
        /// collide.
        #[test]
        fn agrees_with_a_list(steps in prop::collection::vec((0u32..6, 0u32..19), 1..300)) {
            let mut index = Index::new(20);
            let mut model: Vec<(u32, u32)> = Vec::new();
            for (kind, position) in steps {
                match model.iter().position(|(_, known)| *known == position) {
                    Some(at) => {
                        let (hash, position) = model.swap_remove(at);
                        index.remove(hash, position);
                    }
                    None => {
                        let hash = [0, 1, u32::MAX, u32::MAX - 1, 1 << 31, 7 << 20][kind as usize];
                        index.insert(hash, position);
                        model.push((hash, position));
                    }
                }
                for hash in [0, 1, u32::MAX, u32::MAX - 1, 1 << 31, 7 << 20] {
                    let mut expected: Vec<u32> =
                        model.iter().filter(|entry| entry.0 == hash).map(|entry| entry.1).collect();
                    expected.sort_unstable();
                    prop_assert_eq!(all(&index, hash), expected);
                }
            }
        }
    }
}
