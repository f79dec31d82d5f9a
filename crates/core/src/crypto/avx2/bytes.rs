//! Between slices and 256-bit registers. The functions are safe: each reads or writes what its
//! argument borrows, no more.
//!
//! A row is 64 bytes, one block of key stream, in two registers: bytes 0 to 31, bytes 32 to 63.
//! There are masks for 32-bit words here, but none for bytes. So a text that ends within a half of
//! a row is done in two words that may overlap, each of half its length or more:
//!
//! ```text
//! 29 bytes:   [····· 16 ·····]                the key stream is in memory for that, once
//!                   [····· 16 ·····]
//! ```

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_maskload_epi32, _mm_set_epi64x, _mm_setr_epi32,
    _mm256_castsi128_si256, _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_slli_epi32, _mm256_srli_epi32, _mm256_storeu_si256, _mm256_xor_si256,
};
use std::hint::black_box;

use crate::crypto::wide::Source;

/// The first or second half of a key.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: reads the 16 bytes of `bytes`.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// The last row of a block's matrix: counter and nonce.
///
/// The nonce is loaded as two words, because it has often just been stored as such; a single load
/// would wait until both have left the store buffer.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_block_input(source: &Source<'_>) -> __m128i {
    let [head, tail] = source.nonce_words();
    let low = u64::from(source.counter) | head << 32;
    let high = head >> 32 | tail << 32;
    _mm_set_epi64x(high as i64, low as i64)
}

/// A nonce, with a zero word behind it.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_12(bytes: &[u8; 12]) -> __m128i {
    let three = _mm_setr_epi32(-1, -1, -1, 0);
    // SAFETY: the mask selects three words, the 12 bytes of `bytes`; the fourth is not read.
    unsafe { _mm_maskload_epi32(bytes.as_ptr().cast(), three) }
}

/// Eight 32-bit words.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_8x32(words: &[u32; 8]) -> __m256i {
    // SAFETY: reads the 32 bytes of `words`.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_8x32(words: &mut [u32; 8], value: __m256i) {
    // SAFETY: writes the 32 bytes of `words`.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: reads the 32 bytes of `bytes`.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_32(bytes: &mut [u8; 32], value: __m256i) {
    // SAFETY: writes the 32 bytes of `bytes`.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_row(row: &mut [u8; 64], [front, back]: [__m256i; 2]) {
    let (halves, _) = row.as_chunks_mut();
    store_32(&mut halves[0], front);
    store_32(&mut halves[1], back);
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_row(row: &[u8; 64]) -> [__m256i; 2] {
    let (halves, _) = row.as_chunks();
    [load_32(&halves[0]), load_32(&halves[1])]
}

/// XORs `bytes`, at most 64, with as many of `stream`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn xor_with(bytes: &mut [u8], stream: [__m256i; 2]) {
    if let Ok(whole) = <&mut [u8; 64]>::try_from(&mut *bytes) {
        let [front, back] = load_row(whole);
        store_row(whole, [_mm256_xor_si256(front, stream[0]), _mm256_xor_si256(back, stream[1])]);
        return;
    }
    let [front, back] = stream;
    match bytes.split_first_chunk_mut() {
        Some((whole, rest)) => {
            let mixed = _mm256_xor_si256(load_32(whole), front);
            store_32(whole, mixed);
            xor_tail(rest, &in_memory(back));
        }
        None => xor_tail(bytes, &in_memory(front)),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn in_memory(half: __m256i) -> [u8; 32] {
    let mut bytes = [0; 32];
    store_32(&mut bytes, half);
    bytes
}

/// XORs `bytes`, fewer than 64, with as many of `row`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn xor_part(bytes: &mut [u8], row: &[u8; 64]) {
    let (halves, _) = row.as_chunks();
    match bytes.split_first_chunk_mut() {
        Some((whole, rest)) => {
            let mixed = _mm256_xor_si256(load_32(whole), load_32(&halves[0]));
            store_32(whole, mixed);
            xor_tail(rest, &halves[1]);
        }
        None => xor_tail(bytes, &halves[0]),
    }
}

/// XORs `bytes`, fewer than 32, with as many of `half`: in two words, each of half the length or
/// more, of which the first stands at the beginning and the second at the end. Both are loaded
/// before one is stored, so what they share is stored twice, and is the same both times.
#[inline]
#[target_feature(enable = "avx2")]
fn xor_tail(bytes: &mut [u8], half: &[u8; 32]) {
    debug_assert!(bytes.len() < 32);
    let keys = &half[..bytes.len()];
    macro_rules! two_of {
        ($word:ty) => {
            if let (Some(front), Some(back)) = (bytes.first_chunk(), bytes.last_chunk())
                && let (Some(front_key), Some(back_key)) = (keys.first_chunk(), keys.last_chunk())
            {
                let front = <$word>::from_ne_bytes(*front) ^ <$word>::from_ne_bytes(*front_key);
                let back = <$word>::from_ne_bytes(*back) ^ <$word>::from_ne_bytes(*back_key);
                *bytes.first_chunk_mut().expect("as above") = front.to_ne_bytes();
                *bytes.last_chunk_mut().expect("as above") = back.to_ne_bytes();
                return;
            }
        };
    }
    two_of!(u128);
    two_of!(u64);
    two_of!(u32);
    for (byte, key) in bytes.iter_mut().zip(keys) {
        *byte ^= key;
    }
}

/// Two 128-bit lanes side by side.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn join_128(a: __m128i, b: __m128i) -> __m256i {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}

/// Shuffles of bytes that rotate each 32-bit word to the left.
#[derive(Clone, Copy)]
pub(super) struct Rotations {
    pub(super) left_16: __m256i,
    pub(super) left_8: __m256i,
}

impl Rotations {
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) fn load() -> Self {
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
pub(super) fn rotate<const LEFT: i32, const RIGHT: i32>(x: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_slli_epi32::<LEFT>(x), _mm256_srli_epi32::<RIGHT>(x))
}
