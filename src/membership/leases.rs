//! The leases of a process's last start, in `state_dir`: an agent or a gateway that is started
//! again before they end takes over what stands under them, and nobody sees it go. Without the file
//! its names are another's until then. Beside them stands whose the names of game processes are,
//! and a gateway writes its instances, because the tokens that an earlier one has claimed are its
//! own, and the latest process of its cluster, because none may have the number of another.

use std::io::{self, Write};

use ringgate_fleet::copy::StateFile;

use super::announced::OwnedName;

/// The file in `state_dir`.
pub const LEASES_FILE: &str = "leases";

/// What a process leaves to the next one, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) leases: Vec<i64>,
    /// Random names of starts.
    pub(crate) instances: Vec<String>,
    /// The latest process of its cluster that it has heard of: itself, or another.
    pub(crate) incarnation: Option<Counted>,
    /// Names of game processes that have been linked.
    pub(crate) owned: Vec<OwnedName>,
}

/// A process's number, and the key in etcd of the count that it is from: another cluster, or
/// one that has another name now, has another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) number: u16,
    pub(crate) key: String,
}

impl Left {
    /// Whether `written` will do for now: names come and go by the moment, and are written once in
    /// a while.
    fn is_in(&self, written: &Self, age_ms: u64) -> bool {
        let Self { leases, instances, incarnation, owned } = self;
        *leases == written.leases
            && *instances == written.instances
            && *incarnation == written.incarnation
            && (*owned == written.owned || age_ms < OWNED_EVERY_MS)
    }
}

/// The file, as it was written last.
#[derive(Debug)]
pub(crate) struct Leases {
    file: Option<StateFile>,
    written: Left,
    at_ms: u64,
}

impl Leases {
    /// Nothing is written yet; nothing ever where there is no `file`.
    pub(crate) fn new(file: Option<StateFile>) -> Self {
        Self { file, written: Left::default(), at_ms: 0 }
    }

    /// Writes this, where it is news. What could not be written is tried again with the next of
    /// them: it matters to a start within the lease's time alone.
    pub(crate) async fn keep(&mut self, left: Left, now_ms: u64) {
        let Some(file) = self.file.clone() else { return };
        if left.is_in(&self.written, now_ms - self.at_ms) {
            return;
        }
        (self.written, self.at_ms) = (left.clone(), now_ms);
        if file.replace(move || text(&left)).await.is_err() {
            tracing::warn!(
                event = "fleet_leases_not_written",
                "cannot write to state_dir: a process that is started again at once will wait for the end of this one's lease"
            );
        }
    }
}

fn owned(line: &str) -> Option<OwnedName> {
    let (uid, name) = line.strip_prefix(OWNED)?.split_once(' ')?;
    Some(OwnedName { name: name.to_owned(), uid: uid.parse().ok()?, has_linked: true })
}

fn counted(line: &str) -> Option<Counted> {
    let (number, key) = line.strip_prefix(INCARNATION)?.split_once(' ')?;
    Some(Counted { number: number.parse().ok()?, key: key.to_owned() })
}

/// That of the last start, as far as it can be read.
pub(crate) fn load(file: &StateFile) -> Left {
    let bytes = file.read(FILE_BYTES_MAX).ok().flatten().unwrap_or_default();
    let text = String::from_utf8(bytes).unwrap_or_default();
    let leases = text.lines().filter_map(|line| line.parse().ok()).filter(|id| *id != 0);
    let instances = text.lines().filter_map(|line| line.strip_prefix(INSTANCE));
    Left {
        leases: leases.take(LEASES_MAX).collect(),
        instances: instances.map(str::to_owned).take(INSTANCES_MAX).collect(),
        incarnation: text.lines().find_map(counted),
        owned: text.lines().filter_map(owned).take(OWNED_MAX).collect(),
    }
}

/// What the file is to hold.
fn text(left: &Left) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for id in left.leases.iter().take(LEASES_MAX) {
        writeln!(text, "{id}")?;
    }
    for instance in left.instances.iter().take(INSTANCES_MAX) {
        writeln!(text, "{INSTANCE}{instance}")?;
    }
    if let Some(Counted { number, key }) = &left.incarnation {
        writeln!(text, "{INCARNATION}{number} {key}")?;
    }
    for OwnedName { name, uid, .. } in left.owned.iter().take(OWNED_MAX) {
        writeln!(text, "{OWNED}{uid} {name}")?;
    }
    Ok(text)
}

/// These begin lines that are no leases.
const INSTANCE: &str = "instance ";
const INCARNATION: &str = "incarnation ";
const OWNED: &str = "owned ";

const LEASES_MAX: usize = 16;
/// A process that is started more often while a token lives has other troubles.
const INSTANCES_MAX: usize = 16;
const OWNED_MAX: usize = 4096;
const OWNED_EVERY_MS: u64 = 1_000;
const FILE_BYTES_MAX: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let dir = std::env::temp_dir().join(format!("ringgate-leases-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temporary folders can be made");
        let path = dir.join("lease");
        let file = StateFile::Disk(path.clone());
        assert_eq!(load(&file), Left::default(), "there is none");
        let instances = vec!["new".to_owned(), "old".to_owned()];
        let owned = |name: &str, uid| OwnedName { name: name.to_owned(), uid, has_linked: true };
        let owned = vec![owned("arena-1", 1000), owned("7", u32::MAX)];
        let incarnation = Some(Counted { number: u16::MAX, key: "/f/cluster/fra".into() });
        let left = Left { leases: vec![7, -8, i64::MAX], instances, incarnation, owned };
        for _ in 0..2 {
            let text = text(&left).expect("a buffer takes everything");
            ringgate_fleet::copy::replace(&path, &text).expect("our own folder");
        }
        assert_eq!(load(&file), left);
        for text in [
            "",
            "x",
            "0\n99999999999999999999\n",
            "\u{0}",
            "owned x y\nowned 7\n",
            "incarnation 65536 /f/cluster/fra\nincarnation 7\n",
        ] {
            fs::write(&path, text).expect("our own file");
            assert_eq!(load(&file), Left::default(), "{text:?}");
        }
        fs::write(&path, "5\n".repeat(100_000)).expect("our own file");
        assert_eq!(load(&file).leases, [5; LEASES_MAX]);
        fs::remove_dir_all(&dir).expect("our own folder");
    }
}
