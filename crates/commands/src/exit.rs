//! How a command ends: what it prints on stderr, and its exit code.
//!
//! 0: done. 1: it could not be done, though the input was fine. 2: the input is wrong (arguments,
//! files, values). A reader that closes our stdout early, as `head` does, is no failure.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::logging;
use ringgate_config::{LoadError, Mistakes};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub enum Failure {
    /// The input is wrong: one sentence.
    BadInput(String),
    /// The input is fine, and still it did not work: one sentence.
    Failed(String),
    /// The config file is wrong: one line for each mistake, which editors can jump by.
    Mistakes(Mistakes),
    /// The arguments do not fit together, or help was asked for: clap's own text.
    Usage(clap::Error),
}

impl Failure {
    /// Wrong input.
    pub fn bad_input(sentence: impl fmt::Display) -> Self {
        Self::BadInput(sentence.to_string())
    }

    /// Right input that did not work.
    pub fn failed(sentence: impl fmt::Display) -> Self {
        Self::Failed(sentence.to_string())
    }

    /// No key and no nonce without them.
    pub(super) fn no_random_numbers(cause: impl fmt::Display) -> Self {
        Self::failed(format_args!("the operating system gave no random numbers: {cause}"))
    }

    /// The same, where something was done before it.
    pub(super) fn after(self, done: impl fmt::Display) -> Self {
        match self {
            Self::BadInput(sentence) => Self::BadInput(format!("{sentence} ({done})")),
            Self::Failed(sentence) => Self::Failed(format!("{sentence} ({done})")),
            other => other,
        }
    }

    fn code(&self) -> u8 {
        match self {
            Self::BadInput(_) | Self::Mistakes(_) => 2,
            Self::Failed(_) => 1,
            Self::Usage(error) => u8::try_from(error.exit_code()).unwrap_or(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadInput(sentence) | Self::Failed(sentence) => f.write_str(sentence),
            Self::Mistakes(mistakes) => mistakes.fmt(f),
            Self::Usage(error) => error.fmt(f),
        }
    }
}

/// What a package of ours says that has no commands: one sentence.
impl From<String> for Failure {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Mistakes(mistakes) => Self::Mistakes(mistakes),
            unreadable @ LoadError::Unreadable { .. } => Self::bad_input(unreadable),
        }
    }
}

impl From<clap::Error> for Failure {
    /// A value that its parser refused is wrong input like any other: one sentence, not a usage
    /// text.
    fn from(error: clap::Error) -> Self {
        let text = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let source = std::error::Error::source(&error);
        match (error.kind(), text(ContextKind::InvalidArg), source) {
            (ErrorKind::ValueValidation, Some(argument), Some(reason)) => {
                // `--server <ADDRESS>` is how clap names the argument; `K` may hold a key, so
                // values are not repeated here.
                let name = argument.split_whitespace().next().unwrap_or(argument);
                Self::BadInput(format!("{name}: {reason}"))
            }
            _ => Self::Usage(error),
        }
    }
}

/// Prints why a command failed, and gives its exit code.
pub fn code(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if logging::is_json() {
        failure.to_string().lines().for_each(|line| tracing::error!("{line}"));
        return ExitCode::from(failure.code());
    }
    // Nothing is left to be done when stderr or stdout are gone.
    let _ = match &failure {
        Failure::BadInput(sentence) | Failure::Failed(sentence) => {
            writeln!(io::stderr(), "ringgate: {sentence}")
        }
        Failure::Mistakes(mistakes) => writeln!(io::stderr(), "{mistakes}"),
        Failure::Usage(error) => error.print(),
    };
    ExitCode::from(failure.code())
}

/// Prints to stdout.
pub fn print(text: &str) -> Result<(), Failure> {
    show(text).map(drop)
}

/// Prints to stdout, and says whether anybody still reads there: for commands that would go on for
/// ever.
pub(super) fn show(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(cause) => Err(Failure::failed(format_args!("cannot write to stdout: {cause}"))),
    }
}
