//! Who may do what: readers see the pages, and only those who are entitled change anything.
//!
//! Entitled is who comes through the control socket as root or as the daemon's own user, who shows
//! the token of `[admin] token` at the TCP address, and who asks through etcd with the fleet's key.
//! Everybody else who reaches the TCP address reads, and no page that they can read shows where a
//! player is.
//!
//! A browser can be made to send requests to addresses that only its owner reaches. So at the TCP
//! address a request has to name an IP address, `localhost` or a name of `[admin] hosts` as its
//! host (a name of an attacker's that resolves to this machine is none of them), and changes are
//! refused to web pages in any case: their requests carry an `Origin`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::header::AsHeaderName;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header};
use ringgate_os::process;
use tokio::net::UnixStream;

use super::answer::{Answer, text};

/// Where a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visitor {
    /// Over TCP, from there.
    Tcp(SocketAddr),
    /// Through the control socket, and entitled.
    Unix {
        /// Its user.
        uid: u32,
        /// Its process, where the kernel says.
        pid: Option<i32>,
    },
    /// Through etcd, with the fleet's key, and somebody who is called so there.
    Fleet(String),
}

impl fmt::Display for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(peer) => write!(f, "{peer} with the token"),
            Self::Unix { uid, pid: Some(pid) } => write!(f, "user {uid}, process {pid}"),
            Self::Unix { uid, pid: None } => write!(f, "user {uid}"),
            Self::Fleet(by) => write!(f, "{by} with the fleet's key"),
        }
    }
}

/// Who asks for what goes into the log before it is done.
pub fn note(visitor: &Visitor, what: &str) {
    tracing::info!(event = "asked", what, by = %visitor, "{visitor} asks for a {what}");
}

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Nothing but read.
    Read,
    /// Everything.
    Change,
}

/// The user at the other end of a connection to the control socket, if entitled. The kernel noted
/// the user when the connection was made.
pub(super) fn of_peer(stream: &UnixStream) -> Option<Visitor> {
    let peer = stream.peer_cred().ok()?;
    let is_entitled = peer.uid() == ROOT || peer.uid() == process::effective_uid();
    is_entitled.then(|| Visitor::Unix { uid: peer.uid(), pid: peer.pid() })
}

/// For what only the entitled may have: refuses web pages, and who may only read.
pub(super) fn permit(
    head: &Parts,
    right: Right,
    not_entitled: AccessRefusal,
) -> Result<(), AccessRefusal> {
    if head.headers.contains_key(header::ORIGIN) {
        return Err(AccessRefusal::WebPage);
    }
    if right == Right::Change { Ok(()) } else { Err(not_entitled) }
}

/// Whether a text is the token that entitles to changes.
pub type IsToken<'a> = &'a dyn Fn(&[u8]) -> bool;

/// What the config says of the admin address.
#[derive(Clone, Copy, Default)]
pub struct Rules<'a> {
    /// Names that requests may use for this host.
    pub hosts: &'a [String],
    /// Whether this is the token that entitles to changes, where there is one.
    pub is_token: Option<IsToken<'a>>,
}

impl Rules<'_> {
    /// What a request may do by these rules. Decided before any page is made.
    pub fn judge(self, visitor: &Visitor, head: &Parts) -> Result<Right, AccessRefusal> {
        match visitor {
            Visitor::Unix { .. } | Visitor::Fleet(_) => Ok(Right::Change),
            Visitor::Tcp(_) => {
                judge_host(self.hosts, head)?;
                judge_token(self.is_token, &head.headers, head.method.is_safe())
            }
        }
    }
}

/// Every name that the request gives its host has to be one of ours.
fn judge_host(hosts: &[String], parts: &Parts) -> Result<(), AccessRefusal> {
    match only(&parts.headers, header::HOST) {
        Ok(Some(host)) => {
            is_ours(hosts, host.to_str().map_err(|_| AccessRefusal::HostUnclear)?)?;
        }
        Ok(None) if parts.version < Version::HTTP_11 => {}
        _ => return Err(AccessRefusal::HostUnclear),
    }
    match parts.uri.authority() {
        Some(authority) => is_ours(hosts, authority.as_str()),
        None => Ok(()),
    }
}

fn is_ours(hosts: &[String], named: &str) -> Result<(), AccessRefusal> {
    let authority: Authority = named.parse().map_err(|_| AccessRefusal::HostUnclear)?;
    let host = authority.host();
    let port = named.strip_prefix(host).ok_or(AccessRefusal::HostUnclear)?;
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if !(port.is_empty() || port.strip_prefix(':').is_some_and(is_port)) {
        return Err(AccessRefusal::HostUnclear);
    }
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_address = match bracketed {
        Some(inside) => inside.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<IpAddr>().is_ok(),
    };
    let is_name = |name: &String| name.eq_ignore_ascii_case(host);
    if is_address || host.eq_ignore_ascii_case("localhost") || hosts.iter().any(is_name) {
        return Ok(());
    }
    Err(AccessRefusal::HostForeign)
}

