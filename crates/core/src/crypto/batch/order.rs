//! The order in which a chunk's packets are worked on: by length, so that neighbours keep each
//! other's lanes busy.
//!
//! Lengths are public, so sorting by them may branch on them.

use arrayvec::ArrayVec;

use crate::crypto::Job;
use crate::crypto::wide::{CHUNK, Packet};

/// A chunk's jobs, taken apart.
pub(super) type Packets<'a> = ArrayVec<Packet<'a>, CHUNK>;

/// The rank of every job of a chunk.
pub(super) struct Order {
    /// `None` where the jobs are of equal length, so that their order is the one they came in.
    ranks: Option<[u8; CHUNK]>,
}

impl Order {
    /// Orders by the number of 16-byte blocks, equal ones as they came.
    pub(super) fn by_length(jobs: &[Job<'_>]) -> Self {
        let blocks = |job: &Job<'_>| (job.buf.len().saturating_sub(1) / 16).min(BLOCKS_MAX);
        let all_equal = jobs.windows(2).all(|pair| blocks(&pair[0]) == blocks(&pair[1]));
        let ranks = match jobs.len() {
            _ if all_equal => None,
            ..=COMPARED_MAX => Some(ranks_by_comparing(jobs, blocks)),
            _ => Some(ranks_by_counting(jobs, blocks)),
        };
        Self { ranks }
    }

    /// Takes the jobs apart, in order.
    #[inline]
    pub(super) fn take<'a>(&self, jobs: &'a mut [Job<'_>], packets: &mut Packets<'a>) {
        let Some(ranks) = &self.ranks else {
            packets.extend(jobs.iter_mut().map(Packet::new));
            return;
        };
        packets.extend(jobs.iter().map(|_| Packet::vacant()));
        for (job, &rank) in jobs.iter_mut().zip(ranks) {
            packets[usize::from(rank)] = Packet::new(job);
        }
    }

    #[inline]
    pub(super) fn rank(&self, index: usize) -> usize {
        self.ranks.as_ref().map_or(index, |ranks| usize::from(ranks[index]))
    }
}

fn ranks_by_comparing(jobs: &[Job<'_>], blocks: impl Fn(&Job<'_>) -> usize) -> [u8; CHUNK] {
    let mut ranks = [0; CHUNK];
    for (later, job) in jobs.iter().enumerate() {
        for earlier in 0..later {
            let goes_first = blocks(job) < blocks(&jobs[earlier]);
            ranks[earlier] += u8::from(goes_first);
            ranks[later] += u8::from(!goes_first);
        }
    }
    ranks
}

fn ranks_by_counting(jobs: &[Job<'_>], blocks: impl Fn(&Job<'_>) -> usize) -> [u8; CHUNK] {
    let mut next = [0_u8; BLOCKS_MAX + 1];
    for job in jobs {
        next[blocks(job)] += 1;
    }
    let mut before = 0;
    for rank in &mut next {
        before += std::mem::replace(rank, before);
    }
    let mut ranks = [0; CHUNK];
    for (rank, job) in ranks.iter_mut().zip(jobs) {
        let next = &mut next[blocks(job)];
        *rank = *next;
        *next += 1;
    }
    ranks
}

/// Longer packets than a datagram holds are taken for equally long, which costs time and nothing
/// else.
const BLOCKS_MAX: usize = 95;

/// Up to this many jobs comparing all pairs is faster than counting.
const COMPARED_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::Key;

    /// Ranks of packets with these many bytes of text.
    fn ranks(lens: &[usize]) -> Vec<usize> {
        let key = Key::from_bytes([0; 32]);
        let mut bufs: Vec<_> = lens.iter().map(|len| vec![0; len + 16]).collect();
        let jobs: Vec<_> = bufs.iter_mut().map(|buf| Job::new(&key, [0; 12], b"", buf)).collect();
        let order = Order::by_length(&jobs);
        (0..jobs.len()).map(|index| order.rank(index)).collect()
    }

    #[test]
    fn jobs_are_ranked_by_blocks_and_equal_ones_stay_in_order() {
        assert_eq!(ranks(&[40, 1200, 8, 47, 0]), [2, 4, 1, 3, 0]);
        assert_eq!(ranks(&[17, 20, 31]), [0, 1, 2]);
        assert_eq!(ranks(&[]), [0; 0]);
    }

    #[test]
    fn counting_ranks_as_comparing_does() {
        let lens: Vec<_> = (0..CHUNK).map(|i| i * 997 % 2000).collect();
        let mut expected: Vec<_> = (0..CHUNK).collect();
        expected.sort_by_key(|&i| lens[i].div_ceil(16).min(BLOCKS_MAX));
        let ranks = ranks(&lens);
        for (rank, index) in expected.into_iter().enumerate() {
            assert_eq!(ranks[index], rank);
        }
    }
}
