//! Between slices and 256-bit registers. The functions are safe: each reads or writes what its
//! argument borrows, no more.
//!
//! A row is 64 bytes, one block of key stream, in two registers: bytes 0 to 31, bytes 32 to 63.
//! There are masks for 32-bit words here, but none for bytes. So a text that ends within a register
//! is done in steps of 16, 8, 4 and 1 bytes, each as often as it fits:
//!
//! ```text
//! 29 bytes:   [ 16 ][ 8 ][ 4 ][1]      the key stream is in memory for that, once
//! ```

use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm_maskload_epi32, _mm_setr_epi32, _mm256_castsi128_si256,
    _mm256_inserti128_si256, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256,
};

/// The first or second half of a key.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: reads the 16 bytes of `bytes`.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
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
            xor_tail(rest, back);
        }
        None => xor_tail(bytes, front),
    }
}

/// Fewer than 32 bytes, in ever smaller steps: there are no masks for bytes here.
#[inline]
#[target_feature(enable = "avx2")]
fn xor_tail(bytes: &mut [u8], stream: __m256i) {
    let mut row = [0; 32];
    store_32(&mut row, stream);
    let (mut bytes, mut row) = (bytes, row.as_slice());
    macro_rules! step {
        ($word:ty) => {{
            let (words, rest) = bytes.as_chunks_mut();
            let taken = words.len() * size_of::<$word>();
            for (word, key) in words.iter_mut().zip(row.as_chunks().0) {
                *word =
                    (<$word>::from_ne_bytes(*word) ^ <$word>::from_ne_bytes(*key)).to_ne_bytes();
            }
            bytes = rest;
            row = &row[taken..];
        }};
    }
    step!(u128);
    step!(u64);
    step!(u32);
    step!(u8);
    debug_assert!(bytes.is_empty() && !row.is_empty());
}

/// Two 128-bit lanes side by side.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn join_128(a: __m128i, b: __m128i) -> __m256i {
    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b)
}
