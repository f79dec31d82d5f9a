//! Batches of packets through every kernel that the machine has, against the portable one: other
//! lengths, forgeries and batch sizes make other groups of lanes.
//!
//! The first bytes say how many packets there are, each packet's lengths, and which of them are
//! forged; the rest is text. Keys and nonces differ from packet to packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringgate_core::crypto::{Aead, Job, Kernel, Key, Verdict};

const TAG_BYTES: usize = 16;

#[derive(Clone, PartialEq, Debug)]
struct Packet {
    key: Key,
    nonce: [u8; 12],
    aad: Vec<u8>,
    buf: Vec<u8>,
    forged: bool,
}

fuzz_target!(|data: &[u8]| {
    let Some(plain) = packets(data) else { return };
    let mut portable = Aead::with_kernel(Kernel::Portable).expect("needs nothing");
    let mut sealed = plain.clone();
    run(&mut sealed, |jobs| portable.seal(jobs));

    for kernel in Kernel::ALL {
        let Ok(mut aead) = Aead::with_kernel(kernel) else { continue };
        let mut packets = plain.clone();
        run(&mut packets, |jobs| aead.seal(jobs));
        assert!(packets == sealed, "{kernel} seals like the portable kernel");

        for packet in packets.iter_mut().filter(|packet| packet.forged) {
            let bit = usize::from(packet.nonce[0]) * 7 % (8 * packet.buf.len());
            packet.buf[bit / 8] ^= 1 << (bit % 8);
        }
        let before = packets.clone();
        let verdicts = run(&mut packets, |jobs| aead.open(jobs));
        for (i, verdict) in verdicts.into_iter().enumerate() {
            if before[i].forged {
                assert_eq!(verdict, Verdict::Forged, "{kernel}, packet {i}");
                assert!(packets[i] == before[i], "{kernel} has changed forged packet {i}");
            } else {
                assert_eq!(verdict, Verdict::Done, "{kernel}, packet {i}");
                let text_len = plain[i].buf.len() - TAG_BYTES;
                assert!(packets[i].buf[..text_len] == plain[i].buf[..text_len], "{kernel}, {i}");
            }
        }
    }
});

/// What the input asks for.
fn packets(data: &[u8]) -> Option<Vec<Packet>> {
    let (&count, rest) = data.split_first()?;
    // More than two chunks of what is worked on together.
    let (shapes, mut rest) = rest.split_at_checked(3 * usize::from(count % 140))?;
    let mut packets = Vec::new();
    for (i, shape) in shapes.as_chunks::<3>().0.iter().enumerate() {
        let text_len = usize::from(u16::from_le_bytes([shape[0], shape[1]])) % 1500;
        let given = rest.len().min(text_len);
        let (text, after) = rest.split_at(given);
        rest = after;
        let mut buf = text.to_vec();
        buf.resize(text_len + TAG_BYTES, shape[2]);
        buf[text_len..].fill(0);
        let mut key = [shape[2]; 32];
        key[0] = i as u8;
        let mut nonce = [shape[0]; 12];
        nonce[11] = i as u8;
        packets.push(Packet {
            key: Key::from_bytes(key),
            nonce,
            aad: vec![shape[1]; usize::from(shape[2] % 64)],
            buf,
            forged: shape[2] >= 192,
        });
    }
    Some(packets)
}

fn run(packets: &mut [Packet], work: impl FnOnce(&mut [Job<'_>])) -> Vec<Verdict> {
    let mut jobs: Vec<_> = packets
        .iter_mut()
        .map(|packet| Job::new(&packet.key, packet.nonce, &packet.aad, &mut packet.buf))
        .collect();
    work(&mut jobs);
    jobs.iter().map(|job| job.verdict).collect()
}
