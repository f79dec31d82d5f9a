//! XChaCha20-Poly1305 for connect tokens.
//!
//! `XChaCha20` derives a subkey with `HChaCha20` from the first 16 bytes of its nonce and goes on
//! as `ChaCha20` with the last 8; so a token is an ordinary [`Job`](super::Job) under a derived
//! key, and runs through the same kernels.
//!
//! So does the derivation: `HChaCha20` is a `ChaCha20` block whose counter and nonce are those 16
//! bytes, without the final addition of the input, and of which the first and the last four words
//! count. [`Aead::derive`](super::Aead::derive) computes the blocks of many tokens side by side and
//! takes the addition back.

use zeroize::{Zeroize, zeroize_stack};

#[cfg(target_arch = "x86_64")]
use super::wide::{SIGMA, Source};
use super::{Key, Nonce};

/// Nonce of XChaCha20-Poly1305.
pub type TokenNonce = [u8; 24];

/// The key and nonce under which a token is an ordinary job. For one token; a batch has
/// [`Aead::derive`](super::Aead::derive).
pub fn derive(key: &Key, nonce: &TokenNonce) -> (Key, Nonce) {
    let derived = derive_on_the_stack(key, nonce);
    zeroize_stack::<STACK_BYTES>();
    derived
}

#[inline(never)]
fn derive_on_the_stack(key: &Key, nonce: &TokenNonce) -> (Key, Nonce) {
    use chacha20::{R20, hchacha};
    let (head, tail) = split(nonce);
    let subkey = hchacha::<R20>(key.as_bytes().into(), head.into());
    (Key::from_bytes(subkey.into()), nonce_of(tail))
}

/// What the derivation takes of the stack, with room to spare: it leaves the key there.
const STACK_BYTES: usize = 4 << 10;

/// What the subkey depends on, and the rest.
pub(super) fn split(nonce: &TokenNonce) -> (&[u8; 16], [u8; 8]) {
    let (head, tail) = nonce.split_first_chunk().expect("24 bytes are more than 16");
    (head, tail.try_into().expect("24 bytes are 16 and 8"))
}

/// The nonce of the job that a token is.
pub(super) fn nonce_of(tail: [u8; 8]) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&tail);
    nonce
}

/// The block whose first and last four words make a subkey.
#[cfg(target_arch = "x86_64")]
pub(super) fn source<'a>(key: &'a Key, nonce: &'a TokenNonce) -> Source<'a> {
    let (counter, rest) = nonce.split_first_chunk().expect("24 bytes are more than 4");
    let nonce = rest.first_chunk().expect("20 bytes are more than 12");
    Source { key: key.as_bytes(), nonce, counter: u32::from_le_bytes(*counter) }
}

/// The subkey, from a block of key stream whose counter and nonce were `head`.
#[cfg(target_arch = "x86_64")]
pub(super) fn subkey(block: &[u8; 64], head: &[u8; 16]) -> Key {
    let words = |bytes: &[u8; 16]| -> [u32; 4] {
        std::array::from_fn(|i| u32::from_le_bytes(bytes.as_chunks().0[i]))
    };
    let (rows, _) = block.as_chunks::<16>();
    let mut bytes = [0; 32];
    let (halves, _) = bytes.as_chunks_mut::<16>();
    for (half, (row, added)) in halves.iter_mut().zip([(&rows[0], SIGMA), (&rows[3], words(head))])
    {
        let row = words(row);
        for (i, word) in half.as_chunks_mut().0.iter_mut().enumerate() {
            *word = row[i].wrapping_sub(added[i]).to_le_bytes();
        }
    }
    let key = Key::from_bytes(bytes);
    bytes.zeroize();
    key
}
