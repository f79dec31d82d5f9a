//! `HdrHistogram` interval logs: histograms in time, a line for each tag and interval, in the text format that every tool of
//! that family reads.
//!
//! Values are nanoseconds; the column for people (the longest of an interval) is in milliseconds, as the reference writer
//! has it. The `hdrhistogram` crate knows the histograms' encoding and splits a log into its lines. What is here is what it
//! lacks: lines for a log that grows for weeks (its writer borrows its output for life), histograms and real times out of
//! lines, and a word on what is wrong with a file.

use std::fmt::{self, Write};
use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{
    IntervalLogHistogram, IntervalLogIterator, LogEntry, LogIteratorError,
};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use hdrhistogram::{Counter, Histogram};

/// The head of a log whose times count from `unix`. `writer` is who writes it, in one line.
pub fn head(unix: Duration, writer: &str) -> String {
    let unix_s = unix.as_secs_f64();
    format!(
        "#[Logged by {writer}]\n\
         #[Histogram log format version 1.3]\n\
         #[StartTime: {unix_s:.3} (seconds since epoch)]\n\
         #[BaseTime: {unix_s:.3} (seconds since epoch)]\n\
         #[Values are nanoseconds, Interval_Max is in milliseconds]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n"
    )
}

/// Appends the line of one histogram, whose interval began `start` after the log did. Tags have no commas, spaces or line
/// ends; an empty one is left out.
pub fn write_line<C: Counter>(
    text: &mut String,
    tag: &str,
    start: Duration,
    length: Duration,
    histogram: &Histogram<C>,
) -> io::Result<()> {
    debug_assert!(!tag.contains([',', ' ', '\r', '\n']), "a tag is a word");
    let mut encoded = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut encoded)
        .map_err(|why| io::Error::other(why.to_string()))?;
    if !tag.is_empty() {
        text.push_str("Tag=");
        text.push_str(tag);
        text.push(',');
    }
    let (start_s, length_s) = (start.as_secs_f64(), length.as_secs_f64());
    let max_ms = histogram.max() as f64 / 1e6;
    write!(text, "{start_s:.3},{length_s:.3},{max_ms:.3},")
        .expect("writing to a string cannot fail");
    STANDARD.encode_string(&encoded, text);
    text.push('\n');
    Ok(())
}

/// One histogram of a log.
#[derive(Clone, Debug)]
pub struct Interval {
    /// What was measured; empty where the log does not say.
    pub tag: String,
    /// When the interval began, since 1970 (or since the log's start, where it does not say when that was).
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was recorded in it.
    pub histogram: Histogram<u64>,
}

/// A log that was read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// In the order of the file.
    pub intervals: Vec<Interval>,
    /// The last line has no end: it was being written, or its writer was killed. It is left out.
    pub is_cut_off: bool,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// From 1.
    pub line: usize,
    /// In words.
    pub found: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, found } = self;
        write!(f, "line {line}: found {found}, expected an interval of an HdrHistogram log")
    }
}

impl std::error::Error for ReadError {}

/// Reads a log of ours, or another writer's.
pub fn read(bytes: &[u8]) -> Result<Log, ReadError> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let whole = &bytes[..end];
    let mut log = Log { intervals: Vec::new(), is_cut_off: end < bytes.len() };
    let mut epoch = Epoch::default();
    let mut decoder = Deserializer::new();
    for entry in IntervalLogIterator::new(whole) {
        match entry {
            Ok(LogEntry::StartTime(start)) => epoch.start = Some(start),
            Ok(LogEntry::BaseTime(base)) => epoch.base = Some(base),
            Ok(LogEntry::Interval(line)) => {
                let fail = |found: String| ReadError { line: line_of(whole, &line), found };
                let histogram = decode(&mut decoder, line.encoded_histogram()).map_err(fail)?;
                log.intervals.push(Interval {
                    tag: line.tag().map_or("", |tag| tag.as_str()).to_owned(),
                    start: epoch.place(line.start_timestamp()),
                    length: line.duration(),
                    histogram,
                });
            }
            Err(LogIteratorError::ParseError { offset }) => {
                return Err(ReadError {
                    line: line_at(whole, offset),
                    found: "another line".into(),
                });
            }
        }
    }
    Ok(log)
}

