//! `HdrHistogram` interval logs: histograms in time, a line for each tag and interval, in the text
//! format that every tool of that family reads.
//!
//! Values are nanoseconds; the column for people (the longest of an interval) is in milliseconds,
//! as the reference writer has it. A log may grow for weeks, so it is written line by line, and
//! read with a word on what is wrong with it.
//!
//! A file may come from a stranger, or from a disk that was full: a line that is broken is left out
//! and told, and what a line unfolds to is bounded before memory is asked for.

mod encoding;
mod line;

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use hdrhistogram::{Counter, Histogram};

use crate::text::Append as _;
use encoding::{COOKIE_PLAIN, HEAD_BYTES};
use line::Line;

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

/// Appends the line of one histogram, whose interval began `start` after the log did. Tags have no
/// commas, spaces or line ends; an empty one is left out.
pub fn write_line<C: Counter>(
    text: &mut String,
    tag: &str,
    start: Duration,
    length: Duration,
    histogram: &Histogram<C>,
) -> io::Result<()> {
    debug_assert!(!tag.contains([',', ' ', '\r', '\n']), "a tag is a word");
    let plain = encoding::encode(histogram).ok_or_else(|| io::Error::other("a count too large"))?;
    let mut encoder = ZlibEncoder::new(vec![0; 8], flate2::Compression::default());
    io::Write::write_all(&mut encoder, &plain)?;
    let mut encoded = encoder.finish()?;
    let packed_bytes = (encoded.len() - 8) as u32;
    encoded[..4].copy_from_slice(&COOKIE_DEFLATED.to_be_bytes());
    encoded[4..8].copy_from_slice(&packed_bytes.to_be_bytes());
    if !tag.is_empty() {
        text.push_str("Tag=");
        text.push_str(tag);
        text.push(',');
    }
    let (start_s, length_s) = (start.as_secs_f64(), length.as_secs_f64());
    let max_ms = histogram.max() as f64 / 1e6;
    write!(text, "{start_s:.3},{length_s:.3},{max_ms:.3},");
    STANDARD.encode_string(&encoded, text);
    text.push('\n');
    Ok(())
}

/// One histogram of a log.
#[derive(Clone, Debug)]
pub struct Interval {
    /// What was measured; empty where the log does not say.
    pub tag: String,
    /// When the interval began, since 1970 (or since the log's start, where it does not say when
    /// that was).
    pub start: Duration,
    /// How long it was.
    pub length: Duration,
    /// What was recorded in it.
    pub histogram: Histogram<u64>,
}

/// A log that was read.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Who wrote it and where, as its head says; empty where it does not.
    pub writer: String,
    /// In the order of the file.
    pub intervals: Vec<Interval>,
    /// The last line has no end: it was being written, or its writer was killed. It is left out.
    pub is_cut_off: bool,
    /// Whole lines that are no interval. They are left out.
    pub broken_count: usize,
    /// The first of them.
    pub broken: Option<ReadError>,
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

/// Reads a log of ours, or another writer's. A file with broken lines and without a single interval
/// is none.
pub fn read(bytes: &[u8]) -> Result<Log, ReadError> {
    read_within(bytes, Left { counts: FILE_COUNTS_MAX, bytes: FILE_BYTES_MAX, tags: TAGS_MAX })
}

fn read_within(bytes: &[u8], mut left: Left) -> Result<Log, ReadError> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut log = Log { is_cut_off: end < bytes.len(), ..Log::default() };
    let mut epoch = Epoch::default();
    let mut tags = BTreeSet::new();
    for (at, line) in bytes[..end].split_inclusive(|byte| *byte == b'\n').enumerate() {
        if let Some(writer) = writer_of(line) {
            writer.clone_into(&mut log.writer);
            continue;
        }
        match read_line(line, &mut epoch, &mut left, &mut tags) {
            Ok(interval) => log.intervals.extend(interval),
            Err(found) => {
                log.broken_count += 1;
                log.broken.get_or_insert(ReadError { line: at + 1, found });
            }
        }
    }
    match log.broken.take_if(|_| log.intervals.is_empty()) {
        Some(first) => Err(first),
        None => Ok(log),
    }
}

