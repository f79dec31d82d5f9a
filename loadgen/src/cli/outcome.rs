//! How a command ends, and what it writes.

use std::io::{self, Write};
use std::path::Path;

use crate::report::record::Record;

/// Why a command ended other than well.
#[derive(Debug)]
pub(super) enum Failure {
    /// The input is wrong.
    BadInput(String),
    /// It could not be done.
    Failed(String),
    /// Conditions were missed.
    Missed(Vec<String>),
    /// Something is missing that nobody has counted, or what was counted cannot be compared.
    Unbalanced(Vec<String>),
    /// Players stayed outside, or nothing was measured.
    Unproven(Vec<String>),
    /// A signal of this number came; what there was has been written.
    Interrupted(i32, Vec<String>),
}

impl Failure {
    /// Says something else beside it.
    fn say(&mut self, more: &str) {
        match self {
            Self::BadInput(why) | Self::Failed(why) => *why = format!("{why}; {more}"),
            Self::Missed(all)
            | Self::Unbalanced(all)
            | Self::Unproven(all)
            | Self::Interrupted(_, all) => all.push(more.into()),
        }
    }
}

/// A verdict, and beside it what could not be written: the results are worth more than that.
pub(super) fn beside(
    verdict: Result<(), Failure>,
    written: Result<(), Failure>,
) -> Result<(), Failure> {
    match (verdict, written) {
        (Err(mut verdict), Err(Failure::Failed(why))) => {
            verdict.say(&why);
            Err(verdict)
        }
        (verdict, written) => verdict.and(written),
    }
}

/// What speaks against a command's results.
#[derive(Clone, Debug, Default)]
pub(super) struct Objections {
    pub(super) interrupted: Option<i32>,
    pub(super) imbalances: Vec<String>,
    pub(super) unproven: Vec<String>,
    pub(super) missed: Vec<String>,
}

impl Objections {
    /// Takes over what speaks against a run.
    pub(super) fn add(&mut self, record: &Record) {
        let signal = record.interrupted.as_ref().map(|interruption| interruption.number);
        self.interrupted = self.interrupted.or(signal);
        self.imbalances.extend(record.imbalances());
        self.unproven.extend(record.unproven());
    }

    /// Whether the command was told to end.
    pub(super) const fn is_interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    /// The verdict: the reason that spoils most.
    pub(super) fn verdict(self) -> Result<(), Failure> {
        let Self { interrupted, imbalances, unproven, missed } = self;
        let decides = [!imbalances.is_empty(), !unproven.is_empty(), !missed.is_empty()];
        let all = [imbalances, unproven, missed].concat();
        Err(match (interrupted, decides) {
            (Some(signal), _) => Failure::Interrupted(signal, all),
            (_, [true, ..]) => Failure::Unbalanced(all),
            (_, [_, true, _]) => Failure::Unproven(all),
            (_, [.., true]) => Failure::Missed(all),
            _ => return Ok(()),
        })
    }
}

/// Prints to stdout. A reader that closes it early, as `head` does, is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("cannot write to stdout: {why}")))
        }
        _ => Ok(()),
    }
}

/// Writes a file, where one was asked for.
pub(super) fn write(path: Option<&Path>, text: &str) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, text).map_err(|why| Failure::Failed(format!("{}: {why}", path.display())))
}
