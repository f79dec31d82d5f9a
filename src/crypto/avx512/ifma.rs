//! Poly1305 with 52-bit multiplication (IFMA), for one packet in each of eight lanes or for one long packet in all of them.
//!
//! Which of the two, or ordinary 64-bit arithmetic, is decided by what each would cost ([`plan`]): lengths are mixed, eight
//! lanes take as long as the longest packet in them, and small batches leave lanes empty.

mod eight;
mod field;
mod long;
mod plan;

use self::plan::Step;
use super::Avx512;
use crate::crypto::poly;
use crate::crypto::wide::{
    BLOCK_BYTES, Input, LANES, Meanwhile, OneTimeKeys, Packet, Places, Rows, Source, Tags, Wide,
};

/// Proof that the CPU has IFMA, and all that [`Avx512`] proves: Intel servers since Ice Lake, AMD since Zen 4.
#[derive(Clone, Copy)]
pub(in crate::crypto) struct Ifma(Avx512);

impl Ifma {
    /// `None` where the CPU lacks something or the operating system does not save the registers.
    pub(in crate::crypto) fn detect() -> Option<Self> {
        let avx512 = Avx512::detect()?;
        is_x86_feature_detected!("avx512ifma").then_some(Self(avx512))
    }
}

impl Wide for Ifma {
    const SET_LANES: usize = Avx512::SET_LANES;
    const ROWS_BEST: usize = Avx512::ROWS_BEST;
    const ROWS_AT_ONCE: usize = Avx512::ROWS_AT_ONCE;
    const LONE_TEXT_MAX: usize = 11 * BLOCK_BYTES;

    #[inline]
    fn gather(self, sources: &[Source<'_>; LANES], lanes: usize, input: &mut Input) {
        self.0.gather(sources, lanes, input);
    }

    #[inline]
    fn one_time_keys(self, input: &Input, keys: &mut OneTimeKeys) {
        self.0.one_time_keys(input, keys);
    }

    #[inline]
    fn xor(self, input: &Input, set: usize, places: &mut impl Places) {
        self.0.xor(input, set, places);
    }

    #[inline]
    fn rows(self, sources: &[Source<'_>], rows: &mut Rows) {
        self.0.rows(sources, rows);
    }

    #[inline]
    fn stream<M: Meanwhile>(
        self,
        source: Source<'_>,
        rows: &mut [[u8; BLOCK_BYTES]],
        meanwhile: M,
    ) -> M {
        self.0.stream(source, rows, meanwhile)
    }

    #[inline]
    fn wipe_rows(self, rows: &mut [[u8; BLOCK_BYTES]]) {
        self.0.wipe_rows(rows);
    }

    #[inline]
    fn xor_row(self, text: &mut [u8], row: &[u8; BLOCK_BYTES]) {
        self.0.xor_row(text, row);
    }

    fn tags(self, keys: &OneTimeKeys, packets: &[Packet<'_>], tags: &mut Tags) {
        for step in plan::steps(packets) {
            match step {
                // SAFETY: `self` proves the features.
                Step::Eight(range) => unsafe { eight::tags(keys, packets, range, tags) },
                // SAFETY: `self` proves the features.
                Step::Long(packet) => unsafe { long::tag(keys, packets, packet, tags) },
                Step::Scalar(range) => poly::tags(keys, &packets[range.clone()], range.start, tags),
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
        let Some(ifma) = Ifma::detect() else {
            eprintln!("skipped: this CPU has no IFMA");
            return;
        };
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
