//! `ChaCha20` in 256-bit registers.
//!
//! The layouts are those of [the 512-bit kernel](super::super::avx512): *wide* here, with one block
//! in each 32-bit lane and one word of it in each of sixteen registers, in halves of eight blocks;
//! and whole blocks in 128-bit lanes for few of them, in [`rows`](super::rows).
//!
//! ```text
//! v[w]  =  | w of b0 | w of b1 | w of b2 | w of b3 || w of b4 | … | w of b7 |
//! ```
//!
//! From wide to bytes, four registers at a time are transposed within their 128 bits; of blocks `i`
//! and `i + 4` that puts 16 bytes side by side, and an exchange of 128-bit halves makes rows:
//!
//! ```text
//! v0 … v3    ->  a[i] = | w0 … w3   of bi || w0 … w3   of b(i+4) |
//! v4 … v7    ->  b[i] = | w4 … w7   of bi || w4 … w7   of b(i+4) |     bi:     the lower halves
//! v8 … v11   ->  c[i] = | w8 … w11  of bi || w8 … w11  of b(i+4) |     b(i+4): the upper halves
//! v12 … v15  ->  d[i] = | w12 … w15 of bi || w12 … w15 of b(i+4) |
//! ```
//!
//! What matters, in cycles of a Granite Rapids core:
//! - There is no rotation. By 16 and by 8 bits it is a shuffle of bytes, otherwise two shifts and
//!   an or: 1280 instructions for eight blocks, which three ports could do in 430. They take 565,
//!   because the sixteen registers that there are hold the state and nothing else, so that
//!   temporary values and shuffle patterns keep pushing words of it to memory and back.
//! - The patterns are loaded through a `black_box`. When the compiler knows them it replaces the
//!   one shuffle of a rotation by 16 with two others (7 %).
//! - Eight blocks take 620 (Zen 4: 665), six in [`rows`](super::rows) on Zen 4 477. So up to six
//!   blocks are done there, twelve as twice six, and seven or eight here.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::bytes::{
    Rotations, join_128, load_8x32, load_12, load_16, load_row, rotate, store_8x32, store_row,
    xor_part, xor_with,
};
use super::rows as few;
use crate::crypto::wide::{BLOCK_BYTES, Input, LANES, OneTimeKeys, Places, Rows, SIGMA, Source};

/// Blocks in a set of registers. The sixteen lanes of a wide call are two such halves.
const HALF: usize = LANES / 2;

