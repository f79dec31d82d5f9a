//! What simulated players and game processes say where whole messages are delivered: each names
//! itself, and every byte of it says where it belongs.

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letter {
    /// The life of the player it is from or for.
    pub(crate) life: u64,
    /// Counts what was sent in this life, in this direction, from 1.
    pub(crate) number: u64,
}

impl Letter {
    /// The letter as a message of `len` bytes, or of as many as it needs.
    pub(crate) fn write(self, len: usize) -> Vec<u8> {
        let head = [self.life, self.number, self.sum()];
        let head = head.into_iter().flat_map(u64::to_le_bytes);
        let rest = (LETTER_BYTES..len).map(|at| self.byte(at));
        head.chain(rest).collect()
    }

    /// Reads a message; `None` where it was changed, cut or mixed up on the way.
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*message.get(8 * at..)?.first_chunk()?));
        let letter = Self { life: word(0)?, number: word(1)? };
        let is_own = |(at, byte): (usize, &u8)| *byte == letter.byte(at);
        let is_whole =
            word(2)? == letter.sum() && message.iter().enumerate().skip(LETTER_BYTES).all(is_own);
        is_whole.then_some(letter)
    }

    /// What stands at a place. Neighbours differ, and so do places that are a part apart.
    const fn byte(self, at: usize) -> u8 {
        (at as u64).wrapping_mul(0x9e37_79b9).wrapping_add(self.number).to_le_bytes()[2]
    }

    fn sum(self) -> u64 {
        let mixed = self.life.rotate_left(32) ^ self.number;
        mixed.wrapping_mul(0xd6e8_feb8_6659_fd93)
    }
}

/// The shortest one.
pub(crate) const LETTER_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_comes_back_and_a_changed_one_does_not() {
        let letter = Letter { life: 3, number: 700 };
        for len in [0, 24, 25, 5000] {
            let message = letter.write(len);
            assert_eq!((message.len(), Letter::read(&message)), (len.max(24), Some(letter)));
            for at in [0, 8, 23, message.len() - 1] {
                let mut changed = message.clone();
                changed[at] ^= 1;
                assert_eq!(Letter::read(&changed), None);
            }
        }
        // Two parts that have changed places, and one that is missing.
        let message = letter.write(5000);
        let (head, rest) = message.split_at(1159);
        let (second, rest) = rest.split_at(1159);
        let (third, rest) = rest.split_at(1159);
        assert_eq!(Letter::read(&[head, third, second, rest].concat()), None);
        assert_eq!(Letter::read(&[head, second, rest].concat()), None);
    }
}
