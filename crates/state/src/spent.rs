//! Which connect tokens are spent, on the disk: so that none is good again after the process has
//! ended, whatever has ended it.
//!
//! A record has a check, so what a loss of power has left of the last one is passed over, and the
//! next one is found behind it.

use std::collections::HashMap;
use std::io;

use ringgate_gate::{Now, SpentToken};

use crate::folder::{Folder, Lasting};
use crate::spans::SpanFiles;

/// The files of a folder.
#[derive(Debug)]
pub struct SpentFiles(SpanFiles);

/// What was found in them.
#[derive(Debug, Default)]
pub struct FoundSpent {
    /// The tokens, some of them more than once: the last word counts.
    pub tokens: Vec<SpentToken>,
    /// Bytes that are no record.
    pub strange_bytes: usize,
    /// Files that cannot be read, and why.
    pub unread: Vec<(String, io::Error)>,
}

impl SpentFiles {
    /// Those that are there.
    pub fn of(folder: Folder) -> io::Result<Self> {
        SpanFiles::of(folder, NAME, SPAN_S, FILE_BYTES_MAX).map(Self)
    }

    /// What they are called.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.names()
    }

    /// Reads them all.
    pub fn read(&self) -> FoundSpent {
        let mut found = FoundSpent::default();
        for (span, bytes) in self.0.read() {
            match bytes {
                Ok(bytes) => take_records(&bytes, &mut found),
                Err(why) => found.unread.push((self.0.name(span), why)),
            }
        }
        found
    }

    /// Adds tokens. They are on the disk when this returns; where it fails, all of them have to be
    /// added again.
    pub fn add(&mut self, tokens: &[SpentToken], now: Now) -> io::Result<()> {
        let mut by_span: HashMap<u64, Vec<u8>> = HashMap::new();
        for token in tokens {
            let record = record(token);
            by_span.entry(token.expire_s() / SPAN_S).or_default().extend(record);
        }
        for (span, records) in by_span {
            self.0.add(span * SPAN_S, &records, Lasting::PowerLoss, now)?;
        }
        Ok(())
    }

    /// Removes the files whose tokens have all expired.
    pub fn forget_expired(&mut self, now: Now) -> io::Result<()> {
        self.0.forget_ended(now)
    }
}

fn record(token: &SpentToken) -> [u8; RECORD_BYTES] {
    let (mut record, body) = ([0; RECORD_BYTES], token.to_bytes());
    record[..body.len()].copy_from_slice(&body);
    record[body.len()..].copy_from_slice(&check(&body).to_le_bytes());
    record
}

fn take_records(bytes: &[u8], found: &mut FoundSpent) {
    let mut rest = bytes;
    while let Some((record, behind)) = rest.split_first_chunk::<RECORD_BYTES>() {
        let (body, sum) = record.split_first_chunk().expect("a record has both");
        let is_whole = *sum == check(body).to_le_bytes();
        match SpentToken::from_bytes(body).filter(|_| is_whole) {
            Some(token) => {
                found.tokens.push(token);
                rest = behind;
            }
            None => {
                found.strange_bytes += 1;
                rest = &rest[1..];
            }
        }
    }
    found.strange_bytes += rest.len();
}

/// FNV-1a: for what is half written, not against anybody.
fn check(body: &[u8; SpentToken::BYTES]) -> u32 {
    body.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The beginning of the names; the span follows.
const NAME: &str = "spent-";

/// Tokens live for minutes mostly, so two files are there.
const SPAN_S: u64 = 600;

const RECORD_BYTES: usize = SpentToken::BYTES + size_of::<u32>();

/// Ten thousand players who come in a second, for as long as a span lasts.
const FILE_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let name = format!("ringgate-spent-{}-{name}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn files(&self) -> SpentFiles {
            SpentFiles::of(Folder::take(&self.0).expect("it can be made")).expect("readable")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn token(n: u8, expire_s: u32) -> SpentToken {
        let mut bytes = [n; SpentToken::BYTES];
        bytes[16..24].copy_from_slice(&u64::from(n).to_le_bytes());
        bytes[24..].copy_from_slice(&expire_s.to_le_bytes());
        SpentToken::from_bytes(&bytes).expect("a record")
    }

    const fn at(mono_s: u64, unix_s: u64) -> Now {
        Now { mono_ns: mono_s * NS_PER_S, unix_s }
    }

    #[test]
    fn what_was_added_is_found_whatever_is_half_written_between() {
        let place = Place::new("torn");
        let all = [token(1, 700), token(2, 5000), token(3, 701)];
        let mut files = place.files();
        files.add(&all[..2], at(5, 100)).expect("there is room");
        let path = place.0.join("spent-1");
        let mut bytes = fs::read(&path).expect("it is there");
        // Half a record, and what a file system may leave of one.
        bytes.extend(&bytes.clone()[..11]);
        bytes.extend([0; 40]);
        fs::write(&path, &bytes).expect("ours");
        files.add(&all[2..], at(6, 101)).expect("there is room");
        drop(files);
        let found = place.files().read();
        assert_eq!((found.tokens.len(), found.strange_bytes), (3, 51));
        assert!(all.iter().all(|it| found.tokens.contains(it)));
        // One that cannot be read takes no other along.
        fs::create_dir(place.0.join("spent-7")).expect("ours");
        let found = place.files().read();
        assert_eq!((found.tokens.len(), found.unread.len()), (3, 1));
        assert_eq!(found.unread[0].0, "spent-7");
    }

    #[test]
    fn a_file_goes_when_both_clocks_say_that_its_tokens_have_expired() {
        let place = Place::new("over");
        let mut files = place.files();
        files.add(&[token(1, 700)], at(5, 690)).expect("there is room");
        let is_there = || place.0.join("spent-1").exists();
        for (now, stays) in [
            // The wall clock was set ahead.
            (at(6, 9000), true),
            (at(7, 692), true),
            // It was set back.
            (at(2000, 692), true),
            (at(2001, 1200), false),
        ] {
            files.forget_expired(now).expect("it is ours");
            assert_eq!(is_there(), stays, "{now:?}");
        }
        drop(files);
        assert!(place.files().read().tokens.is_empty());
    }

    #[test]
    fn what_cannot_be_written_is_said() {
        let place = Place::new("gone");
        let mut files = place.files();
        fs::remove_dir_all(&place.0).expect("ours");
        assert!(files.add(&[token(1, 700)], at(5, 100)).is_err());
    }
}
