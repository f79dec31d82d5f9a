//! `ChaCha20` in 512-bit registers, in two layouts.
//!
//! **Wide**: register `w` holds word `w` of sixteen blocks, one per 32-bit lane, and a quarter
//! round is the scalar one with vectors for words.
//!
//! ```text
//! input:  16 keys, 16 nonces  --transpose-->  12 rows of 16 words in memory
//! rounds: v[0..16] = rows; 10 x (4 quarter rounds on columns, 4 on diagonals)
//! output: v + rows  --transpose-->  one 64-byte row per block  --XOR-->  text
//!         or, for one-time keys, the first eight words as they are: Poly1305 wants them transposed
//! ```
//!
//! The transpositions are of 4 by 4 words within 128-bit lanes. Going in, register `i` is loaded
//! with packets `i`, `i + 4`, `i + 8` and `i + 12`, so that the words come out in the order of the
//! packets; going out, the same order brings 16 bytes of blocks `i`, `i + 4`, `i + 8` and `i + 12`
//! into register `i`, and a transposition of whole 128-bit lanes makes them rows:
//!
//! ```text
//! loaded      r0 = | p0: k0 k1 k2 k3 || p4: k0 … || p8: k0 … || p12: k0 … |   r1 = | p1 || p5 …
//! transposed  k0 = | p0  p1  p2  p3  || p4 … p7  || p8 … p11 || p12 … p15 |   k1 = …
//!
//! v0 … v3    ->  a0 = | b0: w0 … w3   || b4 … || b8 … || b12 … |   a1 = | b1 … || b5 …
//! v4 … v7    ->  b0 = | b0: w4 … w7   || b4 … || b8 … || b12 … |
//! v8 … v11   ->  c0 = | b0: w8 … w11  || b4 … || b8 … || b12 … |
//! v12 … v15  ->  d0 = | b0: w12 … w15 || b4 … || b8 … || b12 … |
//! a0 b0 c0 d0  ->  | b0: w0 … w15 |, | b4: w0 … w15 |, | b8: … |, | b12: … |
//! ```
//!
//! **Rows**: four blocks share four registers, one 128-bit lane each; a register holds one row of
//! the cipher's 4 by 4 matrix. Nothing is transposed before, and after it only whole 128-bit lanes;
//! but each round rotates three of the rows, and one set of four registers is a single chain of
//! dependent instructions. Good for few blocks.
//!
//! ```text
//! a = | b0: w0  w1  w2  w3  || b1 … || b2 … || b3 … |     diagonals become columns when
//! b = | b0: w4  w5  w6  w7  || b1 … || b2 … || b3 … |     a is turned by one word to the right,
//! c = | b0: w8  w9  w10 w11 || b1 … || b2 … || b3 … |     c by one to the left, d by two;
//! d = | b0: w12 w13 w14 w15 || b1 … || b2 … || b3 … |     b, which is ready last, stays
//! ```
//!
//! What matters, in cycles of a Granite Rapids core:
//! - The 960 instructions of the rounds need 480 cycles on two ports. A group of sixteen takes 523
//!   without output and 570 with it, so there is little left to gain in the rounds.
//! - Gathering costs 75. So gathered words are kept: the next blocks of the same packets need not
//!   pay for them.
//! - The input is added from memory. Sixteen registers of state and sixteen of input would leave
//!   none for temporary values.
//! - The rounds are a macro. A function with a target feature cannot be forced inline, and a call
//!   would pass sixteen registers through memory.
//! - Rows cost 255, 415 and 585 for up to 4, 8 and 12 blocks, gathering and mixing up to sixteen
//!   650. Hence `ROWS_BEST`.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::bytes::{
    join_128, load_12, load_16, load_16x32, load_64, store_16x32, store_64, xor_with,
};
use crate::crypto::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Places, Rows, SIGMA, Source,
};

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn gather(sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input) {
    input.lanes = lanes;
    let mut low = [_mm512_setzero_si512(); 4];
    let mut high = low;
    let mut nonce = low;
    for i in 0..4 {
        // Transposed within 128-bit lanes, these become words of blocks 0, 1, 2, … in order.
        let four = [&sources[i], &sources[i + 4], &sources[i + 8], &sources[i + 12]];
        (low[i], high[i], nonce[i]) = load_four(four);
    }
    let [k0, k1, k2, k3] = transpose_in_lanes(low);
    let [k4, k5, k6, k7] = transpose_in_lanes(high);
    let [n0, n1, n2, _] = transpose_in_lanes(nonce);
    for (row, words) in input.key.iter_mut().zip([k0, k1, k2, k3, k4, k5, k6, k7]) {
        store_16x32(row, words);
    }
    for (row, words) in input.nonce.iter_mut().zip([n0, n1, n2]) {
        store_16x32(row, words);
    }
    for (counter, source) in input.counter.iter_mut().zip(sources) {
        *counter = source.counter;
    }
}

