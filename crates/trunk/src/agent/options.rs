//! What an agent is told when it starts.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::tls;

/// Everything that an agent needs to know.
#[derive(Clone)]
pub struct Options {
    /// What it calls itself: a name of its certificate.
    pub name: String,
    /// The gateways that it connects to at first; there may be none.
    pub gateways: Vec<Gateway>,
    /// Reads its certificate and key, and whose word it takes: for each connection anew, so that
    /// files may be replaced while it runs.
    pub identity: Arc<dyn Fn() -> Result<tls::Agent, String> + Send + Sync>,
    /// Where game processes find its sockets.
    pub run_dir: PathBuf,
    /// The game processes that it serves at first.
    pub backends: Vec<Backend>,
    /// How long players may stay, at first, where a gateway is none of the agent's any more.
    pub patience: Duration,
    /// Tells this start of the agent from others.
    pub incarnation: u64,
}

impl Options {
    /// Names and addresses of game processes that speak plain UDP, in order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = (&str, SocketAddrV4)> {
        self.backends.iter().filter_map(|backend| match backend.link {
            Link::Udp(address) => Some((&*backend.name, address)),
            Link::Bundle(_) => None,
        })
    }
}

ringgate_core::shown_by!(Options { name, gateways, run_dir, backends });

/// Where a gateway takes agents in. Its certificate has to be for this host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gateway {
    /// A host's name or address.
    pub host: String,
    /// The port, of TCP and UDP alike.
    pub port: u16,
}

impl Gateway {
    /// Reads `host:port`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let host = match bare {
            Some(v6) => v6.parse::<std::net::Ipv6Addr>().ok()?.to_string(),
            None if host.contains(':') => return None,
            None => host.to_owned(),
        };
        rustls::pki_types::ServerName::try_from(host.as_str()).ok()?;
        Some(Self { host, port })
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A game process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name, at the gateways as well.
    pub name: String,
    /// How it is reached on this host.
    pub link: Link,
}

/// How a game process is reached on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// It connects to the agent's sockets.
    Bundle(Allowed),
    /// It speaks plain UDP here, and knows nothing of gateways.
    Udp(SocketAddrV4),
}

/// Processes that may connect under a name: by their effective user, or by their effective group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// User ids.
    pub uids: Vec<u32>,
    /// Group ids.
    pub gids: Vec<u32>,
}

impl Allowed {
    /// Whether a process of this user and group may.
    pub fn admits(&self, uid: u32, gid: u32) -> bool {
        self.uids.contains(&uid) || self.gids.contains(&gid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_hosts_with_ports() {
        for text in ["gate-1.example:7200", "10.0.0.1:7200", "[fd00::1]:7200"] {
            let gateway = Gateway::parse(text);
            assert_eq!(gateway.map(|it| it.to_string()).as_deref(), Some(text));
        }
        for text in
            ["gate-1", "gate-1:0", "gate-1:70000", "fd00::1:7200", ":7200", "a b:1", "[x]:1"]
        {
            assert_eq!(Gateway::parse(text), None, "{text}");
        }
    }
}
