//! `ChaCha20` for few blocks in 256-bit registers: two whole blocks in each set of four.
//!
//! The layout and the rounds are those of [the AVX-512
//! kernels](super::super::avx512), with a set of two blocks:
//!
//! ```text
//! a     =  | w0  w1  w2  w3  of b0 || w0  w1  w2  w3  of b1 |
//! b     =  | w4  w5  w6  w7        || w4  w5  w6  w7        |
//! c     =  | w8  w9  w10 w11       || w8  w9  w10 w11       |
//! d     =  | w12 w13 w14 w15       || w12 w13 w14 w15       |        || ends 128 bits
//! ```
//!
//! A quarter round works on the four columns at once. Then three rows are turned until each
//! diagonal stands in a column, and are turned back after the next one.
//!
//! Three sets are as many as sixteen registers hold beside temporary values. On Zen 4 up to 2, 4
//! and 6 blocks of one packet take 274, 346 and 412 cycles.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::bytes::{Rotations, join_128, load_16, load_block_input, rotate, store_row};
use crate::crypto::wide::{BLOCK_BYTES, Meanwhile, ROUNDS, SIGMA_BYTES, Source};

/// The four rows of the matrix of each block of a set.
type Set = [__m256i; 4];

/// Blocks in a set.
const BLOCKS: usize = 2;

/// Blocks that one call computes.
pub(super) const BLOCKS_MAX: usize = 3 * BLOCKS;

/// Writes the key stream of each source, of which there are one to six, to its row.
#[target_feature(enable = "avx2")]
pub(super) fn rows(sources: &[Source<'_>], rows: &mut [[u8; BLOCK_BYTES]]) {
    match sources.len() {
        0..=2 => rows_of::<1>(sources, rows),
        3..=4 => rows_of::<2>(sources, rows),
        _ => rows_of::<3>(sources, rows),
    }
}

/// Writes the key stream of one packet from a source on, at most six rows.
#[target_feature(enable = "avx2")]
pub(super) fn stream<M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: &mut M,
) {
    match rows.len() {
        0..=2 => stream_of::<1, M>(source, rows, meanwhile),
        3..=4 => stream_of::<2, M>(source, rows, meanwhile),
        _ => stream_of::<3, M>(source, rows, meanwhile),
    }
}

/// Rows of two times `SETS` blocks; the last source stands in for those that are missing.
#[target_feature(enable = "avx2")]
fn rows_of<const SETS: usize>(sources: &[Source<'_>], rows: &mut [[u8; BLOCK_BYTES]]) {
    let sigma = _mm256_broadcastsi128_si256(load_16(&SIGMA_BYTES));
    let mut input = [[sigma; 4]; SETS];
    for s in 0..SETS {
        let [mut b, mut c, mut d] = [[_mm_setzero_si128(); BLOCKS]; 3];
        for i in 0..BLOCKS {
            let source = &sources[(BLOCKS * s + i).min(sources.len() - 1)];
            let (halves, _) = source.key.as_chunks();
            b[i] = load_16(&halves[0]);
            c[i] = load_16(&halves[1]);
            d[i] = load_block_input(source);
        }
        let both = |[x, y]: [__m128i; BLOCKS]| join_128(x, y);
        input[s] = [sigma, both(b), both(c), both(d)];
    }
    store_sets(rounds(input, &mut ()), &mut rows[..sources.len()]);
}

/// The key stream of one packet from a source on, in step with something else.
#[target_feature(enable = "avx2")]
fn stream_of<const SETS: usize, M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: &mut M,
) {
    let in_every_lane = |row| _mm256_broadcastsi128_si256(row);
    let (halves, _) = source.key.as_chunks();
    let sigma = in_every_lane(load_16(&SIGMA_BYTES));
    let b = in_every_lane(load_16(&halves[0]));
    let c = in_every_lane(load_16(&halves[1]));
    let counted = in_every_lane(load_block_input(&source));
    let mut input = [[sigma, b, c, counted]; SETS];
    for s in 0..SETS {
        let first = (BLOCKS * s) as i32;
        input[s][3] =
            _mm256_add_epi32(counted, _mm256_setr_epi32(first, 0, 0, 0, first + 1, 0, 0, 0));
    }
    let mut copy = *meanwhile;
    let v = rounds(input, &mut copy);
    *meanwhile = copy;
    store_sets(v, rows);
}

