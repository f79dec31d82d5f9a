//! `/status` as the commands read it: the fields they show, and no more, so that a gateway of
//! another version can be asked.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Admin;
use crate::Failure;

/// The page.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) state: String,
    pub(crate) drain_left_ms: Option<u64>,
    pub(crate) not_ready_because: Option<String>,
    pub(crate) uptime_s: u64,
    pub(crate) config: Config,
    /// Not of a release that always has all.
    pub(crate) workers_awake: Option<usize>,
    pub(crate) why_all_awake: Option<String>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) backends: Vec<Backend>,
    /// Of gateways that have some.
    #[serde(default)]
    pub(crate) agents: Vec<Agent>,
    pub(crate) totals: Totals,
    pub(crate) drops: BTreeMap<String, u64>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) conservation: Conservation,
    #[serde(default)]
    pub(crate) denied: Denied,
}

/// A gateway that says nothing of it denies nobody.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Denied {
    pub(crate) ipv4: u64,
    pub(crate) ipv6: u64,
    pub(crate) exceptions: u64,
    pub(crate) clients: u64,
    pub(crate) kept: bool,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Config {
    pub(crate) file: String,
    pub(crate) read_unix_s: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) driver: String,
    pub(crate) cipher: String,
    pub(crate) turns: u64,
    pub(crate) sessions: u64,
    pub(crate) pending: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) drops: u64,
    pub(crate) socket_drops: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Listener {
    pub(crate) name: String,
    /// Of gateways that can say: whether it serves, or drains because a reload has removed it.
    #[serde(default)]
    pub(crate) state: String,
    pub(crate) drain_left_ms: Option<u64>,
    pub(crate) closed_because: Option<String>,
    pub(crate) addresses: Vec<String>,
    pub(crate) sessions: u64,
    pub(crate) sessions_max: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) link: String,
    pub(crate) workers_up: usize,
    pub(crate) players: u64,
    pub(crate) slots: u64,
    pub(crate) retired: bool,
    #[serde(default)]
    pub(crate) drained: bool,
}

/// An agent on another host.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) up: bool,
    pub(crate) peer: Option<String>,
    pub(crate) up_s: u64,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) drops: u64,
}

/// A worker's part of its trunk. Pairs are what goes to the agent, and what comes from it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Lane {
    pub(crate) round_trip_us: Option<u64>,
    pub(crate) path_bytes: u64,
    pub(crate) lost: [u64; 2],
    pub(crate) split: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Totals {
    pub(crate) sessions: u64,
    pub(crate) handshakes_pending: u64,
    pub(crate) sessions_opened: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) bytes_out: u64,
    pub(crate) drops: u64,
    pub(crate) socket_drops: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) count: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    pub(crate) max_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Conservation {
    pub(crate) holds: bool,
}

impl Status {
    /// Asks for it.
    pub(crate) fn ask(admin: &Admin) -> Result<Self, Failure> {
        Self::read(&admin.get("/status")?)
    }

    pub(crate) fn read(page: &str) -> Result<Self, Failure> {
        serde_json::from_str(page).map_err(|why| {
            Failure::failed(format_args!("the gateway's status cannot be read: {why}"))
        })
    }
}
