//! What workers have recorded of latencies: it follows when players do not wait any more.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::control::ControlLoop;
use crate::control::latency::parties;
use ringgate_gate::Party;
use ringgate_os::shared;
use ringgate_process::handover::memory::filled;
use ringgate_process::handover::{Channel, Message};
use ringgate_process::signals::Signals;
use ringgate_worker::Published;
use ringgate_worker::handover::Recorded;

impl ControlLoop {
    /// Passes on what the workers had recorded when they ended, and nobody had asked for. It is not
    /// worth an error: the successor records what it sees itself. With it go signals that have come
    /// too late for this process.
    pub(in crate::control) fn tell_recorded(&mut self, signals: Vec<i32>) {
        let Some(heir) = self.heir.take() else { return };
        let names = parties(&self.view.live().setup);
        let recorder =
            |it: &Arc<Published>| it.exchange(None).map_or_else(Vec::new, |it| it.recorded(&names));
        let recorded: Vec<Recorded> = self.view.published().iter().map(recorder).collect();
        let recorded = serde_json::to_vec(&recorded).expect("it has no maps");
        let Ok(memory) = filled(&recorded) else { return };
        let message = Message::Recorded { recorded_bytes: recorded.len() as u64, signals };
        if heir.say(&message, &[memory.fd()]).is_ok() {
            // It says so when it has read that, and it would be wiped.
            drop(heir.hear(READ_WITHIN));
        }
    }
}

/// Waits for what the process before this one has recorded, and adds it to what its workers' heirs
/// have.
pub(in crate::control) fn hear_recorded(
    channel: &Channel,
    published: &[Arc<Published>],
    names: &[(Party, String)],
) {
    let heard = channel.hear(RECORDED_WITHIN);
    let Ok((Message::Recorded { recorded_bytes, signals }, fds)) = heard else { return };
    Signals::raise(&signals);
    let Some(recorded) =
        fds.first().and_then(|fd| read_recorded(fd, recorded_bytes, published.len()))
    else {
        return tracing::warn!("what the process before has recorded is not to be read");
    };
    let _ = channel.say(&Message::Read, &[]);
    for (published, recorded) in published.iter().zip(&recorded) {
        published.go_on(recorded, names);
    }
}

fn read_recorded(fd: &OwnedFd, bytes: u64, workers: usize) -> Option<Vec<Recorded>> {
    let max = workers * RECORDED_BYTES_MAX;
    let len = usize::try_from(bytes).ok().filter(|len| *len <= max)?;
    let mut copy = vec![0; len];
    shared::read(fd.as_fd(), 0, &mut copy).ok()?;
    serde_json::from_slice(&copy).ok()
}

/// The successor does nothing else with it.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Its last answers come first.
const RECORDED_WITHIN: Duration = Duration::from_secs(10);

/// More than a worker can have recorded.
const RECORDED_BYTES_MAX: usize = 8 << 20;
