//! Four blocks in a set: registers of 512 bits.
#![allow(clippy::duplicate_mod, reason = "one source for two widths")]

#[path = "sets.rs"]
pub(super) mod sets;

use std::arch::x86_64::*;

use crate::crypto::avx512::bytes::{join_128, store_64};
use crate::crypto::avx512::chacha::transpose_lanes;
use crate::crypto::wide::BLOCK_BYTES;

type Vector = __m512i;

/// Blocks in a set.
const BLOCKS: usize = 4;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn zeros() -> Vector {
    _mm512_setzero_si512()
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn in_every_lane(row: __m128i) -> Vector {
    _mm512_broadcast_i32x4(row)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn each_in_lane(rows: [__m128i; BLOCKS]) -> Vector {
    join_128(rows)
}

/// What is added to the counters of a set whose first block is block `first`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn counters(first: i32) -> Vector {
    let [a, b, c, d] = [first, first + 1, first + 2, first + 3];
    _mm512_setr_epi32(a, 0, 0, 0, b, 0, 0, 0, c, 0, 0, 0, d, 0, 0, 0)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn add(a: Vector, b: Vector) -> Vector {
    _mm512_add_epi32(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn rotate<const LEFT: i32>(a: Vector) -> Vector {
    _mm512_rol_epi32::<LEFT>(a)
}

/// The words of each 128-bit lane in another order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn turn<const ORDER: i32>(row: Vector) -> Vector {
    _mm512_shuffle_epi32::<ORDER>(row)
}

/// Writes the blocks of a set, as many as there are rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn store(set: [Vector; 4], rows: &mut [[u8; BLOCK_BYTES]]) {
    let blocks = transpose_lanes(set);
    for i in 0..BLOCKS {
        let Some(row) = rows.get_mut(i) else { return };
        store_64(row, blocks[i]);
    }
}
