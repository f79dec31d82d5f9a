//! `ChaCha20` in 256-bit registers.
//!
//! The layouts are those of [the 512-bit kernel](super::super::avx512): *wide*, with one block in
//! each 32-bit lane and one word of it in each of sixteen registers, here in halves of eight
//! blocks; and *rows*, with two blocks in each set of four registers.
//!
//! ```text
//! wide     v[w]  =  | w of b0 | w of b1 | w of b2 | w of b3 || w of b4 | … | w of b7 |
//!
//! rows     a     =  | w0  w1  w2  w3  of b0 || w0  w1  w2  w3  of b1 |
//!          b     =  | w4  w5  w6  w7        || w4  w5  w6  w7        |
//!          c     =  | w8  w9  w10 w11       || w8  w9  w10 w11       |
//!          d     =  | w12 w13 w14 w15       || w12 w13 w14 w15       |        || ends 128 bits
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
//! In rows, a column round is four quarter rounds at once, one in each word. For a diagonal round
//! the rows are turned until each diagonal stands in one column, and are turned back behind it.
//!
//! What matters, in cycles of a Granite Rapids core:
//! - There is no rotation. By 16 and by 8 bits it is a shuffle of bytes, otherwise two shifts and
//!   an or: 1280 instructions for eight blocks, which three ports could do in 430. They take 565,
//!   because the sixteen registers that there are hold the state and nothing else, so that
//!   temporary values and shuffle patterns keep pushing words of it to memory and back.
//! - The patterns are loaded through a `black_box`. When the compiler knows them it replaces the
//!   one shuffle of a rotation by 16 with two others (7 %).
//! - Rows cost 300 and 420 for up to 2 and 4 blocks, eight blocks wide 620. Hence `ROWS_BEST`.

use std::arch::x86_64::*;
use std::hint::black_box;

use super::bytes::{
    join_128, load_8x32, load_12, load_16, load_32, load_row, store_8x32, store_row, xor_with,
};
use crate::crypto::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Places, Rows, SIGMA, Source,
};

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

