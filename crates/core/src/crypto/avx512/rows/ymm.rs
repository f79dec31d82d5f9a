//! Two blocks in a set: registers of 256 bits.
#![allow(clippy::duplicate_mod, reason = "one source for two widths")]

#[path = "sets.rs"]
pub(super) mod sets;

use std::arch::x86_64::*;

use crate::crypto::avx512::bytes::store_32;
use crate::crypto::wide::BLOCK_BYTES;

type Vector = __m256i;

/// Blocks in a set.
const BLOCKS: usize = 2;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn zeros() -> Vector {
    _mm256_setzero_si256()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn in_every_lane(row: __m128i) -> Vector {
    _mm256_broadcastsi128_si256(row)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn each_in_lane([a, b]: [__m128i; BLOCKS]) -> Vector {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}

/// What is added to the counters of a set whose first block is block `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn counters(first: i32) -> Vector {
    _mm256_setr_epi32(first, 0, 0, 0, first + 1, 0, 0, 0)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm256_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn rotate<const LEFT: i32>(a: Vector) -> Vector {
    _mm256_rol_epi32::<LEFT>(a)
}

/// The words of each 128-bit lane in another order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn turn<const ORDER: i32>(row: Vector) -> Vector {
    _mm256_shuffle_epi32::<ORDER>(row)
}

/// Writes the blocks of a set, as many as there are rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn store([a, b, c, d]: [Vector; 4], rows: &mut [[u8; BLOCK_BYTES]]) {
    let low = |x, y| _mm256_inserti128_si256::<1>(x, _mm256_castsi256_si128(y));
    let high = |x, y| _mm256_permute2x128_si256::<0x31>(x, y);
    let both = [[low(a, b), low(c, d)], [high(a, b), high(c, d)]];
    for i in 0..BLOCKS {
        let Some(row) = rows.get_mut(i) else { return };
        let (halves, _) = row.as_chunks_mut();
        store_32(&mut halves[0], both[i][0]);
        store_32(&mut halves[1], both[i][1]);
    }
}
