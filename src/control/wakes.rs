//! What wakes the control thread: signals, requests, news of the fleet, and time.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::http::Command;
use crate::membership::Known;
use ringgate_process::signals::{Signals, Told};

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
    Told(Told),
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
            told = self.signals.told() => Event::Told(told),
            Some(command) = self.commands.recv() => Event::Command(command),
            _ = self.watch.tick() => Event::Tick,
        }
    }
}

/// How often the fleet's health and, while draining, its sessions are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);
