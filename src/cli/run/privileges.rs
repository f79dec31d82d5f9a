//! What the daemon gives up on its way to serving: files before it has threads, its user and most
//! system calls once all sockets are bound.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::{Config, Fleet};
use crate::confine::{self, Reach, User};
use crate::control::{Control, DENIED_FILE, State, plan};
use crate::membership::COPY_FILE;
use ringgate_os::process;

/// What the config wants given up.
pub(super) struct Privileges {
    /// Whom to become.
    user: Option<User>,
    confine: bool,
}

impl Privileges {
    /// Checks that it can be done, before anything is.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let user = plan::becomes(&config.gateway).map_err(Failure::failed)?;
        Ok(Self { user, confine: config.gateway.confine })
    }

    /// Gives up all files but those that are needed from here on. The folders of `config` have to
    /// be there.
    pub(super) fn give_up_files(&self, config: &Config, file: &Path) -> Result<(), Failure> {
        if !self.confine {
            return Ok(());
        }
        let (read, write) = folders(config, file);
        let reach = confine::files(&read, &write).map_err(|why| {
            Failure::failed(format_args!("cannot give up the file system (`confine`): {why}"))
        })?;
        match reach {
            Reach::Full => tracing::debug!("files outside the daemon's folders are given up"),
            Reach::Partial | Reach::None => {
                tracing::warn!(%reach, "this kernel's Landlock cannot hide all other files");
            }
        }
        Ok(())
    }

    /// Gives what is kept to whom the daemon becomes.
    pub(super) fn give_state(&self, state: &State) -> Result<(), Failure> {
        let (Some(user), Ok(folder)) = (self.user, &state.folder) else { return Ok(()) };
        folder.give_to(user.uid, user.gid, &[DENIED_FILE, COPY_FILE]).map_err(|why| {
            let path = folder.path().display();
            Failure::failed(format_args!("cannot hand state_dir {path} over: {why}"))
        })
    }

    /// Gives the sockets that agents come to to whom the daemon becomes: those of lanes share their
    /// port.
    pub(super) fn give_agents(&self, control: &Control) -> Result<(), Failure> {
        let Some(user) = self.user else { return Ok(()) };
        control.give_agents(user.uid, user.gid).map_err(|why| {
            Failure::failed(format_args!("cannot hand the agents' sockets over: {why}"))
        })
    }

    /// Becomes the user. Its sockets are removed at the end, by then as that user, so the folder
    /// has to be its own: one that holds links is handed over, and one that only the control socket
    /// needs if nothing else is in it.
    pub(super) fn become_user(&self, run_dir: &Path, has_links: bool) -> Result<(), Failure> {
        let Some(user) = self.user else { return Ok(()) };
        let is_empty = || std::fs::read_dir(run_dir).is_ok_and(|mut list| list.next().is_none());
        if has_links || is_empty() {
            hand_over(run_dir, user).map_err(|why| {
                Failure::failed(format_args!("cannot hand {} over: {why}", run_dir.display()))
            })?;
        }
        confine::become_user(user).map_err(|why| {
            Failure::failed(format_args!("cannot become user {}: {why}", user.uid))
        })?;
        // The kernel allows dumps anew, or by its own setting, whenever the user changes.
        if let Err(why) = process::forbid_dumps() {
            tracing::warn!("a core dump of this process would hold keys: {why}");
        }
        Ok(())
    }

    /// Gives up the system calls that a daemon which serves does not make.
    pub(super) fn give_up_system_calls(&self) -> Result<(), Failure> {
        if !self.confine {
            return Ok(());
        }
        confine::system_calls().map_err(|why| {
            Failure::failed(format_args!("cannot give up system calls (`confine`): {why}"))
        })
    }
}

/// Gives a folder to a user. The folder itself, and none that a link in its place leads to: where
/// others may write to what it lies in (`/tmp`), they could have us give away any folder of the
/// host.
fn hand_over(dir: &Path, user: User) -> io::Result<()> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let folder = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    let owner = folder.metadata()?.uid();
    if owner != user.uid && owner != process::effective_uid() {
        return Err(io::Error::other(format!("it belongs to user {owner}")));
    }
    fchown(&folder, Some(user.uid), Some(user.gid))
}

/// What may be read, and what may be written.
fn folders(config: &Config, file: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let home = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let names = config.fleet.iter().flat_map(Fleet::resolver_files).map(PathBuf::from);
    let read = [home].into_iter().chain(credentials).chain(names).collect();
    let histograms = config.histograms.iter().map(|histograms| histograms.dir.clone());
    let own = [config.gateway.run_dir.clone(), config.gateway.state_dir.clone()];
    let write = own.into_iter().chain(histograms).collect();
    (read, write)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_folders_place_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("ringgate-hand-{}", std::process::id()));
        fs::create_dir(&folder).expect("temporary folders can be made");
        let (real, link) = (folder.join("real"), folder.join("link"));
        fs::create_dir(&real).expect("made");
        symlink(&real, &link).expect("made");
        let meta = fs::metadata(&real).expect("there");
        let own = User { uid: meta.uid(), gid: meta.gid() };
        assert!(hand_over(&link, own).is_err());
        assert!(hand_over(&real, own).is_ok());
        if process::effective_uid() == 0 {
            let [one, other] = [User { uid: 65_534, ..own }, User { uid: 65_533, ..own }];
            hand_over(&real, one).expect("root may");
            hand_over(&real, one).expect("and again, at the next start");
            let why = hand_over(&real, other).expect_err("it is somebody else's");
            assert!(why.to_string().contains("65534"), "{why}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