/// A wrong token is refused whatever it was for; its owner should know.
fn judge_token(
    is_token: Option<IsToken<'_>>,
    headers: &HeaderMap,
    only_reads: bool,
) -> Result<Right, AccessRefusal> {
    let Some(is_token) = is_token else { return Ok(Right::Read) };
    match only(headers, header::AUTHORIZATION) {
        Ok(None) if only_reads => Ok(Right::Read),
        Ok(Some(shown)) if bearer(shown.as_bytes()).is_some_and(is_token) => Ok(Right::Change),
        _ => Err(AccessRefusal::TokenWrong),
    }
}

/// What a header says that may be there once.
pub fn only(headers: &HeaderMap, name: impl AsHeaderName) -> Result<Option<&HeaderValue>, Several> {
    let mut said = headers.get_all(name).iter();
    let first = said.next();
    if said.next().is_some() { Err(Several) } else { Ok(first) }
}

/// A header is there more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Several;

/// What is shown by an `Authorization` of this scheme, whose case does not matter (RFC 9110, 11.1).
pub fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(BEARER.len())?;
    scheme.eq_ignore_ascii_case(BEARER).then(|| rest.trim_ascii())
}

const BEARER: &[u8] = b"Bearer ";

const ROOT: u32 = 0;

/// For other users at the control socket.
pub(super) const NOT_ENTITLED: &str =
    "the control socket is for root and the daemon's own user only\n";

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRefusal {
    /// A page as of now, of who may only read.
    AsksAll,
    /// A host that is not called so.
    HostForeign,
    /// No host, or not one.
    HostUnclear,
    /// A change, of who may only read.
    OnlyReads,
    /// Where players are, of who may only read.
    ShowsPlayers,
    /// A token that entitles to nothing.
    TokenWrong,
    /// A request that a web page has made.
    WebPage,
}

impl From<AccessRefusal> for Answer {
    fn from(refusal: AccessRefusal) -> Self {
        let (status, why) = match refusal {
            AccessRefusal::AsksAll => (
                StatusCode::FORBIDDEN,
                "a page as of now has all workers publish: ask through the control socket (control.sock in run_dir), or send \
                 the token of [admin] token as a bearer token\n",
            ),
            AccessRefusal::HostForeign => (
                StatusCode::MISDIRECTED_REQUEST,
                "this gateway is not called so: use its IP address or localhost, or add the name to [admin] hosts\n",
            ),
            AccessRefusal::HostUnclear => (
                StatusCode::BAD_REQUEST,
                "the request names no host, or not one host:port: send one Host header with an IP address\n",
            ),
            AccessRefusal::OnlyReads => (
                StatusCode::FORBIDDEN,
                "here you may only read: change things through the control socket (`ringgate drain` and `reload` use \
                 control.sock in run_dir), or set [admin] token and send it as a bearer token\n",
            ),
            AccessRefusal::ShowsPlayers => (
                StatusCode::FORBIDDEN,
                "this shows where players are: ask through the control socket (control.sock in run_dir), or send the token \
                 of [admin] token as a bearer token\n",
            ),
            AccessRefusal::TokenWrong => (
                StatusCode::UNAUTHORIZED,
                "a change needs the token of [admin] token: send it as `Authorization: Bearer TOKEN`, or use the control \
                 socket (control.sock in run_dir)\n",
            ),
            AccessRefusal::WebPage => {
                (StatusCode::FORBIDDEN, "requests from web pages are refused\n")
            }
        };
        let mut response = text(status, why);
        if status == StatusCode::UNAUTHORIZED {
            let challenge = header::HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str) -> Result<(), AccessRefusal> {
        is_ours(&["gate.example".to_owned()], host)
    }

    #[test]
    fn hosts_are_addresses_localhost_or_configured_names() {
        for host in ["192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "localhost:1", "GATE.example"]
        {
            assert_eq!(verdict(host), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.1", "0x7f.1", "x.gate.example", "gate.example."] {
            assert_eq!(verdict(host), Err(AccessRefusal::HostForeign), "{host}");
        }
        for host in ["", ":80", "a b", "user@localhost", "localhost:1:2", "localhost:x", "[::1"] {
            assert!(verdict(host).is_err(), "{host}");
        }
    }

    #[test]
    fn the_scheme_of_a_token_is_bearer_in_any_case() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for other in [&b""[..], b"Bearer", b"Basic abc", b"Bearerabc"] {
            assert_eq!(bearer(other), None);
        }
    }
}
