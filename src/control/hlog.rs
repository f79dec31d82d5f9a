//! The histogram file: every interval's latencies, one line for each stage.
//!
//! One file for each start of the daemon, named by the moment, so that no start overwrites what an earlier one wrote. An
//! interval is written at once and whole: a reader of the growing file sees complete lines, and a disk that was full for a
//! while leaves a gap and no garbage.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::runtime::{File, Runtime};
use crate::hlog;
use crate::os::utc;
use crate::worker::{Stage, Stages};

/// A file that grows.
pub(super) struct HistogramLog {
    path: PathBuf,
    file: File,
    /// Where the next interval goes: after the last one that was written whole.
    end: u64,
}

impl HistogramLog {
    /// Makes the directory and a new file in it, and writes its head. `unix` is the moment that intervals count from.
    pub(super) fn create(runtime: &Runtime, dir: &Path, unix: Duration) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let (path, file) = create(runtime, dir, &utc::stamp(unix.as_secs()))?;
        let mut log = Self { path, file, end: 0 };
        let head = hlog::head(unix, concat!("ringgate ", env!("CARGO_PKG_VERSION")));
        runtime.block_on(log.write(head))?;
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
        let mut lines = String::new();
        for stage in Stage::ALL {
            hlog::write_line(&mut lines, stage.name(), start, length, stages.of(stage))?;
        }
        self.write(lines).await
    }

    async fn write(&mut self, text: String) -> io::Result<()> {
        let len = text.len() as u64;
        self.file.write_all_at(text.into_bytes(), self.end).await?;
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

const ATTEMPTS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::Recorder;

    const BEGAN: Duration = Duration::from_secs(1_700_000_000);

    /// A folder that is gone afterwards.
    fn in_folder(name: &str, test: impl FnOnce(&Runtime, &Path)) {
        let runtime = Runtime::start(false).expect("a runtime");
        let dir = std::env::temp_dir().join(format!("ringgate-{name}-{}", std::process::id()));
        test(&runtime, &dir);
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn every_interval_has_a_line_for_each_stage() {
        in_folder("lines", |runtime, dir| {
            let mut log = HistogramLog::create(runtime, dir, BEGAN).expect("a file");
            let mut recorder = Recorder::new();
            recorder.record(Stage::Turn, 2_500_000);
            let mut stages = Stages::new();
            stages.add(&recorder);
            for second in 0..3 {
                let start = Duration::from_secs(second);
                let appended = log.append(&stages, start, Duration::from_secs(1));
                runtime.block_on(appended).expect("appended");
            }
            let read = hlog::read(&std::fs::read(log.path()).expect("readable")).expect("valid");
            let counts: Vec<_> = read
                .intervals
                .iter()
                .map(|interval| (interval.tag.as_str(), interval.histogram.len()))
                .collect();
            let expected = Stage::ALL.map(|stage| (stage.name(), u64::from(stage == Stage::Turn)));
            assert_eq!(counts, [expected; 3].concat());
            assert_eq!(read.intervals[14].start, BEGAN + Duration::from_secs(2));
        });
    }

    #[test]
    fn starts_within_a_second_do_not_share_a_file() {
        in_folder("starts", |runtime, dir| {
            let create = || HistogramLog::create(runtime, dir, BEGAN);
            let (one, other) = (create().expect("a file"), create().expect("another"));
            assert_eq!(one.path().file_name(), Some("ringgate-20231114T221320Z.hlog".as_ref()));
            assert_eq!(other.path().file_name(), Some("ringgate-20231114T221320Z-1.hlog".as_ref()));
        });
    }
}
