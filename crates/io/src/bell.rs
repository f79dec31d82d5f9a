//! What wakes a driver from another thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

use ringgate_os::notify;

/// Wakes a driver that waits. Cheap to clone, rings from any thread; a ring while the driver is
/// awake is not lost. Of all rings until the driver takes them, the first costs a system call.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    counter: OwnedFd,
    /// Since it was last taken.
    is_rung: AtomicBool,
}

impl Bell {
    /// A bell that nobody listens to yet.
    pub fn new() -> io::Result<Self> {
        let (counter, is_rung) = (notify::event_counter()?, AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { counter, is_rung })))
    }

    /// Rings. The driver's next turn, or the one it waits in, reports
    /// [`IoEvent::Woken`](ringgate_batch::IoEvent); several rings before that are one.
    pub fn ring(&self) {
        // What it is rung for is there before whoever takes it looks.
        fence(Ordering::SeqCst);
        if !self.0.is_rung.swap(true, Ordering::AcqRel) {
            notify::event_add(self.fd());
        }
    }

    /// Whether it was rung since this was last asked. Whoever asks looks for what it was rung for
    /// behind that. For drivers.
    pub fn take(&self) -> bool {
        let was_rung = notify::event_take(self.fd());
        // Behind the counter: a ring in between would find itself rung, and nothing to wait for.
        self.0.is_rung.store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        was_rung
    }

    /// Waits until it is rung, or for as long as it was told. Meanwhile no socket has a thread to
    /// wake, so whoever sends to one is not charged for it. For drivers.
    pub(crate) fn wait(&self, at_most: Duration) -> io::Result<()> {
        match notify::wait(&mut [notify::awaited(self.fd().as_raw_fd())], at_most) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    /// Readable while the bell has rung and not been taken. For drivers that wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.counter.as_fd()
    }
}
