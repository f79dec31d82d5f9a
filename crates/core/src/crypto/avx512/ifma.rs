//! Poly1305 with 52-bit multiplication (IFMA), for one packet in each of eight lanes or for one
//! long packet in all of them.
//!
//! Which of the two, or ordinary 64-bit arithmetic, is decided by what each would cost ([`plan`]):
//! lengths are mixed, eight lanes take as long as the longest packet in them, and small batches
//! leave lanes empty.
//!
//! ```text
//! field    eight numbers modulo 2^130 - 5, in three limbs each, and the bounds of all sums
//! eight    lane i holds the sum of packet i
//! long     lane i holds a part of the one packet's sum; at the end the lanes are added up
//! plan     who goes into which
//! ymm zmm  the same eight lanes in two registers or in one
//! ```
//!
//! The arithmetic is written once for eight lanes and compiled for two widths ([`Width`]). One
//! register of 512 bits is a tenth faster while nothing else runs. But dense multiplications in
//! such registers after some milliseconds without them make the core run at half its speed for up
//! to 500 µs, and slow down whatever else it does as long as they recur. A worker that opens 32
//! packets of 100 bytes every 50 µs paid 171 ns for each of them, 77 with ordinary integers, and 67
//! with registers of 256 bits, whose multiplications change nothing (`benches/crypto/contest.rs`
//! has the same pattern). Wide additions and rotations, as `ChaCha20` has them, do no harm.

mod plan;
mod ymm;
mod zmm;

use self::plan::PlanStep;
pub(in crate::crypto) use self::plan::Width;
use super::{Avx512, chacha, rows, wide_by};
use crate::crypto::poly;
use crate::crypto::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Packet, Places, Rows, Source, Tags, Wide,
};

/// Proof that the CPU has IFMA, and all that [`Avx512`] proves: Intel servers since Ice Lake, AMD
/// since Zen 4.
#[derive(Clone, Copy)]
pub(in crate::crypto) struct Ifma {
    width: Width,
}

impl Ifma {
    /// `None` where the CPU lacks something or the operating system does not save the registers.
    pub(in crate::crypto) fn detect(width: Width) -> Option<Self> {
        Avx512::detect()?;
        is_x86_feature_detected!("avx512ifma").then_some(Self { width })
    }

    pub(in crate::crypto) const fn width(self) -> Width {
        self.width
    }
}

impl Wide for Ifma {
    const SET_LANES: usize = Avx512::SET_LANES;
    const ROWS_BEST: usize = Avx512::ROWS_BEST;
    const ROWS_AT_ONCE: usize = Avx512::ROWS_AT_ONCE;
    const ROWS_NEXT: usize = Avx512::ROWS_NEXT;
    const TOGETHER_MAX: [usize; 3] = [6, usize::MAX, usize::MAX];
    const LONE_TEXT_MAX: usize = Avx512::LONE_TEXT_MAX;

    wide_by!(chacha, rows, rows);

    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags) {
        for step in plan::steps(packets, self.width) {
            match (step, self.width) {
                (PlanStep::Scalar(range), _) => {
                    poly::tags(keys, &packets[range.clone()], range.start, tags);
                }
                // SAFETY: `self` proves the features.
                (PlanStep::Eight(range), Width::Ymm) => unsafe {
                    ymm::eight::tags(keys, packets, range, tags);
                },
                // SAFETY: `self` proves the features.
                (PlanStep::Eight(range), Width::Zmm) => unsafe {
                    zmm::eight::tags(keys, packets, range, tags);
                },
                // SAFETY: `self` proves the features.
                (PlanStep::Long(packet), Width::Ymm) => unsafe {
                    ymm::long::tag(keys, packets, packet, tags);
                },
                // SAFETY: `self` proves the features.
                (PlanStep::Long(packet), Width::Zmm) => unsafe {
                    zmm::long::tag(keys, packets, packet, tags);
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{Job, Key};

    /// The largest `r` and `s`, on the largest blocks: no other input makes larger sums.
    #[test]
    fn the_largest_keys_agree_with_ordinary_integers() {
        for width in [Width::Ymm, Width::Zmm] {
            match Ifma::detect(width) {
                Some(ifma) => agrees_with_ordinary_integers(ifma),
                None => eprintln!("SKIPPED: this CPU has no IFMA"),
            }
        }
    }

    fn agrees_with_ordinary_integers(ifma: Ifma) {
        let mut keys = OneTimeKeys::ZERO;
        (0..16).for_each(|packet| keys.set(packet, &[0xff; BLOCK_BYTES]));
        let key = Key::from_bytes([0; 32]);
        for (count, text_len) in [(1, 400), (1, 1500), (2, 900), (5, 100), (8, 64), (16, 333)] {
            let mut bufs = vec![vec![0xff; text_len + 16]; count];
            let mut jobs: Vec<_> =
                bufs.iter_mut().map(|buf| Job::new(&key, [0; 12], &[0xff; 40], buf)).collect();
            let packets: Vec<_> = jobs.iter_mut().map(Packet::new).collect();
            let (mut given, mut expected) = (Tags::ZERO, Tags::ZERO);
            ifma.tags(&keys, &packets, &mut given);
            poly::tags(&keys, &packets, 0, &mut expected);
            for packet in 0..count {
                assert_eq!(given.get(packet), expected.get(packet), "{count} of {text_len} bytes");
            }
        }
    }
}
