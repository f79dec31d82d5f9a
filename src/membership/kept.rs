//! The keys of listeners that a gateway has known, in its `state_dir`, as they stood in etcd:
//! sealed with the fleet's key for their place and their time. One that etcd does not have any
//! more, since a backup of it was restored, is accepted until its own sealed end by the next
//! process too: token services that do not believe the backup yet mint with it.
//!
//! Each line opens by itself or is refused, so a file that is torn or forged adds no key and takes
//! none away.

use std::io;

use bytes::Bytes;
use ringgate_fleet::copy::StateFile;

/// The file in `state_dir`.
pub const KEYS_FILE: &str = "keys";

/// What stood at a place in etcd: the place and the value.
pub(super) type Stood = (Bytes, Bytes);

ringgate_core::named! {
    /// Why something in the file is left out.
    pub(super) enum Refusal;
    /// It is no place of a listener's key with a sealed key behind it.
    Malformed = "malformed",
    /// It does not open with this fleet's key.
    NotOurs = "not_ours",
    /// The whole file, which is too large, no file, or cannot be read.
    Unreadable = "unreadable",
}

/// How often something was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused([u64; 3]);

impl Refused {
    pub(super) const fn add(&mut self, why: Refusal) {
        self.0[why as usize] += 1;
    }

    /// By the names of the reasons.
    pub(super) fn counts(self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.map(Refusal::name).into_iter().zip(self.0)
    }

    /// Told once, when a process starts.
    pub(super) fn tell(self, file: &StateFile) {
        for (why, count) in self.counts().filter(|(_, count)| *count > 0) {
            tracing::warn!(
                event = "fleet_kept_key_refused",
                why,
                count,
                "left out of the keys in {file}: {count} ({why})"
            );
        }
    }
}

/// The lines of the file; none where there is none.
pub(super) fn load(file: &StateFile, refused: &mut Refused) -> Vec<Stood> {
    let bytes = match file.read(FILE_BYTES_MAX) {
        Ok(bytes) => Bytes::from(bytes.unwrap_or_default()),
        Err(_) => {
            refused.add(Refusal::Unreadable);
            return Vec::new();
        }
    };
    let whole = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut stood = Vec::new();
    for line in whole {
        match line.iter().position(|byte| *byte == b' ') {
            Some(at) => {
                stood.push((bytes.slice_ref(&line[..at]), bytes.slice_ref(&line[at + 1..])));
            }
            None => refused.add(Refusal::Malformed),
        }
    }
    stood
}

/// What the file is to hold.
pub(super) fn text(stood: &[Stood]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for (place, value) in stood {
        text.extend([place, &b" "[..], value, b"\n"].concat());
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Tens of thousands of keys.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_no_line_is_counted() {
        let dir = std::env::temp_dir().join(format!("ringgate-kept-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temporary folders can be made");
        let path = dir.join(KEYS_FILE);
        let file = StateFile::Disk(path.clone());
        let read = || {
            let mut refused = Refused::default();
            (load(&file, &mut refused), refused.0)
        };
        assert_eq!(read(), (Vec::new(), [0; 3]), "there is none");
        let stood: Vec<Stood> =
            vec![("/f/a".into(), "{\"b\": 1}".into()), ("/f/c".into(), "{}".into())];
        for _ in 0..2 {
            let text = text(&stood).expect("it is not too large");
            ringgate_fleet::copy::replace(&path, &text).expect("our own folder");
        }
        assert_eq!(read(), (stood.clone(), [0; 3]));
        fs::write(&path, "/f/a {\"b\": 1}\n\n/f/c {}\n/f/torn").expect("our own file");
        assert_eq!(read(), (stood, [1, 0, 0]));
        fs::remove_file(&path).expect("our own file");
        fs::create_dir(&path).expect("our own folder");
        assert_eq!(read(), (Vec::new(), [0, 0, 1]));
        fs::remove_dir_all(&dir).expect("our own folder");
    }
}
