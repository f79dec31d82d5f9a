//! The logger of a process: human lines on stderr, coloured on a terminal, or one JSON object a
//! line. Nothing is logged per packet, whatever the level.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{fmt, registry};

use crate::levels;

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line to read, coloured on a terminal.
    Human,
    /// One JSON object a line.
    Json,
}

/// Installs the process's logger, which tells by these levels until they are
/// [changed](levels::change). The error is one sentence.
pub fn install(format: LogFormat, targets: levels::Targets) -> Result<(), String> {
    let filter = levels::changeable(targets);
    let lines = fmt::layer().with_writer(io::stderr);
    let installed = match format {
        LogFormat::Human => {
            let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let ansi = io::stderr().is_terminal() && !plain;
            registry().with(lines.with_ansi(ansi).with_target(false).with_filter(filter)).try_init()
        }
        LogFormat::Json => {
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
            registry().with(lines.json().flatten_event(true).with_filter(filter)).try_init()
        }
    };
    installed.map_err(|cause| format!("cannot start logging: {cause}"))
}
