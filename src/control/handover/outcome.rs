//! What comes of a hand-over: who is told, and how long players have waited.

use tokio::sync::oneshot;

use ringgate_process::handover::Pause;
use ringgate_process::pages::asked::{HandedOver, Upgraded};
use ringgate_worker::Copied;

/// Somebody who wants to take over.
pub(in crate::control) struct Asked {
    /// Who wants to know what comes of it.
    pub(super) reply: Option<oneshot::Sender<Upgraded>>,
}

impl Asked {
    pub(super) fn fail(mut self, why: &str) {
        tracing::error!(event = "hand_over_refused", why, "the gateway was not handed over: {why}");
        if let Some(reply) = self.reply.take() {
            drop(reply.send(Err(why.to_owned())));
        }
    }

    pub(super) fn succeed(&mut self, pid: u32, pause: &Pause, copied: Copied) {
        let (pause_us, Pause { rest_us, write_us, give_us, take_us }) = (pause.us(), *pause);
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
