//! The first process of a container, after it has handed its players over.
//!
//! With the first process of a container the kernel ends all others, its successor among them. So
//! this one stays, without players and without sockets. It passes on what it is told by signals,
//! and ends as the last of its successors does.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use ringgate_os::{owners, process};
use ringgate_process::signals::Signals;

/// Whether this is such a process.
pub(super) fn is_this() -> bool {
    std::process::id() == FIRST
}

/// Waits for the end of the process that has taken over, and of all that take over from it.
/// They all run the same command. `unheard` is what this one was told after it had given its
/// players away.
pub(super) fn outlive(unheard: Signals, command: &'static str) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|why| fail(&why))?;
    let status = runtime.block_on(watch(unheard, [command, "--take-over"]))?;
    let code = status.map(|it| it.code().or_else(|| Some(SIGNALLED + it.signal()?)));
    match code.flatten() {
        // As it would have ended here.
        Some(code) if code != 0 => std::process::exit(code),
        _ => Ok(()),
    }
}

/// How the last of them has ended, if the kernel tells us.
///
/// The words are on the command line of every process that takes over.
async fn watch(mut told: Signals, heirs: [&str; 2]) -> Result<Option<ExitStatus>, Failure> {
    let mut child = signal(SignalKind::child()).map_err(|why| fail(&why))?;
    let mut heir = owners::others(&heirs).max();
    let mut last = None;
    loop {
        let is_gone = heir.and_then(owners::living).is_none();
        // Processes that have lost their parent are ours to bury, too.
        while let Some((pid, ended)) = process::bury() {
            last = if heir.is_none_or(|heir| heir == pid) { Some(ended) } else { last };
        }
        if is_gone {
            heir = owners::others(&heirs).max();
            if heir.is_none() {
                return Ok(last);
            }
            last = None;
        }
        let kind = tokio::select! {
            // Who was not started by us ends without a signal.
            _ = child.recv() => None,
            () = tokio::time::sleep(LOOK_AGAIN_AFTER) => None,
            kind = told.next() => Some(kind),
        };
        // While one takes over from another we cannot see which of them serves, and a process that
        // has handed its players over does not act on it any more.
        if let Some(kind) = kind {
            for heir in owners::others(&heirs) {
                // It may end at this very moment.
                let _ = process::signal(heir, kind.as_raw_value());
            }
        }
    }
}

fn fail(why: &std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot catch signals: {why}"))
}

const FIRST: u32 = 1;

/// Shells and containers say so of a process that a signal has ended.
const SIGNALLED: i32 = 128;

const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