/// Who a line says has written the log.
fn writer_of(line: &[u8]) -> Option<&str> {
    let inside = line.strip_prefix(b"#[Logged by ")?.trim_ascii_end().strip_suffix(b"]")?;
    std::str::from_utf8(inside).ok().filter(|it| it.len() < 1000 && !it.contains(char::is_control))
}

/// One line, with its end. Most are intervals; some say something about the log, and some nothing.
fn read_line(
    line: &[u8],
    epoch: &mut Epoch,
    left: &mut Left,
    tags: &mut BTreeSet<String>,
) -> Result<Option<Interval>, String> {
    if line.len() > LINE_BYTES_MAX {
        return Err(format!("a line of {} bytes", line.len()));
    }
    match line::parse(line.strip_suffix(b"\n").unwrap_or(line)) {
        None => Err("another line".to_owned()),
        Some(Line::Nothing) => Ok(None),
        Some(Line::Start(start)) => {
            epoch.start = Some(start);
            Ok(None)
        }
        Some(Line::Base(base)) => {
            epoch.base = Some(base);
            Ok(None)
        }
        Some(Line::Interval { tag, start, length, histogram }) => {
            if !tags.contains(tag) {
                left.tags = left.tags.checked_sub(1).ok_or("more tags than a file may have")?;
                tags.insert(tag.to_owned());
            }
            let (tag, start) = (tag.to_owned(), epoch.place(start));
            Ok(Some(Interval { tag, start, length, histogram: decode(histogram, left)? }))
        }
    }
}

/// The histogram that a text encodes. Every length in it is held against what is there before
/// memory is asked for it.
fn decode(text: &str, left: &mut Left) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|why| format!("bad base64 ({why})"))?;
    let bad = |why: &str| format!("a bad histogram ({why})");
    let mut plain = Vec::new();
    match bytes.split_first_chunk() {
        Some((cookie, _)) if u32::from_be_bytes(*cookie) == COOKIE_PLAIN => {
            plain.extend_from_slice(&bytes);
        }
        Some((cookie, rest))
            if u32::from_be_bytes(*cookie) == COOKIE_DEFLATED && rest.len() > 4 =>
        {
            let mut inflated = ZlibDecoder::new(&rest[4..]);
            let unreadable = |why: io::Error| bad(&why.to_string());
            (&mut inflated).take(HEAD_BYTES as u64).read_to_end(&mut plain).map_err(unreadable)?;
            let bytes_max =
                counts_of(&plain).ok_or_else(|| bad("its range"))? * COUNT_BYTES_MAX + 1;
            inflated.take(bytes_max as u64).read_to_end(&mut plain).map_err(unreadable)?;
        }
        _ => return Err(bad("neither of the two formats")),
    }
    let counts = counts_of(&plain).ok_or_else(|| bad("its range"))?;
    let payload_bytes = u32::from_be_bytes([plain[4], plain[5], plain[6], plain[7]]) as usize;
    if payload_bytes != plain.len() - HEAD_BYTES || payload_bytes > counts * COUNT_BYTES_MAX {
        return Err(bad("its length"));
    }
    let too_much = "more histograms than fit a file";
    left.counts = left.counts.checked_sub(counts).ok_or(too_much)?;
    left.bytes = left.bytes.checked_sub(payload_bytes).ok_or(too_much)?;
    encoding::decode(&plain, counts).map_err(bad)
}

