//! Log set-up: human lines on stderr, coloured on a terminal, or one JSON object a line on request.
//!
//! The level is `info` unless the variable `RINGGATE_LOG` says otherwise, in the syntax of
//! tracing's `EnvFilter`. Nothing is logged per packet, whatever the level.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use super::Failure;
use crate::config::{LoadError, LogFormat, values};
use ringgate_os::process;

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
    format: impl FnOnce(&C) -> LogFormat,
) -> Result<C, Failure> {
    let dumps = process::forbid_dumps();
    let config = load()?;
    init(args, format(&config))?;
    if let Err(why) = dumps {
        tracing::warn!("a core dump of this process would hold keys: {why}");
    }
    Ok(config)
}

/// Installs the process's logger. The arguments go before the config.
pub fn init(args: LogArgs, config: LogFormat) -> Result<(), Failure> {
    let filter = filter(std::env::var("RINGGATE_LOG").ok())?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let installed = match args.format.unwrap_or(config) {
        LogFormat::Human => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let ansi = io::stderr().is_terminal() && !plain;
            builder.with_ansi(ansi).with_target(false).try_init()
        }
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    installed.map_err(|cause| Failure::failed(format_args!("cannot start logging: {cause}")))
}

fn filter(directives: Option<String>) -> Result<EnvFilter, Failure> {
    let Some(directives) = directives else { return Ok(EnvFilter::new("info")) };
    EnvFilter::try_new(&directives)
        .map_err(|cause| Failure::bad_input(format_args!("RINGGATE_LOG={directives:?}: {cause}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_a_sentence() {
        let error = filter(Some("ringgate=loud".into())).expect_err("no such level");
        let Failure::BadInput(sentence) = error else { panic!("{error:?}") };
        assert!(sentence.starts_with("RINGGATE_LOG=\"ringgate=loud\": "), "{sentence}");
        assert!(!sentence.contains('\n'));
    }

    #[test]
    fn formats_are_words_of_the_config() {
        assert_eq!(format("json"), Ok(LogFormat::Json));
        assert!(format("JSON").is_err());
    }
}
