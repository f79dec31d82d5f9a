//! What `ringgate run` is told: `doctor` reads it of processes that run, too.

use super::config_file::ConfigFile;
use super::logging::LogArgs;

/// Runs the gateway until SIGTERM, which drains it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which file.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Take over from the gateway that runs with this config, with its sockets and
    /// its players; where none runs, start as ever
    #[arg(long)]
    pub take_over: bool,
    /// The gateway has started this process itself, and talks to it here
    #[arg(long, hide = true, requires = "take_over")]
    pub predecessor_on_stdin: bool,
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
}
