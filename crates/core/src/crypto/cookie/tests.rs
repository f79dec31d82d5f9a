//! HMAC-SHA1 against RFC 2202, and cookies that differ in one bit.

use super::*;
use crate::secret::COOKIE_SECRET_BYTES;

fn bytes(hex: &str) -> [u8; COOKIE_BYTES] {
    let byte = |index| u8::from_str_radix(&hex[2 * index..][..2], 16).expect("hex");
    std::array::from_fn(byte)
}

#[test]
fn the_mac_is_the_one_of_rfc_2202() {
    let counted: Vec<u8> = (1..=25).collect();
    let cases: [(&[u8], &[u8], &str); 7] = [
        (&[0x0b; 20], b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (&[0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (&counted, &[0xcd; 50], "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (&[0x0c; 20], b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            &[0xaa; 80],
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ];
    for (key, input, expected) in cases {
        let mac = CookieMac(keyed(key));
        assert_eq!(mac.tag(input), bytes(expected));
        assert!(mac.verify(input, &mac.tag(input)));
    }
}

#[test]
fn any_flipped_bit_of_input_cookie_or_secret_is_refused() {
    let secret = [0x5c; COOKIE_SECRET_BYTES];
    let mac = CookieMac::new(&CookieSecret::from_bytes(secret));
    let input: [u8; 36] = std::array::from_fn(|index| index as u8);
    let cookie = mac.tag(&input);
    let flipped = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    for bit in 0..8 * input.len() {
        assert!(!mac.verify(&flipped(&input, bit), &cookie), "input bit {bit}");
    }
    for bit in 0..8 * COOKIE_BYTES {
        let other = flipped(&cookie, bit).try_into().expect("its length");
        assert!(!mac.verify(&input, &other), "cookie bit {bit}");
    }
    for bit in 0..8 * COOKIE_SECRET_BYTES {
        let other = flipped(&secret, bit).try_into().expect("its length");
        let mac = CookieMac::new(&CookieSecret::from_bytes(other));
        assert!(!mac.verify(&input, &cookie), "secret bit {bit}");
    }
}
