//! What the next process may know before the barrier, written by workers between their turns.
//!
//! Each worker writes its own stream, a few places of its tables after each turn, so that no player
//! waits for it. Memory goes back and forth: a part is written, the successor reads it, and the
//! next part takes its place, behind the [barrier](super::barrier) too. So the state is never there
//! a third time, however much it is.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use super::Fleet;
use super::barrier::{Helm, Order, hear_all};
use super::mailbox::Post;
use crate::handover::SocketRow;
use ringgate_gate::handover::{self, Export, SharedExport, Sink};
use ringgate_gate::{Claims, Gate};
use ringgate_os::shared::Writing;
use ringgate_process::handover::Extent;

/// The memory that one stream goes through. Builds for tests may have a smaller one, so that few
/// players make many parts.
pub fn window_bytes() -> usize {
    let asked =
        if cfg!(debug_assertions) { std::env::var("RINGGATE_WINDOW_BYTES").ok() } else { None };
    asked.and_then(|text| text.parse().ok()).unwrap_or(WINDOW_BYTES)
}

const WINDOW_BYTES: usize = 1 << 20;

/// A worker's part of it.
#[derive(Default)]
pub(super) struct Ahead {
    export: Option<Export>,
    task: Option<Task>,
    /// Who waits for the listeners' sockets.
    borrower: Option<Sender<Result<Lent, String>>>,
    /// By the numbers that they have here.
    lent: Vec<u32>,
}

/// Sockets, and what each is.
pub(super) type Lent = Vec<(SocketRow, OwnedFd)>;

/// Memory that is being filled.
struct Task {
    memory: Writing,
    bytes: usize,
    reply: Sender<Result<Part, String>>,
}

/// What a worker has written of its stream.
#[derive(Debug)]
pub(super) struct Part {
    worker: u16,
    memory: Writing,
    bytes: usize,
    /// It has come to the end of its tables.
    is_round: bool,
}

impl Ahead {
    /// Whether turns should follow each other at once.
    pub(super) const fn is_busy(&self) -> bool {
        self.task.is_some() || self.borrower.is_some()
    }

    /// Writes into this memory from now on.
    pub(super) fn begin(&mut self, memory: Writing, reply: Sender<Result<Part, String>>) {
        self.task = Some(Task { memory, bytes: 0, reply });
    }

    /// Lends the listeners' sockets as soon as all commands are done that have been given.
    pub(super) fn lend_soon(&mut self, reply: Sender<Result<Lent, String>>) {
        self.borrower = Some(reply);
    }

    /// Who waits for sockets.
    pub(super) const fn take_borrower(&mut self) -> Option<Sender<Result<Lent, String>>> {
        self.borrower.take()
    }

    /// Notes what was lent.
    pub(super) fn note_lent(&mut self, lent: &Lent) {
        self.lent = lent.iter().map(|(row, _)| row.id).collect();
    }

    /// Whether the successor has this socket.
    pub(super) fn is_lent(&self, id: u32) -> bool {
        self.lent.contains(&id)
    }

    /// Writes a few places more, and answers when the memory is full or all have been gone through.
    pub(super) fn write(&mut self, worker: u16, gate: &Gate) {
        let Some(task) = &mut self.task else { return };
        let export = self.export.get_or_insert_with(Export::new);
        let written = task.write(|sink| export.ahead(gate, sink, PLACES_A_TURN));
        let is_round = match written {
            Ok(handover::Ahead::Part) => return,
            Ok(handover::Ahead::Full) => Ok(false),
            Ok(handover::Ahead::Round) => Ok(true),
            Err(why) => Err(format!("worker {worker}: {why}")),
        };
        if let Some(Task { memory, bytes, reply }) = self.task.take() {
            let part = is_round.map(|is_round| Part { worker, memory, bytes, is_round });
            drop(reply.send(part));
        }
    }

    /// What has been told so far, for the rest of it.
    pub(super) fn export(&mut self) -> &mut Export {
        self.export.get_or_insert_with(Export::new)
    }

    /// Nobody takes over after all.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Task {
    fn write<T>(&mut self, write: impl FnOnce(&mut Sink<'_>) -> T) -> T {
        let Self { memory, bytes, .. } = self;
        let mut sink = Sink::resume(memory.bytes_mut(), *bytes);
        let done = write(&mut sink);
        *bytes = sink.len();
        memory.use_up_to(*bytes);
        done
    }
}

/// What has workers write ahead, from another thread. Dropped, they forget what they have written,
/// unless they were [frozen](Fleet::freeze) meanwhile.
pub struct Scribe {
    helms: Vec<Helm>,
    posts: Vec<Post>,
    claims: Arc<Claims>,
    shared: SharedExport,
    /// Who has come to the end in this round; the shared stream is the last.
    is_done: Vec<bool>,
    /// In this round, and in the one before.
    bytes: (u64, u64),
    rounds: u32,
    total_bytes: u64,
}

/// What was written ahead, all together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copied {
    /// How often all tables were gone through.
    pub rounds: u32,
    /// How much was written.
    pub bytes: u64,
}

