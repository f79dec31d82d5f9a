//! What a gateway says of itself once: how its workers are reached, and when keys are moved on.

use std::path::PathBuf;

use crate::protocol::keys::Rekey;
use crate::worker::WorkerInbox;
use ringgate_os::clock::Clock;

/// What does not change while the gateway runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the workers' sockets are.
    pub run_dir: PathBuf,
    /// How many workers there are.
    pub workers: usize,
    /// Their desks, by which they are lent lanes; a worker that has none is reached by its socket
    /// alone.
    pub desks: Vec<WorkerInbox>,
    /// Differs from one start of the gateway to the next.
    pub incarnation: u64,
    /// The gateway's clock.
    pub clock: Clock,
    /// When keys are moved on.
    pub rekey: Rekey,
}
