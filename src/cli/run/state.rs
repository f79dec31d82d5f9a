//! What the daemon finds of the time before its start.
//!
//! A gateway never starts with nobody denied because it could not read who is. Where there can be
//! no file at all it starts: nobody has asked for one, and whoever denies somebody is told.

use std::path::Path;

use super::Failure;
use crate::config::Gateway;
use crate::control::{DENIED_FILE, State};
use ringgate_gate::SpentToken;
use ringgate_os::clock;
use ringgate_state::{Folder, FoundSpent, Kept, SpentFiles, text};

/// Takes the folder and reads what is in it. By default that may fail; one that the config names
/// has to be usable.
pub(super) fn open(gateway: &Gateway) -> Result<State, Failure> {
    let path = &gateway.state_dir;
    let opened = Folder::take(path).and_then(|folder| match folder.check_writable() {
        Ok(()) => Ok(folder),
        Err(why) => Err(format!("cannot write to it: {why}")),
    });
    let folder = match opened {
        Ok(folder) => folder,
        Err(why) => {
            let why = format!("cannot use state_dir {}: {why}", path.display());
            if path != Path::new(STATE_DIR_DEFAULT) {
                return Err(Failure::failed(why));
            }
            tracing::info!(
                "{why}; who is denied and which tokens are used is forgotten at a restart"
            );
            let (folder, kept) = (Err(why), Kept::default());
            return Ok(State { folder, kept, is_unwritten: false, spent: None });
        }
    };
    let kept = read(&folder).map_err(|why| {
        let file = path.join(DENIED_FILE);
        let file = file.display();
        Failure::failed(format_args!(
            "cannot read who is denied from {file}: {why}; correct it, or move it away to start with nobody denied"
        ))
    })?;
    let spent = spent_files(&folder);
    let mut state = State { folder: Ok(folder), kept, is_unwritten: false, spent };
    tell(&mut state, path);
    Ok(state)
}

/// Where spent tokens are written. Names that cannot be read are no reason not to start.
pub(super) fn spent_files(folder: &Folder) -> Option<SpentFiles> {
    let files = folder.second().and_then(SpentFiles::of);
    files.map_err(|why| tell_unread(folder, &why)).ok()
}

/// The tokens that processes before this one have written down.
pub(super) fn spent_tokens(state: &State) -> Vec<SpentToken> {
    let (Some(files), Ok(folder)) = (&state.spent, &state.folder) else { return Vec::new() };
    let FoundSpent { tokens, strange_bytes } =
        files.read().inspect_err(|why| tell_unread(folder, why)).unwrap_or_default();
    if strange_bytes > 0 {
        let path = folder.path().display();
        tracing::warn!(
            event = "spent_damaged",
            strange_bytes,
            "{strange_bytes} bytes of the spent tokens in {path} are no record: some may be good again"
        );
    }
    tokens
}

fn tell_unread(folder: &Folder, why: &std::io::Error) {
    let path = folder.path().display();
    tracing::error!(
        event = "spent_not_read",
        why = %why,
        "cannot read which tokens are spent from {path}: {why}; those that have not expired are good again"
    );
}

fn read(folder: &Folder) -> Result<Kept, String> {
    match folder.read(DENIED_FILE) {
        Ok(Some(bytes)) => text::read(&bytes).map_err(|why| why.to_string()),
        Ok(None) => Ok(Kept::default()),
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
