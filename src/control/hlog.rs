//! The histogram file: every interval's latencies, one line for each stage, as an `HdrHistogram` interval log.
//!
//! One file for each start of the daemon, named by the moment, so that no start overwrites what an earlier one wrote. Values
//! are nanoseconds; the column that people read (the interval's longest) is in milliseconds, as the reference writer has it.
//! An interval is written at once and whole: a reader of the growing file sees complete lines, and a disk that was full for
//! a while leaves a gap and no garbage.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};

use super::runtime::{File, Runtime};
use crate::os::utc;
use crate::worker::{Stage, Stages};

/// A file that grows.
pub(super) struct HistogramLog {
    path: PathBuf,
    file: File,
    /// Where the next interval goes: after the last one that was written whole.
    end: u64,
    serializer: V2DeflateSerializer,
}

impl HistogramLog {
    /// Makes the directory and a new file in it, and writes its head. `unix` is the moment that intervals count from.
    pub(super) fn create(runtime: &Runtime, dir: &Path, unix: Duration) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (path, file) = create(runtime, dir, &utc::stamp(unix.as_secs()))?;
        let mut log = Self { path, file, end: 0, serializer: V2DeflateSerializer::new() };
        runtime.block_on(log.write(head(unix).into_bytes()))?;
        Ok(log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes an interval that began `start` after the log did.
    pub(super) async fn append(
        &mut self,
        stages: &Stages,
        start: Duration,
        length: Duration,
    ) -> io::Result<()> {
        let lines = lines(&mut self.serializer, stages, start, length)?;
        self.write(lines).await
    }

    async fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let len = bytes.len() as u64;
        self.file.write_all_at(bytes, self.end).await?;
        self.end += len;
        Ok(())
    }
}

/// Two starts within a second have files of their own.
fn create(runtime: &Runtime, dir: &Path, stamp: &str) -> io::Result<(PathBuf, File)> {
    let mut name = format!("ringgate-{stamp}.hlog");
    for attempt in 1_u32.. {
        let path = dir.join(&name);
        match runtime.create_file(&path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS_MAX => {
                name = format!("ringgate-{stamp}-{attempt}.hlog");
            }
            outcome => return Ok((path, outcome?)),
        }
    }
    unreachable!("the last attempt returns")
}

fn head(unix: Duration) -> String {
    let mut head = format!("#[Logged by ringgate {}]\n", env!("CARGO_PKG_VERSION"));
    head.push_str("#[Histogram log format version 1.3]\n");
    let (seconds, ms) = (unix.as_secs(), unix.subsec_millis());
    let date = utc::date(seconds);
    writeln!(head, "#[StartTime: {seconds}.{ms:03} (seconds since epoch), {date}]")
        .and_then(|()| writeln!(head, "#[BaseTime: {seconds}.{ms:03} (seconds since epoch)]"))
        .expect("writing to a string cannot fail");
    head.push_str("#[Values are nanoseconds, Interval_Max is in milliseconds]\n");
    head.push_str(LEGEND);
    head
}

fn lines(
    serializer: &mut V2DeflateSerializer,
    stages: &Stages,
    start: Duration,
    length: Duration,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut writer = IntervalLogWriterBuilder::new()
        .with_max_value_divisor(NS_PER_MS)
        .begin_log_with(&mut bytes, serializer)?;
    for stage in Stage::ALL {
        let tag = Tag::new(stage.name());
        writer
            .write_histogram(stages.of(stage), start, length, tag)
            .map_err(|why| io::Error::other(why.to_string()))?;
    }
    // The crate begins every log with a head of its own; ours is in the file already.
    let head = bytes.split_inclusive(|byte| *byte == b'\n').take_while(|line| line[0] == b'#');
    let head_len: usize = head.map(<[u8]>::len).sum();
    bytes.drain(..head_len);
    Ok(bytes)
}

/// The names of the columns, as the reference writer puts them before the first interval.
const LEGEND: &str =
    "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n";

const NS_PER_MS: f64 = 1e6;

const ATTEMPTS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn an_interval_has_a_line_for_each_stage() {
        let mut stages = Stages::new();
        stages.record(Stage::Turn, 2_500_000);
        let mut text = head(Duration::from_millis(1_700_000_000_250)).into_bytes();
        let (start, length) = (Duration::from_secs(20), Duration::from_millis(10_050));
        let mut serializer = V2DeflateSerializer::new();
        text.extend(lines(&mut serializer, &stages, start, length).expect("written"));
        let entries: Vec<_> = IntervalLogIterator::new(&text).collect();
        let began = Duration::from_millis(1_700_000_000_250);
        assert_eq!(entries[0], Ok(LogEntry::StartTime(began)));
        assert_eq!(entries[1], Ok(LogEntry::BaseTime(began)));
        let tags: Vec<_> = entries[2..]
            .iter()
            .map(|entry| {
                let Ok(LogEntry::Interval(interval)) = entry else { panic!("{entry:?}") };
                assert_eq!((interval.start_timestamp(), interval.duration()), (start, length));
                (interval.tag().expect("a tag").as_str(), interval.max() > 2.49)
            })
            .collect();
        let expected = Stage::ALL.map(|stage| (stage.name(), stage == Stage::Turn));
        assert_eq!(tags, expected);
    }

    #[test]
    fn starts_within_a_second_do_not_share_a_file() {
        let runtime = Runtime::start(false).expect("a runtime");
        let dir = std::env::temp_dir().join(format!("ringgate-hlog-{}", std::process::id()));
        let create = || HistogramLog::create(&runtime, &dir, Duration::from_secs(1_700_000_000));
        let (one, other) = (create().expect("a file"), create().expect("another"));
        assert_eq!(one.path().file_name(), Some("ringgate-20231114T221320Z.hlog".as_ref()));
        assert_eq!(other.path().file_name(), Some("ringgate-20231114T221320Z-1.hlog".as_ref()));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
