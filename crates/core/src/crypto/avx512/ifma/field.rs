//! Arithmetic modulo 2^130 - 5 on eight numbers at once.
//!
//! A number has limbs of 44, 44 and 42 bits: n0 + n1 · 2^44 + n2 · 2^88. The instructions multiply
//! the low 52 bits of two lanes and add the low or the high half of the product to a third, so that
//! limbs have 8 bits to spare for sums.
//!
//! ```text
//! weight 1      x0·y0      + x1·20·y2   + x2·20·y1     2^132 = 4 · 2^130 comes back as 4 · 5
//! weight 2^44   x0·y1      + x1·y0      + x2·20·y2
//! weight 2^88   x0·y2      + x1·y1      + x2·y0
//! ```
//!
//! Each line is a sum of low and a sum of high halves; the high ones weigh 2^52 more, which is 2^8
//! of the next line. Several products may be added before one reduction: that is how two blocks of
//! a packet pay for one.
//!
//! A lane is 64 bits, and holds one limb of one number; a number is three registers:
//!
//! ```text
//!                 lane 0     lane 1   …   lane 7
//! register n0     n0 of p0   n0 of p1     n0 of p7      44 bits
//! register n1     n1 of p0   …                          44 bits
//! register n2     n2 of p0   …                          42 bits
//! ```
//!
//! Why nothing overflows. The multiplication reads 52 bits of a factor, and a sum has 64:
//!
//! ```text
//!                            limb 0        limb 1          limb 2
//! reduced                    < 2^44        < 2^44 + 2^8    < 2^42
//! a block, with its end bit  < 2^44        < 2^44          < 2^41
//! x = their sum              < 2^45        < 2^45 + 2^8    < 2^43        all below 2^52
//! y                          < 2^44        < 2^44 + 2^8    < 2^42
//! 20 · y                                   < 2^49          < 2^47        below 2^52, too
//!
//! two products, line by line:
//! six low halves             < 6 · 2^52    < 6 · 2^52      < 6 · 2^52    below 2^55
//! six high halves            < 2^42        < 2^40          < 2^39
//! ```
//!
//! The high halves of a line are largest where a factor is 20 · y: 2^45 · 20 · 2^42 / 2^52 is
//! 2^39.4, twice in a line, for two products.
//!
//! One reduction carries once around, and its own products stay below 2^52, so that their low half
//! is all of them:
//!
//! ```text
//! l1 += h0 · 2^8                     < 2^50         high half of line 0
//! l2 += h1 · 2^8                     < 2^48         high half of line 1
//! l0 += h2 · 5 · 2^10                < 2^51.4       high half of line 2: 2^140 = 2^10 · 2^130
//! l1 += l0 >> 44;  l2 += l1 >> 44    < 2^11         what the low halves have above their limb
//! l0 += (l2 >> 42) · 5               < 2^16         what is above 2^130
//! l1 += l0 >> 44                     < 2^8          l0 was below 2^52: hence 2^44 + 2^8
//! ```
//!
//! What matters:
//! - Only one port shifts, and two multiply: where a sum needs a shifted or a fivefold value, a
//!   multiplication by 2^8, 5 or 5 · 2^10 does both (10 %).
//! - Products are accumulated limb by limb of `x`, not line by line: six dependent instructions in
//!   a row, six times over, fill the scheduler with what cannot run yet (4 %).
//! - `20 · y` is written as a 52-bit multiplication. As a 64-bit one the compiler makes it a slow
//!   instruction.

use super::{
    Vector, add, and, lanes_below, lanes_with, madd_high, madd_low, or, select, shl, shr, splat,
    zeros,
};
use crate::crypto::poly::CLAMP;

/// Eight numbers, one per lane. *Reduced* limbs are below 2^44, 2^44 + 2^8 and 2^42.
pub(super) type Limbs = [Vector; 3];

/// Eight numbers to multiply by.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// Invariant: reduced.
    pub(super) limbs: Limbs,
    /// 20 times the upper two limbs.
    wrapped: [Vector; 2],
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn new(limbs: Limbs) -> Self {
        let twenty = splat(20);
        let times_20 = |limb| madd_low(zeros(), limb, twenty);
        Self { limbs, wrapped: [times_20(limbs[1]), times_20(limbs[2])] }
    }

    /// Poly1305's `r`, from the two halves of its key.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn clamped(low: Vector, high: Vector) -> Self {
        let [clamp_low, clamp_high] = CLAMP.map(|clamp| splat(clamp as i64));
        Self::new(split(and(low, clamp_low), and(high, clamp_high)))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn squared(&self) -> Self {
        Self::new(product(self.limbs, self))
    }
}

