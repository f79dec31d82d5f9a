//! The batch cipher against `ring` and `aws-lc-rs`, which take one packet at a time.
//!
//! The libraries keep their expanded keys between packets, as a program that uses them would.

#[path = "../crypto/contest.rs"]
mod contest;
#[path = "../support.rs"]
mod support;

use contest::{AAD, Cipher, TAG_BYTES, Traffic};
use ringgate_core::crypto::Nonce;

fn main() {
    contest::run("crypto-peers", &|traffic| {
        vec![("ring", Box::new(Ring::new(traffic))), ("aws-lc-rs", Box::new(AwsLc::new(traffic)))]
    });
}

struct Ring(Vec<ring::aead::LessSafeKey>);

impl Ring {
    fn new(traffic: &Traffic) -> Self {
        use ring::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
        let key = |key: &[u8; 32]| UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes");
        Self(traffic.keys().map(|bytes| LessSafeKey::new(key(bytes))).collect())
    }
}

impl Cipher for Ring {
    fn open(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool {
        use ring::aead::{Aad, Nonce};
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0[packet].open_in_place(nonce, Aad::from(AAD), bytes).is_ok()
    }

    fn seal(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool {
        use ring::aead::{Aad, Nonce};
        let (text, tag) = bytes.split_last_chunk_mut::<TAG_BYTES>().expect("room for the tag");
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self.0[packet].seal_in_place_separate_tag(nonce, Aad::from(AAD), text);
        sealed.is_ok_and(|sealed| {
            tag.copy_from_slice(sealed.as_ref());
            true
        })
    }
}

struct AwsLc(Vec<aws_lc_rs::aead::LessSafeKey>);

impl AwsLc {
    fn new(traffic: &Traffic) -> Self {
        use aws_lc_rs::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
        let key = |key: &[u8; 32]| UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes");
        Self(traffic.keys().map(|bytes| LessSafeKey::new(key(bytes))).collect())
    }
}

impl Cipher for AwsLc {
    fn open(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool {
        use aws_lc_rs::aead::{Aad, Nonce};
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0[packet].open_in_place(nonce, Aad::from(AAD), bytes).is_ok()
    }

    fn seal(&self, packet: usize, nonce: &Nonce, bytes: &mut [u8]) -> bool {
        use aws_lc_rs::aead::{Aad, Nonce};
        let (text, tag) = bytes.split_last_chunk_mut::<TAG_BYTES>().expect("room for the tag");
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let sealed = self.0[packet].seal_in_place_separate_tag(nonce, Aad::from(AAD), text);
        sealed.is_ok_and(|sealed| {
            tag.copy_from_slice(sealed.as_ref());
            true
        })
    }
}
