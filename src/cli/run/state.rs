//! What the daemon finds of the time before its start.
//!
//! A gateway never starts with nobody denied because it could not read who is. Where there can be
//! no file at all it starts: nobody has asked for one, and whoever denies somebody is told. So it
//! does where a file is there and cannot be written.

use std::io;
use std::path::Path;

use super::Failure;
use crate::config::Gateway;
use crate::control::{DENIED_FILE, State};
use ringgate_gate::SpentToken;
use ringgate_os::clock;
use ringgate_state::{Folder, FoundSpent, Kept, SpentFiles, text};

/// Takes the folder and reads what is in it. By default that may fail, or nothing can be written
/// there; one that the config names has to be usable.
pub(super) fn open(gateway: &Gateway) -> Result<State, Failure> {
    let path = &gateway.state_dir;
    open_at(path, path == Path::new(STATE_DIR_DEFAULT))
}

fn open_at(path: &Path, is_default: bool) -> Result<State, Failure> {
    let mut folder = Folder::take(path);
    let (mut kept, mut spent) = (Kept::default(), None);
    if let Ok(taken) = &folder {
        let why_not = taken.check_writable().err();
        kept = read(taken, why_not.is_some()).map_err(|why| {
            let file = path.join(DENIED_FILE);
            let file = file.display();
            Failure::failed(format_args!(
                "cannot read who is denied from {file}: {why}; correct it, or move it away to start with nobody denied"
            ))
        })?;
        spent = spent_files(taken);
        if let Some(why) = why_not {
            folder = Err(format!("cannot write to it: {why}"));
        }
    }
    let folder = folder.map_err(|why| format!("cannot use state_dir {}: {why}", path.display()));
    if let Err(why) = &folder {
        if !is_default {
            return Err(Failure::failed(why));
        }
        if spent.is_some() {
            tracing::warn!("{why}; what is there holds, and what comes is forgotten at a restart");
        } else {
            tracing::info!(
                "{why}; who is denied and which tokens are used is forgotten at a restart"
            );
        }
    }
    let mut state = State { folder, kept, is_unwritten: false, spent };
    tell(&mut state, path);
    Ok(state)
}

/// Where spent tokens are written. Names that cannot be read are no reason not to start.
pub(super) fn spent_files(folder: &Folder) -> Option<SpentFiles> {
    let files = folder.second().and_then(SpentFiles::of);
    files.map_err(|why| tell_unread(folder.path(), &why)).ok()
}

/// The tokens that processes before this one have written down. Where nothing can be written, the
/// folder is nobody's from then on.
pub(super) fn spent_tokens(state: &mut State, gateway: &Gateway) -> Vec<SpentToken> {
    let path = &gateway.state_dir;
    let Some(files) = &state.spent else { return Vec::new() };
    let FoundSpent { tokens, strange_bytes, unread } = files.read();
    for (name, why) in &unread {
        tell_unread(&path.join(name), why);
    }
    if strange_bytes > 0 {
        let path = path.display();
        tracing::warn!(
            event = "spent_damaged",
            strange_bytes,
            "{strange_bytes} bytes of the spent tokens in {path} are no record: some may be good again"
        );
    }
    if state.folder.is_err() {
        state.spent = None;
    }
    tokens
}

fn tell_unread(path: &Path, why: &io::Error) {
    let path = path.display();
    tracing::error!(
        event = "spent_not_read",
        why = %why,
        "cannot read which tokens are spent from {path}: {why}; those of it that have not expired are good again"
    );
}

/// What is kept. Where nothing can be written, what may not be read either is somebody else's.
fn read(folder: &Folder, is_fixed: bool) -> Result<Kept, String> {
    match folder.read(DENIED_FILE) {
        Ok(Some(bytes)) => text::read(&bytes).map_err(|why| why.to_string()),
        Ok(None) => Ok(Kept::default()),
        Err(why) if is_fixed && why.kind() == io::ErrorKind::PermissionDenied => {
            Ok(Kept::default())
        }
        Err(why) => Err(why.to_string()),
    }
}

/// Forgets what is over, and says how many rules are left.
fn tell(state: &mut State, path: &Path) {
    let Kept { list, saved_unix_s } = &mut state.kept;
    let expired = list.expire(clock::unix_seconds().max(*saved_unix_s));
    if list.len() + expired > 0 {
        let (rules, path) = (list.len(), path.display());
        tracing::info!(
            event = "denied_read",
            rules,
            expired,
            "{rules} rules of {path} say who is denied"
        );
    }
}

/// `state_dir` where the config does not say.
const STATE_DIR_DEFAULT: &str = "/var/lib/ringgate";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_there_holds_where_nothing_can_be_written() {
        let path = std::env::temp_dir().join(format!("ringgate-fixed-{}", std::process::id()));
        // Nothing is made where a folder stands in the way, whoever asks.
        fs::create_dir_all(path.join(".probe.new/in it")).expect("temporary folders can be made");
        fs::write(path.join(DENIED_FILE), "ringgate denied 1\ndeny client 7\nend 1\n")
            .expect("ours");
        let state = open_at(&path, true).expect("by default it starts");
        assert!(state.folder.is_err() && state.spent.is_some());
        assert_eq!(state.kept.list.len(), 1);
        drop(state);
        assert!(open_at(&path, false).is_err(), "one that is named has to be usable");
        fs::write(path.join(DENIED_FILE), "ringgate").expect("ours");
        let why = open_at(&path, true).expect_err("nobody knows who is denied").to_string();
        assert!(why.contains("start with nobody denied"), "{why}");
        fs::remove_dir_all(&path).expect("ours");
    }
}
