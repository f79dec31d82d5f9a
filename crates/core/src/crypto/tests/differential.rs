//! Every kernel against the `chacha20poly1305` crate: every length up to 1500 in batches of every
//! size up to 130.
//!
//! That is 195 195 packets, not as many batches: a batch of so many packets meets so many lengths
//! at once. What the reference makes of a packet is computed once and serves all batch sizes.

use super::{Aead, Kernel, Packet, Rng, open, reference_seal, seal};

const TEXT_LEN_MAX: usize = 1500;
const BATCH_MAX: usize = 130;

/// Neighbours of nearly equal length: lanes are full, and end one by one.
pub(super) fn lengths_in_a_row_agree_with_the_reference_crate(aead: &mut Aead) {
    let samples = samples(&mut Rng(3));
    every_batch_size(aead, |place| &samples[place]);
}

/// Neighbours of any length: long packets among short ones.
pub(super) fn scattered_lengths_agree_with_the_reference_crate(aead: &mut Aead) {
    // Has no factor in common with the number of lengths, which is 19 · 79.
    const STRIDE: usize = 461;
    let samples = samples(&mut Rng(8));
    every_batch_size(aead, |place| &samples[place * STRIDE % samples.len()]);
}

/// Kernels have paths of their own for these.
pub(super) fn equal_lengths_agree_with_the_reference_crate(aead: &mut Aead) {
    let samples = samples(&mut Rng(9));
    for count in batch_sizes(aead) {
        for text_len in [count, 64 * (count % 23), 11 * count] {
            check(aead, &vec![&samples[text_len]; count]);
        }
    }
}

/// Ciphertexts that are all ones, of every length up to a few rows of eight blocks: the largest
/// sums that Poly1305 meets.
pub(super) fn texts_of_ones_agree_with_the_reference_crate(aead: &mut Aead) {
    let mut rng = Rng(5);
    for text_len in 0..400 {
        let mut packets: Vec<_> = (0..12).map(|_| rng.packet(22, text_len)).collect();
        for packet in &mut packets {
            packet.aad.fill(0xff);
            // Sealing zeros shows the key stream, and sealing its complement gives ones.
            packet.buf.fill(0);
            reference_seal(packet);
            packet.buf.iter_mut().for_each(|byte| *byte = !*byte);
        }
        let mut expected = packets.clone();
        expected.iter_mut().for_each(reference_seal);
        for alone in [false, true] {
            let mut packets = packets.clone();
            let batch = if alone { 1 } else { packets.len() };
            packets.chunks_mut(batch).for_each(|packets| seal(aead, packets));
            assert_same(&packets, &expected);
            assert!(packets.iter().all(|packet| packet.text().iter().all(|byte| *byte == 0xff)));
            let authentic = packets.chunks_mut(batch).flat_map(|packets| open(aead, packets));
            assert!(authentic.into_iter().all(|authentic| authentic));
        }
    }
}

/// A packet, and what the reference makes of it.
struct Sample {
    plain: Packet,
    sealed: Packet,
}

/// One of each length.
fn samples(rng: &mut Rng) -> Vec<Sample> {
    let sample = |text_len| {
        let aad_len = rng.below(71);
        let plain = rng.packet(aad_len, text_len);
        let mut sealed = plain.clone();
        reference_seal(&mut sealed);
        Sample { plain, sealed }
    };
    (0..=TEXT_LEN_MAX).map(sample).collect()
}

/// Cuts the samples, in an order, into batches of each size. The last batch is filled from the
/// beginning.
fn every_batch_size<'s>(aead: &mut Aead, at: impl Fn(usize) -> &'s Sample) {
    for count in batch_sizes(aead) {
        for first in (0..=TEXT_LEN_MAX).step_by(count) {
            let batch: Vec<_> =
                (first..first + count).map(|place| at(place % (TEXT_LEN_MAX + 1))).collect();
            check(aead, &batch);
        }
    }
}

/// Every size, but for the portable kernel, which takes one packet at a time and is the reference
/// crate itself: for what is around it a few sizes are enough.
fn batch_sizes(aead: &Aead) -> impl Iterator<Item = usize> + use<> {
    let step = if aead.kernel() == Kernel::Portable { 43 } else { 1 };
    (1..=BATCH_MAX).step_by(step)
}

fn check(aead: &mut Aead, samples: &[&Sample]) {
    let mut packets: Vec<_> = samples.iter().map(|sample| sample.plain.clone()).collect();
    seal(aead, &mut packets);
    for (i, (packet, sample)) in packets.iter().zip(samples).enumerate() {
        assert_eq!(*packet, sample.sealed, "packet {i} of {}", packets.len());
    }
    assert!(open(aead, &mut packets).into_iter().all(|authentic| authentic));
    for (packet, sample) in packets.iter().zip(samples) {
        assert_eq!(packet.text(), sample.plain.text());
    }
}

fn assert_same(packets: &[Packet], expected: &[Packet]) {
    for (i, (packet, expected)) in packets.iter().zip(expected).enumerate() {
        assert_eq!(packet, expected, "packet {i} of {}", packets.len());
    }
}
