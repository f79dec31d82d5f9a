//! Captures: players' datagrams on their way in and out, copied for an operator who has asked.
//!
//! A worker never waits for who reads: each has a bounded number of boxes for copies, which go to
//! the reader full and come back empty. What finds no empty box is counted as lost. All of a
//! capture's memory is made and given back by the reader's thread.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use crate::elsewhere::Elsewhere;
use crate::ids::{BindId, ListenerId, WorkerId};
use crate::prefix::Prefix;
use crate::store::table::Address;
use ringgate_batch::{Endpoint, LocalIp};
use ringgate_core::drops::DropReason;
use ringgate_core::limits::{LISTENERS_MAX, RX_DATAGRAM_BYTES};
use ringgate_core::sync::lock;

/// Which datagrams are meant. One has to be like everything that is said here.
#[derive(Clone, Debug, Default)]
pub struct Meant {
    /// Of this listener.
    pub listener: Option<ListenerId>,
    /// Of this player.
    pub client_id: Option<u64>,
    /// From or to an address that begins so.
    pub address: Option<Prefix>,
    /// Dropped for one of these reasons; whatever has become of them where there is none.
    pub reasons: Vec<DropReason>,
}

/// A datagram, and what has become of it.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Where it came in, or left, and where the player is.
    pub address: Address,
    /// At which of the listener's addresses.
    pub bind: BindId,
    /// Which of the host's addresses that was, where the listener's stands for several.
    pub local: LocalIp,
    /// It is for the player, and not of the player.
    pub is_outbound: bool,
    /// Who has received it, where that is not the worker that has decided about it.
    pub received_by: Option<Elsewhere>,
    /// Who the player is, if that is known.
    pub client_id: Option<u64>,
    /// Why it went no further, if it did not.
    pub dropped: Option<DropReason>,
    /// When the kernel received it, in nanoseconds since 1970; 0 where that is not known.
    pub kernel_ns: u64,
    /// The turn in which it was looked at or sent, in nanoseconds of the workers' clock.
    pub turn_ns: u64,
    /// It was longer than what can be received.
    pub is_cut: bool,
}

