//! The tags of up to eight packets, one per lane.
//!
//! ```text
//! for each part (associated data, text), 64 bytes at a time:
//!     load 64 bytes of every packet, transpose: the low and high halves of four blocks
//!     h = (h + block) · r² + next block · r        two blocks, one reduction
//! h = (h + last block) · r² + lengths · r          or h = (h + lengths) · r
//! ```
//!
//! Eight loads of 64 bytes are eight rows of four blocks, each of which is a low and a high word of
//! 64 bits. Transposed, a register has the same word of all packets, as the arithmetic wants it:
//!
//! ```text
//! row of p0:  | b0 low | b0 high | b1 low | b1 high | b2 low | b2 high | b3 low | b3 high |
//! row of p1:  | b0 low | …
//!                 ↓
//! b0 low:     | p0 | p1 | p2 | p3 | p4 | p5 | p6 | p7 |        b0 high, b1 low, … likewise
//! ```
//!
//! What a sum may hold before it is reduced is said in [`field`](super::field): `h` plus one block
//! times r², and one block times r, are the two products that it allows.
//!
//! Lanes whose part has ended keep their `h`. Where only the first block of a pair belongs to a
//! packet, its lane computes (h + block) · r, by putting the sum in the place of the second block
//! and nothing in that of the first.
//!
//! A group takes 150 cycles and 23 to 27 per block; the two ports that multiply could do with 19.
//! What matters:
//! - Pairs instead of single blocks save a fifth of the time per block.
//! - 64 bytes that all packets have are loaded without masks: making a mask occupies the port that
//!   transposes (3 %).
//! - Slices are not collected in arrays on the way. Reading a vector that was just written word by
//!   word waits until all these words have left the store buffer, that is for the group before (a
//!   quarter of the time of small packets).
//! - Two groups in lock-step, to overlap their chains, gain nothing: the ports are busy.

use std::ops::Range;

use super::field::{Factor, Limbs, Sums, blocks, choose, finish, product, sum, zero};
use super::{
    Vector, greatest, halves_of_eight, join_halves, lanes_below, least, load_8x64, load_64,
    load_tail, splat, store_up_to_8x64,
};
use crate::crypto::wide::{OneTimeKeys, Packet, Tags};

/// Computes the tags of the packets in `range`, one to eight.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(in super::super) fn tags(
    keys: &OneTimeKeys,
    packets: &[Packet<'_>],
    range: Range<usize>,
    tags: &mut Tags,
) {
    let lanes: [&Packet<'_>; 8] =
        std::array::from_fn(|lane| &packets[(range.start + lane).min(range.end - 1)]);
    let half =
        |i: usize| join_halves(keys.eight(2 * i, range.start), keys.eight(2 * i + 1, range.start));
    let r = Factor::clamped(half(0), half(1));
    let mut sums = EightSums { h: zero(), r, r2: r.squared() };

    let aad_lens = load_8x64(&std::array::from_fn(|i| lanes[i].aad.len() as u64));
    let text_lens = load_8x64(&std::array::from_fn(|i| lanes[i].text.len() as u64));
    let lengths = blocks(aad_lens, text_lens, ALL);
    if let Some(last) = sums.absorb_part(aad_lens, |lane| lanes[lane].aad) {
        sums.absorb(last);
    }
    match sums.absorb_part(text_lens, |lane| &*lanes[lane].text) {
        Some(last) => sums.absorb_pair(last, lengths),
        None => sums.absorb(lengths),
    }

    let (low, high) = finish(sums.h, half(2), half(3));
    store_up_to_8x64(&mut tags.low[range.clone()], low);
    store_up_to_8x64(&mut tags.high[range], high);
}

/// Absorbs block `at` and the next one, as far as packets reach; or returns the first, if it is the
/// last one of all. Not a function, because one is not inlined where a vector is a pair, and would
/// be given its arguments through memory.
macro_rules! absorb_up_to_two {
    ($sums:ident, $reach:ident, $at:expr, $first:ident, $second:ident) => {
        let at = $at;
        if at + 2 <= $reach.all {
            $sums.absorb_pair($first, $second);
        } else if at + 1 == $reach.all && at + 1 == $reach.some {
            return Some($first);
        } else {
            $sums.absorb_ragged($first, $second, $reach.lanes(at), $reach.lanes(at + 1));
        }
    };
}

struct EightSums {
    h: Limbs,
    r: Factor,
    r2: Factor,
}

impl EightSums {
    /// Absorbs a part of every packet, padded with zeros to whole blocks; `lens` holds the lengths.
    /// Where all packets have the same odd number of blocks, the last one is returned instead: it
    /// may find a partner.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn absorb_part<'a>(&mut self, lens: Vector, part: impl Fn(usize) -> &'a [u8]) -> Option<Limbs> {
        let reach = Reach::of(lens);
        let mut at = 0;
        while 16 * at + 64 <= reach.shortest {
            // SAFETY: no part is shorter than `shortest`.
            let rows = std::array::from_fn(|lane| unsafe { load_64_at(part(lane), 16 * at) });
            let [a, b, c, d] = four_blocks(rows);
            self.absorb_pair(a, b);
            self.absorb_pair(c, d);
            at += 4;
        }
        while at < reach.some {
            let rows = std::array::from_fn(|lane| load_tail(part(lane), 16 * at));
            let [a, b, c, d] = four_blocks(rows);
            absorb_up_to_two!(self, reach, at, a, b);
            if at + 2 < reach.some {
                absorb_up_to_two!(self, reach, at + 2, c, d);
            }
            at += 4;
        }
        None
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn absorb(&mut self, block: Limbs) {
        self.h = product(sum(self.h, block), &self.r);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn absorb_pair(&mut self, first: Limbs, second: Limbs) {
        self.h = Sums::zero().plus(second, &self.r).plus(sum(self.h, first), &self.r2).reduced();
    }

    /// Absorbs two blocks in the lanes of `both`, one in the other lanes of `any`, and nothing
    /// elsewhere.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn absorb_ragged(&mut self, first: Limbs, second: Limbs, any: u8, both: u8) {
        let begun = sum(self.h, first);
        let by_r = choose(both, second, begun);
        let by_r2 = choose(both, begun, zero());
        let next = Sums::zero().plus(by_r, &self.r).plus(by_r2, &self.r2).reduced();
        self.h = choose(any, next, self.h);
    }
}

const ALL: u8 = 0xff;

/// How far a part reaches in each packet.
struct Reach {
    lens: Vector,
    /// Bytes of the shortest part.
    shortest: usize,
    /// Blocks that all packets have, a last one that is not whole included.
    all: usize,
    /// Blocks that at least one packet has.
    some: usize,
}

impl Reach {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn of(lens: Vector) -> Self {
        let shortest = least(lens) as usize;
        let longest = greatest(lens) as usize;
        Self { lens, shortest, all: shortest.div_ceil(16), some: longest.div_ceil(16) }
    }

    /// The packets that have block `at`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    fn lanes(&self, at: usize) -> u8 {
        lanes_below(splat(16 * at as i64), self.lens)
    }
}

/// # Safety
/// `bytes` has at least 64 bytes from `start` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
unsafe fn load_64_at(bytes: &[u8], start: usize) -> Vector {
    debug_assert!(start + 64 <= bytes.len());
    // SAFETY: the caller's promise.
    load_64(unsafe { &*bytes.as_ptr().wrapping_add(start).cast() })
}

/// The four blocks in each of eight rows of 64 bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn four_blocks(rows: [Vector; 8]) -> [Limbs; 4] {
    halves_of_eight(rows).map(|[low, high]| blocks(low, high, ALL))
}