/// The key stream of every set.
#[inline]
#[target_feature(enable = "avx2")]
fn rounds<const SETS: usize>(input: [Set; SETS], meanwhile: &mut impl Meanwhile) -> [Set; SETS] {
    let by = Rotations::load();
    let mut v = [[_mm256_setzero_si256(); 4]; SETS];
    for s in 0..SETS {
        for i in 0..4 {
            v[s][i] = input[s][i];
        }
    }
    for _ in 0..black_box(ROUNDS / 2) {
        v = quarter_rounds(v, by);
        for s in 0..SETS {
            let [a, b, c, d] = v[s];
            // Diagonals become columns. The row that stays is `b`, which is ready last.
            v[s] = [turn::<RIGHT>(a), b, turn::<LEFT>(c), turn::<TWICE>(d)];
        }
        v = quarter_rounds(v, by);
        for s in 0..SETS {
            let [a, b, c, d] = v[s];
            v[s] = [turn::<LEFT>(a), b, turn::<RIGHT>(c), turn::<TWICE>(d)];
        }
        meanwhile.step();
    }
    for s in 0..SETS {
        for i in 0..4 {
            v[s][i] = _mm256_add_epi32(v[s][i], input[s][i]);
        }
    }
    v
}

/// Four quarter rounds for every block, the sets in step.
#[inline]
#[target_feature(enable = "avx2")]
fn quarter_rounds<const SETS: usize>(mut v: [Set; SETS], by: Rotations) -> [Set; SETS] {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    const D: usize = 3;
    macro_rules! step {
        ($sum:ident += $addend:ident, $mixed:ident: $rotate:expr) => {
            for s in 0..SETS {
                v[s][$sum] = _mm256_add_epi32(v[s][$sum], v[s][$addend]);
                v[s][$mixed] = $rotate(_mm256_xor_si256(v[s][$mixed], v[s][$sum]));
            }
        };
    }
    step!(A += B, D: |x| _mm256_shuffle_epi8(x, by.left_16));
    step!(C += D, B: rotate::<12, 20>);
    step!(A += B, D: |x| _mm256_shuffle_epi8(x, by.left_8));
    step!(C += D, B: rotate::<7, 25>);
    v
}

/// The words of each 128-bit lane in another order.
#[inline]
#[target_feature(enable = "avx2")]
fn turn<const ORDER: i32>(row: __m256i) -> __m256i {
    _mm256_shuffle_epi32::<ORDER>(row)
}

/// Which word comes to each place, two bits each, the first place lowest.
const RIGHT: i32 = 0b10_01_00_11;
const TWICE: i32 = 0b01_00_11_10;
const LEFT: i32 = 0b00_11_10_01;

/// Writes the blocks of all sets, as many as there are rows.
#[inline]
#[target_feature(enable = "avx2")]
fn store_sets<const SETS: usize>(v: [Set; SETS], rows: &mut [[u8; BLOCK_BYTES]]) {
    for s in 0..SETS {
        let [a, b, c, d] = v[s];
        let low = |x, y| _mm256_permute2x128_si256::<0x20>(x, y);
        let high = |x, y| _mm256_permute2x128_si256::<0x31>(x, y);
        let both = [[low(a, b), low(c, d)], [high(a, b), high(c, d)]];
        for i in 0..BLOCKS {
            let Some(row) = rows.get_mut(BLOCKS * s + i) else { return };
            store_row(row, both[i]);
        }
    }
}
