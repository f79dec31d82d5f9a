//! `ringgate check`.

use super::Failure;
use super::config_file::{ConfigFile, GATEWAY};
use super::exit::print;
use ringgate_config::{self as config, Config, HostConfig};
use ringgate_report::text::Append as _;

/// Check a config file and report every mistake in it, or explain all fields
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: ConfigFile,
    /// Print every field with its meaning and default, as a config file
    #[arg(long, conflicts_with_all = ["file", "config"])]
    explain: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.explain {
        return print(&config::explain());
    }
    let file = args.file.or(GATEWAY);
    if config::is_of_agent(&file) {
        HostConfig::load(&file)?;
        return print(&format!("{}: ok, an agent's\n", file.display()));
    }
    let config = Config::load(&file)?;
    print(&summary(&file.display().to_string(), &config))
}

fn summary(file: &str, config: &Config) -> String {
    let mut text = format!(
        "{file}: ok, {}, {}\n",
        count(config.listeners.len(), "listener"),
        count(config.backends.len(), "backend")
    );
    for notice in config.notices().into_iter().chain(config.fillable()) {
        writeln!(text, "note: {notice}");
    }
    text
}

fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
