//! What the daemon gives up on its way to serving: files before it has threads, its user and most system calls once all
//! sockets are bound.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use super::Failure;
use crate::config::Config;
use crate::control::plan;
use crate::os::confine::{self, Reach, User};
use crate::os::process;

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

    /// Gives up all files but those that are needed from here on. The folders of `config` have to be there.
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

    /// Becomes the user and gives up system calls.
    pub(super) fn give_up_the_rest(&self, run_dir: Option<&Path>) -> Result<(), Failure> {
        if let Some(user) = self.user {
            // Its sockets are removed at the end, by then as that user.
            if let Some(dir) = run_dir {
                chown(dir, Some(user.uid), Some(user.gid)).map_err(|why| {
                    Failure::failed(format_args!("cannot hand {} over: {why}", dir.display()))
                })?;
            }
            confine::become_user(user).map_err(|why| {
                Failure::failed(format_args!("cannot become user {}: {why}", user.uid))
            })?;
            // The kernel allows dumps anew, or by its own setting, whenever the user changes.
            if let Err(why) = process::forbid_dumps() {
                tracing::warn!("a core dump of this process would hold keys: {why}");
            }
        }
        if self.confine {
            confine::system_calls().map_err(|why| {
                Failure::failed(format_args!("cannot give up system calls (`confine`): {why}"))
            })?;
        }
        Ok(())
    }
}

/// What may be read, and what may be written.
fn folders(config: &Config, file: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let home = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let read = [home].into_iter().chain(credentials).collect();
    let histograms = config.histograms.iter().map(|histograms| histograms.dir.clone());
    let write = [config.gateway.run_dir.clone()].into_iter().chain(histograms).collect();
    (read, write)
}
