//! What pages show of agents and their trunks.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::protocol::datagram::Refusal;
use crate::socket::{LaneStats, Missed};

/// Everything.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Where agents connect.
    pub doors: Vec<DoorShown>,
    /// The agents of the config, and such that are still there or have died lately, by name.
    pub agents: Vec<AgentShown>,
}

/// An address at which agents connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoorShown {
    /// The address that was bound; `None` before that.
    pub address: Option<SocketAddr>,
    /// Connections that became no trunk, by name.
    pub refused: BTreeMap<&'static str, u64>,
    /// Datagrams that went no further, by name.
    pub dropped: BTreeMap<&'static str, u64>,
}

/// An agent.
#[derive(Clone, Debug, Default)]
pub struct AgentShown {
    /// Its name.
    pub name: String,
    /// The backends that it may serve.
    pub allowed: Vec<String>,
    /// Its trunk, while it has one.
    pub trunk: Option<TrunkShown>,
    /// Trunks that it has had.
    pub trunks: u64,
    /// Trunks of its that have ended, by name.
    pub ended: BTreeMap<&'static str, u64>,
    /// What its links did not take, over all of its trunks.
    pub links: LinkCounts,
    /// Of trunks that have ended, by lane.
    pub before: Vec<LaneShown>,
    /// Whether it has died.
    pub missed: Missed,
}

/// A trunk that stands.
#[derive(Clone, Debug)]
pub struct TrunkShown {
    /// Its number in datagrams.
    pub number: u32,
    /// Where the agent is.
    pub peer: SocketAddr,
    /// Since when.
    pub since_ns: u64,
    /// Each lane, by its worker.
    pub lanes: Vec<LaneShown>,
    /// Whether its worker has it, and carries its payloads without another thread.
    pub lent: Vec<bool>,
    /// How many links each backend has, over all workers.
    pub backends: BTreeMap<String, usize>,
}

ringgate_core::numbered! {
    /// What links to workers did not take, or what no link was made for, by the names in metrics.
    pub struct LinkCounts;
    /// Links that were begun for a backend that the agent may not serve.
    name_refused,
    /// Links that could not be made: the worker did not take them, or there are too many.
    link_failed,
    /// Payloads that a worker's link had no room for.
    link_full,
    /// Records for links that are over.
    link_gone,
    /// Links that a worker read too slowly for what must arrive.
    link_over_full,
}

/// What there is to say of a lane. Counts of several trunks may be added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneShown {
    /// Whether anything authentic has come on it.
    pub is_up: bool,
    /// There and back.
    pub round_trip_ns: Option<u64>,
    /// How long a datagram may be.
    pub path_bytes: usize,
    /// Datagrams to the agent, and from it.
    pub datagrams: [u64; 2],
    /// Payloads to the agent, and from it.
    pub payloads: [u64; 2],
    /// Datagrams to the agent and from it that did not come when a later one did.
    pub gaps: [u64; 2],
    /// Of those, the ones that came after all.
    pub late: [u64; 2],
    /// Records to the agent that did not fit one datagram.
    pub split: u64,
    /// How often the own key and the agent's have changed.
    pub rekeys: [u64; 2],
    /// Payloads to the agent for which its socket had no room.
    pub full: u64,
    /// How often the way became narrower.
    pub narrowed: u64,
    /// How often the agent's address has changed.
    pub moved: u64,
    /// Datagrams and records from the agent that went no further, by [`Refusal`].
    pub refused: [u64; Refusal::ALL.len()],
}

ringgate_core::carried!(LaneShown {
    is_up,
    round_trip_ns,
    path_bytes,
    datagrams,
    payloads,
    gaps,
    late,
    split,
    rekeys,
    full,
    narrowed,
    moved,
    refused,
});

impl From<LaneStats> for LaneShown {
    fn from(stats: LaneStats) -> Self {
        let LaneStats { lane, is_up, full, moved, .. } = stats;
        Self {
            is_up,
            round_trip_ns: lane.round_trip_ns,
            path_bytes: lane.path_bytes,
            datagrams: [lane.sent.datagrams, lane.arrived_here.received],
            payloads: [lane.sent.payloads, lane.payloads_received],
            gaps: [lane.arrived_there.gaps, lane.arrived_here.gaps],
            late: [lane.arrived_there.filled, lane.arrived_here.filled],
            split: lane.sent.split,
            rekeys: lane.epochs,
            full,
            narrowed: lane.path_narrowed,
            moved,
            refused: Refusal::ALL.map(|why| lane.refusals.of(why)),
        }
    }
}

impl LaneShown {
    /// Datagrams to the agent and from it that were lost, as far as that can be said now.
    pub fn lost(&self) -> [u64; 2] {
        [0, 1].map(|way| self.gaps[way].saturating_sub(self.late[way]))
    }

    /// Adds the counts of another trunk.
    pub fn add(&mut self, other: &Self) {
        let both = |one: &mut [u64; 2], other: [u64; 2]| {
            one.iter_mut().zip(other).for_each(|(one, other)| *one += other);
        };
        both(&mut self.datagrams, other.datagrams);
        both(&mut self.payloads, other.payloads);
        both(&mut self.gaps, other.gaps);
        both(&mut self.late, other.late);
        both(&mut self.rekeys, other.rekeys);
        self.split += other.split;
        self.full += other.full;
        self.narrowed += other.narrowed;
        self.moved += other.moved;
        self.refused.iter_mut().zip(other.refused).for_each(|(one, other)| *one += other);
    }
}

impl AgentShown {
    /// What was counted on each lane, over all trunks.
    pub fn lanes(&self) -> Vec<LaneShown> {
        let mut lanes = self.before.clone();
        let now = self.trunk.as_ref().map_or(&[][..], |trunk| &trunk.lanes);
        add_lanes(&mut lanes, now);
        for (lane, shown) in lanes.iter_mut().zip(now) {
            let LaneShown { is_up, round_trip_ns, path_bytes, .. } = *shown;
            *lane = LaneShown { is_up, round_trip_ns, path_bytes, ..*lane };
        }
        lanes
    }
}

/// Adds lanes up, one by one.
pub(crate) fn add_lanes(sum: &mut Vec<LaneShown>, more: &[LaneShown]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), LaneShown::default());
    }
    sum.iter_mut().zip(more).for_each(|(one, other)| one.add(other));
}

/// Under what connections that became no trunk and datagrams that went no further are counted at
/// doors.
pub(crate) const REFUSED_AT_DOORS: [&str; 7] =
    ["no_descriptor", "slow", "crowded", "foreign", "elsewhere", "overflow", UNPROVEN];

/// An address that is not where datagrams say that they come from.
pub(crate) const UNPROVEN: &str = "address_unproven";
