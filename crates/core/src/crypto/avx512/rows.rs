//! `ChaCha20` for few blocks: whole blocks stand side by side, in 128-bit lanes.
//!
//! A *set* is four registers, one for each row of the cipher's 4 by 4 matrix, and has a block in
//! every 128 bits: two in registers of 256 bits, four in registers of 512. A quarter round works on
//! the four columns at once. Then three of the rows are turned, so that the diagonals stand in
//! columns, and after the next quarter round they are turned back:
//!
//! ```text
//! a = | b0: w0  w1  w2  w3  || b1 … || b2 … || b3 … |     diagonals become columns when
//! b = | b0: w4  w5  w6  w7  || b1 … || b2 … || b3 … |     a is turned by one word to the right,
//! c = | b0: w8  w9  w10 w11 || b1 … || b2 … || b3 … |     c by one to the left, d by two;
//! d = | b0: w12 w13 w14 w15 || b1 … || b2 … || b3 … |     b, which is ready last, stays
//! ```
//!
//! Nothing is transposed before, and only whole 128-bit lanes are afterwards. But a set is a single
//! chain of dependent instructions, which leaves most of the core idle; the more sets are computed
//! in step, the less.
//!
//! How many sets, and of which width, is decided by what they take: cycles of a Zen 4 core, many
//! calls in a row. For Intel these are estimates: instructions of a round divided by the ports that
//! there are for them (three for 256 bits, two for 512), but at least the chain.
//!
//! ```text
//! blocks                        2     4     6     8    10    12
//! Zen 4, sets of 256 bits     280   346   391   439   492   550
//! Zen 4, sets of 512 bits           324         485         582
//! Intel, sets of 256 bits     240   240   300   400   500   600
//! Intel, sets of 512 bits           240         300         450
//! chosen                      256   both  256   512   512   512
//! ```
//!
//! Four blocks of one packet, where nothing follows that could fill the waits, are faster in two
//! sets of 256 bits on Zen 4: its chain is a tenth longer in registers of 512 bits.
//!
//! What matters:
//! - On Zen 4 a rotation takes two cycles, so the chain is 16 cycles a round, 12 on Intel. Without
//!   rotations it would be 12 as well: `rol(d ^ a)` is a three-way XOR of `rol(d)`, `a << n` and
//!   `a >> (32 - n)`. But that needs twice as many shifts, and on Intel they cost more than on Zen
//!   4 is gained.
//! - The state must never be an array in memory. Copied as one, it is stored in registers' width
//!   and loaded in twice that width, which waits for the stores to leave the store buffer: that
//!   cost 100 to 200 cycles a call. So registers are named by index, in loops that are unrolled.
//! - The compiler must not unroll the rounds: the code would be ten times as large, and a gateway
//!   that handles a packet now and then finds little of it in its caches.

mod ymm;
mod zmm;

use crate::crypto::wide::{BLOCK_BYTES, Meanwhile, Rows, Source};

/// Writes the key stream of each source, of which there are one to twelve, to its row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn rows(sources: &[Source<'_>], rows: &mut Rows) {
    match sources.len() {
        0..=2 => ymm::sets::rows::<1>(sources, rows),
        3..=4 => zmm::sets::rows::<1>(sources, rows),
        5..=6 => ymm::sets::rows::<3>(sources, rows),
        7..=8 => zmm::sets::rows::<2>(sources, rows),
        _ => zmm::sets::rows::<3>(sources, rows),
    }
}

/// Writes the key stream of one packet from a source on, at most eight rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,bmi2")]
pub(super) fn stream<M: Meanwhile>(
    source: Source<'_>,
    rows: &mut [[u8; BLOCK_BYTES]],
    meanwhile: &mut M,
) {
    match rows.len() {
        0..=2 => ymm::sets::stream::<1, M>(source, rows, meanwhile),
        3..=4 => ymm::sets::stream::<2, M>(source, rows, meanwhile),
        5..=6 => ymm::sets::stream::<3, M>(source, rows, meanwhile),
        _ => zmm::sets::stream::<2, M>(source, rows, meanwhile),
    }
}
