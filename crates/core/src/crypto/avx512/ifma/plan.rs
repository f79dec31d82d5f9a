//! Which packets share eight lanes, and which are better computed alone.
//!
//! Nothing is computed here but estimates, in cycles, from the number of blocks alone:
//!
//! ```text
//! eight lanes         150 + 40 (ymm) or 25 (zmm) for each block of the longest packet
//! one in all lanes    260 + 4 for each block
//! ordinary integers   17, 23 or 31 for each block of one, two or three packets side by side
//! ```
//!
//! Eight lanes take as long as the longest packet in them. In a batch of game traffic that is often
//! one large packet among small ones: computing it alone halves the time of its group.

use std::ops::Range;

use crate::crypto::wide::Packet;

/// The registers that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::crypto) enum Width {
    /// Pairs of 256 bits.
    Ymm,
    /// 512 bits.
    Zmm,
}

/// A part of the work, by index of packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// Up to eight packets in eight lanes.
    Eight(Range<usize>),
    /// One long packet in eight lanes.
    Long(usize),
    /// A few packets on ordinary integers.
    Scalar(Range<usize>),
}

/// The steps for packets that are ordered by length.
pub(super) fn steps(packets: &[Packet<'_>], width: Width) -> impl Iterator<Item = PlanStep> {
    let blocks = |packet: usize| packets[packet].tag_blocks();
    Plan { blocks, width, end: packets.len(), alone: 0 }
}

/// Takes groups of eight from the long end, so that an incomplete one holds the shortest packets.
struct Plan<B> {
    /// Poly1305 blocks of a packet.
    blocks: B,
    width: Width,
    /// Packets that are still without a step.
    end: usize,
    /// Of these, how many of the longest go alone.
    alone: usize,
}

impl<B: Fn(usize) -> usize> Iterator for Plan<B> {
    type Item = PlanStep;

    #[inline]
    fn next(&mut self) -> Option<PlanStep> {
        if self.end == 0 {
            return None;
        }
        let group = self.end.saturating_sub(8)..self.end;
        if self.alone == 0 {
            self.alone = count_alone(&self.blocks, self.width, group.clone());
        }
        let longest = (self.blocks)(self.end - 1);
        if self.alone > 0 {
            self.alone -= 1;
            self.end -= 1;
            let is_long = long_cycles(longest) < scalar_cycles(1, longest);
            return Some(if is_long {
                PlanStep::Long(self.end)
            } else {
                PlanStep::Scalar(self.end..self.end + 1)
            });
        }
        self.end = group.start;
        let are_few = scalar_cycles(group.len(), longest) < eight_cycles(self.width, longest);
        Some(if are_few { PlanStep::Scalar(group) } else { PlanStep::Eight(group) })
    }
}

/// How many of a group's longest packets are better computed alone.
fn count_alone(blocks: &impl Fn(usize) -> usize, width: Width, group: Range<usize>) -> usize {
    let (shortest, longest) = (blocks(group.start), blocks(group.end - 1));
    if group.len() <= SCALAR_MAX {
        let together = together_cycles(width, group.len(), longest);
        return if group.len() * alone_cycles(longest) < together { group.len() } else { 0 };
    }
    let saving_max = eight_cycles(width, longest).saturating_sub(eight_cycles(width, shortest));
    if saving_max <= alone_cycles(longest) {
        return 0;
    }
    let mut best = (together_cycles(width, group.len(), longest), 0);
    let mut alone_sum = 0;
    for packet in group.clone().rev() {
        alone_sum += alone_cycles(blocks(packet));
        let rest = packet - group.start;
        let rest_cycles =
            if rest == 0 { 0 } else { together_cycles(width, rest, blocks(packet - 1)) };
        best = best.min((alone_sum + rest_cycles, group.end - packet));
    }
    best.1
}

fn together_cycles(width: Width, packets: usize, blocks_max: usize) -> usize {
    eight_cycles(width, blocks_max).min(scalar_cycles(packets, blocks_max))
}

fn alone_cycles(blocks: usize) -> usize {
    long_cycles(blocks).min(scalar_cycles(1, blocks))
}

/// Eight lanes, however many are used.
const fn eight_cycles(width: Width, blocks_max: usize) -> usize {
    match width {
        Width::Ymm => 150 + 40 * blocks_max,
        Width::Zmm => 150 + 25 * blocks_max,
    }
}

const fn long_cycles(blocks: usize) -> usize {
    260 + 4 * blocks
}

/// Three packets side by side take less than twice as long as one.
const fn scalar_cycles(packets: usize, blocks_max: usize) -> usize {
    let per_block = match packets % SCALAR_MAX {
        0 => 0,
        1 => 17,
        _ => 23,
    };
    (packets / SCALAR_MAX * 31 + per_block) * blocks_max
}

/// Packets that ordinary integers compute side by side. The cycles above are those of a Granite
/// Rapids core, on one packet size after the other; only their ratios matter.
const SCALAR_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(blocks: &[usize]) -> Vec<PlanStep> {
        let end = blocks.len();
        let blocks = |packet: usize| blocks[packet];
        Plan { blocks, width: Width::Zmm, end, alone: 0 }.collect()
    }

    #[test]
    fn equal_packets_share_lanes_from_the_long_end() {
        assert_eq!(steps(&[10; 16]), [PlanStep::Eight(8..16), PlanStep::Eight(0..8)]);
        assert_eq!(steps(&[10; 10]), [PlanStep::Eight(2..10), PlanStep::Scalar(0..2)]);
        assert_eq!(steps(&[10; 5]), [PlanStep::Eight(0..5)]);
    }

    #[test]
    fn a_long_packet_among_short_ones_goes_alone() {
        let blocks = [6, 6, 7, 7, 8, 8, 9, 78];
        assert_eq!(steps(&blocks), [PlanStep::Long(7), PlanStep::Eight(0..7)]);
    }

    #[test]
    fn few_packets_use_what_fits_their_length() {
        assert_eq!(steps(&[10]), [PlanStep::Scalar(0..1)]);
        assert_eq!(steps(&[10, 10, 10]), [PlanStep::Scalar(0..3)]);
        assert_eq!(steps(&[78]), [PlanStep::Long(0)]);
        assert_eq!(steps(&[78, 78]), [PlanStep::Long(1), PlanStep::Long(0)]);
        assert_eq!(steps(&[]), []);
    }

    #[test]
    fn every_packet_is_computed_once() {
        let mut blocks: Vec<_> = (0..64_usize).map(|i| 1 + i * i * 97 % 95).collect();
        blocks.sort_unstable();
        for count in 1..=64 {
            let mut done = vec![0; count];
            for step in steps(&blocks[..count]) {
                match step {
                    PlanStep::Eight(range) => {
                        assert!(range.len() <= 8);
                        range.for_each(|packet| done[packet] += 1);
                    }
                    PlanStep::Long(packet) => done[packet] += 1,
                    PlanStep::Scalar(range) => range.for_each(|packet| done[packet] += 1),
                }
            }
            assert!(done.into_iter().all(|times| times == 1));
        }
    }
}
