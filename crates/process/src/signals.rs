//! Signals: what a process that serves is told by the service manager, and by whoever may.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringgate_os::process;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Whether there are descriptors left for a runtime that hears signals: Tokio panics without those
/// of the first one.
pub fn check_room() -> io::Result<()> {
    let pairs = [(); RUNTIME_PAIRS].map(|()| UnixStream::pair());
    pairs.into_iter().try_for_each(|pair| pair.map(drop))
}

/// What a signal tells a daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// To read its file again.
    Reload,
    /// To hand over to the next release.
    Upgrade,
    /// To end.
    End,
}

/// What a daemon is told by signals.
#[derive(Debug)]
pub struct Signals([(SignalKind, Signal); 4]);

impl Signals {
    /// Hears them from now on. To be called in a runtime.
    pub fn listen() -> io::Result<Self> {
        let caught = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        let [terminate, interrupt, hang_up, user] = kinds().map(caught);
        Ok(Self([terminate?, interrupt?, hang_up?, user?]))
    }

    /// Those that have come and that nobody has heard, by their numbers.
    pub async fn unheard(&mut self) -> Vec<i32> {
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
    pub fn raise(numbers: &[i32]) {
        let is_ours = |number: &&i32| kinds().iter().any(|kind| kind.as_raw_value() == **number);
        for number in numbers.iter().filter(is_ours).take(UNHEARD_MAX) {
            process::raise(*number);
        }
    }

    /// What the next one tells. That is said in the log.
    pub async fn told(&mut self) -> Told {
        let (told, what, by, sentence) = match self.next().await {
            it if it == SignalKind::hangup() => {
                (Told::Reload, "reload", "SIGHUP", "told to reload")
            }
            it if it == SignalKind::user_defined2() => {
                (Told::Upgrade, "upgrade", "SIGUSR2", "told to hand over to the next release")
            }
            _ => (Told::End, "drain", "a signal", "told to end"),
        };
        tracing::info!(event = "asked", what, by, "{sentence}");
        told
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

/// A runtime takes five descriptors: what it waits with, and its pair for signals once more.
const RUNTIME_PAIRS: usize = 4;

/// More than anybody sends within moments.
const UNHEARD_MAX: usize = 16;
