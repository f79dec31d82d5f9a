//! The kernels in 512-bit registers.
//!
//! [`Avx512`] is `ChaCha20` in wide registers and Poly1305 on ordinary 64-bit integers; [`ifma`]
//! adds Poly1305 with 52-bit multiplication, for CPUs that have it.
//!
//! A register has sixteen lanes of 32 bits, one for each block of a wide call, or eight of 64 bits,
//! one for each packet whose tag is computed ([`wide`](super::wide) draws the blocks). [`chacha`]
//! and the files below [`ifma`] say where each word lies and why no sum overflows; [`bytes`] is the
//! way between slices and registers.
//!
//! All `unsafe` of these modules is of three kinds: calls from code that does not know the CPU into
//! functions that need its features, which a value of the kernel's type proves; loads and stores of
//! exactly what a reference borrows; and masked ones whose mask covers exactly a slice.
#![allow(unsafe_code, reason = "target features; loads and stores take raw pointers")]
#![allow(clippy::wildcard_imports, reason = "the vocabulary of a kernel is std::arch")]
#![allow(clippy::many_single_char_names, reason = "the ciphers' own names")]
#![allow(clippy::needless_range_loop, reason = "registers are indexed in step")]
#![allow(clippy::large_types_passed_by_value, reason = "arrays of registers")]

mod bytes;
mod chacha;
pub(super) mod ifma;
mod rows;

use super::poly;
use super::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Packet, Places, Rows, Source, Tags, Wide,
};

/// The methods of [`Wide`] that are functions of a kernel's files: `$rows` has its rows, `$stream`
/// their stream, `$chacha` the rest.
macro_rules! wide_by {
    ($chacha:ident, $rows:ident, $stream:ident) => {
        #[inline]
        fn gather(self, sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::gather(sources, lanes, input) }
        }

        #[inline]
        fn one_time_keys(self, input: &Input, keys: &mut OneTimeKeys) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::one_time_keys(input, keys) }
        }

        #[inline]
        fn xor(self, input: &Input, set: usize, places: &mut impl Places) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::xor(input, set, places) }
        }

        #[inline]
        fn rows(self, sources: &[Source<'_>], rows: &mut Rows) {
            // SAFETY: a value of the type proves the features.
            unsafe { $rows::rows(sources, rows) }
        }

        #[inline]
        fn stream<M: Meanwhile>(
            self,
            source: Source<'_>,
            rows: &mut [[u8; BLOCK_BYTES]],
            meanwhile: &mut M,
        ) {
            // SAFETY: a value of the type proves the features.
            unsafe { $stream::stream(source, rows, meanwhile) };
        }

        #[inline]
        fn wipe_rows(self, rows: &mut [[u8; BLOCK_BYTES]]) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::wipe_rows(rows) }
        }

        #[inline]
        fn xor_row(self, text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::xor_row(text, row) }
        }

        #[inline]
        fn xor_rows(self, text: &mut [u8], rows: &[[u8; BLOCK_BYTES]]) {
            // SAFETY: a value of the type proves the features.
            unsafe { $chacha::xor_rows(text, rows) }
        }
    };
}
pub(super) use wide_by;

/// Proof that the CPU has AVX-512 F, BW, DQ and VL, and BMI2: Intel servers since 2017, AMD since
/// Zen 4.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx512 {
    /// `None` where the CPU lacks something or the operating system does not save the registers.
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2");
        has_all.then_some(Self(()))
    }
}

impl Wide for Avx512 {
    const SET_LANES: usize = LANES;
    const ROWS_BEST: usize = 12;
    const ROWS_AT_ONCE: usize = 4;
    const ROWS_NEXT: usize = 8;
    const TOGETHER_MAX: [usize; 3] = [6, 15, 20];
    const LONE_TEXT_MAX: usize = 23 * BLOCK_BYTES;

    wide_by!(chacha, rows, rows);

    #[inline]
    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags) {
        poly::tags(keys, packets, 0, tags);
    }
}