fn decode(decoder: &mut Deserializer, text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|why| format!("bad base64 ({why})"))?;
    decoder.deserialize(&mut bytes.as_slice()).map_err(|why| format!("a bad histogram ({why})"))
}

/// From when the times of a log count.
#[derive(Default)]
struct Epoch {
    start: Option<Duration>,
    base: Option<Duration>,
}

impl Epoch {
    /// As the reference reader has it: from the base time if there is one; else from the start time, unless the number is
    /// so close to that that it must count from 1970 itself.
    fn place(&self, timestamp: Duration) -> Duration {
        const YEAR: Duration = Duration::from_hours(365 * 24);
        let origin = match (self.base, self.start) {
            (Some(base), _) => base,
            (None, Some(start)) if timestamp.saturating_add(YEAR) < start => start,
            (None, _) => Duration::ZERO,
        };
        origin.saturating_add(timestamp)
    }
}

/// The line that an interval stands in. The entry borrows its text from the log, so its place is its distance.
fn line_of(log: &[u8], line: &IntervalLogHistogram<'_>) -> usize {
    let offset = line.encoded_histogram().as_ptr() as usize - log.as_ptr() as usize;
    line_at(log, offset)
}

fn line_at(log: &[u8], offset: usize) -> usize {
    log[..offset].split(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Duration = Duration::from_millis(1_700_000_000_250);

    fn histogram(values: &[u64]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds");
        for value in values {
            histogram.record(*value).expect("in range");
        }
        histogram
    }

    fn log() -> String {
        let mut text = head(BEGAN, "a test");
        for (at, values) in [&[1_000, 2_000][..], &[], &[2_500_000]].iter().enumerate() {
            let start = Duration::from_secs(10 * at as u64);
            let length = Duration::from_secs(10);
            write_line(&mut text, "turn", start, length, &histogram(values)).expect("written");
            write_line(&mut text, "", start, length, &histogram(&[7])).expect("written");
        }
        text
    }

    #[test]
    fn what_was_written_is_read() {
        let text = log();
        assert!(text.contains("\nTag=turn,20.000,10.000,2.501,HIST"), "{text}");
        let log = read(text.as_bytes()).expect("ours");
        assert_eq!((log.intervals.len(), log.is_cut_off), (6, false));
        let Interval { tag, start, length, histogram: read } = &log.intervals[4];
        assert_eq!((tag.as_str(), *length), ("turn", Duration::from_secs(10)));
        assert_eq!(*start, BEGAN + Duration::from_secs(20));
        assert_eq!((read.len(), read.max()), (1, histogram(&[2_500_000]).max()));
        assert_eq!(log.intervals[5].tag, "");
    }

    #[test]
    fn a_line_without_an_end_is_left_out() {
        let text = log();
        let log = read(&text.as_bytes()[..text.len() - 3]).expect("ours");
        assert_eq!((log.intervals.len(), log.is_cut_off), (5, true));
        assert!(read(b"").is_ok_and(|log| log.intervals.is_empty() && !log.is_cut_off));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let error = |text: &str| read(text.as_bytes()).expect_err("wrong").to_string();
        assert!(error("hello\n").starts_with("line 1: found another line, expected"));
        let text = log().replacen("HIST", "HI$T", 1);
        assert!(error(&text).starts_with("line 7: found bad base64"), "{}", error(&text));
        let text = log().replacen("HIST", "AAAA", 1);
        assert!(error(&text).starts_with("line 7: found a bad histogram"), "{}", error(&text));
    }

    #[test]
    fn times_count_from_what_the_log_says() {
        let line = log().lines().last().expect("a line").replacen("20.000", "1700000020.000", 1);
        let at = |head: &str, line: &str| {
            let log = read(format!("{head}{line}\n").as_bytes()).expect("valid");
            log.intervals[0].start.as_secs()
        };
        assert_eq!(at("", &line), 1_700_000_020);
        assert_eq!(
            at("#[StartTime: 1700000000.000 (seconds since epoch)]\n", &line),
            1_700_000_020
        );
        let line = line.replacen("1700000020.000", "20.000", 1);
        assert_eq!(
            at("#[StartTime: 1700000000.000 (seconds since epoch)]\n", &line),
            1_700_000_020
        );
        assert_eq!(at("#[BaseTime: 1600000000.000 (seconds since epoch)]\n", &line), 1_600_000_020);
    }
}
