//! A thread's players, without the thread: no socket, no clock.
//!
//! The open loop is here. When a payload is to leave is decided by the plan alone, never by what
//! came back: a gateway that stalls for a second meets the payloads of that second all at once,
//! each with its intended time in it, and every one of them counts as late as a player would have
//! felt it.
//!
//! 1. [`Swarm::receive`] takes in what has arrived; one AEAD batch opens all of it.
//! 2. [`Swarm::transmit`] fills a batch with what is due, sealed in one AEAD batch; to be called
//!    until it says that nothing more is.
//! 3. [`Swarm::sent`] after each flush, so that what the kernel refused is counted.
//! 4. [`Swarm::poll_timeout`] says when to come back.
//!
//! Each player has exactly one place in the schedule, at the earliest of its next payload, its
//! client's next packet and the end of its stay. A connected player costs about 600 bytes.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use ringgate_batch::{Endpoint, TxBatch};
use ringgate_core::crypto::Aead;
use ringgate_core::proto::netcode::packet::AadTable;

use super::addresses::Addresses;
use super::arrivals::Arrivals;
use super::impair::Impairments;
use super::plain::Plain;
use super::player::{self, Player};
use super::population::Population;
use super::scenario::Plan;
use super::schedule::Schedule;
use super::staged::{self, Delayed, Staged, TAG_PAYLOAD, TAG_PLAIN};
use super::talker::{Delivery, Heard};
use super::tokens::Tokens;
use super::traffic::Traffic;
use super::unreal::Unreal;
use crate::measure::pause::{self, Pause};
use crate::measure::silence::Silence;
use crate::measure::tally::{Count, Tally};

/// What players speak.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// netcode 1.02, with tokens from here.
    Netcode(Tokens),
    /// The same, with whole messages on it.
    Messages(Tokens, Delivery),
    /// Unreal's handshake and packet header.
    Unreal(Unreal),
    /// Payloads as they are, to measure what a bare echo costs, a proxy, or a gateway that knows
    /// nothing of the game.
    Plain(Plain),
}

impl Protocol {
    /// Where players' connect tokens come from.
    pub fn tokens(&self) -> Option<&Tokens> {
        match self {
            Self::Netcode(tokens) | Self::Messages(tokens, _) => Some(tokens),
            Self::Plain(_) | Self::Unreal(_) => None,
        }
    }

    /// What a bare echo is sent in the gateway's place: datagrams of the same length.
    #[must_use]
    pub fn bare(&self, server: Endpoint) -> Self {
        Self::Plain(match self {
            Self::Plain(plain) => Plain { server, ..plain.clone() },
            Self::Netcode(_) | Self::Messages(..) | Self::Unreal(_) => Plain::bare(server),
        })
    }
}

/// What a thread's swarm is told.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Marks this run's payloads.
    pub run: u32,
    /// Which thread, for session numbers.
    pub thread: u32,
    /// What players speak, and to whom.
    pub protocol: Protocol,
    /// The protocol id, which every netcode packet vouches for.
    pub protocol_id: u64,
    /// When payloads leave.
    pub arrivals: Arrivals,
    /// The network between.
    pub impair: Arc<Impairments>,
    /// How long a player who leaves waits for what is on its way.
    pub linger_ns: u64,
    /// After how much silence of its own a player sends a keep-alive.
    pub keep_alive_ns: u64,
}

/// The present, by both clocks that are needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Nanoseconds since the run began.
    pub mono_ns: u64,
    /// Nanoseconds since 1970, which the kernel stamps datagrams with and tokens are dated by.
    pub unix_ns: u64,
}

/// How many players are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Asking to be let in.
    pub connecting: u32,
    /// In.
    pub playing: u32,
    /// On their way out.
    pub leaving: u32,
}

/// A thread's players.
#[derive(Debug)]
pub struct Swarm {
    pub(super) setup: Setup,
    pub(super) addresses: Addresses,
    pub(super) players: Vec<Player>,
    /// Places of players who are gone, the longest unused first.
    pub(super) free: VecDeque<u32>,
    pub(super) gauges: Gauges,
    pub(super) population: Population,
    pub(super) traffic: Traffic,
    pub(super) schedule: Schedule,
    pub(super) due: Vec<u32>,
    /// How late the latest payload left.
    pub(super) behind_ns: u64,
    pub(super) staged: Staged,
    pub(super) heard: Heard,
    pub(super) delayed: BinaryHeap<Delayed>,
    /// How many datagrams were delayed so far.
    pub(super) delays: u64,
    pub(super) sessions_made: u32,
    pub(super) aad: Box<AadTable>,
    pub(super) aead: Aead,
    pub(super) tally: Tally,
    pub(super) seconds: Vec<SecondLoss>,
    pub(super) pauses: pause::Listener,
    /// Of each phase.
    pub(super) silences: Vec<Silence>,
    /// What time of day the run's clock began at, as last seen.
    pub(super) unix_at_start_ns: u64,
}

/// What was due in a second of the run, and how much of that came back, whenever it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondLoss {
    /// Payloads due.
    pub due: u32,
    /// Their echoes.
    pub echoed: u32,
}

