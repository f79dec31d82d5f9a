//! A folder that one test uses and that is gone afterwards.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Removed when dropped.
pub(crate) struct Folder(PathBuf);

/// What an explained config names beside its key: who it is to agents, and to
/// others of its cluster.
pub(crate) const IDENTITY: [(&str, &str, u32); 6] = [
    (
        "agents-ca.pem",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/authority.pem"),
        0o644,
    ),
    (
        "gateway.pem",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/gateway.pem"),
        0o644,
    ),
    (
        "gateway.key",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/gateway.key"),
        0o600,
    ),
    (
        "cluster-ca.pem",
        include_str!("../../crates/trunk/src/protocol/tls/fixtures/cluster-authority.pem"),
        0o644,
    ),
    ("member.pem", include_str!("../../crates/trunk/src/protocol/tls/fixtures/gate-1.pem"), 0o644),
    ("member.key", include_str!("../../crates/trunk/src/protocol/tls/fixtures/gate-1.key"), 0o600),
];

impl Folder {
    /// A new folder. No two of one run, and no two runs at the same time, share one.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("ringgate-test-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // A process that was killed had our number, and has left this one.
                Err(why) if why.kind() == ErrorKind::AlreadyExists => {}
                Err(why) => panic!("temporary folders can be made: {why}"),
            }
        }
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A name in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file with this content and mode.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.join(name);
        fs::write(&path, content).expect("temporary files can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("and have modes");
        path
    }

    /// The names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("the folder is there");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("and readable").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The permission bits of a file.
pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the file is there").permissions().mode() & 0o777
}
