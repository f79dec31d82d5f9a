//! Arithmetic modulo 2^130 - 5 on eight numbers at once.
//!
//! A number has limbs of 44, 44 and 42 bits: n0 + n1 · 2^44 + n2 · 2^88. The instructions multiply the low 52 bits of two lanes
//! and add the low or the high half of the product to a third, so that limbs have 8 bits to spare for sums.
//!
//! ```text
//! weight 1      x0·y0      + x1·20·y2   + x2·20·y1     2^132 = 4 · 2^130 comes back as 4 · 5
//! weight 2^44   x0·y1      + x1·y0      + x2·20·y2
//! weight 2^88   x0·y2      + x1·y1      + x2·y0
//! ```
//!
//! Each line is a sum of low and a sum of high halves; the high ones weigh 2^52 more, which is 2^8 of the next line. Several
//! products may be added before one reduction: that is how two blocks of a packet pay for one.
//!
//! What matters:
//! - Only one port shifts, and two multiply: where a sum needs a shifted or a fivefold value, a multiplication by 2^8, 5 or
//!   5 · 2^10 does both (10 %).
//! - Products are accumulated limb by limb of `x`, not line by line: six dependent instructions in a row, six times over, fill
//!   the scheduler with what cannot run yet (4 %).
//! - `20 · y` is written as a 52-bit multiplication. As a 64-bit one the compiler makes it a slow instruction.

use std::arch::x86_64::*;

use crate::crypto::poly::CLAMP;

/// Eight numbers, one per lane. *Reduced* limbs are below 2^44, 2^44 + 2^8 and 2^42.
pub(super) type Limbs = [__m512i; 3];

/// Eight numbers to multiply by.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    /// Invariant: reduced.
    pub(super) limbs: Limbs,
    /// 20 times the upper two limbs.
    wrapped: [__m512i; 2],
}

impl Factor {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn new(limbs: Limbs) -> Self {
        let twenty = _mm512_set1_epi64(20);
        let times_20 = |limb| _mm512_madd52lo_epu64(_mm512_setzero_si512(), limb, twenty);
        Self { limbs, wrapped: [times_20(limbs[1]), times_20(limbs[2])] }
    }

    /// Poly1305's `r`, from the two halves of its key.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn clamped(low: __m512i, high: __m512i) -> Self {
        let [clamp_low, clamp_high] = CLAMP.map(|clamp| _mm512_set1_epi64(clamp as i64));
        Self::new(split(_mm512_and_si512(low, clamp_low), _mm512_and_si512(high, clamp_high)))
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
                self.low[i] = _mm512_madd52lo_epu64(self.low[i], x, line[i]);
                self.high[i] = _mm512_madd52hi_epu64(self.high[i], x, line[i]);
            }
        }
        self
    }

    /// Carries once around. At most two products have been added.
    ///
    /// `x` is below 2^45, 2^45 + 2^8 and 2^43, and 20 · y below 2^49 and 2^47. So the high halves of the six products of a
    /// line sum to less than 2^42, 2^40 and 2^39, and no multiplication below loses a bit; 5 · 2^10 times the last is below
    /// 2^52, which carries less than 2^8 into the second limb.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
    pub(super) fn reduced(self) -> Limbs {
        let bits_44 = _mm512_set1_epi64(BITS_44);
        let bits_42 = _mm512_set1_epi64(BITS_42);
        let two_8 = _mm512_set1_epi64(1 << 8);
        let [l0, l1, l2] = self.low;
        let [h0, h1, h2] = self.high;

        let l1 = _mm512_madd52lo_epu64(l1, h0, two_8);
        let l1 = _mm512_add_epi64(l1, _mm512_srli_epi64::<44>(l0));
        let l2 = _mm512_madd52lo_epu64(l2, h1, two_8);
        let l2 = _mm512_add_epi64(l2, _mm512_srli_epi64::<44>(l1));
        let l0 = _mm512_and_si512(l0, bits_44);
        let l0 = _mm512_madd52lo_epu64(l0, h2, _mm512_set1_epi64(5 << 10));
        let l0 = _mm512_madd52lo_epu64(l0, _mm512_srli_epi64::<42>(l2), _mm512_set1_epi64(5));
        let l1 = _mm512_and_si512(l1, bits_44);
        [
            _mm512_and_si512(l0, bits_44),
            _mm512_add_epi64(l1, _mm512_srli_epi64::<44>(l0)),
            _mm512_and_si512(l2, bits_42),
        ]
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
    [_mm512_setzero_si512(); 3]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn sum(a: Limbs, b: Limbs) -> Limbs {
    std::array::from_fn(|i| _mm512_add_epi64(a[i], b[i]))
}

/// `yes` in the lanes of the mask, `no` in the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn choose(lanes: __mmask8, yes: Limbs, no: Limbs) -> Limbs {
    std::array::from_fn(|i| _mm512_mask_mov_epi64(no[i], lanes, yes[i]))
}

/// Blocks of 16 bytes, from their two halves, with the bit that ends a block in the lanes of the mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn blocks(low: __m512i, high: __m512i, ends: __mmask8) -> Limbs {
    let [n0, n1, n2] = split(low, high);
    let end = _mm512_set1_epi64(1 << 40);
    [n0, n1, _mm512_mask_or_epi64(n2, ends, n2, end)]
}

/// The limbs of numbers of 128 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn split(low: __m512i, high: __m512i) -> Limbs {
    let bits_44 = _mm512_set1_epi64(BITS_44);
    let middle = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
    [
        _mm512_and_si512(low, bits_44),
        _mm512_and_si512(middle, bits_44),
        _mm512_srli_epi64::<24>(high),
    ]
}

/// Reduces fully and adds the second half of the one-time keys: the two halves of the tags.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
pub(super) fn finish([h0, h1, h2]: Limbs, s_low: __m512i, s_high: __m512i) -> (__m512i, __m512i) {
    let bits_44 = _mm512_set1_epi64(BITS_44);
    let h2 = _mm512_add_epi64(h2, _mm512_srli_epi64::<44>(h1));
    let h1 = _mm512_and_si512(h1, bits_44);

    // h is below 2^130 + 2^52. h + 5 reaches 2^130 exactly if h is not below the modulus, and is then what remains of h.
    let g0 = _mm512_add_epi64(h0, _mm512_set1_epi64(5));
    let g1 = _mm512_add_epi64(h1, _mm512_srli_epi64::<44>(g0));
    let g2 = _mm512_add_epi64(h2, _mm512_srli_epi64::<44>(g1));
    let too_large = _mm512_test_epi64_mask(g2, _mm512_set1_epi64(1 << 42));
    let h0 = _mm512_mask_and_epi64(h0, too_large, g0, bits_44);
    let h1 = _mm512_mask_and_epi64(h1, too_large, g1, bits_44);
    let h2 = _mm512_mask_mov_epi64(h2, too_large, g2);

    // Shifting drops what is above 2^128, bit 42 of g2 included.
    let low = _mm512_or_si512(h0, _mm512_slli_epi64::<44>(h1));
    let high = _mm512_or_si512(_mm512_srli_epi64::<20>(h1), _mm512_slli_epi64::<24>(h2));
    let low = _mm512_add_epi64(low, s_low);
    let high = _mm512_add_epi64(high, s_high);
    let carries = _mm512_cmplt_epu64_mask(low, s_low);
    (low, _mm512_mask_add_epi64(high, carries, high, _mm512_set1_epi64(1)))
}

const BITS_44: i64 = (1 << 44) - 1;
const BITS_42: i64 = (1 << 42) - 1;
