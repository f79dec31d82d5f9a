//! The config file: TOML text in, a checked [`Config`] out, or every mistake in it at once.
//!
//! Whoever holds a [`Config`] relies on it: names are unique, every listener's backends exist and
//! speak a link that the listener can use, every number is inside its range, every key is loaded.
//! Nothing behind this package checks again.
//!
//! Every field is declared once (`declare`): name, what it accepts, default, meaning, and what it
//! takes to change it. The reader, the member that holds the value, [`explain`] and the comparison
//! of a reload are made of that.
//!
//! Left out: anything that depends on the machine (free ports, limits, privileges). Those show when
//! the daemon starts, and `ringgate doctor` looks at them.

#![cfg_attr(
    not(all(feature = "fleet", feature = "tokens", feature = "xdp")),
    allow(dead_code, unused_imports, reason = "whoever uses it is left out")
)]

mod agent;
mod backend;
mod cluster;
mod declare;
mod distinct;
mod explain;
mod fleet;
mod front;
mod gateway;
mod host;
pub mod hosted;
mod identity;
pub mod keys;
mod listener;
mod mistake;
mod notices;
mod read;
mod schema;
mod section;
mod source;
pub mod token;
#[cfg(feature = "tokens")]
pub mod tokens;
pub mod values;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zeroize::Zeroizing;

pub use agent::{ANY_AGENT, Agent};
pub use cluster::{Cluster, member_name};
pub use declare::Compared;
#[cfg(feature = "tokens")]
pub use explain::explain_tokens;
pub use explain::{explain, explain_host};
pub use fleet::{Fleet, WhenAway};
pub use front::{
    Delivery, GuardedWays, HandshakeBase, HandshakeVersions, ListenerIo, NetworkVersions,
    NumberOrder, PortSwitch, Protocol, Route, RoutingTokens, TokenPlace, TokenReuse, UniqueClients,
    UnrealMode, XdpMode,
};
pub use gateway::{Admin, BatchDelay, Gateway, Histograms, IoChoice, Workers, WorkersAwake};
pub use host::{Accepted, HostConfig, is_of_agent};
pub use identity::Identity;
pub use listener::{Echo, Limits, Listener, Netcode, Plain, RoutingToken, Sequence, Unreal, Xdp};
pub use mistake::{Mistake, Mistakes};
pub use read::{fleet, parse, run_dir};
pub use ringgate_process::logging::LogFormat;
pub use schema::{Changes, Field, changes};
pub use token::Token;

use keys::KeySources;
use ringgate_fleet::keyspace::{Name, Place};
use ringgate_gate::Intake;

/// Longest name of a backend or listener. User data routes by a name padded with NUL to 32 bytes.
pub const NAME_BYTES_MAX: usize = 31;

/// Everything a config file says.
#[derive(Clone, Debug)]
pub struct Config {
    /// `[gateway]`.
    pub gateway: Gateway,
    /// `[[listener]]`, in the order of the file. Invariant: at least one, names and bind addresses
    /// unique.
    pub listeners: Vec<Listener>,
    /// `[[backend]]`, in the order of the file. Invariant: at least one where there is no fleet,
    /// names and UDP addresses unique.
    pub backends: Vec<Backend>,
    /// `[[agent]]`, in the order of the file. Invariant: at most 256, names unique.
    pub agents: Vec<Agent>,
    /// `[cluster]`; without it no other gateway connects. Invariant: only in a fleet.
    pub cluster: Option<Cluster>,
    /// `[fleet]`; without it this gateway is alone.
    pub fleet: Option<Fleet>,
    /// `[admin]`; without it no admin address is served.
    pub admin: Option<Admin>,
    /// `[histograms]`; without it no histogram files are written.
    pub histograms: Option<Histograms>,
}

