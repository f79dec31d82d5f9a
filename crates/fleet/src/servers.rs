//! How to reach the servers of etcd, and as whom.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

/// One member's address: `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether TLS is spoken.
    pub tls: bool,
}

impl Endpoint {
    /// Reads one as operators and etcd write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("endpoint `{text}`: {why}");
        let (tls, rest) = if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else {
            return Err(wrong("it begins with http:// or https://"));
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
        let port = port.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("the port is no number from 1 to 65535"))?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').ok_or_else(|| wrong("a bracket is missing"))?,
            None if host.contains(':') => return Err(wrong("IPv6 addresses stand in brackets")),
            None => host,
        };
        let is_plain = |it: char| it.is_ascii_alphanumeric() || ".-_:".contains(it);
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err(wrong("the host is no name and no address"));
        }
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let Self { host, port, .. } = self;
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}")
        } else {
            write!(f, "{scheme}://{host}:{port}")
        }
    }
}

/// A user of etcd's own.
#[derive(Clone)]
pub struct Credentials {
    /// Name.
    pub user: String,
    /// Password: in one place, and wiped there when nothing holds it any more.
    pub password: Arc<Zeroizing<String>>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.user)
    }
}

/// Files in PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Who may have signed the servers' certificates. The system's roots are not asked.
    pub ca: PathBuf,
    /// Our certificate and its key, where the servers want one.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// Everything that a client has to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// Members, of which one is spoken to at a time.
    pub endpoints: Vec<Endpoint>,
    /// User and password, where authentication is on.
    pub credentials: Option<Credentials>,
    /// For endpoints with `https`.
    pub tls: Option<TlsFiles>,
    /// How long a connection to one address may take to be made, TLS included.
    pub connect_timeout: Duration,
    /// How long an answer may take.
    pub request_timeout: Duration,
}

impl Options {
    /// Without credentials, with the usual times.
    pub fn new(endpoints: Vec<Endpoint>) -> Self {
        Self {
            endpoints,
            credentials: None,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_written() {
        for text in ["http://127.0.0.1:2379", "https://etcd-0.example:2379", "http://[::1]:1"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("http://a:1/").unwrap().host, "a");
        assert_eq!(Endpoint::parse("https://[::1]:1").unwrap().host, "::1");
    }

    #[test]
    fn endpoints_that_cannot_be_reached_are_refused() {
        for text in [
            "",
            "a:1",
            "http://a",
            "http://:1",
            "http://a:0",
            "http://a:99999",
            "http://::1:1",
            "http://[::1:1",
            "ftp://a:1",
            "http://a b:1",
            "http://a/b:1",
        ] {
            assert!(Endpoint::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn passwords_are_not_printed() {
        let password = Arc::new(Zeroizing::new("secret".to_owned()));
        let shown = format!("{:?}", Credentials { user: "root".into(), password });
        assert_eq!(shown, "Credentials(root)");
    }
}
