//! What wakes the control thread: signals, requests, news of the fleet, and time.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::http::Command;
use crate::membership::Known;
use ringgate_os::process;

/// What a daemon is told by signals.
#[derive(Debug)]
pub struct Signals([(SignalKind, Signal); 4]);

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let caught = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        let [terminate, interrupt, hang_up, user] = kinds().map(caught);
        Ok(Self([terminate?, interrupt?, hang_up?, user?]))
    }

    /// Those that have come and that nobody has heard, by their numbers.
    pub(super) async fn unheard(&mut self) -> Vec<i32> {
        let mut unheard = Vec::new();
        while unheard.len() < UNHEARD_MAX
            && let Ok(kind) = tokio::time::timeout(AT_ONCE, self.next()).await
        {
            unheard.push(kind.as_raw_value());
        }
        unheard
    }

    /// Has this process hear signals that were meant for the gateway and have reached the process
    /// before.
    pub(super) fn raise(numbers: &[i32]) {
        let is_ours = |number: &&i32| kinds().iter().any(|kind| kind.as_raw_value() == **number);
        for number in numbers.iter().filter(is_ours).take(UNHEARD_MAX) {
            process::raise(*number);
        }
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

fn kinds() -> [SignalKind; 4] {
    let [terminate, interrupt] = [SignalKind::terminate(), SignalKind::interrupt()];
    [terminate, interrupt, SignalKind::hangup(), SignalKind::user_defined2()]
}

/// A signal that has come is heard within this.
const AT_ONCE: Duration = Duration::from_millis(1);

/// More than anybody sends within moments.
const UNHEARD_MAX: usize = 16;

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