impl Fleet {
    /// What has the workers write ahead.
    pub fn scribe(&self) -> Scribe {
        Scribe {
            helms: self.helms.clone(),
            posts: self.posts.clone(),
            claims: Arc::clone(&self.claims),
            shared: SharedExport::new(),
            is_done: vec![false; self.helms.len() + 1],
            bytes: (0, u64::MAX),
            rounds: 0,
            total_bytes: 0,
        }
    }
}

impl Scribe {
    /// Second descriptors of the sockets that listeners hear on, once all workers have done what
    /// they have been told.
    pub fn lend(&self) -> Result<Vec<(SocketRow, OwnedFd)>, String> {
        let (reply, replies) = mpsc::channel();
        for at in 0..self.helms.len() {
            self.order(at, Order::Lend(reply.clone()))?;
        }
        drop(reply);
        let lent = hear_all(&replies, self.helms.len(), PART_WITHIN)?;
        let mut all: Vec<_> =
            lent.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        all.sort_by_key(|(row, _)| row.worker);
        Ok(all)
    }

    /// Has the next part of each stream written into its memory: the shared one, and the workers'
    /// in their order. Returns how long each is, the shared one first; `None` if what is left is so
    /// little, or changes so fast, that it can as well wait for the barrier.
    pub fn write(
        &mut self,
        shared: &mut Writing,
        workers: &mut Vec<Writing>,
    ) -> Result<Option<Extent>, String> {
        if self.is_enough() {
            return Ok(None);
        }
        let (reply, replies) = mpsc::channel();
        let mut lengths = vec![0; workers.len()];
        let mut idle: Vec<_> = workers.drain(..).map(Some).collect();
        let mut asked = 0;
        for (at, memory) in idle.iter_mut().enumerate() {
            if !self.is_done[at]
                && let Some(memory) = memory.take()
            {
                self.order(at, Order::Ahead(memory, reply.clone()))?;
                asked += 1;
            }
        }
        drop(reply);
        let shared_bytes = self.write_shared(shared)?;
        for part in hear_all(&replies, asked, PART_WITHIN)? {
            let Part { worker, memory, bytes, is_round } = part?;
            let at = usize::from(worker);
            (lengths[at], self.is_done[at]) = (bytes as u64, is_round);
            idle[at] = Some(memory);
        }
        workers.extend(idle.into_iter().flatten());
        let bytes = shared_bytes + lengths.iter().sum::<u64>();
        self.bytes.0 += bytes;
        self.total_bytes += bytes;
        Ok(Some(Extent { shared_bytes, worker_bytes: lengths, is_whole: true }))
    }

    /// How much that was.
    pub const fn copied(&self) -> Copied {
        Copied { rounds: self.rounds, bytes: self.total_bytes }
    }

    /// At the end of a round: whether another one would not make the rest much shorter.
    fn is_enough(&mut self) -> bool {
        if !self.is_done.iter().all(|is_done| *is_done) {
            return false;
        }
        let (now, before) = self.bytes;
        self.bytes = (0, now);
        self.rounds += 1;
        self.is_done.fill(false);
        // The first has everything; the second what has changed during the first.
        let has_shrunk = now < before / 4 * 3;
        now <= ENOUGH_BYTES || self.rounds >= ROUNDS_MAX || self.rounds > 2 && !has_shrunk
    }

    fn write_shared(&mut self, memory: &mut Writing) -> Result<u64, String> {
        let done = self.helms.len();
        if self.is_done[done] {
            return Ok(0);
        }
        let mut sink = Sink::new(memory.bytes_mut());
        let written = loop {
            match self.shared.ahead(&self.claims, &mut sink, TOKENS_AT_ONCE) {
                // Workers wait for the claims meanwhile, but not for long.
                Ok(handover::Ahead::Part) => {}
                written => break written,
            }
        };
        let bytes = sink.len();
        memory.use_up_to(bytes);
        self.is_done[done] = written.map_err(|why| why.to_string())? == handover::Ahead::Round;
        Ok(bytes as u64)
    }

    /// For the rest of the shared stream, behind the barrier.
    pub(super) const fn shared_mut(&mut self) -> &mut SharedExport {
        &mut self.shared
    }

    fn order(&self, at: usize, order: Order) -> Result<(), String> {
        self.helms[at].call(order)?;
        self.posts[at].wake();
        Ok(())
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        for at in 0..self.helms.len() {
            let _ = self.order(at, Order::Forget);
        }
    }
}

/// Some tens of microseconds after each turn.
const PLACES_A_TURN: u32 = 64;

/// For as long as this takes nobody else comes to the claims.
const TOKENS_AT_ONCE: usize = 256;

/// What is written and read in a millisecond or two.
const ENOUGH_BYTES: u64 = 256 << 10;

/// Where players change faster than they can be copied, the rest stays what it is.
const ROUNDS_MAX: u32 = 6;

/// A part has a few thousand turns, and some other work may be done between them.
const PART_WITHIN: Duration = Duration::from_secs(10);
