//! What wakes a driver from another thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ringgate_os::notify;

/// Wakes a driver that waits. Cheap to clone, rings from any thread; a ring while the driver is
/// awake is not lost.
#[derive(Clone, Debug)]
pub struct Bell {
    counter: Arc<OwnedFd>,
}

impl Bell {
    /// A bell that nobody listens to yet.
    pub fn new() -> io::Result<Self> {
        Ok(Self { counter: Arc::new(notify::event_counter()?) })
    }

    /// Rings. The driver's next turn, or the one it waits in, reports
    /// [`IoEvent::Woken`](ringgate_batch::IoEvent); several rings before that are one.
    pub fn ring(&self) {
        notify::event_add(self.counter.as_fd());
    }

    /// Whether it was rung since this was last asked. For drivers.
    pub fn take(&self) -> bool {
        notify::event_take(self.counter.as_fd())
    }

    /// Waits until it is rung, or for as long as it was told. Meanwhile no socket has a thread to
    /// wake, so whoever sends to one is not charged for it. For drivers.
    pub(crate) fn wait(&self, at_most: Duration) -> io::Result<()> {
        match notify::wait(&mut [notify::awaited(self.counter.as_raw_fd())], at_most) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    /// Readable while the bell has rung and not been taken. For drivers that wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}