#[target_feature(enable = "avx2")]
pub(super) fn gather(sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input) {
    input.lanes = lanes;
    let (halves, _) = sources.as_chunks::<HALF>();
    for (i, half) in halves.iter().enumerate().take(lanes.div_ceil(HALF)) {
        gather_half(half, input, i);
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn gather_half(sources: &[Source<'_>; HALF], input: &mut Input, half: usize) {
    let mut low = [_mm256_setzero_si256(); 4];
    let mut high = low;
    let mut nonce = low;
    for i in 0..4 {
        (low[i], high[i], nonce[i]) = load_two([&sources[i], &sources[i + 4]]);
    }
    let [k0, k1, k2, k3] = transpose_in_lanes(low);
    let [k4, k5, k6, k7] = transpose_in_lanes(high);
    let [n0, n1, n2, _] = transpose_in_lanes(nonce);
    for (row, words) in input.key.iter_mut().zip([k0, k1, k2, k3, k4, k5, k6, k7]) {
        store_8x32(half_mut(row, half), words);
    }
    for (row, words) in input.nonce.iter_mut().zip([n0, n1, n2]) {
        store_8x32(half_mut(row, half), words);
    }
    for (counter, source) in half_mut(&mut input.counter, half).iter_mut().zip(sources) {
        *counter = source.counter;
    }
}

/// The two halves of two keys, and two nonces.
#[inline]
#[target_feature(enable = "avx2")]
fn load_two([a, b]: [&Source<'_>; 2]) -> (__m256i, __m256i, __m256i) {
    let half = |source: &Source<'_>, i: usize| load_16(&source.key.as_chunks().0[i]);
    (
        join_128(half(a, 0), half(b, 0)),
        join_128(half(a, 1), half(b, 1)),
        join_128(load_12(a.nonce), load_12(b.nonce)),
    )
}

#[inline]
fn half_of(row: &[u32; LANES], half: usize) -> &[u32; HALF] {
    &row.as_chunks().0[half]
}

#[inline]
fn half_mut(row: &mut [u32; LANES], half: usize) -> &mut [u32; HALF] {
    &mut row.as_chunks_mut().0[half]
}

/// Steps of quarter rounds that do not depend on each other, in lock-step.
macro_rules! quarter_rounds {
    ($v:ident, $by:ident: $(($a:literal $b:literal $c:literal $d:literal))+) => {
        $($v[$a] = _mm256_add_epi32($v[$a], $v[$b]);)+
        $($v[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($v[$d], $v[$a]), $by.left_16);)+
        $($v[$c] = _mm256_add_epi32($v[$c], $v[$d]);)+
        $($v[$b] = rotate::<12, 20>(_mm256_xor_si256($v[$b], $v[$c]));)+
        $($v[$a] = _mm256_add_epi32($v[$a], $v[$b]);)+
        $($v[$d] = _mm256_shuffle_epi8(_mm256_xor_si256($v[$d], $v[$a]), $by.left_8);)+
        $($v[$c] = _mm256_add_epi32($v[$c], $v[$d]);)+
        $($v[$b] = rotate::<7, 25>(_mm256_xor_si256($v[$b], $v[$c]));)+
    };
}

/// The sixteen words of eight blocks.
macro_rules! stream_words {
    ($input:expr, $half:expr) => {{
        let by = Rotations::load();
        let mut v = input_words($input, $half);
        for _ in 0..10 {
            quarter_rounds!(v, by: (0 4 8 12) (1 5 9 13) (2 6 10 14) (3 7 11 15));
            quarter_rounds!(v, by: (0 5 10 15) (1 6 11 12) (2 7 8 13) (3 4 9 14));
        }
        let again = input_words(black_box($input), $half);
        for i in 0..16 {
            v[i] = _mm256_add_epi32(v[i], again[i]);
        }
        v
    }};
}

#[inline]
#[target_feature(enable = "avx2")]
fn input_words(input: &Input, half: usize) -> [__m256i; 16] {
    let mut words = [_mm256_setzero_si256(); 16];
    for i in 0..4 {
        words[i] = _mm256_set1_epi32(SIGMA[i] as i32);
    }
    for i in 0..8 {
        words[4 + i] = load_8x32(half_of(&input.key[i], half));
    }
    words[12] = load_8x32(half_of(&input.counter, half));
    for i in 0..3 {
        words[13 + i] = load_8x32(half_of(&input.nonce[i], half));
    }
    words
}

#[target_feature(enable = "avx2")]
pub(super) fn one_time_keys(input: &Input, keys: &mut OneTimeKeys) {
    for half in 0..input.lanes.div_ceil(HALF) {
        one_time_keys_of_half(input, half, keys);
    }
}

#[inline(never)]
#[target_feature(enable = "avx2")]
fn one_time_keys_of_half(input: &Input, half: usize, keys: &mut OneTimeKeys) {
    let v = stream_words!(input, half);
    for i in 0..8 {
        store_8x32(half_mut(keys.sixteen_mut(i), half), v[i]);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn xor(input: &Input, set: usize, places: &mut impl Places) {
    let v = stream_words!(input, set);
    each_row(v, |lane, row| xor_with(places.place(lane), row));
}

/// The eight rows of 64 bytes that sixteen words of eight blocks make.
#[inline]
#[target_feature(enable = "avx2")]
fn each_row(v: [__m256i; 16], mut use_row: impl FnMut(usize, [__m256i; 2])) {
    let a = transpose_in_lanes([v[0], v[1], v[2], v[3]]);
    let b = transpose_in_lanes([v[4], v[5], v[6], v[7]]);
    let c = transpose_in_lanes([v[8], v[9], v[10], v[11]]);
    let d = transpose_in_lanes([v[12], v[13], v[14], v[15]]);
    for i in 0..4 {
        let low = |x, y| _mm256_permute2x128_si256::<0x20>(x, y);
        let high = |x, y| _mm256_permute2x128_si256::<0x31>(x, y);
        use_row(i, [low(a[i], b[i]), low(c[i], d[i])]);
        use_row(i + 4, [high(a[i], b[i]), high(c[i], d[i])]);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn rows(sources: &[Source<'_>], rows: &mut Rows) {
    if sources.len() <= few::BLOCKS_MAX {
        few::rows(sources, &mut rows.0);
    } else if sources.len() <= HALF {
        rows_of_half(sources, &mut rows.0);
    } else {
        let (first, rest) = sources.split_at(few::BLOCKS_MAX);
        few::rows(first, &mut rows.0);
        few::rows(rest, &mut rows.0[few::BLOCKS_MAX..]);
    }
}

/// Rows of up to eight blocks, computed wide.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn rows_of_half(sources: &[Source<'_>], rows: &mut [[u8; BLOCK_BYTES]]) {
    let mut input = Input::ZERO;
    let sources = std::array::from_fn(|lane| sources[lane.min(sources.len() - 1)]);
    gather_half(&sources, &mut input, 0);
    let v = stream_words!(&input, 0);
    each_row(v, |lane, row| store_row(&mut rows[lane], row));
}

#[target_feature(enable = "avx2")]
pub(super) fn wipe_rows(rows: &mut [[u8; BLOCK_BYTES]]) {
    for row in rows {
        store_row(row, [_mm256_setzero_si256(); 2]);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn xor_row(text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
    match <&mut [u8; BLOCK_BYTES]>::try_from(&mut *text) {
        Ok(whole) => xor_with(whole, load_row(row)),
        Err(_) => xor_part(text, row),
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn xor_rows(text: &mut [u8], rows: &[[u8; BLOCK_BYTES]]) {
    let (blocks, tail) = text.as_chunks_mut::<BLOCK_BYTES>();
    let whole = blocks.len();
    for (block, row) in blocks.iter_mut().zip(rows) {
        xor_with(block, load_row(row));
    }
    if let Some(row) = rows.get(whole) {
        xor_part(tail, row);
    }
}

/// A 4 by 4 matrix of 32-bit words in each 128-bit lane, transposed.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_in_lanes([x0, x1, x2, x3]: [__m256i; 4]) -> [__m256i; 4] {
    let t0 = _mm256_unpacklo_epi32(x0, x1);
    let t1 = _mm256_unpackhi_epi32(x0, x1);
    let t2 = _mm256_unpacklo_epi32(x2, x3);
    let t3 = _mm256_unpackhi_epi32(x2, x3);
    [
        _mm256_unpacklo_epi64(t0, t2),
        _mm256_unpackhi_epi64(t0, t2),
        _mm256_unpacklo_epi64(t1, t3),
        _mm256_unpackhi_epi64(t1, t3),
    ]
}
