//! A question of the control thread that goes on for a while: what is decided about one player, or
//! about everybody at some addresses?
//!
//! Workers put what they decide into a queue with a bound, and never wait for who reads it: what
//! does not fit is counted. How they do so stands in `taps`. Nothing secret is in a record: no key,
//! no payload, and of a token only what its reason is about.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::counters::Ended;
use crate::ids::{BackendId, ListenerId, Slot, WorkerId};
use crate::prefix::Prefix;
use ringgate_batch::Endpoint;
use ringgate_core::drops::{DropCounts, DropReason};

/// Whose packets are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// A player's, by the id that tokens name. Unreal and plain players have none.
    Client(u64),
    /// All that come from these addresses.
    Addresses(Prefix),
}

/// A question that all workers answer until it is over.
#[derive(Debug)]
pub struct Trace {
    pub(crate) watched: Watched,
    /// When it is over in any case, on the workers' clock.
    until_ns: u64,
    records: SyncSender<Record>,
    is_over: AtomicBool,
    missed: AtomicU64,
    seen: AtomicU64,
    dropped: AtomicU64,
    nameless: [AtomicU64; DropReason::COUNT],
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When, on the workers' clock.
    pub at_ns: u64,
    /// Who has decided.
    pub worker: WorkerId,
    /// Where it came in.
    pub listener: ListenerId,
    /// Where it came from.
    pub address: Endpoint,
    /// Whose it was, where that is known.
    pub client_id: Option<u64>,
    /// What was decided.
    pub fact: Fact,
}

/// What was decided about a datagram, or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// An Unreal player whom nobody knows here was asked to begin its handshake again.
    AskedToRestart,
    /// A session began.
    Began {
        /// What links know it by.
        session: u64,
        /// Where its player plays.
        backend: BackendId,
        /// Its index there.
        slot: Slot,
        /// Since the first packet that counted.
        took_ns: u64,
    },
    /// The player was asked to prove its address.
    Challenged,
    /// The player was told that it may not come in.
    Denied,
    /// Another player has proven to be at this address: the session goes on without one, until its
    /// own player has proven where it is.
    Displaced,
    /// A datagram went no further.
    Dropped {
        /// Why.
        why: DropReason,
        /// With which numbers.
        detail: Detail,
    },
    /// A session ended.
    Ended {
        /// Why.
        why: Ended,
    },
    /// The session has followed its player to this address.
    Moved {
        /// Where it was before.
        from: Endpoint,
    },
    /// A connect token opened.
    Opened {
        /// Under which of the listener's keys; 0 is the current one.
        key: u16,
        /// For how long it can still be used.
        left_s: u64,
    },
    /// A datagram went to the member of the cluster that has, or may have, the player.
    SentOn,
    /// The session goes on here: the member of the cluster that had it is gone.
    TookOver {
        /// Where its player plays.
        backend: BackendId,
        /// Its index there, as this gateway counts.
        slot: Slot,
    },
    /// The player was moved to another game process.
    WentOver {
        /// Where it has played.
        from: BackendId,
        /// Where it plays.
        to: BackendId,
        /// Its index there.
        slot: Slot,
    },
    /// A session that is not proven yet waits for this backend's answer.
    Waits {
        /// Where it may play.
        backend: BackendId,
    },
}

/// The numbers behind a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The token expired so long ago.
    Expired {
        /// Seconds.
        ago_s: u64,
    },
    /// The datagram has so many bytes.
    Length {
        /// Of its payload of UDP.
        bytes: u16,
    },
    /// The token names this address, and so many others, and none of ours.
    Names {
        /// The first one.
        first: std::net::SocketAddr,
        /// How many more.
        others: u8,
    },
    /// There is nothing to add.
    Nothing,
    /// The request is for another game, or another version of it.
    Protocol {
        /// What it says.
        found: u64,
        /// What the listener has.
        expected: u64,
    },
    /// The packet's number, and the newest that its session has taken.
    Sequence {
        /// What it says.
        found: u64,
        /// The newest.
        newest: u64,
    },
}

impl Trace {
    /// A question that goes on until then, and where its answers arrive: so many can wait.
    pub fn new(watched: Watched, until_ns: u64, room: usize) -> (Arc<Self>, Receiver<Record>) {
        let (records, answers) = sync_channel(room);
        let trace = Self {
            watched,
            until_ns,
            records,
            is_over: AtomicBool::new(false),
            missed: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            nameless: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        (Arc::new(trace), answers)
    }

    /// Nobody wants to know any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Records that did not fit.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    /// Datagrams that came, and how many of them went no further.
    pub fn carried(&self) -> (u64, u64) {
        (self.seen.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Datagrams that went no further before it was known whose they were, so that they may have
    /// been the player's.
    pub fn nameless(&self) -> DropCounts {
        let mut counts = DropCounts::new();
        for (&why, count) in DropReason::ALL.iter().zip(&self.nameless) {
            counts.add(why, count.load(Ordering::Relaxed));
        }
        counts
    }

    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns || self.is_over.load(Ordering::Relaxed)
    }

    /// A worker has decided something that was asked for.
    pub(crate) fn note(&self, record: Record) {
        if matches!(record.fact, Fact::Dropped { .. }) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        if self.records.try_send(record).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_seen(&self, datagrams: u64) {
        self.seen.fetch_add(datagrams, Ordering::Relaxed);
    }

    pub(crate) fn note_nameless(&self, why: DropReason) {
        self.nameless[why as usize].fetch_add(1, Ordering::Relaxed);
    }
}
