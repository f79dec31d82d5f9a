//! What the daemon gives up on its way to serving, beside what every process does: its state and
//! its agents' sockets go to whom it becomes.

use std::path::{Path, PathBuf};

use super::super::privileges::{self, Privileges as Common};
use super::Failure;
use crate::config::{Config, Fleet};
use crate::confine::Calls;
use crate::control::{Control, DENIED_FILE, State};
use crate::membership::{COPY_FILE, KEYS_FILE, LEASES_FILE};
use ringgate_state::SpentFiles;

/// What the config wants given up.
pub(super) struct Privileges(Common);

impl Privileges {
    /// Checks that it can be done, before anything is.
    pub(super) fn of(config: &Config) -> Result<Self, Failure> {
        let gateway = &config.gateway;
        Common::of(gateway.user.as_deref(), gateway.confine, Calls::Gateway).map(Self)
    }

    /// Gives up all files but those that are needed from here on. The folders of `config` have to
    /// be there.
    pub(super) fn give_up_files(&self, config: &Config, file: &Path) -> Result<(), Failure> {
        let (read, write) = folders(config, file);
        self.0.give_up_files(&read, &write)
    }

    /// Gives what is kept to whom the daemon becomes.
    pub(super) fn give_state(&self, state: &State) -> Result<(), Failure> {
        let (Some(user), Ok(folder)) = (self.0.user(), &state.folder) else { return Ok(()) };
        let spent: Vec<_> = state.spent.iter().flat_map(SpentFiles::names).collect();
        let spent = spent.iter().map(String::as_str);
        let names: Vec<_> =
            [DENIED_FILE, COPY_FILE, KEYS_FILE, LEASES_FILE].into_iter().chain(spent).collect();
        folder.give_to(user.uid, user.gid, &names).map_err(|why| {
            let path = folder.path().display();
            Failure::failed(format_args!("cannot hand state_dir {path} over: {why}"))
        })
    }

    /// Gives the sockets that agents come to to whom the daemon becomes: those of lanes share their
    /// port.
    pub(super) fn give_agents(&self, control: &Control) -> Result<(), Failure> {
        let Some(user) = self.0.user() else { return Ok(()) };
        control.give_agents(user.uid, user.gid).map_err(|why| {
            Failure::failed(format_args!("cannot hand the agents' sockets over: {why}"))
        })
    }

    /// Becomes the user. Its sockets are removed at the end, by then as that user, so the folder
    /// has to be its own: one that holds links is handed over, and one that only the control socket
    /// needs if nothing else is in it.
    pub(super) fn become_user(&self, run_dir: &Path, has_links: bool) -> Result<(), Failure> {
        let is_empty = || std::fs::read_dir(run_dir).is_ok_and(|mut list| list.next().is_none());
        if has_links || is_empty() {
            self.0.hand_over(run_dir)?;
        }
        self.0.become_user()
    }

    /// Gives up the system calls that a daemon which serves does not make.
    pub(super) fn give_up_system_calls(&self) -> Result<(), Failure> {
        self.0.give_up_system_calls()
    }
}

/// What may be read, and what may be written.
fn folders(config: &Config, file: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let names =
        config.fleet.iter().flat_map(|it| privileges::of_resolver(Fleet::resolver_files(it)));
    let of_agents = config.agents.iter().flat_map(|agent| agent.identity().folders());
    let read = privileges::of_config(file).into_iter().chain(names).chain(of_agents).collect();
    // One that could not be made is done without.
    let histograms = config.histograms.iter().map(|it| it.dir.clone()).filter(|it| it.exists());
    let own = [config.gateway.run_dir.clone(), config.gateway.state_dir.clone()];
    let write = own.into_iter().chain(histograms).collect();
    (read, write)
}
