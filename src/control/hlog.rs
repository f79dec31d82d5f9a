//! The histogram files: every interval's latencies, one line for each stage.
//!
//! A file is named by the moment it was begun, so that no start overwrites what an earlier one
//! wrote. It is left for a new one when it is long or old enough, and the oldest files of such
//! names are removed then. An interval is written at once and whole: what a full disk took of it is
//! cut off again, so a reader of the growing file sees complete lines, and a disk that was full for
//! a while leaves a gap and no garbage.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::runtime::{File, Files};
use crate::config::Histograms;
use ringgate_os::{host, utc};
use ringgate_report::hlog;
use ringgate_worker::{Stage, Stages};

/// A file that grows.
pub(super) struct HistogramLog {
    rules: Histograms,
    path: PathBuf,
    file: File,
    /// Where the next interval goes: after the last one that was written whole.
    end: u64,
    /// Something may stand behind that.
    is_torn: bool,
}

impl HistogramLog {
    /// Makes a new file, and its directory where that has gone, and writes its head. `unix` is the
    /// moment that intervals count from.
    pub(super) async fn create(
        files: Files,
        rules: &Histograms,
        unix: Duration,
    ) -> io::Result<Self> {
        // One that is there cannot be made by a confined process, not even to no effect.
        if !rules.dir.is_dir() {
            std::fs::create_dir_all(&rules.dir)?;
        }
        let (path, file) = create(files, &rules.dir, &utc::stamp(unix.as_secs()))?;
        let rules = rules.clone();
        let mut log = Self { rules, path, file, end: 0, is_torn: false };
        let writer = format!("ringgate {} on {}", env!("CARGO_PKG_VERSION"), host::name());
        let head = hlog::head(unix, &writer);
        if let Err(why) = log.write(head).await {
            // A file without a head is of no use, and the next attempt makes its own.
            let _ = std::fs::remove_file(&log.path);
            return Err(why);
        }
        log.remove_old();
        Ok(log)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is time for another file, when this one began `age` ago.
    pub(super) const fn is_done(&self, age: Duration) -> bool {
        self.end >= self.rules.max_bytes || age.as_nanos() >= self.rules.max_age.as_nanos()
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
        if self.is_torn {
            self.file.cut(self.end)?;
            self.is_torn = false;
        }
        let len = text.len() as u64;
        if let Err(why) = self.file.write_all_at(text.into_bytes(), self.end).await {
            self.is_torn = self.file.cut(self.end).is_err();
            return Err(why);
        }
        self.end += len;
        Ok(())
    }

    /// Removes the oldest files of our names, so that as many stay as the config says. Nothing
    /// hangs on it: what cannot be removed now is tried again with the next file.
    fn remove_old(&self) {
        let Some(keep) = self.rules.keep else { return };
        let Ok(entries) = std::fs::read_dir(&self.rules.dir) else { return };
        let is_file = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_file());
        let mut names: Vec<_> = entries
            .flatten()
            .filter(is_file)
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| place(name).is_some())
            .collect();
        names.sort_unstable_by(|one, other| place(one).cmp(&place(other)));
        let old_count = names.len().saturating_sub(keep.get());
        for name in &names[..old_count] {
            let path = self.rules.dir.join(name);
            if path != self.path {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Two starts within a second have files of their own.
fn create(files: Files, dir: &Path, stamp: &str) -> io::Result<(PathBuf, File)> {
    let mut name = format!("ringgate-{stamp}.hlog");
    for attempt in 1_u32.. {
        let path = dir.join(&name);
        match files.create(&path) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS_MAX => {
                name = format!("ringgate-{stamp}-{attempt}.hlog");
            }
            outcome => return Ok((path, outcome?)),
        }
    }
    unreachable!("the last attempt returns")
}

/// Where a name of ours stands among the others: by its moment, then by its attempt. `None` for any
/// other name.
fn place(name: &str) -> Option<(&str, u32)> {
    let middle = name.strip_prefix("ringgate-")?.strip_suffix(".hlog")?;
    let (stamp, attempt) = match middle.split_once('-') {
        Some((stamp, attempt)) => (stamp, attempt.parse().ok().filter(|it| *it < ATTEMPTS_MAX)?),
        None => (middle, 0),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (date, time) = stamp.strip_suffix('Z')?.split_once('T')?;
    let fits = date.len() == 8 && time.len() == 6 && is_digits(date) && is_digits(time);
    fits.then_some((stamp, attempt))
}

const ATTEMPTS_MAX: u32 = 100;

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::super::runtime::Runtime;
    use super::*;
    use ringgate_gate::Party;
    use ringgate_worker::Recorder;

    const BEGAN: Duration = Duration::from_secs(1_700_000_000);

    /// A folder that is gone afterwards, and a way to begin a log in it.
    fn in_folder(name: &str, test: impl FnOnce(&Runtime, Histograms)) {
        let runtime = Runtime::start(false).expect("a runtime");
        let dir = std::env::temp_dir().join(format!("ringgate-{name}-{}", std::process::id()));
        let rules = Histograms {
            dir: dir.clone(),
            interval: Duration::from_secs(1),
            max_bytes: 1 << 20,
            max_age: Duration::from_hours(24),
            keep: None,
        };
        test(&runtime, rules);
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    fn create(runtime: &Runtime, rules: &Histograms, unix: Duration) -> HistogramLog {
        let created = HistogramLog::create(runtime.files(), rules, unix);
        runtime.block_on(created).expect("a file")
    }

    fn stages() -> Stages {
        let mut recorder = Recorder::new();
        recorder.record((Party::NONE, Stage::Turn), std::iter::once((2_500_000, 1)));
        let mut stages = Stages::new();
        stages.add(&recorder);
        stages
    }

    fn append(runtime: &Runtime, log: &mut HistogramLog, second: u64) -> io::Result<()> {
        let start = Duration::from_secs(second);
        runtime.block_on(log.append(&stages(), start, Duration::from_secs(1)))
    }

    fn read(log: &HistogramLog) -> hlog::Log {
        hlog::read(&std::fs::read(log.path()).expect("readable")).expect("valid")
    }

    #[test]
    fn every_interval_has_a_line_for_each_stage() {
        in_folder("lines", |runtime, rules| {
            let mut log = create(runtime, &rules, BEGAN);
            for second in 0..3 {
                append(runtime, &mut log, second).expect("appended");
            }
            let read = read(&log);
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
        in_folder("starts", |runtime, rules| {
            let create = || create(runtime, &rules, BEGAN);
            let (one, other) = (create(), create());
            assert_eq!(one.path().file_name(), Some("ringgate-20231114T221320Z.hlog".as_ref()));
            assert_eq!(other.path().file_name(), Some("ringgate-20231114T221320Z-1.hlog".as_ref()));
        });
    }

    #[test]
    fn what_a_failed_write_left_is_gone_before_the_next() {
        in_folder("torn", |runtime, rules| {
            let mut log = create(runtime, &rules, BEGAN);
            append(runtime, &mut log, 0).expect("appended");
            // As if the disk had taken half a line, and then not even cut it off again.
            let half = b"Tag=turn,1.000,1.0".to_vec();
            runtime.block_on(log.file.write_all_at(half, log.end)).expect("written");
            log.is_torn = true;
            append(runtime, &mut log, 1).expect("appended");
            let read = read(&log);
            assert_eq!((read.intervals.len(), read.broken_count), (2 * Stage::ALL.len(), 0));
            assert!(!read.is_cut_off);
        });
    }

    #[test]
    fn a_file_is_done_by_size_or_age() {
        in_folder("done", |runtime, rules| {
            let rules = Histograms { max_bytes: 4096, ..rules };
            let mut log = create(runtime, &rules, BEGAN);
            assert!(!log.is_done(Duration::ZERO) && !log.is_done(rules.max_age / 2));
            assert!(log.is_done(rules.max_age));
            let mut second = 0;
            while !log.is_done(Duration::ZERO) {
                append(runtime, &mut log, second).expect("appended");
                second += 1;
            }
            assert!(second > 1 && log.end < 2 * 4096);
            let next = create(runtime, &rules, BEGAN + Duration::from_secs(second));
            assert!(log.path() != next.path() && log.path().exists());
            assert!(!next.is_done(Duration::ZERO));
        });
    }

    #[test]
    fn the_oldest_of_our_files_are_removed_and_nothing_else() {
        in_folder("keep", |runtime, rules| {
            let others = [
                "ringgate-notes.hlog",
                "ringgate-20200101T000000Z.hlog.gz",
                "ringgate-20200101T000000Z-100.hlog",
                "ringgate-20200101T00000Z.hlog",
                "loadgen-20200101T000000Z.hlog",
            ];
            std::fs::create_dir_all(&rules.dir).expect("temporary folder");
            for name in others {
                std::fs::write(rules.dir.join(name), "not ours").expect("temporary file");
            }
            std::fs::create_dir(rules.dir.join("ringgate-20200102T000000Z.hlog")).expect("folder");
            let rules = Histograms { keep: NonZeroUsize::new(3), ..rules };
            for second in 0..6 {
                create(runtime, &rules, BEGAN + Duration::from_secs(second));
            }
            let list = std::fs::read_dir(&rules.dir).expect("readable");
            let mut names: Vec<_> = list
                .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
                .collect();
            names.retain(|name| !others.contains(&name.as_str()));
            names.sort_unstable();
            let left = ["20200102T000000", "20231114T221323", "20231114T221324", "20231114T221325"];
            assert_eq!(names, left.map(|stamp| format!("ringgate-{stamp}Z.hlog")));
            for name in others {
                assert!(rules.dir.join(name).exists(), "{name} is not ours");
            }
        });
    }
}
