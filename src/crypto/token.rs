//! XChaCha20-Poly1305 for connect tokens.
//!
//! `XChaCha20` derives a subkey with `HChaCha20` from the first 16 bytes of its nonce and goes on as `ChaCha20` with the last 8;
//! so a token is an ordinary [`Job`](super::Job) under a derived key, and runs through the same kernels.

use super::{Key, Nonce};

/// Nonce of XChaCha20-Poly1305.
pub type TokenNonce = [u8; 24];

/// The key and nonce under which a token is an ordinary job.
pub fn derive(key: &Key, nonce: &TokenNonce) -> (Key, Nonce) {
    use chacha20::{R20, hchacha};
    let (head, tail) = nonce.split_at(16);
    let head: &[u8; 16] = head.try_into().expect("split at 16");
    let subkey = hchacha::<R20>(key.as_bytes().into(), head.into());
    let mut inner = [0; 12];
    inner[4..].copy_from_slice(tail);
    (Key::from_bytes(subkey.into()), inner)
}
