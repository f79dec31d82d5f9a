//! What simulated players and game processes say: payloads that name themselves, so that the
//! receiver can check each.

use ringgate_core::limits::PAYLOAD_BYTES_MAX;

/// A payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// The life of the player it is from or for; 0 where it is for everybody.
    pub life: u64,
    /// Counts what was said in this life, in this direction.
    pub number: u64,
    /// The player it is from or for; for everybody: the game process that says it.
    pub client_id: u64,
}

impl Note {
    /// Writes the note into a payload of `len` bytes, or of as many as it needs, and returns it.
    pub fn write(self, out: &mut [u8; PAYLOAD_BYTES_MAX], len: usize) -> &[u8] {
        let len = len.clamp(NOTE_BYTES, PAYLOAD_BYTES_MAX);
        let words = [self.life, self.number, self.client_id, self.sum()];
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out[NOTE_BYTES..len].fill(self.number as u8);
        &out[..len]
    }

    /// Reads a payload; `None` where it was changed on the way.
    pub fn read(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*payload.get(8 * at..)?.first_chunk()?));
        let note = Self { life: word(0)?, number: word(1)?, client_id: word(2)? };
        let filler = payload.get(NOTE_BYTES..)?;
        let is_whole = word(3)? == note.sum() && filler.iter().all(|b| *b == note.number as u8);
        is_whole.then_some(note)
    }

    fn sum(self) -> u64 {
        let mixed = self.life.rotate_left(21) ^ self.number.rotate_left(42) ^ self.client_id;
        mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

const NOTE_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_comes_back_and_a_changed_one_does_not() {
        let note = Note { life: 3, number: 700, client_id: 9 };
        for len in [0, 32, 33, 500, 1200] {
            let mut buf = [0; PAYLOAD_BYTES_MAX];
            let payload = note.write(&mut buf, len).to_vec();
            assert_eq!(payload.len(), len.max(32));
            assert_eq!(Note::read(&payload), Some(note));
            for at in [0, 8, 31, payload.len() - 1] {
                let mut changed = payload.clone();
                changed[at] ^= 1;
                assert_eq!(Note::read(&changed), None);
            }
        }
    }
}
