//! The kernel in 256-bit registers: `ChaCha20` in wide registers, Poly1305 on ordinary 64-bit
//! integers.
//!
//! A register has eight lanes of 32 bits, so the sixteen lanes of a wide call are computed in two
//! halves, one after the other ([`wide`](super::wide) draws them). [`chacha`] says where each word
//! lies; [`bytes`] is the way between slices and registers. Poly1305 stays in [`poly`]: without
//! 52-bit multiplication four lanes gain nothing.
//!
//! All `unsafe` of these modules is of two kinds: calls from code that does not know the CPU into
//! functions that need AVX2, which a value of [`Avx2`] proves; and loads and stores of exactly what
//! a reference borrows.
#![allow(unsafe_code, reason = "target features; loads and stores take raw pointers")]
#![allow(clippy::wildcard_imports, reason = "the vocabulary of a kernel is std::arch")]
#![allow(clippy::many_single_char_names, reason = "the cipher's own names")]
#![allow(clippy::needless_range_loop, reason = "registers are indexed in step")]
#![allow(clippy::large_types_passed_by_value, reason = "arrays of registers")]

mod bytes;
mod chacha;
mod rows;

use super::avx512::wide_by;
use super::poly;
use super::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Packet, Places, Rows, Source, Tags, Wide,
};

/// Proof that the CPU has AVX2: Intel since Haswell (2013), AMD since Excavator (2015).
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    /// `None` where the CPU lacks it or the operating system does not save the registers.
    pub(super) fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Wide for Avx2 {
    const SET_LANES: usize = LANES / 2;
    const ROWS_BEST: usize = 4;
    const ROWS_AT_ONCE: usize = 2;
    const ROWS_NEXT: usize = 6;
    const TOGETHER_MAX: [usize; 3] = [6, 12, 12];
    const LONE_TEXT_MAX: usize = 23 * BLOCK_BYTES;

    wide_by!(chacha, chacha, rows);

    #[inline]
    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags) {
        poly::tags(keys, packets, 0, tags);
    }
}
