//! A forged packet is refused, keeps every byte, and does not disturb the packets beside it.

use super::{Aead, Packet, Rng, open, seal};

/// Flips every single bit of ciphertext, tag and associated data of one packet among honest ones.
pub(super) fn every_forged_bit_is_refused_and_changes_nothing(aead: &mut Aead) {
    let mut rng = Rng(1);
    for text_len in [0, 1, 33, 100] {
        let mut honest: Vec<_> = (0..3).map(|_| rng.packet(22, text_len)).collect();
        seal(aead, &mut honest);
        let sealed_bits = 8 * honest[1].buf.len();
        for bit in 0..sealed_bits + 8 * honest[1].aad.len() {
            let mut packets = honest.clone();
            match bit.checked_sub(sealed_bits) {
                None => flip(&mut packets[1].buf, bit),
                Some(bit) => flip(&mut packets[1].aad, bit),
            }
            let forged = packets[1].clone();
            assert_eq!(open(aead, &mut packets), [true, false, true], "bit {bit} of {text_len}");
            assert_eq!(packets[1], forged);
        }
    }
}

/// Random batches in which a random third is forged.
pub(super) fn forged_packets_do_not_disturb_their_neighbours(aead: &mut Aead) {
    let mut rng = Rng(2);
    for _ in 0..60 {
        let count = 1 + rng.below(70);
        let longest = [40, 200, 1400][rng.below(3)];
        let plain: Vec<_> = (0..count)
            .map(|_| {
                let (aad_len, text_len) = (rng.below(40), rng.below(longest));
                rng.packet(aad_len, text_len)
            })
            .collect();
        let mut packets = plain.clone();
        seal(aead, &mut packets);
        let forged: Vec<_> =
            packets.iter_mut().map(|packet| maybe_forge(&mut rng, packet)).collect();
        let sealed = packets.clone();

        let verdicts = open(aead, &mut packets);
        for (i, authentic) in verdicts.into_iter().enumerate() {
            assert_eq!(authentic, !forged[i]);
            if authentic {
                assert_eq!(packets[i].text(), plain[i].text());
            } else {
                assert_eq!(packets[i], sealed[i]);
            }
        }
    }
}

/// Flips one random bit of a third of the packets.
fn maybe_forge(rng: &mut Rng, packet: &mut Packet) -> bool {
    let forge = rng.below(3) == 0;
    if forge {
        let bit = rng.below(8 * packet.buf.len());
        flip(&mut packet.buf, bit);
    }
    forge
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}