impl Config {
    /// Keys that are as they were when the config was read before stay where they are in memory:
    /// each has one place there.
    pub fn keep_keys(&mut self, before: &Self) {
        if let (Some(own), Some(before)) = (&mut self.fleet, &before.fleet) {
            if own.key == before.key {
                own.key.clone_from(&before.key);
            }
            if own.password == before.password {
                own.password.clone_from(&before.password);
            }
        }
        let keys = |listener: &Listener| match &listener.protocol {
            Protocol::Netcode(rules) => rules.keys.clone(),
            _ => Vec::new(),
        };
        let kept: Vec<_> = before.listeners.iter().flat_map(keys).collect();
        for listener in &mut self.listeners {
            let Protocol::Netcode(rules) = &mut listener.protocol else { continue };
            for key in &mut rules.keys {
                if let Some(same) = kept.iter().find(|it| *it == key) {
                    key.clone_from(same);
                }
            }
        }
    }
}

impl Config {
    /// Whether a backend has this name.
    pub fn has_backend(&self, name: &str) -> bool {
        self.backends.iter().any(|backend| backend.name == name)
    }

    /// Where etcd counts the processes of the cluster: no other cluster's are counted there.
    pub fn counted_at(&self) -> Option<String> {
        let (fleet, cluster) = self.fleet.as_ref().zip(self.cluster.as_ref())?;
        let key = fleet.prefix.key(&Place::Incarnations(Name::new(&cluster.name)?));
        Some(String::from_utf8_lossy(&key).into_owned())
    }

    /// Sessions that memory is set aside for, of all listeners together.
    pub fn reserved_sessions(&self) -> usize {
        let together: usize = self.listeners.iter().map(|listener| listener.max_sessions).sum();
        together.max(self.gateway.reserve_sessions)
    }
}

/// One game process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name. Invariant: 1 to [`NAME_BYTES_MAX`] bytes, unique.
    pub name: String,
    /// How it is reached.
    pub link: Link,
    /// Players it takes; more are denied. 0 takes nobody new.
    pub slots: u32,
    /// How long a backend may be gone before its players are disconnected.
    pub grace: Duration,
    /// Whom it is for. In the file: everybody.
    pub intake: Intake,
}

/// How a game process is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Records over `SOCK_SEQPACKET`.
    Bundle(Allowed),
    /// Plain UDP to this address. Invariant: no port of 0, no wildcard, no multicast.
    Udp(SocketAddr),
}

/// Who may connect as a bundle backend. With both lists empty: only the gateway's own user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
    /// Group ids.
    pub gids: Vec<u32>,
}

impl Config {
    /// Reads and checks a config file. Keys come from where the file says: other files, this
    /// process's environment, or the credentials that the service manager handed over.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        load(file, |text, sources| parse(text, file, sources))
    }

    /// What is allowed but probably not meant, one sentence each.
    pub fn notices(&self) -> Vec<String> {
        notices::of(self)
    }

    /// Where the sources of one block could fill a server, one sentence each.
    pub fn fillable(&self) -> Vec<String> {
        notices::of_blocks(self)
    }
}

/// Reads a file, whatever it configures, and has it checked.
fn load<T>(
    file: &Path,
    parse: impl FnOnce(&str, &KeySources<'_>) -> Result<T, Mistakes>,
) -> Result<T, LoadError> {
    let text = text_of(file)?;
    parse(&text, &KeySources::of_process()).map_err(LoadError::Mistakes)
}

/// What is in a file. It may hold keys.
fn text_of(file: &Path) -> Result<Zeroizing<String>, LoadError> {
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    text.map_err(|cause| LoadError::Unreadable { file: file.to_owned(), cause })
}

/// Why there is no [`Config`].
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read as text.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        cause: io::Error,
    },
    /// The file was read, and is wrong.
    Mistakes(Mistakes),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, cause } => {
                write!(f, "cannot read the config file {}: {cause}", file.display())
            }
            Self::Mistakes(mistakes) => mistakes.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {}
