//! Whether few packets are worked on together or each alone.
//!
//! Together, short packets share what one call computes: up to twelve blocks of key stream take
//! little more than twice the time of two. Alone, a packet's key stream and its Poly1305 go in step
//! ([`lone`](super::lone)), which is faster for long packets. Where the limit lies depends on the
//! kernel ([`Wide::TOGETHER_MAX`]). From five packets on, together is faster.

use crate::crypto::Job;
use crate::crypto::wide::{BLOCK_BYTES, Packet, ROWS, Wide};
use crate::limits::TAG_BYTES;

/// Whether each packet of this batch is better worked on alone.
#[inline]
pub(super) fn each_alone<W: Wide>(jobs: &[Job<'_>]) -> bool {
    let blocks = |job: &Job<'_>| 1 + (job.buf.len() - TAG_BYTES).div_ceil(BLOCK_BYTES);
    match jobs.len() {
        0..=1 => true,
        count @ 2..=FEW => jobs.iter().map(blocks).sum::<usize>() > W::TOGETHER_MAX[count - 2],
        _ => false,
    }
}

/// Whether one call has computed all key stream of these packets.
#[inline]
pub(super) fn took_one_call(packets: &[Packet<'_>]) -> bool {
    packets.len() <= FEW
        && packets.iter().map(|packet| 1 + packet.stream_blocks()).sum::<usize>() <= ROWS
}

/// Packets that are few.
const FEW: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Key;
    use crate::crypto::avx2::Avx2;
    use crate::crypto::avx512::ifma::Ifma;

    fn each_alone_of<W: Wide>(text_lens: &[usize]) -> bool {
        let key = Key::from_bytes([0; 32]);
        let mut bufs: Vec<_> = text_lens.iter().map(|len| vec![0; len + TAG_BYTES]).collect();
        let jobs: Vec<_> = bufs.iter_mut().map(|buf| Job::new(&key, [0; 12], b"", buf)).collect();
        each_alone::<W>(&jobs)
    }

    #[test]
    fn few_packets_are_together_while_they_are_short() {
        assert!(each_alone_of::<Avx2>(&[40]));
        assert!(!each_alone_of::<Avx2>(&[40, 40]));
        assert!(!each_alone_of::<Avx2>(&[128; 4]));
        assert!(each_alone_of::<Avx2>(&[129; 4]));
        assert!(each_alone_of::<Avx2>(&[40, 1200]));
        assert!(!each_alone_of::<Avx2>(&[1200; 5]));
    }

    #[test]
    fn four_long_packets_share_the_lanes_of_a_multiplication() {
        assert!(each_alone_of::<Ifma>(&[1200; 2]));
        assert!(!each_alone_of::<Ifma>(&[1200; 4]));
    }
}
