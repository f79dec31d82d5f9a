//! What servers have sent at the place of a listener's echo: a source that sends one of these words
//! back has been where it was sent.
//!
//! Beside the table, as the guards are: listeners without an echo pay nothing.

use crate::front::plain::session::Session;
use crate::store::entry::Entry;

/// The words that the source of each entry was sent.
pub(crate) struct Echoes(Vec<Words>);

/// The latest words that a source was sent.
#[derive(Clone, Copy)]
struct Words {
    ring: [u32; WORDS_MAX],
    /// How many there were ever.
    count: u32,
}

impl Words {
    const NONE: Self = Self { ring: [0; WORDS_MAX], count: 0 };

    fn latest(&self) -> &[u32] {
        &self.ring[..WORDS_MAX.min(self.count as usize)]
    }
}

impl Echoes {
    /// For a table of so many places.
    pub(crate) fn new(places: usize) -> Self {
        Self(Vec::with_capacity(places))
    }

    /// A session begins, or goes on with words that another process has sent.
    pub(crate) fn start(&mut self, entry: Entry<Session>, sent: &[u32]) {
        let at = entry.index();
        if at >= self.0.len() {
            self.0.resize(at + 1, Words::NONE);
        }
        self.0[at] = Words::NONE;
        for word in sent {
            self.note(entry, *word);
        }
    }

    /// A word was sent.
    pub(crate) fn note(&mut self, entry: Entry<Session>, word: u32) {
        let Some(words) = self.0.get_mut(entry.index()) else { return };
        words.ring[words.count as usize % WORDS_MAX] = word;
        // It goes on behind the ring's end, and never back before it.
        words.count = words.count.checked_add(1).unwrap_or(WORDS_MAX as u32);
    }

    /// Whether it was sent one that cannot be guessed.
    pub(crate) fn has(&self, entry: Entry<Session>, word: u32) -> bool {
        let is_sent = |words: &Words| words.latest().contains(&word);
        !is_easy(word) && self.0.get(entry.index()).is_some_and(is_sent)
    }

    /// The words that it was sent.
    pub(crate) fn of(&self, entry: Entry<Session>) -> &[u32] {
        self.0.get(entry.index()).map_or(&[], Words::latest)
    }
}

/// The four bytes at a place of a datagram.
#[inline]
pub(crate) fn word_at(datagram: &[u8], offset: u16) -> Option<u32> {
    let rest = datagram.get(offset.into()..)?;
    rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Half of it is nothing, as in a number that counts from 0: a spoofer would try that first.
const fn is_easy(word: u32) -> bool {
    let (high, low) = (word >> 16, word & 0xffff);
    high == 0 || low == 0 || high == 0xffff || low == 0xffff
}

/// As many as a server sends during a long round trip.
const WORDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_words_prove_and_easy_ones_do_not() {
        let (mut echoes, entry) = (Echoes::new(4), Entry::numbered(2));
        echoes.note(entry, 0x0102_0304);
        assert!(!echoes.has(entry, 0x0102_0304), "it has not begun");
        echoes.start(entry, &[0x0102_0304, 7]);
        assert!(echoes.has(entry, 0x0102_0304) && !echoes.has(entry, 0x0102_0305));
        assert!(!echoes.has(entry, 7) && !echoes.has(entry, 0));
        (0..63).for_each(|n| echoes.note(entry, 0x0a00_0001 + n));
        assert!(!echoes.has(entry, 0x0102_0304), "64 others since");
        assert!((0..63).all(|n| echoes.has(entry, 0x0a00_0001 + n)));
        assert_eq!(echoes.of(entry).len(), 64);
        echoes.start(entry, &[]);
        assert!(!echoes.has(entry, 0x0a00_0001));
        assert_eq!(word_at(&[1, 2, 3, 4, 5], 1), Some(0x0504_0302));
        assert_eq!((word_at(&[1, 2, 3], 0), word_at(&[1], 9)), (None, None));
    }
}
