//! `ChaCha20` in 512-bit registers for many blocks; few are in [`rows`](super::rows).
//!
//! The layout is *wide*: register `w` holds word `w` of sixteen blocks, one per 32-bit lane, and a
//! quarter round is the scalar one with vectors for words.
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
//! What matters, in cycles of a Granite Rapids core:
//! - The 960 instructions of the rounds need 480 cycles on two ports. A group of sixteen takes 523
//!   without output and 570 with it, so there is little left to gain in the rounds.
//! - Gathering costs 75. So gathered words are kept: the next blocks of the same packets need not
//!   pay for them.
//! - The input is added from memory. Sixteen registers of state and sixteen of input would leave
//!   none for temporary values.
//! - The rounds are a macro. A function with a target feature cannot be forced inline, and a call
//!   would pass sixteen registers through memory.
//! - Gathering and mixing up to sixteen blocks takes 650 (Zen 4: 750), up to twelve less in rows.
//!   Hence `ROWS_BEST`.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::bytes::{
    join_128, load_12, load_16, load_16x32, load_64, store_16x32, store_64, xor_with,
};
use crate::crypto::wide::{BLOCK_BYTES, Input, LANES, OneTimeKeys, Places, SIGMA, Source};

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
pub(super) fn wipe_rows(rows: &mut [[u8; BLOCK_BYTES]]) {
    for row in rows {
        store_64(row, _mm512_setzero_si512());
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn xor_row(text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
    xor_with(text, load_64(row));
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn xor_rows(text: &mut [u8], rows: &[[u8; BLOCK_BYTES]]) {
    let (blocks, tail) = text.as_chunks_mut::<BLOCK_BYTES>();
    let whole = blocks.len();
    for (block, row) in blocks.iter_mut().zip(rows) {
        let mixed = _mm512_xor_si512(load_64(block), load_64(row));
        store_64(block, mixed);
    }
    if let Some(row) = rows.get(whole) {
        xor_with(tail, load_64(row));
    }
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
