//! The rest of a stream in parts, each as long as a window of memory: so that what is written while
//! players wait takes no more memory than that, however much it is.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::handover::record::{Refused, Sink};

/// Whether there is more of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The memory is full: it goes on with other memory, perhaps in the middle of a record.
    More,
    /// That was all.
    All,
}

/// A record that is longer than the window, as far as it was not passed on.
#[derive(Default)]
pub(crate) struct Parts {
    long: Zeroizing<Vec<u8>>,
    passed: usize,
    /// Everything was written, this record last.
    is_all: bool,
}

impl Parts {
    /// Writes as much as there is room for. `write` goes on where it has stopped, writes whole
    /// records, and says when there is no room for the next.
    pub(crate) fn write(
        &mut self,
        sink: &mut Sink<'_>,
        mut write: impl FnMut(&mut Sink<'_>) -> Result<(), Refused>,
    ) -> Result<Rest, Refused> {
        loop {
            self.pass_on(sink);
            if !self.long.is_empty() {
                return Ok(Rest::More);
            }
            if self.is_all {
                return Ok(Rest::All);
            }
            match write(sink) {
                Err(Refused::Full) if sink.is_empty() => {
                    self.write_long(sink.room(), &mut write)?;
                }
                Err(Refused::Full) => return Ok(Rest::More),
                written => return written.map(|()| Rest::All),
            }
        }
    }

    /// Has the next record written into other memory, as large as it has to be.
    fn write_long(
        &mut self,
        window: usize,
        write: &mut impl FnMut(&mut Sink<'_>) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let mut bytes = window.max(1);
        while self.long.is_empty() {
            bytes = bytes.saturating_mul(2);
            if bytes > RECORD_BYTES_MAX {
                return Err(Refused::Full);
            }
            let mut memory = Zeroizing::new(vec![0; bytes]);
            let mut sink = Sink::new(&mut memory);
            self.is_all = match write(&mut sink) {
                Err(Refused::Full) => false,
                written => written.map(|()| true)?,
            };
            let len = sink.len();
            memory.truncate(len);
            (self.long, self.passed) = (memory, 0);
        }
        Ok(())
    }

    fn pass_on(&mut self, sink: &mut Sink<'_>) {
        self.passed += sink.copy(&self.long[self.passed..]);
        if self.passed == self.long.len() {
            self.long = Zeroizing::default();
            self.passed = 0;
        }
    }
}

/// The numbers of a list that may be as long as a table, in pieces that make a record each.
pub(crate) fn in_pieces(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(IN_A_RECORD).map(move |from| from..count.min(from + IN_A_RECORD))
}

/// Some tens of kilobytes.
const IN_A_RECORD: usize = 2048;

/// As much as a successor reads.
const RECORD_BYTES_MAX: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::record::Kind;
    use proptest::prelude::*;

    /// Everything that is written of records with so many bytes, in windows of `window` bytes.
    fn written(lengths: &[usize], window: usize) -> Vec<u8> {
        let (mut parts, mut next, mut all) = (Parts::default(), 0, Vec::new());
        let mut memory = vec![0; window];
        loop {
            let mut sink = Sink::new(&mut memory);
            let rest = parts.write(&mut sink, |sink| {
                while let Some(len) = lengths.get(next) {
                    sink.append(Kind::Token, |out| out.bytes(&vec![next as u8; *len]))?;
                    next += 1;
                }
                Ok(())
            });
            let len = sink.len();
            all.extend_from_slice(&memory[..len]);
            match rest.expect("no record is too long") {
                Rest::More => assert!(len > 0, "it goes on"),
                Rest::All => return all,
            }
        }
    }

    proptest! {
        #[test]
        fn the_parts_are_the_stream_however_small_the_window_is(
            lengths in prop::collection::vec(0usize..300, 0..12),
            window in 1usize..400,
        ) {
            prop_assert_eq!(written(&lengths, window), written(&lengths, 1 << 16));
        }
    }

    #[test]
    fn a_long_list_is_cut_into_pieces_that_are_all_of_it() {
        let all = |count| in_pieces(count).collect::<Vec<_>>();
        assert_eq!(all(0), []);
        assert_eq!(all(IN_A_RECORD), std::slice::from_ref(&(0..IN_A_RECORD)));
        let twice = 2 * IN_A_RECORD;
        assert_eq!(all(twice + 1), [0..IN_A_RECORD, IN_A_RECORD..twice, twice..twice + 1]);
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let (mut memory, mut parts) = ([0; 10], Parts::default());
        let mut sink = Sink::new(&mut memory);
        assert_eq!(parts.write(&mut sink, |_| Err(Refused::Busy)), Err(Refused::Busy));
    }
}
