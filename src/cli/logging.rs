//! Log set-up: human lines on stderr, coloured on a terminal, or one JSON object a line on request.
//!
//! The level is what the variable `RINGGATE_LOG` says, or else the config, or `info`: a
//! level, and for single parts of the program `PART=LEVEL`, with commas between. Nothing is logged
//! per packet, whatever the level.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use super::{Failure, exit};
use crate::config::{LoadError, LogFormat, values};
use crate::levels;
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
    let filter = levels::changeable(levels_of(std::env::var(levels::VARIABLE).ok(), level)?);
    let lines = fmt::layer().with_writer(io::stderr);
    let installed = match args.format.unwrap_or(format) {
        LogFormat::Human => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let ansi = io::stderr().is_terminal() && !plain;
            registry().with(lines.with_ansi(ansi).with_target(false).with_filter(filter)).try_init()
        }
        LogFormat::Json => {
            IS_JSON.store(args.format.is_some(), Ordering::Relaxed);
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            registry().with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    installed.map_err(|cause| Failure::failed(format_args!("cannot start logging: {cause}")))
}

/// Whether this process was told to print JSON and nothing else. A config's word is about the log
/// alone: tools wait for the lines beside it.
pub fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Says at its start where a process is: as lines for people, or in the log.
pub fn announce(text: &str) -> Result<(), Failure> {
    if !is_json() {
        return exit::print(text);
    }
    text.lines().for_each(|line| tracing::info!(event = "announced", "{line}"));
    Ok(())
}

/// By which levels is logged: the variable goes before the config.
fn levels_of(variable: Option<String>, config: &str) -> Result<Targets, Failure> {
    let Some(text) = variable else { return Ok(levels::read(config).unwrap_or_default()) };
    levels::read(&text).map_err(|word| {
        Failure::bad_input(format_args!(
            "RINGGATE_LOG={text:?}: found {word:?}, expected off, error, warn, info, debug or trace, \
             or PART=LEVEL such as ringgate::control=debug"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_a_sentence_and_the_variable_goes_first() {
        let error = levels_of(Some("ringgate=loud".into()), "").expect_err("no such level");
        let Failure::BadInput(sentence) = error else { panic!("{error:?}") };
        assert!(sentence.starts_with("RINGGATE_LOG=\"ringgate=loud\": "), "{sentence}");
        assert!(!sentence.contains('\n'));
        let tells = |targets: Targets| targets.would_enable("ringgate", &tracing::Level::DEBUG);
        assert!(!tells(levels_of(Some("warn".into()), "debug").expect("valid")));
        assert!(tells(levels_of(None, "debug").expect("valid")));
    }

    #[test]
    fn formats_are_words_of_the_config() {
        assert_eq!(format("json"), Ok(LogFormat::Json));
        assert!(format("JSON").is_err());
    }
}
