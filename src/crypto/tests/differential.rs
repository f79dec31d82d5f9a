//! Every kernel against the `chacha20poly1305` crate.
//!
//! The quick form meets every length up to 1500 and every batch size up to 130 once, but not in every combination; with
//! `RINGGATE_LONG=1` it runs the whole grid.

use super::{Aead, Packet, Rng, open, reference_seal, seal};

const TEXT_LEN_MAX: usize = 1500;
const BATCH_MAX: usize = 130;

pub(super) fn batches_agree_with_the_reference_crate(aead: &mut Aead) {
    let mut rng = Rng(3);
    let stride = if std::env::var_os("RINGGATE_LONG").is_some() { 1 } else { BATCH_MAX };
    for count in 1..=BATCH_MAX {
        // One batch of equal lengths (kernels have paths for these), then mixed ones.
        for equal in (count..=TEXT_LEN_MAX).step_by(10 * stride) {
            check(aead, &mut rng, count, |_| equal);
        }
        for first in (count % stride..=TEXT_LEN_MAX).step_by(stride) {
            check(aead, &mut rng, count, |rng| {
                if rng.below(4) == 0 { first } else { rng.below([64, 200, 1500][first % 3]) }
            });
        }
    }
}

/// Ciphertexts that are all ones, of every length up to a few rows of eight blocks: the largest sums that Poly1305 meets.
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
        seal(aead, &mut packets);
        assert_same(&packets, &expected);
        assert!(packets.iter().all(|packet| packet.text().iter().all(|byte| *byte == 0xff)));
        assert!(open(aead, &mut packets).into_iter().all(|authentic| authentic));
    }
}

fn check(aead: &mut Aead, rng: &mut Rng, count: usize, text_len: impl Fn(&mut Rng) -> usize) {
    let plain: Vec<_> = (0..count)
        .map(|_| {
            let (aad_len, text_len) = (rng.below(71), text_len(rng));
            rng.packet(aad_len, text_len)
        })
        .collect();
    let mut expected = plain.clone();
    expected.iter_mut().for_each(reference_seal);

    let mut packets = plain.clone();
    seal(aead, &mut packets);
    assert_same(&packets, &expected);
    assert!(open(aead, &mut packets).into_iter().all(|authentic| authentic));
    for (packet, plain) in packets.iter().zip(&plain) {
        assert_eq!(packet.text(), plain.text());
    }
}

fn assert_same(packets: &[Packet], expected: &[Packet]) {
    for (i, (packet, expected)) in packets.iter().zip(expected).enumerate() {
        assert_eq!(packet, expected, "packet {i} of {}", packets.len());
    }
}
