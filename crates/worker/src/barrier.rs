//! The barrier at which all workers of a fleet stand still together, so that the next process can
//! have them.
//!
//! A worker that is wanted there leaves its loop and does as it is told, order by order: turns that
//! take in what was under way and ask for nothing, then the writing of its state, and in the end it
//! goes on or leaves. While it stands it is as if it slept: what arrives waits in its sockets.
//!
//! Some orders need no standing: they are done between two turns ([`ahead`](super::ahead)).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use super::Fleet;
use super::ahead::{Lent, Part, Scribe};
use super::mailbox::Post;
use crate::handover::{CardGiven, SocketRow};
use ringgate_gate::Setup;
use ringgate_gate::handover::{Format, Leaving, Rest, Sink};
use ringgate_os::clock;
use ringgate_os::publishing::{Request, Roll};
use ringgate_os::shared::Writing;
use ringgate_process::handover::Extent;

/// A worker's end.
pub(super) struct Stand {
    call: Arc<AtomicU8>,
    orders: Receiver<Order>,
}

/// The fleet's end.
#[derive(Clone, Debug)]
pub(super) struct Helm {
    call: Arc<AtomicU8>,
    orders: Sender<Order>,
}

/// What a worker looks for before each turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// Nothing: it turns.
    None,
    /// There is an order for between two turns.
    Order,
    /// It should stand still.
    Stand,
}

/// What a worker is told.
pub(super) enum Order {
    /// Between two turns: second descriptors of the listeners' sockets.
    Lend(Sender<Result<Lent, String>>),
    /// After each turn: write a few places into this memory, until it is full or all are written.
    Ahead(Writing, Sender<Result<Part, String>>),
    /// Nobody takes over. What was written is forgotten.
    Forget,
    /// After the next turn: publish, and answer.
    Publish(Request),
    /// Take in what is under way and ask for nothing.
    Turn(Sender<io::Result<()>>),
    /// Write the next part of what has changed since, and of everything else that it knows.
    Export(Writing, Sender<Result<Exported, String>>),
    /// Go on.
    Resume,
    /// Another process goes on.
    Leave,
}

/// A part of what a worker has written.
#[derive(Debug)]
pub(super) struct Exported {
    pub(super) worker: u16,
    pub(super) memory: Writing,
    pub(super) bytes: usize,
    pub(super) is_last: bool,
    /// With the first part.
    pub(super) gift: Option<Gift>,
}

/// What a worker gives besides its state.
#[derive(Debug)]
pub struct Gift {
    /// Its sockets that were not lent before.
    pub sockets: Vec<(SocketRow, OwnedFd)>,
    /// What its driver and its loop have counted.
    pub counted: Vec<u64>,
    /// What it has of its queue.
    pub card: CardGiven,
}

/// A part of the rest of all streams.
#[derive(Debug)]
pub struct PartOfRest {
    /// How long that of each stream is. It is whole where nothing comes behind it.
    pub extent: Extent,
    /// With the first part: of each worker.
    pub gifts: Vec<Gift>,
}

/// Both ends.
pub(super) fn barrier() -> (Stand, Helm) {
    let call = Arc::new(AtomicU8::new(CALL_NONE));
    let (sender, orders) = mpsc::channel();
    (Stand { call: Arc::clone(&call), orders }, Helm { call, orders: sender })
}

impl Stand {
    /// What is wanted.
    #[inline]
    pub(super) fn call(&self) -> Call {
        match self.call.load(Ordering::Relaxed) {
            CALL_NONE => Call::None,
            CALL_ORDER => Call::Order,
            _ => Call::Stand,
        }
    }

    /// The next order for between two turns, if one waits.
    pub(super) fn next_order(&self) -> Option<Order> {
        // First, or one that comes now would not be heard of. A call to stand is left as it is.
        let (from, to) = (CALL_ORDER, CALL_NONE);
        let _ = self.call.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        self.orders.try_recv().ok()
    }

    /// The next order. Where nobody gives orders any more, to go on.
    pub(super) fn order(&self) -> Order {
        self.orders.recv().unwrap_or(Order::Resume)
    }
}

/// What asks all workers to publish, from wherever it is.
#[derive(Clone)]
pub struct Publishers {
    helms: Vec<Helm>,
    posts: Vec<Post>,
}

impl Publishers {
    /// Asks each to publish once after its next turn.
    pub fn ask(&self, roll: &mut Roll) {
        for (worker, (helm, post)) in self.helms.iter().zip(&self.posts).enumerate() {
            let request = roll.request(format!("worker {worker}"));
            // One that has ended answers nothing.
            let _ = helm.call(Order::Publish(request));
            post.wake();
        }
    }
}

/// A fleet whose workers stand. They go on when this is dropped.
pub struct Frozen<'a> {
    fleet: &'a Fleet,
    is_over: bool,
    /// Whose streams are written to their end; the shared stream is the last.
    is_written: Vec<bool>,
}

/// What a successor has to compare itself with: the beginning of the shared stream, and the
/// listeners that drain. There are no keys in it.
pub fn write_layout(setup: &Setup, workers: u16) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; LAYOUT_BYTES_MAX];
    let mut sink = Sink::new(&mut bytes);
    let written = Format::of(setup, workers, clock::boot_id()).write(&mut sink);
    let written = written.and_then(|()| Leaving::write_all(setup, &mut sink));
    let len = sink.len();
    bytes.truncate(len);
    written.map(|()| bytes).map_err(|why| why.to_string())
}

impl Fleet {
    /// What asks the workers to publish.
    pub fn publishers(&self) -> Publishers {
        Publishers { helms: self.helms.clone(), posts: self.posts.clone() }
    }

