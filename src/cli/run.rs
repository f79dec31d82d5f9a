//! `ringgate run`: the daemon.

use std::fmt::Write;
use std::path::PathBuf;

use super::logging::{self, LogArgs};
use super::{Failure, exit, plan};
use crate::config::Config;
use crate::control::{self, Settings};
use crate::worker::Fleet;

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
    let config = Config::load(&args.config)?;
    logging::init(args.log, config.gateway.log)?;
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let plan = plan::plan(&config)?;
    if let Some(run_dir) = &plan.run_dir {
        std::fs::create_dir_all(run_dir).map_err(|why| {
            Failure::failed(format_args!("cannot create run_dir {}: {why}", run_dir.display()))
        })?;
    }
    let fleet = Fleet::start(&plan).map_err(Failure::failed)?;
    if let Some(why) = fleet.why_not_uring() {
        tracing::info!(driver = fleet.driver(), "io_uring is not used: {why}");
    }
    exit::print(&announcement(&config, &fleet))?;
    let settings = Settings {
        drain_timeout: config.gateway.drain_timeout,
        names: control::Names::of(&plan.setup),
    };
    control::serve(fleet, &settings).map_err(Failure::failed)
}

/// What the daemon serves, a line for each address: tools and tests read these.
fn announcement(config: &Config, fleet: &Fleet) -> String {
    let mut text = String::new();
    for (listener, addresses) in config.listeners.iter().zip(fleet.addresses()) {
        for address in addresses {
            let _ = writeln!(text, "listener {} on {address}", listener.name);
        }
    }
    let _ = writeln!(
        text,
        "ready: {} workers, driver {}, cipher {}",
        fleet.worker_count(),
        fleet.driver(),
        fleet.kernel()
    );
    text
}