/// The two halves of four keys, and four nonces.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn load_four(sources: [&Source<'_>; 4]) -> (__m512i, __m512i, __m512i) {
    let [a, b, c, d] = sources;
    let half = |source: &Source<'_>, i: usize| load_16(&source.key.as_chunks().0[i]);
    (
        join_128([half(a, 0), half(b, 0), half(c, 0), half(d, 0)]),
        join_128([half(a, 1), half(b, 1), half(c, 1), half(d, 1)]),
        join_128([load_12(a.nonce), load_12(b.nonce), load_12(c.nonce), load_12(d.nonce)]),
    )
}

/// Steps of quarter rounds that do not depend on each other, in lock-step.
macro_rules! quarter_rounds {
    ($v:ident: $(($a:literal $b:literal $c:literal $d:literal))+) => {
        $($v[$a] = _mm512_add_epi32($v[$a], $v[$b]);)+
        $($v[$d] = _mm512_rol_epi32::<16>(_mm512_xor_si512($v[$d], $v[$a]));)+
        $($v[$c] = _mm512_add_epi32($v[$c], $v[$d]);)+
        $($v[$b] = _mm512_rol_epi32::<12>(_mm512_xor_si512($v[$b], $v[$c]));)+
        $($v[$a] = _mm512_add_epi32($v[$a], $v[$b]);)+
        $($v[$d] = _mm512_rol_epi32::<8>(_mm512_xor_si512($v[$d], $v[$a]));)+
        $($v[$c] = _mm512_add_epi32($v[$c], $v[$d]);)+
        $($v[$b] = _mm512_rol_epi32::<7>(_mm512_xor_si512($v[$b], $v[$c]));)+
    };
}