    /// Has all workers stand still, with nothing under way: no receive, and no mail for any of
    /// them. Where that cannot be had in time they go on.
    pub fn freeze(&self) -> Result<Frozen<'_>, String> {
        let is_written = vec![false; self.helms.len() + 1];
        self.is_shut.set(true);
        let frozen = Frozen { fleet: self, is_over: false, is_written };
        for (helm, post) in self.helms.iter().zip(&self.posts) {
            helm.call.store(CALL_STAND, Ordering::Relaxed);
            post.wake();
        }
        for _ in 0..ROUNDS_MAX {
            frozen.turn_all()?;
            // No worker turns now, and the hatch is shut, so it stays like this. What the watch
            // says of udp servers is no matter: a successor's looks for itself.
            if self.posts.iter().all(|post| !post.has_mail()) {
                return Ok(frozen);
            }
        }
        Err("the workers do not come to rest: they always have mail for each other".to_owned())
    }
}

impl Frozen<'_> {
    /// Has every worker write the next part of the rest of its state, each into memory of its own,
    /// and writes the next part of the rest of what they share meanwhile.
    pub fn export(
        &mut self,
        scribe: &mut Scribe,
        shared: &mut Writing,
        workers: &mut Vec<Writing>,
    ) -> Result<PartOfRest, String> {
        let (reply, replies) = mpsc::channel();
        let mut worker_bytes = vec![0; workers.len()];
        let mut idle: Vec<_> = workers.drain(..).map(Some).collect();
        let mut asked = 0;
        for (at, (helm, memory)) in self.fleet.helms.iter().zip(&mut idle).enumerate() {
            if !self.is_written[at]
                && let Some(memory) = memory.take()
            {
                helm.give(Order::Export(memory, reply.clone()))?;
                asked += 1;
            }
        }
        drop(reply);
        let shared_bytes = self.export_shared(scribe, shared)?;
        let all = hear_all(&replies, asked, REPLY_WITHIN)?;
        let mut all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|exported| exported.worker);
        let mut gifts = Vec::new();
        for Exported { worker, memory, bytes, is_last, gift } in all {
            let at = usize::from(worker);
            (worker_bytes[at], self.is_written[at]) = (bytes as u64, is_last);
            idle[at] = Some(memory);
            gifts.extend(gift);
        }
        workers.extend(idle.into_iter().flatten());
        let is_whole = self.is_written.iter().all(|is_written| *is_written);
        let extent = Extent { shared_bytes, worker_bytes, is_whole };
        Ok(PartOfRest { extent, gifts })
    }

    fn export_shared(&mut self, scribe: &mut Scribe, memory: &mut Writing) -> Result<u64, String> {
        let at = self.fleet.helms.len();
        if self.is_written[at] {
            return Ok(0);
        }
        let mut sink = Sink::new(memory.bytes_mut());
        let written = scribe.shared_mut().rest(&self.fleet.claims, &mut sink);
        let bytes = sink.len();
        memory.use_up_to(bytes);
        self.is_written[at] = written.map_err(|why| why.to_string())? == Rest::All;
        Ok(bytes as u64)
    }

    /// They go on: nobody else has them.
    pub fn resume(mut self) {
        self.go_on();
    }

    /// Another process goes on. They leave their last counts and end.
    pub fn leave(mut self) {
        self.end(|| Order::Leave);
        self.fleet.spreading.as_ref().inspect(|it| it.end());
    }

    fn go_on(&mut self) {
        self.end(|| Order::Resume);
        self.fleet.is_shut.set(false);
    }

    fn turn_all(&self) -> Result<(), String> {
        let (reply, replies) = mpsc::channel();
        for helm in &self.fleet.helms {
            helm.give(Order::Turn(reply.clone()))?;
        }
        drop(reply);
        let turned = hear_all(&replies, self.fleet.helms.len(), REPLY_WITHIN)?;
        let turned = turned.into_iter().collect::<io::Result<()>>();
        turned.map_err(|why| format!("a worker does not come to rest: {why}"))
    }

    fn end(&mut self, order: impl Fn() -> Order) {
        self.is_over = true;
        for helm in &self.fleet.helms {
            // First, or it would stand again at once.
            helm.call.store(CALL_NONE, Ordering::Relaxed);
            let _ = helm.give(order());
        }
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.go_on();
        }
    }
}

/// The replies of so many workers, each in time.
pub(super) fn hear_all<T>(
    replies: &Receiver<T>,
    count: usize,
    within: Duration,
) -> Result<Vec<T>, String> {
    let hear = |_| {
        replies.recv_timeout(within).map_err(|why| match why {
            RecvTimeoutError::Timeout => "a worker does not turn".to_owned(),
            RecvTimeoutError::Disconnected => GONE.to_owned(),
        })
    };
    (0..count).map(hear).collect()
}

impl Helm {
    /// Gives an order for between two turns. A worker that stands finds it, too.
    pub(super) fn call(&self, order: Order) -> Result<(), String> {
        self.give(order)?;
        let (from, to) = (CALL_NONE, CALL_ORDER);
        let _ = self.call.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        Ok(())
    }

    fn give(&self, order: Order) -> Result<(), String> {
        self.orders.send(order).map_err(|_| GONE.to_owned())
    }
}

const CALL_NONE: u8 = 0;
const CALL_ORDER: u8 = 1;
const CALL_STAND: u8 = 2;

const GONE: &str = "a worker has ended";

/// Names and rules of as many listeners and backends as there may be.
const LAYOUT_BYTES_MAX: usize = 4 << 20;

/// Rounds of mail between workers: one that is steered causes one more, hardly ever two.
const ROUNDS_MAX: usize = 16;

/// A worker that turns at all turns several times within this.
const REPLY_WITHIN: Duration = Duration::from_secs(2);
