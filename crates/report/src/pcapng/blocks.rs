//! Walks through the blocks of a capture, as far as they are whole: what comes in pieces can be
//! passed on without ever leaving half a block behind.

// Kinds of blocks.
pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
pub(super) const STATISTICS: u32 = 5;
pub(super) const PACKET: u32 = 6;

// Options: of any block, and of an interface's counts.
pub(super) const COMMENT: u16 = 1;
pub(super) const MATCHED: u16 = 4;
pub(super) const LOST: u16 = 5;

/// One block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// The beginning of a file.
    Section,
    /// An interface.
    Interface,
    /// A packet.
    Packet,
    /// What was counted at an interface.
    Statistics {
        /// Packets that were to be captured.
        matched: u64,
        /// Those of them that are missing.
        lost: u64,
        /// What is said about it.
        comment: &'a str,
    },
    /// Anything else.
    Other,
}

/// The blocks at the beginning of `bytes`, each with where it ends. Stops at one that is not there
/// in full; `Err` where that could never become a block.
pub fn blocks(bytes: &[u8]) -> impl Iterator<Item = Result<(Block<'_>, usize), Broken>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let (block, len) = match first(&bytes[start..])? {
            Ok(found) => found,
            Err(broken) => {
                start = bytes.len();
                return Some(Err(broken));
            }
        };
        start += len;
        Some(Ok((block, start)))
    })
}

/// What stands there is no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;

fn first(bytes: &[u8]) -> Option<Result<(Block<'_>, usize), Broken>> {
    let kind = word(bytes, 0)?;
    let len = word(bytes, 4)? as usize;
    if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&len) || !len.is_multiple_of(4) {
        return Some(Err(Broken));
    }
    let body = bytes.get(8..len - 4)?;
    if word(bytes, len - 4)? as usize != len {
        return Some(Err(Broken));
    }
    let block = match kind {
        SECTION => Block::Section,
        INTERFACE => Block::Interface,
        PACKET => Block::Packet,
        STATISTICS => statistics(body.get(12..).unwrap_or_default()),
        _ => Block::Other,
    };
    Some(Ok((block, len)))
}

fn statistics(mut options: &[u8]) -> Block<'_> {
    let (mut matched, mut lost, mut comment) = (0, 0, "");
    while let Some((code, value, rest)) = option(options) {
        let number = || value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        match code {
            COMMENT => comment = std::str::from_utf8(value).unwrap_or_default(),
            MATCHED => matched = number(),
            LOST => lost = number(),
            _ => {}
        }
        options = rest;
    }
    Block::Statistics { matched, lost, comment }
}

/// Code and value of the first option, and what is behind it.
fn option(options: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (head, rest) = options.split_first_chunk::<4>()?;
    let [code, len] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_le_bytes);
    let len = usize::from(len);
    Some((code, rest.get(..len)?, rest.get(len.next_multiple_of(4)..)?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

const BLOCK_BYTES_MIN: usize = 12;

/// Far more than any of ours.
const BLOCK_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::super::{Packet, Statistics, Way, interface, packet, section, statistics};
    use super::*;

    fn capture() -> Vec<u8> {
        let mut out = Vec::new();
        section(&mut out, "p", "c");
        interface(&mut out, "eu", 100);
        let way = Way::Inbound;
        let bytes = &[1; 33];
        packet(
            &mut out,
            &Packet { interface: 0, unix_ns: 5, way, bytes, len: 33, comment: "dropped" },
        );
        let comment = "the time is over";
        statistics(
            &mut out,
            &Statistics {
                interface: 0,
                began_unix_ns: 1,
                ended_unix_ns: 2,
                matched: 9,
                lost: 8,
                comment,
            },
        );
        out
    }

    #[test]
    fn what_was_written_is_found_again() {
        let bytes = capture();
        let found: Vec<_> = blocks(&bytes).map(|block| block.expect("whole").0).collect::<Vec<_>>();
        let comment = "the time is over";
        let counts = Block::Statistics { matched: 9, lost: 8, comment };
        assert_eq!(found, [Block::Section, Block::Interface, Block::Packet, counts]);
        assert_eq!(blocks(&bytes).last().expect("some").expect("whole").1, bytes.len());
    }

    #[test]
    fn a_capture_in_pieces_is_whole_up_to_its_last_block() {
        let bytes = capture();
        let ends: Vec<_> = blocks(&bytes).map(|block| block.expect("whole").1).collect();
        for cut in 0..bytes.len() {
            let whole = ends.iter().filter(|end| **end <= cut).count();
            let found: Vec<_> = blocks(&bytes[..cut]).collect();
            assert_eq!(found.len(), whole, "{cut} bytes");
            assert!(found.iter().all(Result::is_ok));
        }
    }

    #[test]
    fn what_is_no_capture_is_broken() {
        let found: Vec<_> = blocks(b"HTTP/1.0 500 Internal").collect();
        assert_eq!(found, [Err(Broken)]);
        let mut bytes = capture();
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        assert_eq!(blocks(&bytes).last(), Some(Err(Broken)), "both lengths are the same");
    }
}
