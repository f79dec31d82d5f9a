//! The last known truth on disk, for a gateway that is restarted while etcd is away.
//!
//! A file is whole or not there: it is written beside its place, synced, and moved. Only its owner
//! may read it. What a mirror begins with from it is judged like what a mirror remembers.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ringgate_os::hand::Hand;
use ringgate_os::plain;

use crate::etcd::Error;
use crate::etcd::kv::{Header, KeyValue};
use crate::etcd::wire::{Reader, Writer};
use crate::mirror::{Entry, Truth};

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Of which prefix.
    pub prefix: Bytes,
    /// When it was written, in seconds since 1970.
    pub saved_s: u64,
    /// What was known.
    pub truth: Truth,
}

/// A file that a process leaves to its next start, or what stands for one in a world without disks.
#[derive(Clone, Debug)]
pub enum StateFile {
    /// At this path.
    Disk(PathBuf),
    /// Here; `None` for a file that is not there.
    Memory(Arc<Mutex<Option<Vec<u8>>>>),
}

impl StateFile {
    /// What it holds, of at most so many bytes; `None` where there is none.
    pub fn read(&self, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Disk(path) => plain::read(path, bytes_max),
            Self::Memory(held) => Ok(held.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        }
    }

    /// Writes it anew, while its thread does other things.
    pub async fn replace(
        self,
        bytes: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    ) -> io::Result<()> {
        match self {
            Self::Disk(path) => {
                let hand = Hand::ready("fleet-file")?;
                hand.ask(move || replace(&path, &bytes()?)).await
            }
            Self::Memory(held) => {
                *held.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes()?);
                Ok(())
            }
        }
    }
}

impl fmt::Display for StateFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(path) => write!(f, "{}", path.display()),
            Self::Memory(_) => f.write_str("memory"),
        }
    }
}

/// Writes a file that only its owner may read, in place of an earlier one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    plain::replace(path, bytes, |_| Ok(()))
}

/// Reads the copy in this file; `None` if there is none.
pub fn load(file: &StateFile) -> io::Result<Option<Copy>> {
    let Some(bytes) = file.read(FILE_BYTES_MAX)? else { return Ok(None) };
    let invalid = |why: Error| io::Error::new(io::ErrorKind::InvalidData, why.to_string());
    decode(&bytes).map(Some).map_err(invalid)
}

/// The bytes of a copy's file.
pub fn encode(prefix: &Bytes, truth: &Truth, now_s: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.bytes(1, prefix);
    writer.uint(2, now_s);
    let header = Header {
        cluster_id: truth.cluster_id,
        member_id: 0,
        revision: truth.revision,
        raft_term: truth.raft_term,
    };
    writer.message(3, |it| header.encode(it));
    for (number, newest) in (NEWEST..).zip(truth.newest) {
        writer.uint(number, newest);
    }
    for (key, entry) in &truth.entries {
        let kv = KeyValue {
            key: key.clone(),
            value: entry.value.clone(),
            mod_revision: entry.mod_revision,
            version: entry.version,
            lease: entry.lease,
            ..KeyValue::default()
        };
        writer.message(4, |it| kv.encode(it));
    }
    let message = writer.into_bytes();
    [MAGIC, &checksum(&message).to_le_bytes(), &message].concat()
}

/// Reads a copy from the bytes of its file.
pub fn decode(bytes: &[u8]) -> Result<Copy, Error> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(Error::Malformed("this is no copy of ours"))?;
    let Some((sum, message)) = rest.split_first_chunk() else {
        return Err(Error::Malformed("the copy is cut"));
    };
    // A fuzzer cannot guess it, and looks for what lies behind.
    if u64::from_le_bytes(*sum) != checksum(message) && !cfg!(fuzzing) {
        return Err(Error::Malformed("the copy is damaged"));
    }
    let whole = Bytes::copy_from_slice(message);
    let mut reader = Reader::new(&whole);
    let mut copy = Copy::default();
    while let Some((number, value)) = reader.next_field()? {
        match number {
            1 => copy.prefix = Bytes::copy_from_slice(value.bytes()?),
            2 => copy.saved_s = value.uint()?,
            3 => {
                let header = Header::decode(value.bytes()?)?;
                copy.truth.cluster_id = header.cluster_id;
                copy.truth.revision = header.revision;
                copy.truth.raft_term = header.raft_term;
            }
            4 => {
                let kv = KeyValue::decode(&whole, value.bytes()?)?;
                let key = Bytes::copy_from_slice(&kv.key);
                copy.truth.entries.insert(key, Entry::of(&kv));
            }
            _ => {
                let kind = number.checked_sub(NEWEST).and_then(|it| usize::try_from(it).ok());
                if let Some(newest) = kind.and_then(|it| copy.truth.newest.get_mut(it)) {
                    *newest = value.uint()?;
                }
            }
        }
    }
    Ok(copy)
}

/// FNV-1a: finds what a disk does, and is not meant to find what an enemy does.
pub fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The field of the first kind of newest words; those of the others follow.
const NEWEST: u64 = 5;
const MAGIC: &[u8] = b"ringgate fleet copy 1\n";
const FILE_BYTES_MAX: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn truth() -> Truth {
        let entry = |value: &str, mod_revision| Entry {
            value: Bytes::copy_from_slice(value.as_bytes()),
            mod_revision,
            version: 2,
            lease: 5,
        };
        let entries = [("/f/a".into(), entry("one", 3)), ("/f/b".into(), entry("", 4))];
        Truth {
            cluster_id: 9,
            revision: 7,
            raft_term: 2,
            newest: [5, 0, 6, 0, 7],
            entries: entries.into(),
        }
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let folder =
            std::env::temp_dir().join(format!("ringgate-copy-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_saved_is_loaded_and_only_the_owner_may_read_it() {
        let folder = folder("saved");
        let path = folder.join("truth");
        let file = StateFile::Disk(path.clone());
        assert_eq!(load(&file).unwrap(), None);
        replace(&path, &encode(&"/f/".into(), &Truth::default(), 1)).unwrap();
        fs::write(folder.join(".truth.new"), "left over").unwrap();
        replace(&path, &encode(&"/f/".into(), &truth(), 2)).unwrap();
        let copy = Copy { prefix: "/f/".into(), saved_s: 2, truth: truth() };
        assert_eq!(load(&file).unwrap(), Some(copy));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        // Nor where it could not be put there: others need the room.
        fs::create_dir_all(folder.join("keys/in it")).unwrap();
        assert!(replace(&folder.join("keys"), b"much").is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_copy_that_is_cut_or_damaged_is_refused() {
        let bytes = encode(&"/f/".into(), &truth(), 2);
        assert!(decode(&bytes).is_ok());
        for index in 0..bytes.len() {
            assert!(decode(&bytes[..index]).is_err(), "cut at {index}");
            let mut damaged = bytes.clone();
            damaged[index] ^= 1;
            assert!(decode(&damaged).is_err(), "damaged at {index}");
        }
    }
}
