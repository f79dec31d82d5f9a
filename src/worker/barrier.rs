//! The barrier at which all workers of a fleet stand still together, so that the next process can
//! have them.
//!
//! A worker that is wanted there leaves its loop and does as it is told, order by order: turns that
//! take in what was under way and ask for nothing, then the writing of its state, and in the end it
//! goes on or leaves. While it stands it is as if it slept: what arrives waits in its sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::Fleet;
use crate::handover::SocketRow;
use ringgate_gate::Setup;
use ringgate_gate::handover::{Format, SharedExport, Sink, bytes_max};
use ringgate_os::clock;
use ringgate_os::shared::Writing;

/// A worker's end.
pub(super) struct Stand {
    is_wanted: Arc<AtomicBool>,
    orders: Receiver<Order>,
}

/// The fleet's end.
#[derive(Debug)]
pub(super) struct Helm {
    is_wanted: Arc<AtomicBool>,
    orders: Sender<Order>,
}

/// What a worker that stands is told.
pub(super) enum Order {
    /// Take in what is under way and ask for nothing.
    Turn(Sender<io::Result<()>>),
    /// Write everything that it knows into this memory.
    Export(Writing, Sender<Result<Exported, String>>),
    /// Go on.
    Resume,
    /// Another process goes on.
    Leave,
}

/// What a worker has written.
#[derive(Debug)]
pub struct Exported {
    /// Which worker.
    pub worker: u16,
    /// Its state, wiped when this is dropped.
    pub memory: Writing,
    /// How long that is.
    pub bytes: usize,
    /// Its sockets.
    pub sockets: Vec<(SocketRow, OwnedFd)>,
    /// What its driver and its loop have counted.
    pub counted: Vec<u64>,
}

/// Both ends.
pub(super) fn barrier() -> (Stand, Helm) {
    let is_wanted = Arc::new(AtomicBool::new(false));
    let (sender, orders) = mpsc::channel();
    (Stand { is_wanted: Arc::clone(&is_wanted), orders }, Helm { is_wanted, orders: sender })
}

impl Stand {
    /// Whether it should stop turning.
    #[inline]
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// The next order. Where nobody gives orders any more, to go on.
    pub(super) fn order(&self) -> Order {
        self.orders.recv().unwrap_or(Order::Resume)
    }
}

/// A fleet whose workers stand. They go on when this is dropped.
pub struct Frozen<'a> {
    fleet: &'a Fleet,
    is_over: bool,
}

/// Begins the memory for what workers share: what a successor has to compare itself with. Returns
/// how long that is.
pub fn write_layout(setup: &Setup, workers: u16, memory: &mut Writing) -> Result<usize, String> {
    let mut sink = Sink::new(memory.bytes_mut());
    let written = Format::of(setup, workers, clock::boot_id()).write(&mut sink);
    let bytes = sink.len();
    memory.use_up_to(bytes);
    written.map(|()| bytes).map_err(|why| why.to_string())
}

/// How much memory one stream of a fleet may take.
pub fn stream_bytes_max(setup: &Setup) -> usize {
    bytes_max(setup)
}

impl Fleet {
    /// Has all workers stand still, with nothing under way: no receive, and no mail between them.
    /// Where that cannot be had in time they go on.
    pub fn freeze(&self) -> Result<Frozen<'_>, String> {
        let frozen = Frozen { fleet: self, is_over: false };
        for (helm, post) in self.helms.iter().zip(&self.posts) {
            helm.is_wanted.store(true, Ordering::Relaxed);
            post.wake();
        }
        for _ in 0..ROUNDS_MAX {
            frozen.turn_all()?;
            // Nobody who could send turns now, so it stays like this.
            if self.posts.iter().all(|post| !post.has_mail()) {
                return Ok(frozen);
            }
        }
        Err("the workers do not come to rest: they always have mail for each other".to_owned())
    }
}

impl Frozen<'_> {
    /// Writes what the workers share behind the layout. Returns how long that is then.
    pub fn export_shared(&self, memory: &mut Writing, layout: usize) -> Result<usize, String> {
        let mut sink = Sink::resume(memory.bytes_mut(), layout);
        let written = SharedExport::new().rest(&self.fleet.claims, &mut sink);
        let bytes = sink.len();
        memory.use_up_to(bytes);
        written.map(|()| bytes).map_err(|why| why.to_string())
    }

    /// Has every worker write its state, each into memory of its own.
    pub fn export(&self, memories: Vec<Writing>) -> Result<Vec<Exported>, String> {
        let (reply, replies) = mpsc::channel();
        for (helm, memory) in self.fleet.helms.iter().zip(memories) {
            helm.give(Order::Export(memory, reply.clone()))?;
        }
        drop(reply);
        let mut all = self.hear_all(&replies)?.into_iter().collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|exported| exported.worker);
        Ok(all)
    }

    /// They go on: nobody else has them.
    pub fn resume(mut self) {
        self.end(|| Order::Resume);
    }

    /// Another process goes on. They leave their last counts and end.
    pub fn leave(mut self) {
        self.end(|| Order::Leave);
    }

    fn turn_all(&self) -> Result<(), String> {
        let (reply, replies) = mpsc::channel();
        for helm in &self.fleet.helms {
            helm.give(Order::Turn(reply.clone()))?;
        }
        drop(reply);
        let turned = self.hear_all(&replies)?.into_iter().collect::<io::Result<()>>();
        turned.map_err(|why| format!("a worker cannot let go of its sockets: {why}"))
    }

    fn hear_all<T>(&self, replies: &Receiver<T>) -> Result<Vec<T>, String> {
        let hear = |_| {
            replies.recv_timeout(REPLY_WITHIN).map_err(|why| match why {
                RecvTimeoutError::Timeout => "a worker does not turn".to_owned(),
                RecvTimeoutError::Disconnected => GONE.to_owned(),
            })
        };
        (0..self.fleet.helms.len()).map(hear).collect()
    }

    fn end(&mut self, order: impl Fn() -> Order) {
        self.is_over = true;
        for helm in &self.fleet.helms {
            // First, or it would stand again at once.
            helm.is_wanted.store(false, Ordering::Relaxed);
            let _ = helm.give(order());
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(|| Order::Resume);
        }
    }
}

impl Helm {
    fn give(&self, order: Order) -> Result<(), String> {
        self.orders.send(order).map_err(|_| GONE.to_owned())
    }
}

const GONE: &str = "a worker has ended";

/// Rounds of mail between workers: one that is steered causes one more, hardly ever two.
const ROUNDS_MAX: usize = 16;

/// A worker that turns at all turns several times within this.
const REPLY_WITHIN: Duration = Duration::from_secs(2);
