//! Eight lanes of 64 bits in two registers of 256 bits, four in each.
//!
//! ```text
//! Vector = [ | lane 0 | lane 1 || lane 2 | lane 3 |,  | lane 4 | lane 5 || lane 6 | lane 7 | ]
//! masks      bit i is lane i: the first register takes bits 0 to 3, the second bits 4 to 7
//! ```
//!
//! Every operation is done on both registers; lanes meet only where words are transposed, and where
//! the least, the greatest or the sum of all is asked for. The bounds of the sums are those of
//! [`field`], which do not depend on the width.
//!
//! The two halves are independent, so that each hides the other's latency, and three ports compute
//! where registers of 512 bits have two. What decides for it is that the CPU does not slow down;
//! see [the kernel](super).
#![allow(clippy::duplicate_mod, reason = "one source for two widths")]

#[path = "eight.rs"]
pub(super) mod eight;
#[path = "field.rs"]
mod field;
#[path = "long.rs"]
pub(super) mod long;

use std::arch::x86_64::*;

use super::super::bytes;

type Vector = [__m256i; 2];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn zeros() -> Vector {
    [_mm256_setzero_si256(); 2]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn splat(word: i64) -> Vector {
    [_mm256_set1_epi64x(word); 2]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn words([a, b, c, d, e, f, g, h]: [i64; 8]) -> Vector {
    [_mm256_setr_epi64x(a, b, c, d), _mm256_setr_epi64x(e, f, g, h)]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn add(a: Vector, b: Vector) -> Vector {
    [_mm256_add_epi64(a[0], b[0]), _mm256_add_epi64(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn and(a: Vector, b: Vector) -> Vector {
    [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn or(a: Vector, b: Vector) -> Vector {
    [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn shr<const BITS: i32>(a: Vector) -> Vector {
    [_mm256_srli_epi64::<BITS>(a[0]), _mm256_srli_epi64::<BITS>(a[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn shl<const BITS: i32>(a: Vector) -> Vector {
    [_mm256_slli_epi64::<BITS>(a[0]), _mm256_slli_epi64::<BITS>(a[1])]
}

/// Adds the low halves of the products of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn madd_low(sum: Vector, a: Vector, b: Vector) -> Vector {
    [_mm256_madd52lo_epu64(sum[0], a[0], b[0]), _mm256_madd52lo_epu64(sum[1], a[1], b[1])]
}

/// Adds the high halves of the products of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn madd_high(sum: Vector, a: Vector, b: Vector) -> Vector {
    [_mm256_madd52hi_epu64(sum[0], a[0], b[0]), _mm256_madd52hi_epu64(sum[1], a[1], b[1])]
}

/// `yes` in the lanes of the mask, `no` in the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn select(lanes: u8, yes: Vector, no: Vector) -> Vector {
    [_mm256_mask_mov_epi64(no[0], lanes, yes[0]), _mm256_mask_mov_epi64(no[1], lanes >> 4, yes[1])]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn lanes_below(a: Vector, b: Vector) -> u8 {
    _mm256_cmplt_epu64_mask(a[0], b[0]) | _mm256_cmplt_epu64_mask(a[1], b[1]) << 4
}

/// The lanes in which the two have a bit in common.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn lanes_with(a: Vector, bits: Vector) -> u8 {
    _mm256_test_epi64_mask(a[0], bits[0]) | _mm256_test_epi64_mask(a[1], bits[1]) << 4
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn least(a: Vector) -> u64 {
    let four = _mm256_min_epu64(a[0], a[1]);
    let two = _mm_min_epu64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    (_mm_extract_epi64::<0>(two) as u64).min(_mm_extract_epi64::<1>(two) as u64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn greatest(a: Vector) -> u64 {
    let four = _mm256_max_epu64(a[0], a[1]);
    let two = _mm_max_epu64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    (_mm_extract_epi64::<0>(two) as u64).max(_mm_extract_epi64::<1>(two) as u64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn total(a: Vector) -> u64 {
    let four = _mm256_add_epi64(a[0], a[1]);
    let two = _mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256::<1>(four));
    (_mm_extract_epi64::<0>(two) as u64).wrapping_add(_mm_extract_epi64::<1>(two) as u64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_8x64(words: &[u64; 8]) -> Vector {
    in_two(bytes::load_8x64(words))
}

/// As many words as fit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn store_up_to_8x64(words: &mut [u64], [low, high]: Vector) {
    let whole = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
    bytes::store_up_to_8x64(words, whole);
}

/// Eight 64-bit words from their lower and upper halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn join_halves(low: &[u32; 8], high: &[u32; 8]) -> Vector {
    let [low, high] =
        [low, high].map(|words| in_two(_mm512_cvtepu32_epi64(bytes::load_8x32(words))));
    or(low, shl::<32>(high))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_64(row: &[u8; 64]) -> Vector {
    let (halves, _) = row.as_chunks();
    [bytes::load_32(&halves[0]), bytes::load_32(&halves[1])]
}

/// The 64 bytes from `start` on, with zeros behind the end of `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_tail(bytes: &[u8], start: usize) -> Vector {
    in_two(bytes::load_tail(bytes, start))
}

/// The 64 bytes from `start` on, with zeros before and behind `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_window(bytes: &[u8], start: isize) -> Vector {
    in_two(bytes::load_window(bytes, start))
}

/// 64 bytes, of which the last 16 are these two words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn ending_with([front, back]: Vector, [low, high]: [i64; 2]) -> Vector {
    [front, _mm256_inserti64x2::<1>(back, _mm_set_epi64x(high, low))]
}

/// The low and high halves of the blocks of two rows, in the order 0 4 1 5 2 6 3 7.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn halves_of_two(front: Vector, back: Vector) -> [Vector; 2] {
    [
        std::array::from_fn(|i| _mm256_unpacklo_epi64(front[i], back[i])),
        std::array::from_fn(|i| _mm256_unpackhi_epi64(front[i], back[i])),
    ]
}

/// The low and high halves of four blocks, from one row per lane: four 4 by 4 matrices of 64-bit
/// words, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn halves_of_eight(rows: [Vector; 8]) -> [[Vector; 2]; 4] {
    let mut halves = [[zeros(); 2]; 4];
    for four in 0..2 {
        for half in 0..2 {
            let row = |i: usize| rows[4 * four + i][half];
            let low =
                [_mm256_unpacklo_epi64(row(0), row(1)), _mm256_unpacklo_epi64(row(2), row(3))];
            let high =
                [_mm256_unpackhi_epi64(row(0), row(1)), _mm256_unpackhi_epi64(row(2), row(3))];
            for (i, [a, b]) in [low, high].into_iter().enumerate() {
                halves[2 * half][i][four] = _mm256_permute2x128_si256::<0x20>(a, b);
                halves[2 * half + 1][i][four] = _mm256_permute2x128_si256::<0x31>(a, b);
            }
        }
    }
    halves
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn in_two(whole: __m512i) -> Vector {
    [_mm512_castsi512_si256(whole), _mm512_extracti64x4_epi64::<1>(whole)]
}
