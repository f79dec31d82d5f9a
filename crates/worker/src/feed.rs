//! A stream of another process's, as it comes: copied piece by piece, because that process could
//! change it while it is looked at, and never as a whole, because that would be a third table.

use std::os::fd::{AsFd, OwnedFd};

use zeroize::Zeroizing;

use ringgate_os::shared;
use ringgate_process::handover::memory;

/// The memory that one stream comes in, and a piece of what it says.
pub(super) struct Feed {
    memory: OwnedFd,
    piece: Zeroizing<Vec<u8>>,
    /// How much of it waits for more, because it is the beginning of a record.
    held: usize,
}

impl Feed {
    pub(super) fn new(memory: OwnedFd) -> Result<Self, String> {
        Ok(Self { memory, piece: memory::room(PIECE_BYTES)?, held: 0 })
    }

    /// Has `take` take so many bytes, which lie at the beginning of the memory. It returns how many
    /// of those it is shown it has taken; what is left it is shown again, with more behind it. At
    /// the end of a part that is `whole` nothing may be left.
    pub(super) fn take(
        &mut self,
        bytes: u64,
        is_whole: bool,
        mut take: impl FnMut(&[u8]) -> Result<usize, String>,
    ) -> Result<(), String> {
        let mut at = 0;
        while at < bytes {
            if self.held == self.piece.len() {
                self.grow()?;
            }
            let room = &mut self.piece[self.held..];
            let len = room.len().min(usize::try_from(bytes - at).unwrap_or(usize::MAX));
            shared::read(self.memory.as_fd(), at, &mut room[..len])
                .map_err(|why| format!("cannot read what was given: {why}"))?;
            (at, self.held) = (at + len as u64, self.held + len);
            let taken = take(&self.piece[..self.held])?;
            self.piece.copy_within(taken..self.held, 0);
            self.held -= taken;
        }
        if self.held == 0 || !is_whole { Ok(()) } else { Err(CUT_OFF.to_owned()) }
    }

    /// For a record that is longer than all before.
    fn grow(&mut self) -> Result<(), String> {
        let bytes = self.piece.len();
        if bytes >= RECORD_BYTES_MAX {
            return Err("a record is longer than any can be".to_owned());
        }
        let mut longer = memory::room(2 * bytes)?;
        longer[..bytes].copy_from_slice(&self.piece);
        self.piece = longer;
        Ok(())
    }
}

/// What the innermost caches hold.
const PIECE_BYTES: usize = 128 << 10;

/// A list of all places of the largest table.
const RECORD_BYTES_MAX: usize = 1 << 30;

const CUT_OFF: &str = "the state is cut off";

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_os::shared::Writing;

    /// Takes records that begin with their length, in four bytes.
    fn take(seen: &mut Vec<usize>, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let Some((_, behind)) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)
            else {
                break;
            };
            seen.push(u32::from_le_bytes(*len) as usize);
            rest = behind;
        }
        bytes.len() - rest.len()
    }

    fn feed(lengths: &[usize], missing: usize) -> (Result<(), String>, Vec<usize>) {
        let mut bytes = Vec::new();
        for len in lengths {
            bytes.extend((*len as u32).to_le_bytes());
            bytes.resize(bytes.len() + len, 7);
        }
        let mut memory = Writing::new(bytes.len()).expect("memory");
        memory.bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        let mut feed = Feed::new(memory.fd().try_clone_to_owned().expect("a second descriptor"));
        let (mut seen, feed) = (Vec::new(), feed.as_mut().expect("memory"));
        let told = (bytes.len() - missing) as u64;
        let outcome = feed.take(told, true, |bytes| Ok(take(&mut seen, bytes)));
        (outcome, seen)
    }

    #[test]
    fn records_come_whole_however_they_lie_in_the_pieces() {
        for lengths in [vec![], vec![3], vec![100; 5000], vec![1, 3 * PIECE_BYTES, 0, PIECE_BYTES]]
        {
            assert_eq!(feed(&lengths, 0), (Ok(()), lengths));
        }
    }

    #[test]
    fn what_is_cut_off_or_not_there_is_refused() {
        let (outcome, seen) = feed(&[5, 6], 1);
        assert_eq!((outcome, seen), (Err(CUT_OFF.to_owned()), vec![5]));
        let memory = Writing::new(10).expect("memory");
        let fd = memory.fd().try_clone_to_owned().expect("a second descriptor");
        let mut feed = Feed::new(fd).expect("memory");
        assert!(feed.take(11, true, |bytes| Ok(bytes.len())).is_err());
        assert!(feed.take(u64::MAX, true, |bytes| Ok(bytes.len())).is_err());
        assert!(feed.take(u64::MAX, false, |_| Ok(0)).is_err(), "nothing so long is waited for");
    }

    #[test]
    fn a_record_may_begin_in_one_part_and_end_in_the_next_but_not_behind_the_last() {
        let record = [&7_u32.to_le_bytes()[..], b"pigeons"].concat();
        for cut in 1..record.len() {
            let (first, second) = record.split_at(cut);
            let mut memory = Writing::new(record.len()).expect("memory");
            let fd = memory.fd().try_clone_to_owned().expect("a second descriptor");
            let (mut seen, mut feed) = (Vec::new(), Feed::new(fd).expect("memory"));
            for (part, is_last) in [(first, false), (second, true)] {
                memory.bytes_mut()[..part.len()].copy_from_slice(part);
                let taken =
                    feed.take(part.len() as u64, is_last, |bytes| Ok(take(&mut seen, bytes)));
                assert_eq!(taken, Ok(()));
            }
            assert_eq!(seen, [7], "cut after {cut} bytes");
            memory.bytes_mut()[..cut].copy_from_slice(first);
            let taken = feed.take(cut as u64, true, |bytes| Ok(take(&mut seen, bytes)));
            assert_eq!(taken, Err(CUT_OFF.to_owned()));
        }
    }
}
