//! The first process of a container, after it has handed its players over.
//!
//! With the first process of a container the kernel ends all others, its successor among them. So
//! this one stays, without players and without sockets. It passes on what it is told by signals,
//! and ends as the last of its successors does.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use ringgate_os::{owners, process};

/// Ready to stay.
pub(super) struct First {
    runtime: Runtime,
    /// Heard from before there is a successor, so that no request to end is lost in between.
    ends: [Signal; 2],
}

impl First {
    /// `None` in every other process.
    pub(super) fn here() -> Result<Option<Self>, Failure> {
        if std::process::id() != FIRST {
            return Ok(None);
        }
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(|why| fail(&why))?;
        let ends = runtime.block_on(async {
            Ok([heard(SignalKind::terminate())?, heard(SignalKind::interrupt())?])
        });
        ends.map(|ends| Some(Self { runtime, ends }))
    }

    /// Waits for the end of the process that has taken over, and of all that take over from it.
    pub(super) fn outlive(self) -> Result<(), Failure> {
        let Self { runtime, ends } = self;
        let status = runtime.block_on(watch(ends))?;
        let code = status.map(|it| it.code().or_else(|| Some(SIGNALLED + it.signal()?)));
        match code.flatten() {
            // As it would have ended here.
            Some(code) if code != 0 => std::process::exit(code),
            _ => Ok(()),
        }
    }
}

/// How the last of them has ended, if the kernel tells us.
async fn watch([mut terminate, mut interrupt]: [Signal; 2]) -> Result<Option<ExitStatus>, Failure> {
    let mut child = heard(SignalKind::child())?;
    let mut reload = heard(SignalKind::hangup())?;
    let mut upgrade = heard(SignalKind::user_defined2())?;
    let mut heir = owners::another(&SUCCESSOR);
    let mut last = None;
    loop {
        let is_gone = heir.and_then(owners::living).is_none();
        // Processes that have lost their parent are ours to bury, too.
        while let Some((pid, ended)) = process::bury() {
            last = if heir.is_none_or(|heir| heir == pid) { Some(ended) } else { last };
        }
        if is_gone {
            heir = owners::another(&SUCCESSOR);
            if heir.is_none() {
                return Ok(last);
            }
            last = None;
        }
        let told = tokio::select! {
            // Who was not started by us ends without a signal.
            _ = child.recv() => None,
            () = tokio::time::sleep(LOOK_AGAIN_AFTER) => None,
            _ = terminate.recv() => Some(SignalKind::terminate()),
            _ = interrupt.recv() => Some(SignalKind::interrupt()),
            _ = reload.recv() => Some(SignalKind::hangup()),
            _ = upgrade.recv() => Some(SignalKind::user_defined2()),
        };
        if let (Some(heir), Some(kind)) = (heir, told) {
            // It may end at this very moment.
            let _ = process::signal(heir, kind.as_raw_value());
        }
    }
}

fn heard(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|why| fail(&why))
}

fn fail(why: &std::io::Error) -> Failure {
    Failure::failed(format_args!("cannot catch signals: {why}"))
}

const FIRST: u32 = 1;

/// What is on the command line of every process that takes over.
const SUCCESSOR: [&str; 2] = ["run", "--take-over"];

/// Shells and containers say so of a process that a signal has ended.
const SIGNALLED: i32 = 128;

const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