/// A sum of products that has not been reduced.
#[derive(Clone, Copy)]
pub(super) struct Sums {
    low: Limbs,
    high: Limbs,
}

impl Sums {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn zero() -> Self {
        Self { low: zero(), high: zero() }
    }

    /// Adds `x · y`, where `x` is the sum of at most one reduced number and one block.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn plus(mut self, x: Limbs, y: &Factor) -> Self {
        let [y0, y1, y2] = y.limbs;
        let [w1, w2] = y.wrapped;
        // In the order in which the limbs come out of a reduction.
        for (x, line) in [(x[2], [w1, w2, y0]), (x[0], [y0, y1, y2]), (x[1], [w2, y0, y1])] {
            for i in 0..3 {
                self.low[i] = madd_low(self.low[i], x, line[i]);
                self.high[i] = madd_high(self.high[i], x, line[i]);
            }
        }
        self
    }

    /// Carries once around. At most two products have been added.
    ///
    /// `x` is below 2^45, 2^45 + 2^8 and 2^43, and 20 · y below 2^49 and 2^47. So the high halves
    /// of the six products of a line sum to less than 2^42, 2^40 and 2^39, and no multiplication
    /// below loses a bit; 5 · 2^10 times the last is below 2^52, which carries less than 2^8 into
    /// the second limb.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn reduced(self) -> Limbs {
        let bits_44 = splat(BITS_44);
        let bits_42 = splat(BITS_42);
        let two_8 = splat(1 << 8);
        let [l0, l1, l2] = self.low;
        let [h0, h1, h2] = self.high;

        let l1 = madd_low(l1, h0, two_8);
        let l1 = add(l1, shr::<44>(l0));
        let l2 = madd_low(l2, h1, two_8);
        let l2 = add(l2, shr::<44>(l1));
        let l0 = and(l0, bits_44);
        let l0 = madd_low(l0, h2, splat(5 << 10));
        let l0 = madd_low(l0, shr::<42>(l2), splat(5));
        let l1 = and(l1, bits_44);
        [and(l0, bits_44), add(l1, shr::<44>(l0)), and(l2, bits_42)]
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn product(x: Limbs, y: &Factor) -> Limbs {
    Sums::zero().plus(x, y).reduced()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn zero() -> Limbs {
    [zeros(); 3]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn sum(a: Limbs, b: Limbs) -> Limbs {
    std::array::from_fn(|i| add(a[i], b[i]))
}

/// `yes` in the lanes of the mask, `no` in the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn choose(lanes: u8, yes: Limbs, no: Limbs) -> Limbs {
    std::array::from_fn(|i| select(lanes, yes[i], no[i]))
}

/// Blocks of 16 bytes, from their two halves, with the bit that ends a block in the lanes of the
/// mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn blocks(low: Vector, high: Vector, ends: u8) -> Limbs {
    let [n0, n1, n2] = split(low, high);
    let end = splat(1 << 40);
    [n0, n1, select(ends, or(n2, end), n2)]
}

/// The limbs of numbers of 128 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn split(low: Vector, high: Vector) -> Limbs {
    let bits_44 = splat(BITS_44);
    let middle = or(shr::<44>(low), shl::<20>(high));
    [and(low, bits_44), and(middle, bits_44), shr::<24>(high)]
}

/// Reduces fully and adds the second half of the one-time keys: the two halves of the tags.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn finish([h0, h1, h2]: Limbs, s_low: Vector, s_high: Vector) -> (Vector, Vector) {
    let bits_44 = splat(BITS_44);
    let h2 = add(h2, shr::<44>(h1));
    let h1 = and(h1, bits_44);

    // h is below 2^130 + 2^52. h + 5 reaches 2^130 exactly if h is not below the modulus, and is
    // then what remains of h.
    let g0 = add(h0, splat(5));
    let g1 = add(h1, shr::<44>(g0));
    let g2 = add(h2, shr::<44>(g1));
    let too_large = lanes_with(g2, splat(1 << 42));
    let h0 = select(too_large, and(g0, bits_44), h0);
    let h1 = select(too_large, and(g1, bits_44), h1);
    let h2 = select(too_large, g2, h2);

    // Shifting drops what is above 2^128, bit 42 of g2 included.
    let low = or(h0, shl::<44>(h1));
    let high = or(shr::<20>(h1), shl::<24>(h2));
    let low = add(low, s_low);
    let high = add(high, s_high);
    let carries = lanes_below(low, s_low);
    (low, select(carries, add(high, splat(1)), high))
}

const BITS_44: i64 = (1 << 44) - 1;
const BITS_42: i64 = (1 << 42) - 1;
