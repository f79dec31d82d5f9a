//! A gateway as others have to know it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{
    Backend, HELD_ALL, LIST_MAX, Reach, Refused, Stored, check, check_held, check_name, check_text,
    is_zero,
};
use crate::keyspace::Name;

/// A gateway, under its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Random, for each start of the process: tells a successor from an impostor.
    pub instance: String,
    /// Where it stands, as the operator calls it.
    pub region: String,
    /// The host, by which gateways reach backends.
    pub host: String,
    /// The program's version.
    pub version: String,
    /// What players dial.
    pub listeners: Vec<Listener>,
    /// Where agents connect; empty where none may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<Entrance>,
    /// The cluster that it is in, and where others of it connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
    /// How many sessions it takes.
    pub capacity: u32,
    /// How many it has.
    pub sessions: u32,
    /// Whether it takes nobody any more.
    pub draining: bool,
    /// When it was started, in seconds since 1970.
    pub started: u64,
    /// Its clock when it wrote this, in seconds since 1970.
    pub written: u64,
    /// The number of what it holds back until an operator confirms it; 0 for nothing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub doubt: u64,
    /// What that is about, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Where game processes of its host connect over bundle links; empty where it is not told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run_dir: String,
    /// The revision up to which its workers know of the backends that it may lead to; `None` where
    /// it is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heard: Option<i64>,
    /// The revision up to which its workers deny whom the fleet denies; `None` where it is not
    /// told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<i64>,
    /// Backends of its listeners that it leads nobody new to, whatever they say themselves: those
    /// that it is not linked to, those that it left out, and those that its operator drains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shut: Vec<String>,
    /// Whether it answers the questions of whoever has the fleet's key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
}

/// Where agents connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrance {
    /// Which agent: its name, or `*` for any other.
    pub name: String,
    /// A host and a port. The gateway's certificate is for this host.
    pub at: String,
    /// How long players wait for a game process that is gone; 0 where it is not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grace_ms: u64,
}

/// A gateway's place in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// What it is called.
    pub name: String,
    /// Where others of it connect: a host and a port.
    pub at: String,
}

/// One of its listeners.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// Its name, which its keys and its group go by.
    pub name: String,
    /// `netcode`, `unreal` or `plain`.
    pub protocol: String,
    /// Its public addresses.
    pub addresses: Vec<SocketAddr>,
    /// The epochs of its key that this gateway accepts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub epochs: Vec<u32>,
    /// What its keys are called that stand in the gateway's own config (`seal::name_of`). None from
    /// a release that does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Which backends it leads to; empty where the group is called as the listener is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The game's protocol id, of netcode listeners; 0 where it is not told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub protocol_id: u64,
    /// How long routing tokens are, of plain listeners that have them; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub token_bytes: u64,
    /// Whether user data may have a tag behind the backend's name, and a token opens one session:
    /// then it can be told who has come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tags: bool,
    /// Whether its players get whole messages, which an agent may deliver.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub messages: bool,
}

impl Gateway {
    /// Whether the revisions that it tells are of the history at hand: who holds another one back
    /// tells those of the history that it has known.
    pub fn tells_of_this_history(&self) -> bool {
        !self.held.iter().any(|class| class == HELD_ALL)
    }

    /// Where an agent of this name connects.
    pub fn entrance(&self, agent: &str) -> Option<&str> {
        let of = |name: &str| self.agents.iter().find(|it| it.name == name);
        of(agent).or_else(|| of(ANY)).map(|it| it.at.as_str())
    }

    /// Whether it, called so, reaches a backend: one of its host, over a bundle link one that
    /// connects in its own `run_dir`, and behind an agent one that it has let in.
    pub fn reaches(&self, own_name: &str, backend: &Backend) -> bool {
        match &backend.reach {
            Reach::Udp(_) => self.host == backend.host,
            Reach::Bundle(path) => {
                let is_own = self.run_dir.is_empty() || *path == self.run_dir;
                is_own && self.host == backend.host
            }
            Reach::Agent(_) => backend.gateways.iter().any(|it| it == own_name),
        }
    }

    /// Whether it says that it leads nobody new to a backend.
    pub fn is_shut(&self, backend: &str) -> bool {
        self.shut.iter().any(|it| it == backend)
    }
}

impl Listener {
    /// Which backends it leads to.
    pub fn group(&self) -> &str {
        if self.group.is_empty() { &self.name } else { &self.group }
    }
}