impl Swarm {
    /// A swarm that begins its plan at moment 0 of the run's clock.
    pub fn new(setup: Setup, plan: Plan, addresses: Addresses, aead: Aead) -> Self {
        Self {
            aad: Box::new(AadTable::new(setup.protocol_id)),
            addresses,
            players: player::room_for(plan.players_max()),
            free: VecDeque::new(),
            gauges: Gauges::default(),
            traffic: plan.steps.first().map(|step| step.traffic).unwrap_or_default(),
            silences: vec![Silence::default(); plan.steps.len()],
            population: Population::new(plan),
            schedule: Schedule::new(setup.arrivals.is_exact()),
            due: Vec::with_capacity(staged::VISITS_MAX),
            behind_ns: 0,
            staged: Staged::new(),
            heard: Heard::default(),
            delayed: BinaryHeap::new(),
            delays: 0,
            // Session 0 is what an empty place has.
            sessions_made: 1,
            aead,
            tally: Tally::new(),
            seconds: Vec::new(),
            pauses: pause::Listener::default(),
            unix_at_start_ns: 0,
            setup,
        }
    }

    /// Notes what the last flush has sent, and what it could not.
    pub fn sent(&mut self, tx: &TxBatch) {
        let counters = &mut self.tally.counters;
        counters.add(Count::DatagramsOut, tx.sent().len() as u64);
        counters.add(Count::BytesOut, tx.sent().iter().map(|entry| entry.len() as u64).sum());
        let is_payload = |tag: u64| tag & TAG_PAYLOAD != 0;
        let payloads = tx.sent().iter().filter(|entry| is_payload(entry.tag)).count();
        counters.add(Count::PayloadsSent, payloads as u64);
        let is_plain = |tag: u64| tag & TAG_PLAIN != 0;
        let plain = tx.sent().iter().filter(|entry| is_plain(entry.tag)).count();
        counters.add(Count::PlainSent, plain as u64);
        for (entry, _, _) in tx.failures() {
            if is_payload(entry.tag) {
                counters.bump(Count::PayloadsUnsent);
                counters.take_back(Count::PayloadsSent);
            } else {
                counters.bump(Count::ControlUnsent);
                if is_plain(entry.tag) {
                    counters.take_back(Count::PlainSent);
                }
            }
        }
    }

    /// When something is due next.
    pub fn poll_timeout(&self) -> u64 {
        let delayed = self.delayed.peek().map_or(u64::MAX, |delayed| delayed.due_ns);
        delayed.min(self.schedule.next_ns()).min(self.population.poll_timeout())
    }

    /// Whether the plan has run out, every player has gone, and what an impairment delayed has gone
    /// too: a goodbye that never leaves would keep a session alive until it times out.
    pub fn is_finished(&self) -> bool {
        self.population.is_over() && self.gauges == Gauges::default() && self.delayed.is_empty()
    }

    /// How many players are where.
    pub const fn gauges(&self) -> Gauges {
        self.gauges
    }

    /// A count since the tally was last taken.
    pub fn counted(&self, what: Count) -> u64 {
        self.tally.counters.of(what)
    }

    /// What was measured at a stage since the tally was last taken.
    #[cfg(test)]
    pub(crate) fn tally_of(
        &self,
        stage: crate::measure::tally::Stage,
    ) -> &hdrhistogram::Histogram<u32> {
        self.tally.of(stage)
    }

    /// What was gathered since this was last asked; `empty` takes its place.
    pub fn take_tally(&mut self, empty: Tally) -> Tally {
        std::mem::replace(&mut self.tally, empty)
    }

    /// Loss by the second in which payloads were due. Complete when the run is over.
    pub fn seconds(&self) -> &[SecondLoss] {
        &self.seconds
    }

    /// The longest time in which nothing came, while nobody was to come or go.
    pub fn longest_pause(&self) -> Pause {
        self.pauses.longest()
    }

    /// How long players heard nothing in each phase that has ended.
    pub fn silences(&self) -> &[Silence] {
        &self.silences
    }

    /// Nobody waits any more for what impairments still hold: it counts as come too late.
    pub fn give_up_delayed(&mut self) {
        let late = self.delayed.drain().filter(|d| matches!(d.way, staged::Way::Down { .. }));
        self.tally.counters.add(Count::Strangers, late.count() as u64);
    }

    /// What the driver has counted beside datagrams.
    pub fn note_kernel_drops(&mut self, drops: u64) {
        self.tally.counters.add(Count::OwnKernelDrops, drops);
    }

    pub(super) fn second(&mut self, at_ns: u64) -> &mut SecondLoss {
        let index = (at_ns / 1_000_000_000).min(SECONDS_MAX) as usize;
        if index >= self.seconds.len() {
            self.seconds.resize(index + 1, SecondLoss::default());
        }
        &mut self.seconds[index]
    }

    /// Puts a player where it belongs in the schedule.
    pub(super) fn reschedule(&mut self, index: u32) {
        match self.players[index as usize].due_ns() {
            Some(due_ns) => self.schedule.schedule(index, due_ns),
            None => self.schedule.cancel(index),
        }
    }
}

/// A month: what happens later counts into its last second.
const SECONDS_MAX: u64 = 31 * 86_400;

#[cfg(test)]
mod tests;
