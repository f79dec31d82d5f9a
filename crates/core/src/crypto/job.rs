//! What a batch consists of: packets to seal or to open, and what became of each.

use crate::limits::TAG_BYTES;
use crate::secret::Key;

/// Nonce of ChaCha20-Poly1305.
pub type Nonce = [u8; 12];

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not done yet.
    Pending,
    /// Sealed, or opened and authentic.
    Done,
    /// The tag does not verify; the buffer is as it was.
    Forged,
}

/// One packet to seal or to open in place.
#[derive(Debug)]
pub struct Job<'a> {
    /// The session's key for this direction.
    pub key: &'a Key,
    /// Never used twice under `key` when sealing.
    pub nonce: Nonce,
    /// Authenticated, not encrypted.
    pub aad: &'a [u8],
    /// Payload followed by 16 bytes of tag (which sealing writes and opening checks).
    pub buf: &'a mut [u8],
    /// Set by [`Aead::seal`](super::Aead::seal) and [`Aead::open`](super::Aead::open).
    pub verdict: Verdict,
}

impl<'a> Job<'a> {
    /// A job that has not been done yet.
    ///
    /// # Panics
    /// Where `buf` has no room for the tag.
    #[inline]
    pub fn new(key: &'a Key, nonce: Nonce, aad: &'a [u8], buf: &'a mut [u8]) -> Self {
        assert!(buf.len() >= TAG_BYTES, "a job's buffer ends with its tag");
        Self { key, nonce, aad, buf, verdict: Verdict::Pending }
    }
}
