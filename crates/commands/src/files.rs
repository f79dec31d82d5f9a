//! Files that hold secrets: keys and connect tokens.
//!
//! They are readable by their owner from the first moment, and they appear whole or not at all: the
//! bytes go to a file beside the target, reach the disk, and only then take the target's name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Failure;

/// What to do with a file that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Leave it, and fail; with words on how the command would replace it, if it would.
    Keep(&'static str),
    /// Put the new one in its place.
    Replace,
}

/// Writes a file of mode 0600. A path that cannot be written to is wrong input; a full disk is not.
pub fn write_private(path: &Path, bytes: &[u8], existing: Existing) -> Result<(), Failure> {
    refuse_special(path)?;
    let cannot = |cause: io::Error| format!("cannot write {}: {cause}", path.display());
    let draft = Draft::create(path).map_err(|cause| Failure::bad_input(cannot(cause)))?;
    draft.fill(bytes).map_err(|cause| Failure::failed(cannot(cause)))?;
    draft.publish(path, existing).map_err(|cause| match (cause.kind(), existing) {
        (io::ErrorKind::AlreadyExists, Existing::Keep(how)) => {
            Failure::bad_input(format_args!("{} already exists{how}", path.display()))
        }
        _ => Failure::failed(cannot(cause)),
    })
}

/// A device, pipe or directory would be replaced by a plain file; nobody means that.
fn refuse_special(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Failure::bad_input(format_args!(
            "{} exists and is not a plain file",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The file beside the target. Removed when dropped, whatever happened.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    fn create(target: &Path) -> io::Result<Self> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut draft_name = std::ffi::OsString::from(".");
        draft_name.push(name);
        draft_name.push(format!(".{:08x}", getrandom::u32().map_err(io::Error::other)?));
        let path = target.with_file_name(draft_name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    fn fill(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.file).write_all(bytes)?;
        self.file.sync_all()
    }

    /// Both calls are atomic; a hard link does not replace what is there.
    fn publish(&self, target: &Path, existing: Existing) -> io::Result<()> {
        match existing {
            Existing::Keep(_) => fs::hard_link(&self.path, target),
            Existing::Replace => fs::rename(&self.path, target),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing to remove.
        let _ = fs::remove_file(&self.path);
    }
}
