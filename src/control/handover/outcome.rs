//! What comes of a hand-over: who is told, and how long players have waited.

use std::process::Child;

use tokio::sync::oneshot;

use crate::control::view::View;
use ringgate_process::pages::asked::{HandedOver, Upgraded};
use ringgate_worker::Copied;

/// Somebody who wants to take over.
pub(in crate::control) struct Asked {
    /// A program that the daemon has started.
    pub(super) child: Option<Child>,
    /// Who wants to know what comes of it.
    pub(super) reply: Option<oneshot::Sender<Upgraded>>,
}

impl Asked {
    pub(super) fn fail(mut self, why: &str) {
        tracing::error!(event = "hand_over_refused", why, "the gateway was not handed over: {why}");
        if let Some(mut child) = self.child.take() {
            // It is not the owner, and would find that out by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(why.to_owned())));
        }
    }

    pub(super) fn succeed(&mut self, pid: u32, pause: &Pause) {
        let Pause { rest_us, write_us, give_us, take_us, copied } = *pause;
        let pause_us = rest_us + write_us + give_us + take_us;
        tracing::info!(
            event = "handed_over",
            pid,
            pause_us,
            rest_us,
            write_us,
            give_us,
            take_us,
            copied_bytes = copied.bytes,
            copied_rounds = copied.rounds,
            "process {pid} has taken the gateway over; players waited {pause_us} us"
        );
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Ok(HandedOver { pid, pause_us })));
        }
    }
}

/// What the pause was made of, in microseconds, and what it was spared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    /// Workers came to rest.
    pub(super) rest_us: u64,
    /// They wrote what had changed.
    pub(super) write_us: u64,
    /// That was passed on, with sockets.
    pub(super) give_us: u64,
    /// The successor took it.
    pub(super) take_us: u64,
    pub(super) copied: Copied,
}

/// Measures one part after the other.
pub(super) struct Lap {
    pub(super) since_ns: u64,
}

impl Lap {
    pub(super) fn start(view: &View) -> Self {
        Self { since_ns: view.now_ns() }
    }

    /// Since the part before.
    pub(super) fn us(&mut self, view: &View) -> u64 {
        let now_ns = view.now_ns();
        (now_ns - std::mem::replace(&mut self.since_ns, now_ns)) / 1000
    }
}
