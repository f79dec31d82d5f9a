//! What wakes the control thread: signals, requests, news of the fleet, and time.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::http::Command;
use crate::membership::Known;

/// What a daemon is told by signals.
#[derive(Debug)]
pub struct Signals([(SignalKind, Signal); 4]);

impl Signals {
    fn listen() -> io::Result<Self> {
        let caught = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        Ok(Self([
            caught(SignalKind::terminate())?,
            caught(SignalKind::interrupt())?,
            caught(SignalKind::hangup())?,
            caught(SignalKind::user_defined2())?,
        ]))
    }

    /// The next one.
    pub async fn next(&mut self) -> SignalKind {
        let [terminate, interrupt, hang_up, user] = &mut self.0;
        tokio::select! {
            _ = terminate.1.recv() => terminate.0,
            _ = interrupt.1.recv() => interrupt.0,
            _ = hang_up.1.recv() => hang_up.0,
            _ = user.1.recv() => user.0,
        }
    }
}

/// What wakes the control thread.
pub(super) struct Events {
    pub(super) signals: Signals,
    commands: mpsc::Receiver<Command>,
    watch: tokio::time::Interval,
    /// What is known of the fleet, where the gateway is in one.
    pub(super) fleet: Option<watch::Receiver<Arc<Known>>>,
}

/// One of them.
pub(super) enum Event {
    Command(Command),
    Reload,
    Upgrade,
    Terminate,
    /// Something else is known of the fleet.
    Fleet,
    Tick,
}

impl Events {
    pub(super) fn listen(commands: mpsc::Receiver<Command>) -> io::Result<Self> {
        Ok(Self {
            signals: Signals::listen()?,
            commands,
            watch: tokio::time::interval(WATCH_EVERY),
            fleet: None,
        })
    }

    pub(super) async fn next(&mut self) -> Event {
        let fleet = async {
            match &mut self.fleet {
                Some(known) => {
                    if known.changed().await.is_err() {
                        // Its thread has ended before this one: nothing comes any more.
                        pending::<()>().await;
                    }
                }
                None => pending().await,
            }
        };
        tokio::select! {
            () = fleet => Event::Fleet,
            signal = self.signals.next() => match signal {
                kind if kind == SignalKind::hangup() => Event::Reload,
                kind if kind == SignalKind::user_defined2() => Event::Upgrade,
                _ => Event::Terminate,
            },
            Some(command) = self.commands.recv() => Event::Command(command),
            _ = self.watch.tick() => Event::Tick,
        }
    }
}

/// How often the fleet's health and, while draining, its sessions are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);
