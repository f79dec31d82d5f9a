//! `HdrHistogram` interval logs: one line for each stage and interval, readable by every tool that knows the format.
//!
//! The crate's own writer borrows its output and serializer for as long as it lives, which a log that grows during a run
//! cannot offer; a line is simple enough to write here. Its own reader and another implementation hold it to the format in the tests.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::tally::{Stage, Tally};

/// Writes a log.
#[derive(Debug)]
pub struct Log<W> {
    out: W,
    bytes: Vec<u8>,
}

impl<W: Write> Log<W> {
    /// Begins a log whose times count from `start_unix_ns`.
    pub fn begin(mut out: W, start_unix_ns: u64, comment: &str) -> io::Result<Self> {
        let start_s = start_unix_ns as f64 / 1e9;
        writeln!(out, "#[Logged by ringgate-loadgen {}: {comment}]", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[StartTime: {start_s:.3} (seconds since epoch)]")?;
        writeln!(out, "#[Values are nanoseconds; Interval_Max is in milliseconds]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(Self { out, bytes: Vec::new() })
    }

    /// Writes what an interval has gathered, a line for each stage that has anything.
    pub fn write(&mut self, start: Duration, length: Duration, tally: &Tally) -> io::Result<()> {
        for stage in Stage::ALL.iter().filter(|stage| !tally.of(**stage).is_empty()) {
            self.write_line(stage.tag(), start, length, tally.of(*stage))?;
        }
        Ok(())
    }

    fn write_line(
        &mut self,
        tag: &str,
        start: Duration,
        length: Duration,
        histogram: &Histogram<u32>,
    ) -> io::Result<()> {
        self.bytes.clear();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut self.bytes)
            .map_err(|why| io::Error::other(why.to_string()))?;
        writeln!(
            self.out,
            "Tag={tag},{:.3},{:.3},{:.3},{}",
            start.as_secs_f64(),
            length.as_secs_f64(),
            histogram.max() as f64 / 1e6,
            base64(&self.bytes)
        )
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - group.len()));
        for digit in 0..4 {
            let is_padding = digit > group.len();
            let value = DIGITS[(word >> (18 - 6 * digit) & 63) as usize];
            text.push(if is_padding { '=' } else { value as char });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn base64_matches_its_rfc() {
        let texts = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|s| base64(s.as_bytes()));
        assert_eq!(texts, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }

    #[test]
    fn the_crates_own_reader_finds_every_interval_with_its_tag() {
        let mut log =
            Log::begin(Vec::new(), 1_700_000_000_500_000_000, "test").expect("a Vec takes it");
        for interval in 0..3_u64 {
            let mut tally = Tally::new();
            tally.record(Stage::RoundTrip, 1000 * (interval + 1));
            tally.record(Stage::Handshake, 5_000_000);
            log.write(Duration::from_secs(interval), Duration::from_secs(1), &tally)
                .expect("written");
        }
        let bytes = log.finish().expect("flushed");
        let mut deserializer = hdrhistogram::serialization::Deserializer::new();
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&bytes) {
            if let LogEntry::Interval(line) = entry.expect("valid") {
                let raw = unbase64(line.encoded_histogram());
                let histogram: Histogram<u64> =
                    deserializer.deserialize(&mut raw.as_slice()).expect("a histogram");
                found.push((
                    line.tag().map(|t| t.as_str().to_owned()),
                    line.start_timestamp(),
                    histogram.max(),
                ));
            }
        }
        assert_eq!(found.len(), 6);
        assert_eq!(found[4].0.as_deref(), Some("round_trip:both"));
        assert_eq!(found[4].1, Duration::from_secs(2));
        assert!((3000..3005).contains(&found[4].2));
        let _: Deserializer = deserializer;
    }

    fn unbase64(text: &str) -> Vec<u8> {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut bytes = Vec::new();
        for group in text.as_bytes().chunks(4) {
            let value = |d: &u8| digits.iter().position(|digit| digit == d).unwrap_or(0) as u32;
            let word = group.iter().fold(0, |word, digit| word << 6 | value(digit));
            let padding = group.rsplit(|digit| *digit != b'=').next().map_or(0, <[u8]>::len);
            bytes.extend_from_slice(&word.to_be_bytes()[1..4 - padding]);
        }
        bytes
    }
}