impl Stored for Gateway {
    fn check(&self) -> Result<(), Refused> {
        check_name(&self.instance, "the instance is no name")?;
        check_name(&self.region, "the region is no name")?;
        check_name(&self.host, "the host is no name")?;
        check_text(&self.version)?;
        check(self.agents.len() <= LIST_MAX, "there are too many entrances for agents")?;
        for Entrance { name, at, .. } in &self.agents {
            check(name == ANY || Name::new(name).is_some(), "an agent's name is no name")?;
            check_text(at)?;
        }
        if let Some(Cluster { name, at }) = &self.cluster {
            check_name(name, "the cluster's name is no name")?;
            check_text(at)?;
        }
        check_text(&self.run_dir)?;
        check_held(&self.held)?;
        check(self.shut.len() <= 4 * SHUT_MAX, "there are too many backends that are shut")?;
        self.shut.iter().try_for_each(|name| check_name(name, "a backend's name is no name"))?;
        check(self.listeners.len() <= LIST_MAX, "there are too many listeners")?;
        self.listeners.iter().try_for_each(|listener| {
            check_name(&listener.name, "a listener's name is no name")?;
            check_name(&listener.protocol, "a protocol is no name")?;
            check_name(listener.group(), "a listener's group is no name")?;
            check(listener.token_bytes <= TOKEN_BYTES_MAX, "a routing token is too long")?;
            let lists = [listener.addresses.len(), listener.epochs.len(), listener.keys.len()];
            check(lists.iter().all(|len| *len <= LIST_MAX), "a listener's lists are too long")?;
            listener.keys.iter().try_for_each(|key| check_name(key, "a key's name is no name"))?;
            let may_be_dialled = |it: &SocketAddr| it.port() != 0 && !it.ip().is_unspecified();
            check(listener.addresses.iter().all(may_be_dialled), "an address cannot be dialled")
        })
    }
}

/// In which ways the listeners of two gateways differ at addresses that both have, one sentence
/// each: a cluster's players may come to either.
pub fn misfits(own: &[Listener], other: &[Listener]) -> Vec<String> {
    let mut found = Vec::new();
    for (own, other) in own.iter().flat_map(|own| other.iter().map(move |other| (own, other))) {
        let Some(address) = own.addresses.iter().find(|it| other.addresses.contains(it)) else {
            continue;
        };
        if own.protocol != other.protocol {
            found.push(format!("{address} is {} here and {} there", own.protocol, other.protocol));
        } else if own.protocol_id != other.protocol_id {
            let ids = [own.protocol_id, other.protocol_id];
            found.push(format!("{address} has protocol_id {} here and {} there", ids[0], ids[1]));
        } else if own.token_bytes != other.token_bytes {
            found.push(format!("{address} has routing tokens of other lengths here and there"));
        } else if let Some(why) = differing_keys(own, other) {
            found.push(format!("{address} has {why}"));
        }
        if own.group() != other.group() {
            found.push(format!(
                "{address} leads to group {} here and {} there",
                own.group(),
                other.group()
            ));
        }
    }
    found
}

/// What of the keys of two listeners differs. The fleet's come and go at each gateway when that has
/// confirmed them; those of a file are the operator's to have at all of them alike.
fn differing_keys(own: &Listener, other: &Listener) -> Option<String> {
    let shared = own.keys.iter().filter(|key| other.keys.contains(key)).count();
    let [here, there] = [own.keys.len(), other.keys.len()];
    if here > 0 && there > 0 {
        let are_same = shared == here && shared == there;
        let partly = || format!("{here} keys here and {there} there, {shared} of them in common");
        return (!are_same).then(|| if shared > 0 { partly() } else { NO_KEY.to_owned() });
    }
    let is_shared = own.epochs.iter().any(|epoch| other.epochs.contains(epoch));
    let are_told = !own.epochs.is_empty() || !other.epochs.is_empty();
    (are_told && !is_shared).then(|| NO_KEY.to_owned())
}

const NO_KEY: &str = "no key in common here and there";

/// Stands for every agent that has no entrance of its own.
pub const ANY: &str = "*";

/// Backends that a gateway says are shut; of more it says nothing.
pub const SHUT_MAX: usize = 128;

/// The longest routing token of a plain listener.
pub const TOKEN_BYTES_MAX: u64 = 64;
