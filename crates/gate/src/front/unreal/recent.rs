//! Exact copies of datagrams, told by a keyed hash: for games that encrypt their headers.
//!
//! A ring of the last few hashes, each with the time when it came. It remembers a second at up to
//! [`RECENT_MAX`] datagrams a second and less beyond that: a player who floods shortens the memory
//! of its own session only. A copy that is sent later than that has to be refused by the game's own
//! encryption.

use crate::now::NS_PER_MS;

/// What one side has sent lately.
#[derive(Clone, Debug)]
pub(crate) struct Recent {
    /// The upper 48 bits of the hash, and the lower 16 of the time in milliseconds. An entry that
    /// seems young because 65 seconds have gone by matters only to a datagram with the same 48
    /// bits.
    entries: [u64; RECENT_MAX],
    next: u8,
}

impl Recent {
    /// As if nothing had come for long.
    pub(crate) const fn new() -> Self {
        Self { entries: [0; RECENT_MAX], next: 0 }
    }

    /// Notes a datagram; false if it is a copy of one that came within the last second.
    pub(crate) fn note(&mut self, hash: u64, now_ns: u64) -> bool {
        let now_ms = (now_ns / NS_PER_MS) as u16;
        // Zero stands for no datagram.
        let print = (hash | 1 << TIME_BITS) & !TIME_MASK;
        let is_copy = |entry: &u64| {
            entry & !TIME_MASK == print && now_ms.wrapping_sub(*entry as u16) < MEMORY_MS
        };
        if self.entries.iter().any(is_copy) {
            return false;
        }
        self.entries[usize::from(self.next)] = print | u64::from(now_ms);
        self.next = (self.next + 1) % RECENT_MAX as u8;
        true
    }
}

ringgate_core::carried!(Recent { entries, next }
    if |it| usize::from(it.next) < RECENT_MAX, "memory of copies");

/// Twice what engines send.
pub(crate) const RECENT_MAX: usize = 128;

const MEMORY_MS: u16 = 1000;
const TIME_BITS: u32 = 16;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = NS_PER_MS;

    #[test]
    fn a_copy_is_told_for_a_second_and_then_no_more() {
        let mut recent = Recent::new();
        let start = 70_000 * MS;
        assert!(recent.note(7 << 20, start));
        assert!(!recent.note(7 << 20, start));
        assert!(!recent.note(7 << 20, start + 999 * MS), "a copy does not make it younger");
        assert!(recent.note(8 << 20, start + 999 * MS));
        assert!(recent.note(7 << 20, start + 1000 * MS));
    }

    #[test]
    fn what_was_never_there_is_no_copy() {
        let mut recent = Recent::new();
        assert!(recent.note(0, 0));
        assert!(!recent.note(0, 0));
    }

    #[test]
    fn a_flood_makes_the_memory_shorter_and_never_tells_wrongly() {
        let mut recent = Recent::new();
        for n in 0..10 * RECENT_MAX as u64 {
            assert!(recent.note(n << 20, 0));
        }
        assert!(!recent.note((9 * RECENT_MAX as u64) << 20, 0), "the last ones are remembered");
        assert!(recent.note(0, 0), "the first one is not");
    }
}