/// The sixteen words of sixteen blocks.
macro_rules! stream_words {
    ($input:expr) => {{
        let mut v = input_words($input);
        for _ in 0..10 {
            quarter_rounds!(v: (0 4 8 12) (1 5 9 13) (2 6 10 14) (3 7 11 15));
            quarter_rounds!(v: (0 5 10 15) (1 6 11 12) (2 7 8 13) (3 4 9 14));
        }
        let again = input_words(black_box($input));
        for i in 0..16 {
            v[i] = _mm512_add_epi32(v[i], again[i]);
        }
        v
    }};
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn input_words(input: &Input) -> [__m512i; 16] {
    let mut words = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        words[i] = _mm512_set1_epi32(SIGMA[i] as i32);
    }
    for i in 0..8 {
        words[4 + i] = load_16x32(&input.key[i]);
    }
    words[12] = load_16x32(&input.counter);
    for i in 0..3 {
        words[13 + i] = load_16x32(&input.nonce[i]);
    }
    words
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn one_time_keys(input: &Input, keys: &mut OneTimeKeys) {
    let v = stream_words!(input);
    for i in 0..8 {
        store_16x32(keys.sixteen_mut(i), v[i]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn xor(input: &Input, set: usize, places: &mut impl Places) {
    debug_assert_eq!(set, 0, "all sixteen lanes are one set");
    let v = stream_words!(input);
    let a = transpose_in_lanes([v[0], v[1], v[2], v[3]]);
    let b = transpose_in_lanes([v[4], v[5], v[6], v[7]]);
    let c = transpose_in_lanes([v[8], v[9], v[10], v[11]]);
    let d = transpose_in_lanes([v[12], v[13], v[14], v[15]]);
    for i in 0..4 {
        let rows = transpose_lanes([a[i], b[i], c[i], d[i]]);
        for (quarter, row) in rows.into_iter().enumerate() {
            xor_with(places.place(4 * quarter + i), row);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn rows(sources: &[Source<'_>], rows: &mut Rows) {
    match sources.len() {
        0..=4 => rows_of::<1>(sources, rows),
        5..=8 => rows_of::<2>(sources, rows),
        _ => rows_of::<3>(sources, rows),
    }
}

/// Rows of four times `SETS` blocks; the last source stands in for those that are missing.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn rows_of<const SETS: usize>(sources: &[Source<'_>], rows: &mut Rows) {
    let source = |lane: usize| &sources[lane.min(sources.len() - 1)];
    let sigma = _mm512_broadcast_i32x4(load_sigma());
    let mut input = [[sigma; 4]; SETS];
    for (s, [_, b, c, d]) in input.iter_mut().enumerate() {
        let four = [source(4 * s), source(4 * s + 1), source(4 * s + 2), source(4 * s + 3)];
        let nonces;
        (*b, *c, nonces) = load_four(four);
        let counter = |i: usize| _mm_cvtsi32_si128(four[i].counter as i32);
        let counters = join_128([counter(0), counter(1), counter(2), counter(3)]);
        *d = _mm512_or_si512(_mm512_bslli_epi128::<4>(nonces), counters);
    }
    store_rows(stream_rows(&input, &mut ()), &mut rows.0);
}

/// The key stream of one packet, from a source on: one set of four blocks, or two.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn stream<M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: M,
) -> M {
    match rows.len() {
        0..=4 => stream_of::<1, M>(source, rows, meanwhile),
        _ => stream_of::<2, M>(source, rows, meanwhile),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn stream_of<const SETS: usize, M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    mut meanwhile: M,
) -> M {
    let half = |i: usize| load_16(&source.key.as_chunks().0[i]);
    let counted =
        _mm_insert_epi32::<0>(_mm_bslli_si128::<4>(load_12(source.nonce)), source.counter as i32);
    let first = _mm512_add_epi32(
        _mm512_broadcast_i32x4(counted),
        _mm512_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0),
    );
    let mut input = [[
        _mm512_broadcast_i32x4(load_sigma()),
        _mm512_broadcast_i32x4(half(0)),
        _mm512_broadcast_i32x4(half(1)),
        first,
    ]; SETS];
    if let Some([.., d]) = input.get_mut(1) {
        let four = _mm512_broadcast_i32x4(_mm_setr_epi32(4, 0, 0, 0));
        *d = _mm512_add_epi32(first, four);
    }
    store_rows(stream_rows(&input, &mut meanwhile), rows);
    meanwhile
}

/// The rows of the cipher's matrix after all rounds, for every set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn stream_rows<const SETS: usize>(
    input: &[[__m512i; 4]; SETS],
    meanwhile: &mut impl Meanwhile,
) -> [[__m512i; 4]; SETS] {
    let mut v = *input;
    for _ in 0..10 {
        quarter_rounds_on_columns(&mut v);
        for [a, _, c, d] in &mut v {
            // Diagonals become columns. The row that stays is `b`, which is ready last.
            *a = _mm512_shuffle_epi32::<0x93>(*a);
            *d = _mm512_shuffle_epi32::<0x4e>(*d);
            *c = _mm512_shuffle_epi32::<0x39>(*c);
        }
        quarter_rounds_on_columns(&mut v);
        for [a, _, c, d] in &mut v {
            *a = _mm512_shuffle_epi32::<0x39>(*a);
            *d = _mm512_shuffle_epi32::<0x4e>(*d);
            *c = _mm512_shuffle_epi32::<0x93>(*c);
        }
        meanwhile.step();
    }
    for (v, input) in v.iter_mut().zip(input) {
        for i in 0..4 {
            v[i] = _mm512_add_epi32(v[i], input[i]);
        }
    }
    v
}

/// Writes four blocks of each set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn store_rows<const SETS: usize>(v: [[__m512i; 4]; SETS], rows: &mut [[u8; BLOCK_BYTES]]) {
    for (v, rows) in v.into_iter().zip(rows.chunks_mut(4)) {
        for (row, out) in rows.iter_mut().zip(transpose_lanes(v)) {
            store_64(row, out);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn wipe_rows(rows: &mut [[u8; BLOCK_BYTES]]) {
    for row in rows {
        store_64(row, _mm512_setzero_si512());
    }
}

/// The first row of the cipher's matrix.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn load_sigma() -> __m128i {
    let [s0, s1, s2, s3] = SIGMA.map(|word| word as i32);
    _mm_setr_epi32(s0, s1, s2, s3)
}

/// Four quarter rounds for every block, the sets in lock-step.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn quarter_rounds_on_columns<const SETS: usize>(v: &mut [[__m512i; 4]; SETS]) {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    const D: usize = 3;
    macro_rules! step {
        ($sum:ident += $addend:ident, $mixed:ident <<< $bits:literal) => {
            for row in v.iter_mut() {
                row[$sum] = _mm512_add_epi32(row[$sum], row[$addend]);
            }
            for row in v.iter_mut() {
                let mixed = _mm512_xor_si512(row[$mixed], row[$sum]);
                row[$mixed] = _mm512_rol_epi32::<$bits>(mixed);
            }
        };
    }
    step!(A += B, D <<< 16);
    step!(C += D, B <<< 12);
    step!(A += B, D <<< 8);
    step!(C += D, B <<< 7);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn xor_row(text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
    xor_with(text, load_64(row));
}

/// A 4 by 4 matrix of 32-bit words in each 128-bit lane, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn transpose_in_lanes([x0, x1, x2, x3]: [__m512i; 4]) -> [__m512i; 4] {
    let t0 = _mm512_unpacklo_epi32(x0, x1);
    let t1 = _mm512_unpackhi_epi32(x0, x1);
    let t2 = _mm512_unpacklo_epi32(x2, x3);
    let t3 = _mm512_unpackhi_epi32(x2, x3);
    [
        _mm512_unpacklo_epi64(t0, t2),
        _mm512_unpackhi_epi64(t0, t2),
        _mm512_unpacklo_epi64(t1, t3),
        _mm512_unpackhi_epi64(t1, t3),
    ]
}

/// A 4 by 4 matrix of 128-bit lanes, transposed.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn transpose_lanes([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let t0 = _mm512_shuffle_i32x4::<0x44>(a, b);
    let t1 = _mm512_shuffle_i32x4::<0xee>(a, b);
    let t2 = _mm512_shuffle_i32x4::<0x44>(c, d);
    let t3 = _mm512_shuffle_i32x4::<0xee>(c, d);
    [
        _mm512_shuffle_i32x4::<0x88>(t0, t2),
        _mm512_shuffle_i32x4::<0xdd>(t0, t2),
        _mm512_shuffle_i32x4::<0x88>(t1, t3),
        _mm512_shuffle_i32x4::<0xdd>(t1, t3),
    ]
}