/// How many counts a histogram with this head keeps: for each power of two that its values span,
/// half as many as it takes to tell two values apart that differ by one in the last digit. `None`
/// where that is more than we take, or no range at all.
fn counts_of(plain: &[u8]) -> Option<usize> {
    let (head, _) = plain.split_first_chunk::<HEAD_BYTES>()?;
    let number = |at: usize| u64::from_be_bytes(head[at..at + 8].try_into().expect("8 bytes"));
    let digits = u32::from_be_bytes(head[12..16].try_into().expect("4 bytes"));
    let (low, high) = (number(16), number(24));
    if digits > DIGITS_MAX || low == 0 || high < low.checked_mul(2)? {
        return None;
    }
    let fine = (2 * 10_u64.pow(digits)).next_power_of_two();
    // Values below this one are told apart by the first `fine` counts.
    let reach = u128::from(fine) << low.ilog2();
    let doublings = (0..64).take_while(|by| reach << by <= u128::from(high)).count() + 1;
    let counts = (doublings + 1) * (fine as usize / 2);
    (counts <= COUNTS_MAX).then_some(counts)
}

/// The first four bytes of the encoding that is deflated.
const COOKIE_DEFLATED: u32 = 0x1C84_9304 | 0x10;

/// A count is a number of at most 64 bits, in groups of seven.
const COUNT_BYTES_MAX: usize = 9;

const DIGITS_MAX: u32 = 5;

/// Of one histogram: 8 MiB. Three digits over all 64 bits are 55 thousand, four are 836 thousand.
const COUNTS_MAX: usize = 1 << 20;

/// Of all histograms of a file. Memory for counts that are zero is not touched, so this is address
/// space: a day of ours, at ten seconds an interval, is half of it.
const FILE_COUNTS_MAX: usize = 1 << 31;

/// Of all histograms of a file as they are written, deflated or not. A count that is not zero takes
/// a byte or more of it, and eight of memory: 1 GiB at the most.
const FILE_BYTES_MAX: usize = 1 << 27;

/// Different ones of a file: each is summed up for itself.
const TAGS_MAX: usize = 4096;

/// What a file may still have.
struct Left {
    counts: usize,
    bytes: usize,
    tags: usize,
}

/// The longest line of ours, with every count in use, is a fifth of it.
const LINE_BYTES_MAX: usize = 1 << 20;

/// From when the times of a log count.
#[derive(Default)]
struct Epoch {
    start: Option<Duration>,
    base: Option<Duration>,
}

impl Epoch {
    /// As the reference reader has it: from the base time if there is one; else from the start
    /// time, unless the number is so close to that that it must count from 1970 itself.
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
        assert_eq!(log.writer, "a test");
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
    fn a_broken_line_is_left_out_and_said() {
        let error = |text: &str| read(text.as_bytes()).expect_err("wrong").to_string();
        assert!(error("hello\n").starts_with("line 1: found another line, expected"));
        let broken = |text: &str| {
            let log = read(text.as_bytes()).expect("most lines are whole");
            let line_count = text.lines().filter(|line| line.contains("HIST")).count();
            assert_eq!((log.broken_count, log.intervals.len() >= line_count - 1), (1, true));
            log.broken.expect("one").to_string()
        };
        let said = broken(&log().replacen("HIST", "HI$T", 1));
        assert!(said.starts_with("line 7: found bad base64"), "{said}");
        let said = broken(&log().replacen("HIST", "AAAA", 1));
        assert!(said.starts_with("line 7: found a bad histogram"), "{said}");
        // A line that a full disk cut, and the next one right behind it.
        let text = log();
        let cut = text.match_indices("Tag=turn").nth(1).expect("three").0;
        let said = broken(&format!("{}{}", &text[..cut - 10], &text[cut..]));
        assert!(said.starts_with("line 8: found"), "{said}");
    }

