//! The control plane: one thread beside the packet path, which reaches workers by mailbox and reads what they publish.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::gate::{Mail, Setup};
use crate::worker::Fleet;

/// What the control plane is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long a drain waits before it disconnects who is still there.
    pub drain_timeout: Duration,
    /// Names for metrics and status.
    pub names: Names,
}

/// Names of listeners and backends, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Listeners.
    pub listeners: Vec<String>,
    /// Backends.
    pub backends: Vec<String>,
}

impl Names {
    /// The names in a setup.
    pub fn of(setup: &Setup) -> Self {
        Self {
            listeners: setup.listeners.iter().map(|listener| listener.name.clone()).collect(),
            backends: setup.backends.iter().map(|backend| backend.name.clone()).collect(),
        }
    }
}

/// Serves until a signal ends the daemon. The first SIGTERM or SIGINT drains, the second stops at once.
pub fn serve(fleet: Fleet, settings: &Settings) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(until_ended(&fleet, settings))?;
    fleet.stop()
}

async fn until_ended(fleet: &Fleet, settings: &Settings) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut watch = tokio::time::interval(WATCH_EVERY);
    loop {
        tokio::select! {
            () = either(&mut terminate, &mut interrupt) => break,
            _ = watch.tick() => {
                if fleet.has_failed() {
                    return Err(io::Error::other("a worker has failed"));
                }
            }
        }
    }
    drain(fleet, settings, &mut terminate, &mut interrupt).await;
    Ok(())
}

/// Lets the sessions that exist go on for a while.
async fn drain(fleet: &Fleet, settings: &Settings, terminate: &mut Signal, interrupt: &mut Signal) {
    let left_ms = settings.drain_timeout.as_millis().min(u128::from(u32::MAX)) as u32;
    tracing::info!(left_ms, "draining");
    fleet.tell_all(|| Mail::Drain { left_ms });
    let deadline = tokio::time::sleep(settings.drain_timeout);
    tokio::pin!(deadline);
    let mut watch = tokio::time::interval(WATCH_EVERY);
    loop {
        tokio::select! {
            () = either(terminate, interrupt) => return,
            () = &mut deadline => return,
            _ = watch.tick() => if session_count(fleet) == 0 || fleet.has_failed() {
                return;
            },
        }
    }
}

async fn either(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn session_count(fleet: &Fleet) -> u64 {
    fleet.published().iter().map(|published| published.report().counters.sessions).sum()
}

/// How often the fleet's health and, while draining, its sessions are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);