/// The sixteen words of eight blocks, in step with something else.
macro_rules! stream_words {
    ($input:expr, $half:expr, $meanwhile:expr) => {{
        let by = Rotations::load();
        let mut v = input_words($input, $half);
        for _ in 0..10 {
            quarter_rounds!(v, by: (0 4 8 12) (1 5 9 13) (2 6 10 14) (3 7 11 15));
            $meanwhile.step();
            quarter_rounds!(v, by: (0 5 10 15) (1 6 11 12) (2 7 8 13) (3 4 9 14));
            $meanwhile.step();
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

/// Shuffles of bytes that rotate each 32-bit word to the left.
#[derive(Clone, Copy)]
struct Rotations {
    left_16: __m256i,
    left_8: __m256i,
}

impl Rotations {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load() -> Self {
        static LEFT_16: [u8; 32] = rotation_by_bytes(2);
        static LEFT_8: [u8; 32] = rotation_by_bytes(1);
        Self { left_16: load_32(black_box(&LEFT_16)), left_8: load_32(black_box(&LEFT_8)) }
    }
}

/// For each byte of the result, the one of the same 128-bit lane that it is taken from.
const fn rotation_by_bytes(left: usize) -> [u8; 32] {
    let mut from = [0; 32];
    let mut i = 0;
    while i < from.len() {
        from[i] = (i % 16 / 4 * 4 + (i + 4 - left) % 4) as u8;
        i += 1;
    }
    from
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(x), _mm256_srli_epi32::<RIGHT>(x))
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
    let v = stream_words!(input, half, ());
    for i in 0..8 {
        store_8x32(half_mut(keys.sixteen_mut(i), half), v[i]);
    }
}

#[target_feature(enable = "avx2")]
pub(super) fn xor(input: &Input, set: usize, places: &mut impl Places) {
    let v = stream_words!(input, set, ());
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
    for (sources, rows) in sources.chunks(HALF).zip(rows.0.chunks_mut(HALF)) {
        match sources.len() {
            0..=2 => rows_of::<1>(sources, rows),
            3..=4 => rows_of::<2>(sources, rows),
            _ => rows_of_half(sources, rows),
        }
    }
}

/// Rows of up to eight blocks, computed wide.
#[target_feature(enable = "avx2")]
fn rows_of_half(sources: &[Source<'_>], rows: &mut [[u8; BLOCK_BYTES]]) {
    let mut input = Input::ZERO;
    let sources = std::array::from_fn(|lane| sources[lane.min(sources.len() - 1)]);
    gather_half(&sources, &mut input, 0);
    let v = stream_words!(&input, 0, ());
    each_row(v, |lane, row| store_row(&mut rows[lane], row));
}

/// Rows of two times `SETS` blocks; the last source stands in for those that are missing.
#[target_feature(enable = "avx2")]
fn rows_of<const SETS: usize>(sources: &[Source<'_>], rows: &mut [[u8; BLOCK_BYTES]]) {
    let source = |lane: usize| &sources[lane.min(sources.len() - 1)];
    let sigma = _mm256_broadcastsi128_si256(load_sigma());
    let mut input = [[sigma; 4]; SETS];
    for (s, [_, b, c, d]) in input.iter_mut().enumerate() {
        let two = [source(2 * s), source(2 * s + 1)];
        let nonces;
        (*b, *c, nonces) = load_two(two);
        let counter = |i: usize| _mm_cvtsi32_si128(two[i].counter as i32);
        *d = _mm256_or_si256(_mm256_bslli_epi128::<4>(nonces), join_128(counter(0), counter(1)));
    }
    store_rows(stream_rows(&input, &mut ()), rows);
}

/// The key stream of one packet, from a source on: one set of two blocks, or two, or eight blocks
/// wide.
#[target_feature(enable = "avx2")]
pub(super) fn stream<M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: M,
) -> M {
    match rows.len() {
        0..=2 => stream_of::<1, M>(source, rows, meanwhile),
        3..=4 => stream_of::<2, M>(source, rows, meanwhile),
        _ => stream_of_half(source, rows, meanwhile),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn stream_of_half<M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    mut meanwhile: M,
) -> M {
    let mut input = Input::ZERO;
    let sources =
        std::array::from_fn(|lane| Source { counter: source.counter + lane as u32, ..source });
    gather_half(&sources, &mut input, 0);
    let v = stream_words!(&input, 0, meanwhile);
    each_row(v, |lane, row| {
        if let Some(place) = rows.get_mut(lane) {
            store_row(place, row);
        }
    });
    meanwhile
}

#[inline]
#[target_feature(enable = "avx2")]
fn stream_of<const SETS: usize, M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    mut meanwhile: M,
) -> M {
    let half = |i: usize| load_16(&source.key.as_chunks().0[i]);
    let counted =
        _mm_insert_epi32::<0>(_mm_bslli_si128::<4>(load_12(source.nonce)), source.counter as i32);
    let first = _mm256_add_epi32(
        _mm256_broadcastsi128_si256(counted),
        _mm256_setr_epi32(0, 0, 0, 0, 1, 0, 0, 0),
    );
    let mut input = [[
        _mm256_broadcastsi128_si256(load_sigma()),
        _mm256_broadcastsi128_si256(half(0)),
        _mm256_broadcastsi128_si256(half(1)),
        first,
    ]; SETS];
    if let Some([.., d]) = input.get_mut(1) {
        let two = _mm256_setr_epi32(2, 0, 0, 0, 2, 0, 0, 0);
        *d = _mm256_add_epi32(first, two);
    }
    store_rows(stream_rows(&input, &mut meanwhile), rows);
    meanwhile
}

/// The rows of the cipher's matrix after all rounds, for every set.
#[inline]
#[target_feature(enable = "avx2")]
fn stream_rows<const SETS: usize>(
    input: &[[__m256i; 4]; SETS],
    meanwhile: &mut impl Meanwhile,
) -> [[__m256i; 4]; SETS] {
    let by = Rotations::load();
    let mut v = *input;
    for _ in 0..10 {
        quarter_rounds_on_columns(&mut v, by);
        for [a, _, c, d] in &mut v {
            // Diagonals become columns. The row that stays is `b`, which is ready last.
            *a = _mm256_shuffle_epi32::<0x93>(*a);
            *d = _mm256_shuffle_epi32::<0x4e>(*d);
            *c = _mm256_shuffle_epi32::<0x39>(*c);
        }
        quarter_rounds_on_columns(&mut v, by);
        for [a, _, c, d] in &mut v {
            *a = _mm256_shuffle_epi32::<0x39>(*a);
            *d = _mm256_shuffle_epi32::<0x4e>(*d);
            *c = _mm256_shuffle_epi32::<0x93>(*c);
        }
        meanwhile.step();
    }
    for (v, input) in v.iter_mut().zip(input) {
        for i in 0..4 {
            v[i] = _mm256_add_epi32(v[i], input[i]);
        }
    }
    v
}

/// Writes two blocks of each set.
#[inline]
#[target_feature(enable = "avx2")]
fn store_rows<const SETS: usize>(v: [[__m256i; 4]; SETS], rows: &mut [[u8; BLOCK_BYTES]]) {
    for ([a, b, c, d], rows) in v.into_iter().zip(rows.chunks_mut(2)) {
        let low = |x, y| _mm256_permute2x128_si256::<0x20>(x, y);
        let high = |x, y| _mm256_permute2x128_si256::<0x31>(x, y);
        let both = [[low(a, b), low(c, d)], [high(a, b), high(c, d)]];
        for (row, out) in rows.iter_mut().zip(both) {
            store_row(row, out);
        }
    }
}

/// The first row of the cipher's matrix.
#[inline]
#[target_feature(enable = "avx2")]
fn load_sigma() -> __m128i {
    let [s0, s1, s2, s3] = SIGMA.map(|word| word as i32);
    _mm_setr_epi32(s0, s1, s2, s3)
}

#[target_feature(enable = "avx2")]
pub(super) fn wipe_rows(rows: &mut [[u8; BLOCK_BYTES]]) {
    for row in rows {
        store_row(row, [_mm256_setzero_si256(); 2]);
    }
}

/// Four quarter rounds for every block, the sets in lock-step.
#[inline]
#[target_feature(enable = "avx2")]
fn quarter_rounds_on_columns<const SETS: usize>(v: &mut [[__m256i; 4]; SETS], by: Rotations) {
    const A: usize = 0;
    const B: usize = 1;
    const C: usize = 2;
    const D: usize = 3;
    macro_rules! step {
        ($sum:ident += $addend:ident, $mixed:ident: $rotate:expr) => {
            for row in v.iter_mut() {
                row[$sum] = _mm256_add_epi32(row[$sum], row[$addend]);
            }
            for row in v.iter_mut() {
                row[$mixed] = $rotate(_mm256_xor_si256(row[$mixed], row[$sum]));
            }
        };
    }
    step!(A += B, D: |x| _mm256_shuffle_epi8(x, by.left_16));
    step!(C += D, B: rotate::<12, 20>);
    step!(A += B, D: |x| _mm256_shuffle_epi8(x, by.left_8));
    step!(C += D, B: rotate::<7, 25>);
}

#[target_feature(enable = "avx2")]
pub(super) fn xor_row(text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
    xor_with(text, load_row(row));
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
