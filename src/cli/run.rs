//! `ringgate run`: the daemon.

mod privileges;
mod state;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::logging::{self, LogArgs};
use super::{CONTROL_SOCKET, Failure, RUN_DIR_DEFAULT, exit};
use crate::config::Config;
use crate::control::{Control, Settings, plan};
use crate::worker::{Fleet, Ports};
use privileges::Privileges;
use ringgate_gate::Setup;
use ringgate_io::socket;
use ringgate_os::overflows::Overflows;
use ringgate_os::process;
use ringgate_os::usage::Usage;
use ringgate_report::text::put;

/// Runs the gateway until SIGTERM, which drains it.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The config file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    process::ignore_user_signals();
    // Before there is a key to leak.
    let dumps = process::forbid_dumps();
    let config = Config::load(&args.config)?;
    logging::init(args.log, config.gateway.log)?;
    if let Err(why) = dumps {
        tracing::warn!("a core dump of this process would hold keys: {why}");
    }
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let mut plan = plan::plan(&config).map_err(Failure::failed)?;
    let privileges = Privileges::of(&config)?;
    // A gateway that serves here already is not disturbed: nothing has been made or removed yet.
    let admin = config.admin.as_ref().map(|admin| admin.bind);
    let ports = Ports::claim(&plan, admin).map_err(Failure::failed)?;
    make_folders(&config, plan.run_dir.is_some())?;
    let run_dir = config.gateway.run_dir.clone();
    let state = state::open(&config.gateway)?;
    // Before the first worker serves the first player.
    plan.deny(state.denied());
    // They cannot be opened behind the next line.
    let kernel = (Overflows::open(), Usage::open());
    privileges.give_up_files(&config, &args.config)?;
    let fleet = Fleet::start_on(&plan, ports).map_err(Failure::failed)?;
    if let Some(why) = fleet.why_not_uring() {
        tracing::info!(driver = fleet.driver(), "io_uring is not used: {why}");
    }
    if let Some(why) = fleet.why_unrestricted() {
        tracing::warn!("this kernel does not restrict the workers' rings to their requests: {why}");
    }
    let setup = Arc::clone(&plan.setup);
    privileges.give_state(&state)?;
    let settings = Settings { config_file: args.config.clone(), config, setup, kernel, state };
    let mut control = Control::start(fleet, settings).map_err(Failure::failed)?;
    privileges.become_user(&run_dir, plan.run_dir.is_some())?;
    open_socket(&mut control, &run_dir)?;
    privileges.give_up_system_calls()?;
    exit::print(&announcement(&plan.setup, &control))?;
    tell_start(&plan.setup, &control);
    control.serve().map_err(Failure::failed)
}

/// Makes the folders that the config names. Without links, `run_dir` holds only the control socket,
/// which the daemon can do without ([`open_socket`] says so).
fn make_folders(config: &Config, has_links: bool) -> Result<(), Failure> {
    let run_dir = ("run_dir", &config.gateway.run_dir, has_links);
    let histograms = config.histograms.as_ref().map(|it| ("dir", &it.dir, true));
    for (name, folder, is_needed) in [run_dir].into_iter().chain(histograms) {
        match std::fs::create_dir_all(folder) {
            Err(why) if is_needed => {
                let folder = folder.display();
                return Err(Failure::failed(format_args!("cannot create {name} {folder}: {why}")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens the control socket, as whom the daemon remains. Where another daemon's is, this one does
/// not start: commands would reach the other. The default folder is the exception: daemons that
/// have never needed one of their own share it, so only the first has a socket there. Where this
/// user may not make one, the daemon serves all the same. Signals reach it in any case.
fn open_socket(control: &mut Control, run_dir: &Path) -> Result<(), Failure> {
    let path = run_dir.join(CONTROL_SOCKET);
    let why = match socket::control_listener(&path) {
        Ok(listener) => return control.serve_socket(listener, path).map_err(Failure::failed),
        Err(why) => why,
    };
    let is_taken = why.io_error().kind() == io::ErrorKind::AddrInUse;
    if is_taken && run_dir != Path::new(RUN_DIR_DEFAULT) {
        return Err(Failure::failed(why));
    }
    tracing::warn!(
        "there is no control socket, so `ringgate drain` and `reload` do not reach this daemon (signals do): {why}; give it \
         a run_dir of its own"
    );
    Ok(())
}

/// The same for the log, as events.
fn tell_start(setup: &Setup, control: &Control) {
    let fleet = control.fleet();
    for (listener, addresses) in setup.listeners.iter().zip(fleet.addresses()) {
        for address in addresses {
            let name = &listener.name;
            tracing::info!(event = "listening", listener = name, %address, "listener {name} on {address}");
        }
    }
    tracing::info!(
        event = "start",
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        workers = fleet.worker_count(),
        driver = fleet.driver(),
        cipher = fleet.kernel(),
        "ready"
    );
}

/// What the daemon serves, a line for each address: tools and tests read these.
fn announcement(setup: &Setup, control: &Control) -> String {
    let fleet = control.fleet();
    let mut text = String::new();
    for (listener, addresses) in setup.listeners.iter().zip(fleet.addresses()) {
        for address in addresses {
            put(&mut text, format_args!("listener {} on {address}\n", listener.name));
        }
    }
    if let Some(address) = control.admin_address() {
        put(&mut text, format_args!("admin on {address}\n"));
    }
    if let Some(path) = control.socket_path() {
        put(&mut text, format_args!("control on {}\n", path.display()));
    }
    if let Some(file) = control.histogram_file() {
        put(&mut text, format_args!("histograms in {}\n", file.display()));
    }
    let (workers, driver, cipher) = (fleet.worker_count(), fleet.driver(), fleet.kernel());
    put(&mut text, format_args!("ready: {workers} workers, driver {driver}, cipher {cipher}\n"));
    text
}
