//! The leases of an agent's last start, in `state_dir`: an agent that is started again before they
//! end takes over what stands under them, and nobody sees it go. Without the file its names are
//! another's until then.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Those of the last start, as far as they can be read.
pub(super) fn load(path: &Path) -> Vec<i64> {
    let read = || {
        let mut text = String::new();
        fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok::<_, io::Error>(text)
    };
    let text = read().unwrap_or_default();
    let ids = text.lines().filter_map(|line| line.parse().ok()).filter(|id| *id != 0);
    ids.take(LEASES_MAX).collect()
}

/// Writes the file anew. Whether that could be done.
pub(super) async fn save(path: PathBuf, ids: Vec<i64>) -> bool {
    let saved = tokio::task::spawn_blocking(move || write(&path, &ids)).await;
    saved.is_ok_and(|written| written.is_ok())
}

fn write(path: &Path, ids: &[i64]) -> io::Result<()> {
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    for id in ids.iter().take(LEASES_MAX) {
        writeln!(file, "{id}")?;
    }
    file.sync_all()?;
    fs::rename(&beside, path)
}

const LEASES_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else_is() {
        let dir = std::env::temp_dir().join(format!("ringgate-leases-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temporary folders can be made");
        let path = dir.join("lease");
        assert!(load(&path).is_empty(), "there is none");
        write(&path, &[7, -8, i64::MAX]).expect("our own folder");
        write(&path, &[7, -8, i64::MAX]).expect("in the place of the first");
        assert_eq!(load(&path), [7, -8, i64::MAX]);
        for text in ["", "x", "0\n99999999999999999999\n", "\u{0}"] {
            fs::write(&path, text).expect("our own file");
            assert!(load(&path).is_empty(), "{text:?}");
        }
        fs::write(&path, "5\n".repeat(100_000)).expect("our own file");
        assert_eq!(load(&path), [5; LEASES_MAX]);
        fs::remove_dir_all(&dir).expect("our own folder");
    }
}
