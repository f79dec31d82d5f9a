//! What is around a worker: how it is reached, and where it leaves what it has counted. It is there
//! before the worker, so that a control plane can be made before anybody waits for it.

use std::sync::Arc;

use super::barrier::{self, Helm, Stand};
use super::mailbox::{Mailbox, Post};
use super::report::Published;
use super::stages::Recorder;
use ringgate_io::SocketDriver;
use ringgate_os::clock::Clock;
use ringgate_trunk::worker::{Lanes, WorkerInbox};

/// The worker's ends of it.
pub(super) struct Shell {
    pub(super) mailbox: Mailbox,
    pub(super) published: Arc<Published>,
    pub(super) stand: Stand,
    pub(super) helm: Helm,
    pub(super) stages: Box<Recorder>,
    pub(super) lanes: Lanes,
    pub(super) desk: WorkerInbox,
}

impl Shell {
    /// For a worker with this driver.
    pub(super) fn new(driver: &impl SocketDriver, clock: Clock) -> Self {
        let (stand, helm) = barrier::barrier();
        let lanes = Lanes::new(clock);
        let desk = lanes.desk(driver.bell());
        Self {
            mailbox: Mailbox::new(driver.bell()),
            published: Arc::new(Published::new()),
            stand,
            helm,
            stages: Box::new(Recorder::new()),
            lanes,
            desk,
        }
    }

    /// How others reach it.
    pub(super) fn post(&self) -> Post {
        self.mailbox.post()
    }
}
