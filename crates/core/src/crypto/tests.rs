//! What every kernel must pass: each test is written once and runs on each kernel that the machine
//! offers.

mod differential;
#[cfg(target_os = "linux")]
mod fenced;
mod forgery;
#[cfg(target_os = "linux")]
mod residue;
mod vectors;

use super::{Aead, Job, Kernel, Key, Nonce, Verdict};
use crate::limits::TAG_BYTES;

/// Makes a module per kernel with a `#[test]` per function; the functions take the [`Aead`] to
/// test.
macro_rules! on_every_kernel {
    ($($topic:ident::$test:ident),+ $(,)?) => {
        on_every_kernel!(@ avx2, Kernel::Avx2, $($topic::$test),+);
        on_every_kernel!(@ avx512, Kernel::Avx512, $($topic::$test),+);
        on_every_kernel!(@ avx512_ifma, Kernel::Avx512Ifma, $($topic::$test),+);
        on_every_kernel!(@ avx512_ifma256, Kernel::Avx512Ifma256, $($topic::$test),+);
        on_every_kernel!(@ portable, Kernel::Portable, $($topic::$test),+);
    };
    (@ $module:ident, $kernel:expr, $($topic:ident::$test:ident),+) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $test() {
                    on_kernel($kernel, $topic::$test);
                }
            )+
        }
    };
}

on_every_kernel!(
    differential::equal_lengths_agree_with_the_reference_crate,
    differential::lengths_in_a_row_agree_with_the_reference_crate,
    differential::scattered_lengths_agree_with_the_reference_crate,
    differential::texts_of_ones_agree_with_the_reference_crate,
    forgery::every_forged_bit_is_refused_and_changes_nothing,
    forgery::forged_packets_do_not_disturb_their_neighbours,
    vectors::rfc_8439_aead,
    vectors::rfc_8439_encryption,
    vectors::rfc_8439_key_stream,
    vectors::rfc_8439_one_time_keys,
    vectors::subkeys_agree_with_the_reference_crate,
    vectors::wycheproof,
    vectors::wycheproof_tokens,
    vectors::xchacha_draft,
);

#[cfg(target_os = "linux")]
mod memory {
    use super::*;
    on_every_kernel!(
        fenced::nothing_outside_a_packet_is_touched,
        residue::no_key_is_left_on_the_stack,
    );
}

/// Runs `test` unless the CPU lacks what `kernel` needs, and says so then.
fn on_kernel(kernel: Kernel, test: fn(&mut Aead)) {
    match Aead::with_kernel(kernel) {
        Ok(mut aead) => test(&mut aead),
        Err(why) => eprintln!("SKIPPED: {why}"),
    }
}

/// A packet with everything that a [`Job`] borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    key: Key,
    nonce: Nonce,
    aad: Vec<u8>,
    /// Text and tag.
    buf: Vec<u8>,
}

impl Packet {
    /// A packet to be sealed: room for the tag is added.
    fn plain(key: [u8; 32], nonce: Nonce, aad: &[u8], text: &[u8]) -> Self {
        let buf = [text, &[0; TAG_BYTES]].concat();
        Self { key: Key::from_bytes(key), nonce, aad: aad.to_vec(), buf }
    }

    fn text(&self) -> &[u8] {
        &self.buf[..self.buf.len() - TAG_BYTES]
    }

    fn job(&mut self) -> Job<'_> {
        Job::new(&self.key, self.nonce, &self.aad, &mut self.buf)
    }
}

fn seal(aead: &mut Aead, packets: &mut [Packet]) {
    let mut jobs: Vec<_> = packets.iter_mut().map(Packet::job).collect();
    aead.seal(&mut jobs);
    assert!(jobs.iter().all(|job| job.verdict == Verdict::Done));
}

/// Opens a batch; `true` where a packet was authentic.
fn open(aead: &mut Aead, packets: &mut [Packet]) -> Vec<bool> {
    let mut jobs: Vec<_> = packets.iter_mut().map(Packet::job).collect();
    aead.open(&mut jobs);
    assert!(jobs.iter().all(|job| job.verdict != Verdict::Pending));
    jobs.iter().map(|job| job.verdict == Verdict::Done).collect()
}

/// The reference: the `chacha20poly1305` crate, one packet at a time.
fn reference_seal(packet: &mut Packet) {
    super::portable::seal(&mut packet.job());
}

/// A small deterministic generator (`SplitMix64`), so that a failure can be repeated.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next() as u8)
    }

    fn vec(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// A packet to be sealed, with random contents.
    fn packet(&mut self, aad_len: usize, text_len: usize) -> Packet {
        let (aad, text) = (self.vec(aad_len), self.vec(text_len));
        Packet::plain(self.bytes(), self.bytes(), &aad, &text)
    }
}
