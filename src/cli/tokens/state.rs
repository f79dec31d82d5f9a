//! Where a token service writes what it has promised: in `state_dir`, in files that go when the
//! promises have ended, the list of starts whose promises are all there,
//! and the leases under which the service was registered.

use std::io;
use std::path::Path;

use ringgate_gate::Now;
use ringgate_os::clock;
use ringgate_process::privileges::Privileges;
use ringgate_report::text::Append as _;
use ringgate_state::{Folder, Lasting, SpanFiles};
use ringgate_tokens::book;
use ringgate_tokens::journal::Disk;

use super::super::Failure;

/// The folder, with what is in it.
#[derive(Debug)]
pub(super) struct State {
    files: SpanFiles,
    /// Read at the start: a confined process cannot read it later.
    boot: u128,
}

impl State {
    /// Takes the folder, for whom this process becomes.
    pub(super) fn open(path: &Path, privileges: &Privileges) -> Result<Self, Failure> {
        let unusable = |why: String| {
            Failure::failed(format_args!("cannot use state_dir {}: {why}", path.display()))
        };
        let folder = Folder::take(path).map_err(unusable)?;
        let files = || -> io::Result<SpanFiles> {
            folder.check_writable()?;
            SpanFiles::of(folder.second()?, PROMISES, SPAN_S, FILE_BYTES_MAX)
        };
        let files = files().map_err(|why| unusable(format!("cannot write to it: {why}")))?;
        if let Some(user) = privileges.user() {
            let others = [STARTS_FILE, LEASES_FILE].map(str::to_owned);
            let names: Vec<_> = files.names().chain(others).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let given = folder.give_to(user.uid, user.gid, &names);
            given.map_err(|why| unusable(format!("cannot hand it over: {why}")))?;
        }
        Ok(Self { files, boot: u128::from_be_bytes(clock::boot_id()) })
    }
}

impl Disk for State {
    fn identity(&self) -> String {
        match (self.boot, self.files.folder().identity()) {
            (boot @ 1.., Ok((device, inode))) => format!("{boot:032x} {device} {inode}"),
            // Nothing is known to be the same as before, or as later.
            _ => format!("nowhere {}", clock::unix_ns()),
        }
    }

    fn list(&self) -> io::Result<Option<Vec<u8>>> {
        self.files.folder().read(STARTS_FILE)
    }

    fn set_list(&mut self, text: Option<&str>) -> io::Result<()> {
        match text {
            Some(text) => self.files.folder().replace(STARTS_FILE, text.as_bytes()),
            None => self.files.folder().remove(STARTS_FILE),
        }
    }

    fn leases(&self) -> Vec<i64> {
        let text = self.files.folder().read(LEASES_FILE).ok().flatten();
        let text = text.and_then(|it| String::from_utf8(it).ok()).unwrap_or_default();
        let own = text.strip_prefix(&self.identity()).unwrap_or_default();
        own.lines().filter_map(|line| line.parse().ok()).filter(|id| *id != 0).collect()
    }

    fn set_leases(&mut self, leases: &[i64]) -> io::Result<()> {
        let mut text = self.identity() + "\n";
        for id in leases.iter().rev().take(LEASES_MAX).rev() {
            writeln!(text, "{id}");
        }
        self.files.folder().replace(LEASES_FILE, text.as_bytes())
    }

    fn records(&self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        self.files.read().map(|(span, bytes)| Ok((span, bytes?))).collect()
    }

    fn add(&mut self, until_s: u64, record: &[u8], now: book::Now) -> io::Result<()> {
        self.files.add(until_s, record, Lasting::Kill, moment(now))
    }

    fn replace(&mut self, file: u64, records: &[u8]) -> io::Result<()> {
        self.files.replace(file, records)
    }

    fn forget_ended(&mut self, now: book::Now) -> io::Result<()> {
        self.files.forget_ended(moment(now))
    }

    fn clear(&mut self) -> io::Result<()> {
        self.files.clear()
    }
}

fn moment(now: book::Now) -> Now {
    Now { mono_ns: now.ms * NS_PER_MS, unix_s: now.unix_s }
}

const STARTS_FILE: &str = "starts";

/// The folder for which they are true, and the leases of the registration, the newest last.
const LEASES_FILE: &str = "leases";
const LEASES_MAX: usize = 16;

/// The beginning of the names of files with promises.
const PROMISES: &str = "promised-";

/// Most tokens live for less than a minute.
const SPAN_S: u64 = 60;

/// A million tokens that end within the same minute.
const FILE_BYTES_MAX: u64 = 64 << 20;

const NS_PER_MS: u64 = 1_000_000;
