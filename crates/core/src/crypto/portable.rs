//! One packet at a time, through the `chacha20poly1305` crate: for CPUs without wide lanes, and as
//! the measure that tests hold the others to.

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit};

use super::{Job, Verdict};
use crate::limits::TAG_BYTES;

pub(super) fn seal(job: &mut Job<'_>) {
    let (text, tag_bytes) = job.buf.split_at_mut(job.buf.len() - TAG_BYTES);
    let tag = ChaCha20Poly1305::new(job.key.as_bytes().into())
        .encrypt_inout_detached((&job.nonce).into(), job.aad, InOutBuf::from(text))
        .expect("a datagram is far below the cipher's 256 GiB");
    tag_bytes.copy_from_slice(&tag);
    job.verdict = Verdict::Done;
}

pub(super) fn open(job: &mut Job<'_>) {
    let (text, tag_bytes) = job.buf.split_at_mut(job.buf.len() - TAG_BYTES);
    let tag = (&*tag_bytes).try_into().expect("split at the tag's length");
    let opened = ChaCha20Poly1305::new(job.key.as_bytes().into()).decrypt_inout_detached(
        (&job.nonce).into(),
        job.aad,
        InOutBuf::from(text),
        tag,
    );
    job.verdict = if opened.is_ok() { Verdict::Done } else { Verdict::Forged };
}
