//! A connection's bytes, handed out as whole records of TLS only.
//!
//! So whoever takes them never keeps a part of one, and what is left of a connection at any moment
//! is here, in plain view.

use std::io::{self, Read};

use ringgate_core::carry::{Broken, Carry, Reader, Writer};

/// Bytes of a record's header.
pub(super) const HEADER_BYTES: usize = 5;

/// Room for a record of any length that TLS allows, and for the beginning of another.
const BYTES: usize = 2 * (HEADER_BYTES + (1 << 14) + 256);

/// What was read and not handed out.
#[derive(Debug)]
pub(super) struct Records {
    bytes: Box<[u8]>,
    /// Invariant: `start <= whole <= end`, within `bytes`.
    start: usize,
    /// Where the last whole record ends.
    whole: usize,
    end: usize,
}

impl Default for Records {
    fn default() -> Self {
        Self { bytes: vec![0; BYTES].into_boxed_slice(), start: 0, whole: 0, end: 0 }
    }
}

impl Carry for Records {
    fn write(&self, out: &mut Writer<'_>) {
        let Self { bytes, start, whole: _, end } = self;
        bytes[*start..*end].to_vec().write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Broken> {
        let mut records = Self::default();
        let have = Vec::<u8>::read(from)?;
        let room = records.bytes.get_mut(..have.len()).ok_or(Broken::Invalid("records"))?;
        room.copy_from_slice(&have);
        records.end = have.len();
        records.look();
        Ok(records)
    }
}

impl Records {
    /// Lets `source` be read through this.
    pub(super) const fn of<'a, R>(&'a mut self, source: &'a mut R) -> Whole<'a, R> {
        Whole { records: self, source }
    }

    /// The next record, whole. `None` where the source has come to its end.
    pub(super) fn next(&mut self, source: &mut impl Read) -> io::Result<Option<&mut [u8]>> {
        while self.start == self.whole {
            if self.fill(source)? == 0 {
                return Ok(None);
            }
        }
        let rest = &mut self.bytes[self.start..self.whole];
        let body = rest.first_chunk::<HEADER_BYTES>().map(|it| u16::from_be_bytes([it[3], it[4]]));
        let record = body.and_then(|body| rest.get_mut(..HEADER_BYTES + usize::from(body)));
        let record = record.ok_or(io::ErrorKind::InvalidData)?;
        self.start += record.len();
        Ok(Some(record))
    }

    /// Moves the mark behind every record that is complete.
    fn look(&mut self) {
        while let Some(header) = self.bytes[self.whole..self.end].first_chunk::<HEADER_BYTES>() {
            let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
            let next = self.whole + HEADER_BYTES + body;
            let is_record = (20..=24).contains(&header[0]) && header[1] == 3;
            if !is_record || body > BYTES / 2 - HEADER_BYTES {
                // Who reads it says what is wrong with it, and need not wait for its end.
                self.whole = self.end;
                return;
            }
            if next > self.end {
                return;
            }
            self.whole = next;
        }
    }

    fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.whole, self.end) = (self.whole - self.start, self.end - self.start);
            self.start = 0;
        }
        let read = source.read(&mut self.bytes[self.end..])?;
        self.end += read;
        self.look();
        Ok(read)
    }
}

/// A source of whole records.
pub(super) struct Whole<'a, R> {
    records: &'a mut Records,
    source: &'a mut R,
}

impl<R: Read> Read for Whole<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Self { records, source } = self;
        while records.start == records.whole {
            if records.fill(*source)? == 0 {
                // What was cut off is of no use to anybody.
                return Ok(0);
            }
        }
        let len = buf.len().min(records.whole - records.start);
        buf[..len].copy_from_slice(&records.bytes[records.start..][..len]);
        records.start += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Gives what it has in parts, and is then blocked.
    struct Parts(VecDeque<Vec<u8>>);

    impl Read for Parts {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let part = self.0.pop_front().ok_or(io::ErrorKind::WouldBlock)?;
            buf[..part.len()].copy_from_slice(&part);
            Ok(part.len())
        }
    }

    fn record(body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u16).to_be_bytes();
        [&[0x17, 3, 3], &len[..], body].concat()
    }

    #[test]
    fn no_part_of_a_record_is_handed_out() {
        let stream = [record(b"one"), record(&vec![7; 16_384 + 256]), record(b"")].concat();
        for at_once in [1, 2, 7, 1000, 16_000] {
            let parts = stream.chunks(at_once).map(<[u8]>::to_vec).collect();
            let (mut records, mut source) = (Records::default(), Parts(parts));
            let (mut got, mut buf) = (Vec::new(), [0; 900]);
            loop {
                let start = got.len();
                match records.of(&mut source).read(&mut buf) {
                    Ok(len) => got.extend_from_slice(&buf[..len]),
                    Err(_) if source.0.is_empty() => break,
                    Err(_) => {}
                }
                let given = [0, 8, 8 + 5 + 16_640, 8 + 5 + 16_640 + 5];
                assert!(start != got.len() || given.contains(&got.len()), "{}", got.len());
            }
            assert_eq!(got, stream, "{at_once} at once");
        }
    }

    #[test]
    fn what_is_no_record_is_handed_on() {
        for bytes in [vec![0xff; 100], b"GET / HTTP/1.1".to_vec(), vec![22, 3, 3, 255, 255, 0]] {
            let (mut records, mut source) = (Records::default(), Parts([bytes.clone()].into()));
            let mut buf = [0; 200];
            let len = records.of(&mut source).read(&mut buf).expect("something");
            assert_eq!(buf[..len], bytes);
        }
    }
}
