//! The table of now, for all workers, and the thread that makes a new one when the kernel has news.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Table;
use crate::netlink::{Asking, Listening, Snapshot};
use ringgate_os::notify;

/// The table of now. Whoever uses it looks at the number first, and takes the table when that has
/// changed.
#[derive(Debug)]
pub struct Routes {
    number: AtomicU64,
    table: Mutex<Arc<Table>>,
}

impl Routes {
    /// Routes that are those of a table.
    pub fn new(table: Table) -> Self {
        Self { number: AtomicU64::new(1), table: Mutex::new(Arc::new(table)) }
    }

    /// Which table it is, counted from 1.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// The table of now.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on it is this one.
    pub fn exchange(&self, table: Table) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.number.fetch_add(1, Ordering::Release);
    }
}

/// A table, and what it takes to keep it. Its thread comes later, when the process has given up
/// what a thread should not have.
#[derive(Debug)]
pub struct Prepared {
    listening: Listening,
    asking: Asking,
    interface: u32,
    routes: Arc<Routes>,
    snapshot: Snapshot,
}

impl Prepared {
    /// Reads the table for an interface.
    pub fn new(interface: u32) -> io::Result<Self> {
        // What changes while the first table is read is heard afterwards.
        let listening = Listening::open()?;
        let mut asking = Asking::open()?;
        let snapshot = asking.snapshot()?;
        let routes = Arc::new(Routes::new(Table::of(&snapshot, interface)));
        Ok(Self { listening, asking, interface, routes, snapshot })
    }

    /// What is kept.
    pub const fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// What the table was made of.
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Starts to keep it. Whoever else wants to know is told whenever anything has changed.
    pub fn start(self, tell: impl FnMut(Snapshot) + Send + 'static) -> io::Result<Watch> {
        let Self { listening, asking, interface, routes, snapshot } = self;
        let stop = Arc::new(notify::event_counter()?);
        let keeper = Keeper {
            listening,
            asking,
            interface,
            routes: Arc::clone(&routes),
            stop: Arc::clone(&stop),
            known: snapshot,
            tell,
        };
        let thread = std::thread::Builder::new().name(String::from("routes"));
        let thread = thread.spawn(move || keeper.run())?;
        Ok(Watch { routes, stop, thread: Some(thread) })
    }
}

/// The thread that keeps the table, until this is dropped.
#[derive(Debug)]
pub struct Watch {
    routes: Arc<Routes>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Reads the table for an interface, and starts to keep it.
    pub fn start(interface: u32) -> io::Result<Self> {
        Prepared::new(interface)?.start(drop)
    }

    /// What it keeps.
    pub const fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        notify::event_add(self.stop.as_fd());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Keeper<T> {
    listening: Listening,
    asking: Asking,
    interface: u32,
    routes: Arc<Routes>,
    stop: Arc<OwnedFd>,
    /// What the last table was made of.
    known: Snapshot,
    tell: T,
}

impl<T: FnMut(Snapshot)> Keeper<T> {
    fn run(mut self) {
        while !self.wait(true, AT_LEAST_EVERY) {
            if self.listening.take() {
                // More comes in the wake of what has come.
                if self.wait(false, SETTLE) {
                    return;
                }
                self.listening.take();
            }
            // One that cannot be read now is read again before long.
            let Ok(snapshot) = self.asking.snapshot() else { continue };
            if snapshot == self.known {
                continue;
            }
            let table = Table::of(&snapshot, self.interface);
            if table != *self.routes.table() {
                self.routes.exchange(table);
            }
            self.known.clone_from(&snapshot);
            (self.tell)(snapshot);
        }
    }

    /// Waits for news or for so long. Returns whether it is over.
    fn wait(&self, for_news: bool, at_most: Duration) -> bool {
        let stop = notify::awaited(self.stop.as_raw_fd());
        let news = notify::awaited(self.listening.as_fd().as_raw_fd());
        let mut awaited = [stop, news];
        let count = if for_news { 2 } else { 1 };
        let _ = notify::wait(&mut awaited[..count], at_most);
        awaited[0].revents != 0
    }
}

/// What changes together is read once.
const SETTLE: Duration = Duration::from_millis(20);

/// Should word get lost all the same.
const AT_LEAST_EVERY: Duration = Duration::from_secs(5);
