//! What commands that serve say of the log: its format and its levels, by arguments, the variable
//! `RINGGATE_LOG` and the config.
//!
//! The level is what the variable says, or else a config, or `info`: a level, and for single parts
//! of the program `PART=LEVEL`, with commas between.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Failure, exit};
use ringgate_config::{LoadError, values};
use ringgate_os::process;
use ringgate_process::levels;
use ringgate_process::logging::{LogFormat, install};

/// The arguments of commands that log.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct LogArgs {
    /// How log lines look: human or json [default: what the config file says, or human]
    #[arg(long = "log", value_name = "FORMAT", value_parser = format)]
    pub format: Option<LogFormat>,
}

fn format(text: &str) -> Result<LogFormat, String> {
    values::word(text).ok_or_else(|| format!("found {text:?}, expected human or json"))
}

/// Reads a config and installs the logger that it asks for. A core dump would hold the config's
/// keys, so there are none from before it is read.
pub fn begin<C>(
    args: LogArgs,
    load: impl FnOnce() -> Result<C, LoadError>,
    says: impl FnOnce(&C) -> (LogFormat, &str),
) -> Result<C, Failure> {
    let dumps = process::forbid_dumps();
    let config = match load() {
        Ok(config) => config,
        Err(why) => {
            // Mistakes are told in the same words as everything else.
            init(args, (args.format.unwrap_or(LogFormat::Human), ""))?;
            return Err(why.into());
        }
    };
    init(args, says(&config))?;
    if let Err(why) = dumps {
        tracing::warn!("a core dump of this process would hold keys: {why}");
    }
    Ok(config)
}

/// Installs the process's logger. The arguments go before the config.
pub fn init(args: LogArgs, (format, level): (LogFormat, &str)) -> Result<(), Failure> {
    let variable = std::env::var(levels::VARIABLE).ok();
    let targets = levels::first(variable, level).map_err(Failure::bad_input)?;
    IS_JSON.store(args.format == Some(LogFormat::Json), Ordering::Relaxed);
    Ok(install(args.format.unwrap_or(format), targets)?)
}

/// Whether this process was told to print JSON and nothing else. A config's word is about the log
/// alone: tools wait for the lines beside it.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Says at its start where a process is: as lines for people, or in the log. One that has taken
/// over serves whoever reads.
pub fn announce(text: &str, is_heir: bool) -> Result<(), Failure> {
    if is_json() {
        text.lines().for_each(|line| tracing::info!(event = "announced", "{line}"));
        return Ok(());
    }
    match exit::print(text) {
        Err(why) if is_heir => {
            tracing::warn!("{why}");
            Ok(())
        }
        said => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_words_of_the_config() {
        assert_eq!(format("json"), Ok(LogFormat::Json));
        assert!(format("JSON").is_err());
    }
}