/// A datagram that was copied.
#[derive(Debug)]
pub struct Captured {
    /// What is known of it.
    pub seen: Seen,
    /// The worker that has decided about it.
    pub worker: WorkerId,
    /// `bytes` are what the game says, and not the sealed packet.
    pub is_clear: bool,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A capture, as workers and the one who has asked for it share it.
#[derive(Debug)]
pub struct Capture {
    /// Which datagrams.
    pub(crate) meant: Meant,
    /// Payloads are taken in clear.
    pub(crate) in_clear: bool,
    /// Where the player is that is meant by its id, as far as that was known at the beginning.
    pub(crate) homes: Vec<(ListenerId, Endpoint)>,
    /// When it is over in any case, on the workers' clock.
    until_ns: u64,
    is_over: AtomicBool,
    lanes: Vec<Lane>,
    lost: [AtomicU64; LISTENERS_MAX],
}

/// What is between one worker and the reader.
#[derive(Debug)]
struct Lane {
    full: Mutex<Receiver<Captured>>,
    empty: SyncSender<Vec<u8>>,
    /// The worker's end, while no worker has it.
    end: Mutex<Option<WorkerEnd>>,
}

/// A worker's end of its lane.
#[derive(Debug)]
pub(crate) struct WorkerEnd {
    empty: Receiver<Vec<u8>>,
    full: SyncSender<Captured>,
}

impl Capture {
    /// A capture at so many workers, of datagrams that are meant; in clear where payloads are to be
    /// shown, until then on the workers' clock. `homes` are addresses of the player who is meant.
    pub fn new(
        meant: Meant,
        in_clear: bool,
        until_ns: u64,
        homes: Vec<(ListenerId, Endpoint)>,
        workers: usize,
    ) -> Self {
        let boxes = (BOXES_MAX / workers.max(1)).clamp(BOXES_MIN, BOXES_PER_WORKER);
        let lanes = (0..workers).map(|_| Lane::new(boxes)).collect();
        let (is_over, lost) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; _]);
        Self { meant, in_clear, homes, until_ns, is_over, lanes, lost }
    }

    /// Hands over what workers have captured since the last time, worker by worker, until `take`
    /// has enough and says `false`. Of each worker that is what its boxes hold at most: players who
    /// never pause do not have the reader to themselves.
    pub fn drain(&self, mut take: impl FnMut(&Captured) -> bool) {
        for lane in &self.lanes {
            let full = lock(&lane.full);
            for captured in full.try_iter().take(BOXES_PER_WORKER) {
                let goes_on = take(&captured);
                // Where the worker has ended nobody wants it back.
                let _ = lane.empty.try_send(captured.bytes);
                if !goes_on {
                    return;
                }
            }
        }
    }

    /// Datagrams of a listener that found no empty box.
    pub fn lost(&self, listener: ListenerId) -> u64 {
        self.lost.get(listener.index()).map_or(0, |lost| lost.load(Ordering::Relaxed))
    }

    /// Ends it. Workers let go of it in their next turn.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether no worker holds a part of it any more.
    pub fn is_home(&self) -> bool {
        self.lanes.iter().all(|lane| lock(&lane.end).is_some())
    }

    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns || self.is_over.load(Ordering::Acquire)
    }

    /// A worker's end, given once.
    pub(crate) fn lend(&self, worker: WorkerId) -> Option<WorkerEnd> {
        lock(&self.lanes.get(worker.index())?.end).take()
    }

    /// It comes back, so that its memory is not the worker's to free.
    pub(crate) fn give_back(&self, worker: WorkerId, end: WorkerEnd) {
        if let Some(lane) = self.lanes.get(worker.index()) {
            *lock(&lane.end) = Some(end);
        }
    }

    /// Passes a datagram on, if there is a box for it.
    pub(crate) fn offer(
        &self,
        end: &WorkerEnd,
        listener: ListenerId,
        fill: impl FnOnce(Vec<u8>) -> Captured,
    ) {
        let passed = match end.empty.try_recv() {
            Ok(bytes) => end.full.try_send(fill(bytes)).is_ok(),
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => false,
        };
        if !passed && let Some(lost) = self.lost.get(listener.index()) {
            lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Lane {
    fn new(boxes: usize) -> Self {
        let (full, taken) = sync_channel(boxes);
        let (empty, made) = sync_channel(boxes);
        for _ in 0..boxes {
            let sent = empty.try_send(Vec::with_capacity(RX_DATAGRAM_BYTES));
            debug_assert!(sent.is_ok(), "there is room for all boxes");
        }
        let end = WorkerEnd { empty: made, full };
        Self { full: Mutex::new(taken), empty, end: Mutex::new(Some(end)) }
    }
}

impl Meant {
    /// Whether a datagram of that listener and that address may be meant.
    pub(crate) fn is_of(&self, listener: ListenerId, peer: &Endpoint) -> bool {
        self.listener.is_none_or(|wanted| wanted == listener)
            && self.address.is_none_or(|prefix| prefix.holds(peer.ip_bytes()))
    }

    /// Whether it is meant after what has become of it.
    pub(crate) fn is_for(&self, dropped: Option<DropReason>) -> bool {
        self.reasons.is_empty() || dropped.is_some_and(|why| self.reasons.contains(&why))
    }
}

/// Boxes of a capture, all workers together: some 14 MiB.
const BOXES_MAX: usize = 8192;

/// At a worker: what a hundred thousand datagrams a second bring while the reader looks elsewhere.
const BOXES_PER_WORKER: usize = 2048;
const BOXES_MIN: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// One of this turn.
    fn captured(turn_ns: u64, bytes: Vec<u8>) -> Captured {
        let (listener, endpoint) = (ListenerId(0), Endpoint::v4([0; 4], 0));
        let seen = Seen {
            address: Address { listener, endpoint },
            bind: BindId(0),
            local: LocalIp::UNSPECIFIED,
            is_outbound: false,
            received_by: None,
            client_id: None,
            dropped: None,
            kernel_ns: 0,
            turn_ns,
            is_cut: false,
        };
        Captured { seen, worker: WorkerId(0), is_clear: false, bytes }
    }

    fn numbers(capture: &Capture) -> Vec<u64> {
        let mut numbers = Vec::new();
        capture.drain(|captured| {
            numbers.push(captured.seen.turn_ns);
            true
        });
        numbers
    }

    #[test]
    fn what_finds_no_empty_box_is_counted_and_the_rest_arrives() {
        let capture = Capture::new(Meant::default(), false, u64::MAX, Vec::new(), 1);
        let end = capture.lend(WorkerId(0)).expect("the first time");
        assert!(capture.lend(WorkerId(0)).is_none() && !capture.is_home());
        let total = BOXES_PER_WORKER as u64 + 7;
        let offer = |number| {
            capture.offer(&end, ListenerId(3), |bytes| captured(number, bytes));
        };
        (0..total).for_each(offer);
        assert_eq!((capture.lost(ListenerId(3)), capture.lost(ListenerId(0))), (7, 0));
        assert_eq!(numbers(&capture), (0..BOXES_PER_WORKER as u64).collect::<Vec<_>>());
        // The boxes are empty again.
        (0..5).for_each(offer);
        assert_eq!(numbers(&capture).len(), 5);
        assert_eq!(capture.lost(ListenerId(3)), 7);
        capture.give_back(WorkerId(0), end);
        assert!(capture.is_home());
    }

    #[test]
    fn a_reader_that_has_enough_leaves_the_rest() {
        let capture = Capture::new(Meant::default(), false, u64::MAX, Vec::new(), 2);
        let ends = [0, 1].map(|worker| capture.lend(WorkerId(worker)).expect("its own"));
        for end in &ends {
            (0..3).for_each(|number| {
                capture.offer(end, ListenerId(0), |bytes| captured(number, bytes));
            });
        }
        let mut taken = 0;
        capture.drain(|_| {
            taken += 1;
            taken < 4
        });
        assert_eq!(taken, 4);
        assert_eq!(numbers(&capture), [1, 2]);
    }
}
