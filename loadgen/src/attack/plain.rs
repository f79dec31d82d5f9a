//! What attackers of plain listeners send.
//!
//! They know what anybody can see on the wire: the tokens, and where the number stands. Nothing in
//! a datagram proves where it comes from, so all that can be held against them is how much of it
//! there is, and numbers that no player would send.

use super::kind::{ADDRESSES, FIRST_ADDRESS, Kind, random_address};
use crate::players::{Plain, Sequence, TokenAt};
use crate::rng::Rng;

/// Writes the datagram with this number. Returns the address it comes from, and its length.
pub(super) fn write(
    kind: Kind,
    plain: &Plain,
    count: u32,
    rng: &mut Rng,
    slot: &mut [u8],
) -> (u32, usize) {
    match kind {
        Kind::PlainSources => {
            let whose = rng.word() as u32;
            let len = dress(plain, whose, rng.word() as u32, rng, slot);
            (random_address(rng.word()), len)
        }
        Kind::PlainDuplicates => {
            let whose = count % DUPLICATORS;
            let len = dress(plain, whose, 7, rng, slot);
            (FIRST_ADDRESS + whose, len)
        }
        Kind::PlainJumps => {
            let (round, whose) = (u64::from(count / JUMPERS), count % JUMPERS);
            // As far as a number can be ahead, nearly: three eighths of all numbers.
            let range = plain.sequence.map_or(1, Sequence::range);
            let number = (round * (range / 8 * 3) % range) as u32;
            let len = dress(plain, whose, number, rng, slot);
            (FIRST_ADDRESS + whose, len)
        }
        Kind::PlainUnknownToken => {
            let len = dress(plain, 0, rng.word() as u32, rng, slot);
            let place = token_place(plain, len);
            rng.fill(&mut slot[place]);
            (random_address(rng.word()), len)
        }
        Kind::PlainShort => {
            let len = dress(plain, 0, 0, rng, slot).min(plain.needs() - 1);
            (random_address(rng.word()), 1 + rng.below(len as u64) as usize)
        }
        _ => unreachable!("no other attack is one on plain listeners"),
    }
}

/// Writes a datagram as a player does, whose token is always the same, with random bytes for a
/// payload.
fn dress(plain: &Plain, whose: u32, number: u32, rng: &mut Rng, slot: &mut [u8]) -> usize {
    let field_end = plain.sequence.map_or(0, Sequence::end);
    let len = field_end + plain.token_bytes() + rng.between(20, 200) as usize;
    rng.fill(&mut slot[..len]);
    if let Some(sequence) = plain.sequence {
        sequence.write((u64::from(number) % sequence.range()) as u32, slot);
    }
    let place = token_place(plain, len);
    slot[place].copy_from_slice(plain.token(whose));
    len
}

fn token_place(plain: &Plain, len: usize) -> std::ops::Range<usize> {
    match plain.token_at {
        TokenAt::Start => 0..plain.token_bytes(),
        TokenAt::End => len - plain.token_bytes()..len,
    }
}

/// So many addresses say the same again and again.
const DUPLICATORS: u32 = 64;

/// So many addresses jump in turns.
const JUMPERS: u32 = 256;

const _: () = assert!(DUPLICATORS <= ADDRESSES && JUMPERS <= ADDRESSES);

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_batch::Endpoint;

    fn plain(token_at: TokenAt) -> Plain {
        let offset = if token_at == TokenAt::Start { 11 } else { 3 };
        Plain {
            tokens: [Box::from([7_u8; 8])].into(),
            token_at,
            sequence: Some(Sequence { offset, bytes: 2 }),
            ..Plain::bare(Endpoint::v4([127, 0, 0, 1], 9))
        }
    }

    fn attack(kind: Kind, plain: &Plain) -> Vec<(u32, Vec<u8>)> {
        let mut rng = Rng::new(1);
        let one = |count| {
            let mut slot = [0; 1600];
            let (address, len) = write(kind, plain, count, &mut rng, &mut slot);
            (address, slot[..len].to_vec())
        };
        (0..2000).map(one).collect()
    }

    #[test]
    fn each_attack_hurts_one_rule_and_keeps_the_others() {
        for plain in [TokenAt::End, TokenAt::Start].map(plain) {
            let offset = plain.sequence.expect("one").offset;
            let number = |bytes: &[u8]| u16::from_be_bytes([bytes[offset], bytes[offset + 1]]);
            let has_token = |bytes: &[u8]| bytes[token_place(&plain, bytes.len())] == [7; 8];

            let sources = attack(Kind::PlainSources, &plain);
            let addresses: std::collections::HashSet<_> =
                sources.iter().map(|(from, _)| from).collect();
            assert!(addresses.len() > 1900 && sources.iter().all(|(_, bytes)| has_token(bytes)));
            let same = attack(Kind::PlainDuplicates, &plain);
            assert!(same.iter().all(|(_, bytes)| has_token(bytes) && number(bytes) == 7));
            let jumps = attack(Kind::PlainJumps, &plain);
            assert!(jumps.iter().all(|(_, bytes)| has_token(bytes)));
            let of_one = jumps.iter().filter(|(from, _)| *from == FIRST_ADDRESS);
            let numbers: Vec<_> = of_one.map(|(_, bytes)| number(bytes)).collect();
            assert!(numbers.len() > 5);
            assert!(numbers.windows(2).all(|two| two[1].wrapping_sub(two[0]) == 24_576));
            let unknown = attack(Kind::PlainUnknownToken, &plain);
            assert!(!unknown.iter().any(|(_, bytes)| has_token(bytes)));
            let short = attack(Kind::PlainShort, &plain);
            let longest = if plain.token_at == TokenAt::Start { 12 } else { 7 };
            assert!(short.iter().all(|(_, bytes)| (1..=longest).contains(&bytes.len())));
        }
    }
}
