//! A keyed hash of addresses, for tables that strangers fill.
//!
//! `SipHash-1-3`, the hash that `std`'s maps use, over exactly three words, over seven bytes, or
//! over any number of bytes. An attacker who chooses addresses and ports does not know the key, so
//! it cannot aim at one cell. `std`'s own takes its key from the operating system only, which would
//! keep a simulated gate from running twice in the same way.

/// Secret of one table's hash.
#[derive(Clone, Copy)]
pub(crate) struct HashKey([u64; 2]);

impl HashKey {
    pub(crate) const fn new(words: [u64; 2]) -> Self {
        Self(words)
    }

    /// What it is made of.
    pub(crate) const fn words(self) -> [u64; 2] {
        self.0
    }

    /// The hash of three words.
    #[inline]
    pub(crate) fn hash(self, words: [u64; 3]) -> u64 {
        let mut state = self.start();
        // The last word holds the length in bytes and no more, because the input ends with a word.
        for word in [words[0], words[1], words[2], 24 << 56] {
            absorb(&mut state, word);
        }
        finish(state)
    }

    /// The hash of seven bytes, the lower ones of a word: little more than half the work, because
    /// they share their step with the length.
    #[inline]
    pub(crate) fn hash_seven(self, bytes: u64) -> u64 {
        let mut state = self.start();
        absorb(&mut state, bytes & (u64::MAX >> 8) | 7 << 56);
        finish(state)
    }

    /// The hash of bytes.
    #[inline]
    pub(crate) fn hash_bytes(self, bytes: &[u8]) -> u64 {
        let mut state = self.start();
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            absorb(&mut state, u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = bytes.len() as u8;
        absorb(&mut state, u64::from_le_bytes(last));
        finish(state)
    }

    const fn start(self) -> [u64; 4] {
        let [k0, k1] = self.0;
        [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ]
    }
}

#[inline]
fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

#[inline]
fn finish(mut state: [u64; 4]) -> u64 {
    state[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

#[inline]
fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{DefaultHasher, Hasher};

    #[test]
    fn agrees_with_the_standard_library_where_that_can_be_asked() {
        for seed in 0..1000u64 {
            let words = [seed, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), !seed << 7];
            let mut theirs = DefaultHasher::new();
            for word in words {
                theirs.write(&word.to_le_bytes());
            }
            assert_eq!(HashKey::new([0; 2]).hash(words), theirs.finish());
        }
    }

    #[test]
    fn bytes_are_hashed_as_the_standard_library_does_too() {
        let bytes: Vec<u8> = (0..300_u16).map(|n| (n * 7) as u8).collect();
        for len in 0..bytes.len() {
            let mut theirs = DefaultHasher::new();
            theirs.write(&bytes[..len]);
            assert_eq!(HashKey::new([0; 2]).hash_bytes(&bytes[..len]), theirs.finish(), "{len}");
        }
    }

    #[test]
    fn seven_bytes_are_hashed_as_the_standard_library_does_too() {
        for seed in 0..1000_u64 {
            let word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut theirs = DefaultHasher::new();
            theirs.write(&word.to_le_bytes()[..7]);
            assert_eq!(HashKey::new([0; 2]).hash_seven(word), theirs.finish());
        }
    }

    #[test]
    fn every_bit_of_the_key_matters() {
        let words = [1, 2, 3];
        let plain = HashKey::new([0; 2]).hash(words);
        for bit in 0..64 {
            assert_ne!(HashKey::new([1 << bit, 0]).hash(words), plain);
            assert_ne!(HashKey::new([0, 1 << bit]).hash(words), plain);
        }
    }
}
