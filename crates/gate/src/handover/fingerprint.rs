//! Whether a record says what the one before it has said: a keyed hash of it, so quick that players
//! can wait while a million records are looked at.
//!
//! Strangers choose some of what is in records, but nobody is ever shown a hash. So what is needed
//! is a universal one: whatever two records of one length are, no more than one key in 2^64 takes
//! them for the same. That is NH, which UMAC is made of: pairs of words, each with a word of the
//! key added, are multiplied and summed. `SipHash` then takes in the sums of all blocks and how
//! long the record is.

use crate::store::hash::HashKey;

/// What tells records apart.
pub(crate) struct Fingerprints {
    key: HashKey,
    /// A word of the key for each word of a block.
    words: [[u64; 2]; PAIRS],
}

impl Fingerprints {
    /// Under a key that strangers do not know.
    pub(crate) fn new(key: HashKey) -> Self {
        let word = |pair: usize, half: u64| key.hash([pair as u64, half, FOR_FINGERPRINTS]);
        Self { key, words: std::array::from_fn(|pair| [word(pair, 0), word(pair, 1)]) }
    }

    /// What a record has and hardly any other.
    pub(crate) fn of(&self, record: &[u8]) -> u64 {
        let mut state = record.len() as u64;
        for block in record.chunks(PAIRS * PAIR_BYTES) {
            let sum = self.sum(block);
            state = self.key.hash([sum as u64, (sum >> 64) as u64, state]);
        }
        state
    }

    /// Of a block, as if zeros followed. Whether they do is told by the length.
    fn sum(&self, block: &[u8]) -> u128 {
        let (pairs, rest) = block.as_chunks::<PAIR_BYTES>();
        let mut last = [0; PAIR_BYTES];
        last[..rest.len()].copy_from_slice(rest);
        let has_last = usize::from(!rest.is_empty());
        let all = pairs.iter().chain(std::slice::from_ref(&last).iter().take(has_last));
        let products = all.zip(&self.words).map(|(pair, words)| product(*pair, *words));
        products.fold(0, u128::wrapping_add)
    }
}

#[inline]
fn product(pair: [u8; PAIR_BYTES], [first, second]: [u64; 2]) -> u128 {
    let pair = u128::from_le_bytes(pair);
    let (low, high) = (pair as u64, (pair >> 64) as u64);
    u128::from(low.wrapping_add(first)) * u128::from(high.wrapping_add(second))
}

/// Two words.
const PAIR_BYTES: usize = 16;

/// Half a kilobyte: a netcode session's record is one block.
const PAIRS: usize = 32;

/// Keeps what follows from the key apart from hashes of addresses.
const FOR_FINGERPRINTS: u64 = u64::from_le_bytes(*b"records\0");

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_bit_of_a_record_counts_and_so_does_its_length() {
        let prints = Fingerprints::new(HashKey::new([1, 2]));
        for len in [1, 15, 16, 17, 371, 511, 512, 513, 1500] {
            let mut record: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
            let mut seen = HashSet::from([prints.of(&record)]);
            for bit in 0..8 * len {
                record[bit / 8] ^= 1 << (bit % 8);
                assert!(seen.insert(prints.of(&record)), "bit {bit} of {len} bytes");
                record[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(!seen.insert(prints.of(&record)), "it is the same again");
            record.push(0);
            assert!(seen.insert(prints.of(&record)), "zeros behind {len} bytes");
        }
    }

    #[test]
    fn words_that_change_places_are_noticed() {
        let prints = Fingerprints::new(HashKey::new([3, 4]));
        let record: Vec<u8> = (0..64).collect();
        let mut seen = HashSet::from([prints.of(&record)]);
        for (one, other) in [(0, 8), (0, 16), (8, 16), (8, 24), (16, 48)] {
            let mut moved = record.clone();
            let word = moved[one..one + 8].to_vec();
            moved.copy_within(other..other + 8, one);
            moved[other..other + 8].copy_from_slice(&word);
            assert!(seen.insert(prints.of(&moved)));
        }
    }

    #[test]
    fn another_key_is_another_hash() {
        let record = [7; 371];
        let of = |key| Fingerprints::new(HashKey::new(key)).of(&record);
        assert_eq!(of([1, 2]), of([1, 2]));
        assert_ne!(of([1, 2]), of([1, 3]));
    }
}
