//! `ringgate check`.

use std::fmt::Write;
use std::path::PathBuf;

use super::Failure;
use super::exit::print;
use crate::config::{self, Config};

/// Check a config file and report every mistake in it, or explain all fields
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The config file
    #[arg(required_unless_present = "explain", conflicts_with = "explain")]
    file: Option<PathBuf>,
    /// Print every field with its meaning and default, as a config file
    #[arg(long)]
    explain: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(file) = &args.file else { return print(&config::explain()) };
    let config = Config::load(file)?;
    print(&summary(&file.display().to_string(), &config))
}

fn summary(file: &str, config: &Config) -> String {
    let mut text = format!(
        "{file}: ok, {}, {}\n",
        count(config.listeners.len(), "listener"),
        count(config.backends.len(), "backend")
    );
    for notice in config.notices().into_iter().chain(config.fillable()) {
        writeln!(text, "note: {notice}").expect("writing to a string cannot fail");
    }
    text
}

fn count(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