    /// A line whose histogram has this head and payload, deflated or as it is.
    fn crafted(
        payload_bytes: u32,
        digits: u32,
        high: u64,
        payload: &[u8],
        deflated: bool,
    ) -> String {
        let mut plain = COOKIE_PLAIN.to_be_bytes().to_vec();
        plain.extend(payload_bytes.to_be_bytes());
        plain.extend([0; 4]);
        plain.extend(digits.to_be_bytes());
        plain.extend(1_u64.to_be_bytes());
        plain.extend(high.to_be_bytes());
        plain.extend(1_f64.to_be_bytes());
        plain.extend(payload);
        if deflated {
            let mut packed = COOKIE_DEFLATED.to_be_bytes().to_vec();
            let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            io::Write::write_all(&mut encoder, &plain).expect("memory");
            let body = encoder.finish().expect("memory");
            packed.extend((body.len() as u32).to_be_bytes());
            packed.extend(body);
            plain = packed;
        }
        format!("0.000,1.000,0.000,{}\n", STANDARD.encode(plain))
    }

    #[test]
    fn what_a_line_unfolds_to_is_bounded() {
        for deflated in [false, true] {
            let good = crafted(2, 3, 60_000_000_000, &[2, 4], deflated);
            let histogram = &read(good.as_bytes()).expect("good").intervals[0].histogram;
            assert_eq!((histogram.len(), histogram.sigfig()), (3, 3));
            for bad in [
                // 4 GiB of payload that is not there, and one byte more than there is.
                crafted(u32::MAX, 3, 60_000_000_000, &[2, 4], deflated),
                crafted(3, 3, 60_000_000_000, &[2, 4], deflated),
                // The finest histogram of the widest range is 50 MiB of counts.
                crafted(2, 5, u64::MAX, &[2, 4], deflated),
                crafted(2, 6, 60_000_000_000, &[2, 4], deflated),
                crafted(2, u32::MAX, 60_000_000_000, &[2, 4], deflated),
                crafted(2, 3, 1, &[2, 4], deflated),
                // More counts than the range has.
                crafted(65_536, 0, 2, &vec![2; 65_536], deflated),
                crafted(4_000_000, 3, 60_000_000_000, &vec![2; 4_000_000], deflated),
            ] {
                let why = read(bad.as_bytes()).expect_err("crafted").found;
                assert!(why.starts_with("a bad histogram") || why.starts_with("a line"), "{why}");
            }
        }
    }

    #[test]
    fn a_file_unfolds_to_no_more_than_its_share() {
        let whole = Left { counts: 1 << 20, bytes: 1 << 20, tags: 4 };
        let line = crafted(3, 3, 60_000_000_000, &[2, 4, 6], true);
        let text = line.repeat(4);
        let found = |left: Left| {
            let log = read_within(text.as_bytes(), left).expect("one is whole");
            (log.intervals.len(), log.broken.map(|it| it.found))
        };
        let too_much = Some("more histograms than fit a file".to_owned());
        assert_eq!(found(Left { ..whole }), (4, None));
        assert_eq!(found(Left { bytes: 9, ..whole }), (3, too_much.clone()));
        let counts =
            2 * counts_of(&encoding::encode(&histogram(&[])).expect("empty")).expect("own");
        assert_eq!(found(Left { counts, ..whole }), (2, too_much));
        let tagged = |name: &str| format!("Tag={name},{line}");
        let text = ["a", "b", "a", "c", "d", "e", "a"].map(tagged).concat();
        let log = read_within(text.as_bytes(), whole).expect("most are whole");
        assert_eq!((log.intervals.len(), log.broken_count), (6, 1));
    }

    #[test]
    fn counts_are_those_that_the_histograms_have() {
        for (digits, high) in
            [(0, 2), (1, 1000), (2, 60_000_000_000), (3, 60_000_000_000), (4, 1 << 62)]
        {
            let mut text = String::new();
            let histogram = Histogram::<u64>::new_with_bounds(1, high, digits).expect("bounds");
            let encoded = encoding::encode(&histogram).expect("nothing is counted");
            let counts = counts_of(&encoded).expect("in bounds");
            assert_eq!(counts, histogram.distinct_values(), "{digits} digits up to {high}");
            write_line(&mut text, "", Duration::ZERO, Duration::ZERO, &histogram).expect("memory");
            assert!(read(text.as_bytes()).is_ok(), "{digits} digits up to {high}");
        }
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
