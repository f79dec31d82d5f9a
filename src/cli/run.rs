//! `ringgate run`: the daemon.

mod privileges;

use std::path::PathBuf;
use std::sync::Arc;

use super::logging::{self, LogArgs};
use super::{Failure, exit};
use crate::config::Config;
use crate::control::{Control, Settings, plan};
use crate::gate::Setup;
use crate::os::process;
use crate::text::put;
use crate::worker::Fleet;
use privileges::Privileges;

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
    let plan = plan::plan(&config).map_err(Failure::failed)?;
    let privileges = Privileges::of(&config)?;
    let histograms = config.histograms.as_ref().map(|histograms| ("dir", &histograms.dir));
    let run_dir = plan.run_dir.as_ref().map(|dir| ("run_dir", dir));
    for (name, folder) in run_dir.into_iter().chain(histograms) {
        std::fs::create_dir_all(folder).map_err(|why| {
            Failure::failed(format_args!("cannot create {name} {}: {why}", folder.display()))
        })?;
    }
    privileges.give_up_files(&config, &args.config)?;
    let fleet = Fleet::start(&plan).map_err(Failure::failed)?;
    if let Some(why) = fleet.why_not_uring() {
        tracing::info!(driver = fleet.driver(), "io_uring is not used: {why}");
    }
    let setup = Arc::clone(&plan.setup);
    let settings = Settings { config_file: args.config.clone(), config, setup };
    let control = Control::start(fleet, settings).map_err(Failure::failed)?;
    privileges.give_up_the_rest(plan.run_dir.as_deref())?;
    exit::print(&announcement(&plan.setup, &control))?;
    control.serve().map_err(Failure::failed)
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
    if let Some(file) = control.histogram_file() {
        put(&mut text, format_args!("histograms in {}\n", file.display()));
    }
    let (workers, driver, cipher) = (fleet.worker_count(), fleet.driver(), fleet.kernel());
    put(&mut text, format_args!("ready: {workers} workers, driver {driver}, cipher {cipher}\n"));
    text
}
