//! The tag of one long packet, eight consecutive blocks at a time.
//!
//! Lane `i` sums blocks `i`, `i + 8`, … and multiplies by r⁸ between them, and at the end by the
//! power of r that its place asks for; then the lanes are added up:
//!
//! ```text
//! row 0:   -    -    b0   b1   b2   b3   b4   b5      idle lanes in front make the last row full
//! row 1:   b6   b7   b8   b9   b10  b11  b12  len
//!
//! h = (row 0) · r⁸;  h = (h + row 1) · (r⁸ r⁷ r⁶ r⁵ r⁴ r³ r² r);  sum of the lanes
//! ```
//!
//! An idle lane in front holds zero without an end bit, and zero times anything adds nothing. So a
//! packet of any length is nothing but whole rows, each of which is the union of what it sees of
//! the associated data, of the text and of the lengths.
//!
//! In a register the blocks of a row stand in the order 0 4 1 5 2 6 3 7, because that is what two
//! loads of 64 bytes give when low and high words are taken apart; the powers stand in the same
//! order.
//!
//! The sum of the lanes is eight reduced numbers: its limbs are below 2^47, 2^47 + 2^11 and 2^45,
//! far from 64 bits, and joining them carries at most 2^5 over 2^128.
//!
//! The powers cost 200 cycles, a block 4; ordinary arithmetic needs 17 per block.

use super::field::{Factor, Limbs, blocks, choose, product, sum, zero};
use super::{
    Vector, ending_with, halves_of_two, lanes_below, load_64, load_window, or, splat, total,
    words as lanes,
};
use crate::crypto::poly;
use crate::crypto::wide::{OneTimeKeys, Packet, Tags};

/// Computes the tag of one packet.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(in super::super) fn tag(
    keys: &OneTimeKeys,
    packets: &[Packet<'_>],
    index: usize,
    tags: &mut Tags,
) {
    let packet = &packets[index];
    let [r_low, r_high, s_low, s_high] = keys.halves(index);
    let r = Factor::clamped(splat(r_low as i64), splat(r_high as i64));
    let Powers { eighth, by_lane } = Powers::of(&r);

    let idle = packet.tag_blocks().wrapping_neg() % 8;
    let rows = (packet.tag_blocks() + idle) / 8;
    let mut h = zero();
    for row in 0..rows {
        let first_block = (8 * row) as isize - idle as isize;
        let is_last = row + 1 == rows;
        let factor = if is_last { &by_lane } else { &eighth };
        h = product(sum(h, row_of(packet, first_block, is_last)), factor);
    }
    let sums = h.map(|limb| total(limb));
    tags.set(index, poly::finish(joined_words(sums), [s_low, s_high]));
}

/// Powers of r.
struct Powers {
    /// r⁸ in every lane.
    eighth: Factor,
    /// In each lane the power that its last block is multiplied by.
    by_lane: Factor,
}

impl Powers {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn of(r: &Factor) -> Self {
        let second = r.squared();
        let fourth = second.squared();
        // The lanes hold blocks 0 4 1 5 2 6 3 7 (`row_of`), whose exponents are 8 4 7 3 6 2 5 1.
        // Less one these are 7 3 6 2 5 1 4 0: each mask below selects the lanes where its bit is
        // set.
        let power = choose(0b0011_0011, second.limbs, r.limbs);
        let power = choose(0b0000_1111, product(power, &second), power);
        let power = choose(0b0101_0101, product(power, &fourth), power);
        Self { eighth: fourth.squared(), by_lane: Factor::new(power) }
    }
}

/// Blocks `first` to `first + 7` of what Poly1305 absorbs, in the order 0 4 1 5 2 6 3 7; zeros
/// where `first` is negative. The lengths end the last row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn row_of(packet: &Packet<'_>, first: isize, is_last: bool) -> Limbs {
    let in_aad = 16 * first;
    let in_text = in_aad - 16 * packet.aad.len().div_ceil(16) as isize;
    let start = usize::try_from(in_text).unwrap_or(usize::MAX);
    if let Some((front, back)) = packet.text.get(start..).and_then(<[u8]>::split_first_chunk)
        && let Some(back) = back.first_chunk()
    {
        return blocks_of(load_64(front), load_64(back), 0xff);
    }
    let four = |offset: isize| {
        let aad = load_window(packet.aad, in_aad + offset);
        or(aad, load_window(packet.text, in_text + offset))
    };
    let (front, mut back) = (four(0), four(64));
    if is_last {
        let (aad_len, text_len) = (packet.aad.len() as i64, packet.text.len() as i64);
        back = ending_with(back, [aad_len, text_len]);
    }
    let places = lanes([0, 4, 1, 5, 2, 6, 3, 7]);
    // At most seven lanes are idle, in the first row only.
    let idle = (-first).max(0) as i64;
    let begun = !lanes_below(places, splat(idle));
    blocks_of(front, back, begun)
}

/// Four blocks and four more, in the order 0 4 1 5 2 6 3 7.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn blocks_of(front: Vector, back: Vector, ends: u8) -> Limbs {
    let [low, high] = halves_of_two(front, back);
    blocks(low, high, ends)
}

/// The words of a sum of eight reduced numbers, below 2^131.
const fn joined_words([n0, n1, n2]: [u64; 3]) -> [u64; 3] {
    let low = n0 as u128 + ((n1 as u128) << 44);
    let (low, carry) = low.overflowing_add((n2 as u128) << 88);
    // Above 2^128 are what the shift dropped and the carry; of these, what is above 2^130 comes
    // back fivefold.
    let top = (n2 >> 40) + carry as u64;
    let (low, carry) = low.overflowing_add((top >> 2) as u128 * 5);
    [low as u64, (low >> 64) as u64, (top & 3) + carry as u64]
}
