//! Eight lanes of 64 bits in one register of 512 bits.
//!
//! ```text
//! Vector = | lane 0 | lane 1 || lane 2 | lane 3 || lane 4 | lane 5 || lane 6 | lane 7 |
//! masks    bit i is lane i
//! ```
//!
//! The arithmetic on lanes is written once and compiled for two widths; this file and
//! [`ymm`](super::ymm) are what differs.
#![allow(clippy::duplicate_mod, reason = "one source for two widths")]

#[path = "eight.rs"]
pub(super) mod eight;
#[path = "field.rs"]
mod field;
#[path = "long.rs"]
pub(super) mod long;

use std::arch::x86_64::*;

use super::super::bytes;
use super::super::chacha::transpose_lanes;

type Vector = __m512i;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn zeros() -> Vector {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn splat(word: i64) -> Vector {
    _mm512_set1_epi64(word)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn words([a, b, c, d, e, f, g, h]: [i64; 8]) -> Vector {
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi64(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn and(a: Vector, b: Vector) -> Vector {
    _mm512_and_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn or(a: Vector, b: Vector) -> Vector {
    _mm512_or_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn shr<const BITS: u32>(a: Vector) -> Vector {
    _mm512_srli_epi64::<BITS>(a)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn shl<const BITS: u32>(a: Vector) -> Vector {
    _mm512_slli_epi64::<BITS>(a)
}

/// Adds the low halves of the products of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn madd_low(sum: Vector, a: Vector, b: Vector) -> Vector {
    _mm512_madd52lo_epu64(sum, a, b)
}

/// Adds the high halves of the products of 52 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn madd_high(sum: Vector, a: Vector, b: Vector) -> Vector {
    _mm512_madd52hi_epu64(sum, a, b)
}

/// `yes` in the lanes of the mask, `no` in the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn select(lanes: u8, yes: Vector, no: Vector) -> Vector {
    _mm512_mask_mov_epi64(no, lanes, yes)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn lanes_below(a: Vector, b: Vector) -> u8 {
    _mm512_cmplt_epu64_mask(a, b)
}

/// The lanes in which the two have a bit in common.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn lanes_with(a: Vector, bits: Vector) -> u8 {
    _mm512_test_epi64_mask(a, bits)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn least(a: Vector) -> u64 {
    _mm512_reduce_min_epu64(a)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn greatest(a: Vector) -> u64 {
    _mm512_reduce_max_epu64(a)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn total(a: Vector) -> u64 {
    _mm512_reduce_add_epi64(a) as u64
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_8x64(words: &[u64; 8]) -> Vector {
    bytes::load_8x64(words)
}

/// As many words as fit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn store_up_to_8x64(words: &mut [u64], value: Vector) {
    bytes::store_up_to_8x64(words, value);
}

/// Eight 64-bit words from their lower and upper halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn join_halves(low: &[u32; 8], high: &[u32; 8]) -> Vector {
    let [low, high] = [low, high].map(|words| _mm512_cvtepu32_epi64(bytes::load_8x32(words)));
    or(low, shl::<32>(high))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_64(row: &[u8; 64]) -> Vector {
    bytes::load_64(row)
}

/// The 64 bytes from `start` on, with zeros behind the end of `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_tail(bytes: &[u8], start: usize) -> Vector {
    bytes::load_tail(bytes, start)
}

/// The 64 bytes from `start` on, with zeros before and behind `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn load_window(bytes: &[u8], start: isize) -> Vector {
    bytes::load_window(bytes, start)
}

/// 64 bytes, of which the last 16 are these two words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn ending_with(row: Vector, [low, high]: [i64; 2]) -> Vector {
    _mm512_inserti64x2::<3>(row, _mm_set_epi64x(high, low))
}

/// The low and high halves of the blocks of two rows, in the order 0 4 1 5 2 6 3 7.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn halves_of_two(front: Vector, back: Vector) -> [Vector; 2] {
    [_mm512_unpacklo_epi64(front, back), _mm512_unpackhi_epi64(front, back)]
}

/// The low and high halves of four blocks, from one row per lane: an 8 by 8 matrix of 64-bit words,
/// transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512ifma,bmi2")]
fn halves_of_eight(rows: [Vector; 8]) -> [[Vector; 2]; 4] {
    let low = |i: usize| _mm512_unpacklo_epi64(rows[i], rows[i + 1]);
    let high = |i: usize| _mm512_unpackhi_epi64(rows[i], rows[i + 1]);
    let low = transpose_lanes([low(0), low(2), low(4), low(6)]);
    let high = transpose_lanes([high(0), high(2), high(4), high(6)]);
    std::array::from_fn(|i| [low[i], high[i]])
}
