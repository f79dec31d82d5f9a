//! Between slices and 512-bit registers. The functions are safe: each reads or writes what its
//! argument borrows, no more.
//!
//! A register holds 64 bytes, one block of key stream. Where a slice has fewer, a mask has one bit
//! for each byte that is there, and the instruction touches no other: not even a page behind the
//! slice's end. A window may also begin before the slice; its mask then has zeros at both ends:
//!
//! ```text
//! slice              [=========]          mask   0001 1111 1110 …
//! window          |················|      what the mask leaves out is read as zero
//! ```

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, __mmask8, __mmask64, _bzhi_u64, _mm_loadu_si128,
    _mm_maskz_loadu_epi32, _mm_set_epi64x, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm512_castsi128_si512, _mm512_inserti32x4, _mm512_loadu_si512, _mm512_mask_storeu_epi8,
    _mm512_mask_storeu_epi64, _mm512_maskz_loadu_epi8, _mm512_storeu_si512, _mm512_xor_si512,
};

use crate::crypto::wide::Source;

/// The first or second half of a key.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_16(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: reads the 16 bytes of `bytes`.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// The last row of a block's matrix: counter and nonce.
///
/// The nonce is loaded as two words, because it has often just been stored as such; a single load
/// would wait until both have left the store buffer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_block_input(source: &Source<'_>) -> __m128i {
    let [head, tail] = source.nonce_words();
    let low = u64::from(source.counter) | head << 32;
    let high = head >> 32 | tail << 32;
    _mm_set_epi64x(high as i64, low as i64)
}

/// A nonce, with a zero word behind it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_12(bytes: &[u8; 12]) -> __m128i {
    // SAFETY: the mask selects three words, the 12 bytes of `bytes`; the fourth is not read.
    unsafe { _mm_maskz_loadu_epi32(0b0111, bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_32(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: reads the 32 bytes of `bytes`.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// Eight 32-bit words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_8x32(words: &[u32; 8]) -> __m256i {
    // SAFETY: reads the 32 bytes of `words`.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// Sixteen 32-bit words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_16x32(words: &[u32; 16]) -> __m512i {
    // SAFETY: reads the 64 bytes of `words`.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn store_16x32(words: &mut [u32; 16], value: __m512i) {
    // SAFETY: writes the 64 bytes of `words`.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), value) }
}

/// Eight 64-bit words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_8x64(words: &[u64; 8]) -> __m512i {
    // SAFETY: reads the 64 bytes of `words`.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// As many words as fit.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn store_up_to_8x64(words: &mut [u64], value: __m512i) {
    let mask = lowest_bits(words.len().min(8)) as __mmask8;
    // SAFETY: the mask has a bit for each of the first eight `words`, and nothing else is written.
    unsafe { _mm512_mask_storeu_epi64(words.as_mut_ptr().cast(), mask, value) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn store_32(bytes: &mut [u8; 32], value: __m256i) {
    // SAFETY: writes the 32 bytes of `bytes`.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_64(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: reads the 64 bytes of `bytes`.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn store_64(bytes: &mut [u8; 64], value: __m512i) {
    // SAFETY: writes the 64 bytes of `bytes`.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), value) }
}

/// The 64 bytes from `start` on, with zeros wherever `bytes` has none: before its beginning and
/// behind its end.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_window(bytes: &[u8], start: isize) -> __m512i {
    let before = lowest_bits((-start).max(0) as usize);
    let to_end = lowest_bits((bytes.len() as isize - start).max(0) as usize);
    let from = bytes.as_ptr().wrapping_offset(start);
    // SAFETY: bit i of the mask is set only if `start + i` is an index of `bytes`; other bytes are
    // not read.
    unsafe { _mm512_maskz_loadu_epi8(to_end & !before, from.cast()) }
}

/// The 64 bytes from `start` on, with zeros behind the end of `bytes`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn load_tail(bytes: &[u8], start: usize) -> __m512i {
    let mask = lowest_bits(bytes.len().saturating_sub(start));
    // SAFETY: bit i of the mask is set only if `start + i` is an index of `bytes`; other bytes are
    // not read.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().wrapping_add(start).cast()) }
}

/// XORs `bytes`, at most 64, with as many of `stream`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn xor_with(bytes: &mut [u8], stream: __m512i) {
    let mask = lowest_bits(bytes.len());
    // SAFETY: the mask has a bit for each of `bytes` and for no other byte; those are not read.
    let text = unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) };
    let mixed = _mm512_xor_si512(text, stream);
    // SAFETY: as above; those are not written either.
    unsafe { _mm512_mask_storeu_epi8(bytes.as_mut_ptr().cast(), mask, mixed) }
}

/// Four 128-bit lanes side by side.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn join_128([a, b, c, d]: [__m128i; 4]) -> __m512i {
    let joined = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(joined, c), d)
}

/// The lowest `count` bits; all from 64 on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
fn lowest_bits(count: usize) -> __mmask64 {
    _bzhi_u64(u64::MAX, count.min(64) as u32)
}
