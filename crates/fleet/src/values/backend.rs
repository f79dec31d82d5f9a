//! A game process as gateways and token services have to know it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::agent::check_gateways;
use super::{Joined, Labels, Refused, Stored, check, check_labels, check_name, check_text};

/// A game process, under its own lease or its agent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backend {
    /// Random, for each start of the process.
    pub instance: String,
    /// The host that it runs on: gateways of this host reach it, unless it is behind an agent.
    pub host: String,
    /// Which listeners lead to it.
    pub group: String,
    /// How gateways reach it.
    pub reach: Reach,
    /// How many players it takes.
    pub slots: u32,
    /// How many it has, as far as it has told.
    pub used: u32,
    /// What it is ready for.
    pub state: State,
    /// Behind an agent: the gateways that it is connected to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<String>,
    /// Whose players have come lately; `None` where that is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joined: Option<Joined>,
    /// What it can be chosen by.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}

/// How gateways reach a game process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// One datagram for each payload, at this address.
    Udp(SocketAddr),
    /// Bundles over this socket file.
    Bundle(String),
    /// Over the trunk of the agent with this name, which may be on another host than they are.
    Agent(String),
}

ringgate_core::named! {
    /// What a game process is ready for. Agones' states map to these one to one: `Scheduled` and
    /// before are `starting`, `Ready` is `ready`, `Allocated` and `Reserved` are `allocated`,
    /// `Shutdown` and `Unhealthy` are `draining`.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum State;
    /// Not yet for players.
    Starting = "starting",
    /// For anybody.
    Ready = "ready",
    /// For those whom a matchmaker has sent.
    Allocated = "allocated",
    /// For those who are there.
    Draining = "draining",
}

impl Backend {
    /// Whether it takes new players, by its own word.
    pub const fn is_open(&self) -> bool {
        matches!(self.state, State::Ready | State::Allocated)
    }

    /// Whether gateways have to hear of this before players can be sent there, whatever they knew
    /// `before`.
    pub fn has_to_be_heard(&self, before: Option<&Self>) -> bool {
        let is_known = |it: &Self| {
            it.is_open() && it.host == self.host && it.group == self.group && it.reach == self.reach
        };
        self.is_open() && !before.is_some_and(is_known)
    }
}

impl Stored for Backend {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.instance, "the instance is no name")?;
        check_name(&self.host, "the host is no name")?;
        check_name(&self.group, "the group is no name")?;
        match &self.reach {
            Reach::Udp(address) => check(address.port() != 0, "the address has no port")?,
            Reach::Bundle(path) => {
                check_text(path)?;
                check(path.starts_with('/'), "the socket's path is not absolute")?;
            }
            Reach::Agent(name) => check_name(name, "the agent's name is no name")?,
        }
        check_gateways(&self.gateways)?;
        check_labels(&self.labels)
    }
}
