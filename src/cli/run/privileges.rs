//! What the daemon gives up on its way to serving, beside what every process does: its state, its
//! histograms' folder and its agents' sockets go to whom it becomes.

use std::fs::DirEntry;
use std::os::fd::OwnedFd;
use std::os::unix::fs::fchown;
use std::path::{Path, PathBuf};

use crate::config::{Config, Fleet};
use crate::control::{Control, DENIED_FILE, Joining, State};
use ringgate_process::confine::Calls;
use ringgate_process::privileges::{Privileges, of_config, of_file, of_resolver};
use ringgate_state::SpentFiles;

/// What the config wants given up. Checks that it can be, before anything is.
pub(super) fn of(config: &Config) -> Result<Privileges, String> {
    let gateway = &config.gateway;
    Privileges::of(gateway.user.as_deref(), gateway.confine, Calls::Gateway)
}

/// Gives what is kept to whom the daemon becomes.
pub(super) fn give_state(privileges: &Privileges, state: &State) -> Result<(), String> {
    let (Some(user), Ok(folder)) = (privileges.user(), &state.folder) else { return Ok(()) };
    let spent: Vec<_> = state.spent.iter().flat_map(SpentFiles::names).collect();
    let spent = spent.iter().map(String::as_str);
    let names: Vec<_> = [DENIED_FILE].into_iter().chain(Joining::FILES).chain(spent).collect();
    let given = folder.give_to(user.uid, user.gid, &names);
    given.map_err(|why| format!("cannot hand state_dir {} over: {why}", folder.path().display()))
}

/// Gives the histograms' folder to whom the daemon becomes, where nothing but such files is in it:
/// another folder may be anybody's. Without it they are missing, and who writes them says so.
pub(super) fn give_histograms(privileges: &Privileges, config: &Config) {
    let Some(rules) = &config.histograms else { return };
    let is_log = |it: DirEntry| it.path().extension().is_some_and(|it| it == "hlog");
    let mut found = std::fs::read_dir(&rules.dir).into_iter().flatten().flatten();
    if found.all(is_log)
        && let Err(why) = privileges.hand_over(&rules.dir)
    {
        tracing::warn!("histograms.dir: {why}");
    }
}

/// Gives the sockets that agents come to to whom the daemon becomes: those of lanes share their
/// port.
pub(super) fn give_agents(privileges: &Privileges, control: &Control) -> Result<(), String> {
    let Some(user) = privileges.user() else { return Ok(()) };
    let given = control.give_agents(user.uid, user.gid);
    given.map_err(|why| format!("cannot hand the agents' sockets over: {why}"))
}

/// The same of what the process before had.
pub(super) fn give_inherited(privileges: &Privileges, sockets: &[OwnedFd]) -> Result<(), String> {
    let Some(user) = privileges.user() else { return Ok(()) };
    let given = sockets.iter().try_for_each(|it| fchown(it, Some(user.uid), Some(user.gid)));
    given.map_err(|why| format!("cannot hand the agents' sockets over: {why}"))
}

/// Becomes the user. Its sockets are removed at the end, by then as that user, so the folder has to
/// be its own: one that holds links is handed over, and one that only the control socket needs if
/// nothing else is in it.
pub(super) fn become_user(
    privileges: &Privileges,
    run_dir: &Path,
    has_links: bool,
) -> Result<(), String> {
    let is_empty = || std::fs::read_dir(run_dir).is_ok_and(|mut list| list.next().is_none());
    if has_links || is_empty() {
        privileges.hand_over(run_dir)?;
    }
    privileges.become_user()
}

/// What may be read, and what may be written: the folders of `config` have to be there.
pub(super) fn folders(config: &Config, file: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let names = config.fleet.iter().flat_map(|it| of_resolver(Fleet::resolver_files(it)));
    let of_agents = config.agents.iter().flat_map(|agent| agent.identity().folders());
    let of_cluster = config.cluster.iter().flat_map(|cluster| cluster.identity().folders());
    let of_etcd = config.fleet.iter().flat_map(Fleet::tls_files).flat_map(|file| of_file(file));
    let read = of_config(file).into_iter().chain(names).chain(of_agents).chain(of_cluster);
    let read = read.chain(of_etcd).collect();
    // One that could not be made is done without.
    let histograms = config.histograms.iter().map(|it| it.dir.clone()).filter(|it| it.exists());
    let own = [config.gateway.run_dir.clone(), config.gateway.state_dir.clone()];
    let write = own.into_iter().chain(histograms).collect();
    (read, write)
}
