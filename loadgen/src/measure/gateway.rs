//! The gateway as it can be seen from outside: its counters by its admin address or its control
//! socket, its CPU time by its process.
//!
//! A glimpse is one moment. That two glimpses show the same gateway is nothing to take for granted:
//! [`watch`](crate::measure::watch) holds them together.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringgate_process::client::{self, BlockingClient, Patience};
use tokio::net::{TcpStream, UnixStream};

use crate::measure::procfs::{self, ThreadCpu};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    /// Its process.
    pub pid: Option<u32>,
    /// Where it shows its counters.
    pub admin: Option<Admin>,
}

/// Where a gateway shows its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admin {
    /// At its admin address, as they were when workers last published them.
    Tcp(SocketAddr),
    /// By its control socket, as of now.
    Control(PathBuf),
}

impl FromStr for Admin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Control(text.into()));
        }
        let address = text.parse().map(Self::Tcp);
        address
            .map_err(|_| format!("found {text:?}, expected IP:port or the control socket's path"))
    }
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Control(path) => path.display().fmt(f),
        }
    }
}

impl Admin {
    /// The process that listens there.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Tcp(address) => procfs::listener_pid(*address),
            Self::Control(path) => procfs::socket_pid(path),
        }
    }
}

/// What was seen at one moment.
#[derive(Clone, Debug, Default)]
pub struct Glimpse {
    /// Whether the admin address has answered.
    pub is_seen: bool,
    /// Which start of the gateway this is, as it says itself.
    pub incarnation: Option<String>,
    /// When its process was started, in the kernel's ticks since it booted.
    pub started: Option<u64>,
    /// CPU time by thread.
    pub threads: Vec<ThreadCpu>,
    /// Metrics, summed over workers; those with a reason or type under `name{reason}`.
    pub metrics: Metrics,
    /// How often each backend has become reachable for each worker, by the labels of both.
    pub arrivals: BTreeMap<String, u64>,
    /// Workers that say their own books do not balance.
    pub unbalanced_workers: u64,
}

impl Glimpse {
    /// What stands still when nothing moves any more: datagrams and payloads, each way.
    pub fn movement(&self) -> [u64; 4] {
        [
            "ringgate_datagrams_in_total",
            "ringgate_packets_out_total",
            "ringgate_link_datagrams_in_total",
            "ringgate_link_datagrams_out_total",
        ]
        .map(|name| self.metrics.get(name).copied().unwrap_or_default() as u64)
    }

    /// Sessions that are open.
    pub fn sessions(&self) -> u64 {
        self.metrics.get("ringgate_sessions").copied().unwrap_or_default() as u64
    }
}

/// Metrics by name.
pub type Metrics = BTreeMap<String, f64>;

impl Gateway {
    /// With its process found by its admin address where it is not given.
    pub fn new(pid: Option<u32>, admin: Option<Admin>) -> Self {
        Self { pid: pid.or_else(|| admin.as_ref().and_then(Admin::pid)), admin }
    }

    /// Looks now. What cannot be reached is empty.
    pub fn look(&self) -> Glimpse {
        self.try_look().unwrap_or_else(|_| self.glimpse(None))
    }

    /// Looks now; why not, where there is an admin address that does not show its metrics.
    pub fn try_look(&self) -> Result<Glimpse, String> {
        let page = self.admin.as_ref();
        let page = page.map(|admin| fetch(admin).map_err(|why| format!("{admin}: {why}")));
        Ok(self.glimpse(page.transpose()?))
    }

    fn glimpse(&self, page: Option<String>) -> Glimpse {
        let is_seen = page.is_some();
        let page = page.unwrap_or_default();
        let is_unbalanced = |line: &&str| {
            line.starts_with("ringgate_conserved{") && line.split(' ').next_back() == Some("0")
        };
        let incarnation = |line: &str| {
            let labels = line.strip_prefix("ringgate_instance_info{incarnation=\"")?;
            labels.split('"').next().map(Into::into)
        };
        Glimpse {
            is_seen,
            incarnation: page.lines().find_map(incarnation),
            started: self.pid.and_then(procfs::started),
            threads: self.pid.map(procfs::threads).unwrap_or_default(),
            metrics: parse(&page),
            arrivals: page.lines().filter_map(arrival).collect(),
            unbalanced_workers: page.lines().filter(is_unbalanced).count() as u64,
        }
    }
}

/// Asks for the metrics page. Any other page is no metrics.
fn fetch(admin: &Admin) -> io::Result<String> {
    let (client, path, host) = match admin {
        Admin::Tcp(address) => {
            let connect = || TcpStream::connect(address);
            let client = BlockingClient::open(Patience::of(PATIENCE), connect)?;
            (client, "/metrics", address.to_string())
        }
        Admin::Control(path) => {
            let connect = || UnixStream::connect(path);
            let client = BlockingClient::open(Patience::of(PATIENCE_OF_NOW), connect)?;
            (client, "/metrics?as_of=now", "localhost".to_owned())
        }
    };
    let answer = client.ask(client::request("GET", path, &host, None, String::new())?)?;
    let status = answer.status;
    if status != 200 {
        return Err(io::Error::other(format!("it answers with status {status} and no metrics")));
    }
    answer.text(PAGE_BYTES_MAX).map(|(page, _)| page)
}

/// Reads the Prometheus text format, as far as counters and gauges go. Samples of the same name are
/// added up, apart by the labels that tell kinds apart and not by worker.
pub fn parse(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines().filter(|line| line.starts_with("ringgate_")) {
        let Some((sample, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        *metrics.entry(name.to_owned()).or_default() += value;
        let label = ["reason", "type", "kind"].iter().find_map(|wanted| {
            let labels = labels.trim_end_matches('}').split(',');
            let pairs = labels.filter_map(|pair| pair.split_once('='));
            pairs
                .filter(|(label, _)| label == wanted)
                .map(|(_, value)| value.trim_matches('"'))
                .next()
        });
        if let Some(label) = label {
            *metrics.entry(format!("{name}{{{label}}}")).or_default() += value;
        }
    }
    metrics
}

/// A backend's arrivals at a worker, by the labels of both.
fn arrival(line: &str) -> Option<(String, u64)> {
    let (labels, count) =
        line.strip_prefix("ringgate_backend_arrivals_total{")?.split_once("} ")?;
    Some((labels.to_owned(), count.parse().ok()?))
}

/// How much each metric of one gateway has grown. What can go down as well, like sessions, counts
/// where it went up.
pub fn growth(before: &Metrics, after: &Metrics) -> Metrics {
    let grown = |(name, value): (&String, &f64)| {
        (name.clone(), (value - before.get(name).copied().unwrap_or_default()).max(0.0))
    };
    after.iter().map(grown).collect()
}

const PATIENCE: Duration = Duration::from_secs(2);

/// The gateway itself waits for its workers, and for another request's round of publishing.
const PATIENCE_OF_NOW: Duration = Duration::from_secs(5);

/// A page of a gateway with many listeners is some 100 KB.
const PAGE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_added_up_and_reasons_kept_apart() {
        let page = "HTTP/1.0 200 OK\r\n\r\n# HELP ringgate_x X.\n\
            ringgate_datagrams_in_total{worker=\"0\"} 5\n\
            ringgate_datagrams_in_total{worker=\"1\"} 7\n\
            ringgate_drops_total{worker=\"0\",reason=\"too_long\"} 2\n\
            ringgate_drops_total{worker=\"1\",reason=\"too_long\"} 1\n\
            ringgate_drops_total{worker=\"1\",reason=\"empty\"} 4\n\
            ringgate_sessions 3\nother_metric 9\n";
        let metrics = parse(page);
        let whole = |name: &str| metrics[name] as i64;
        assert_eq!(whole("ringgate_datagrams_in_total"), 12);
        assert_eq!(whole("ringgate_drops_total"), 7);
        assert_eq!(whole("ringgate_drops_total{too_long}"), 3);
        assert_eq!((whole("ringgate_sessions"), metrics.len()), (3, 5));
        let later = parse("ringgate_sessions 10\nringgate_new 1\n");
        assert_eq!(growth(&metrics, &later)["ringgate_sessions"] as i64, 7);
    }

    #[test]
    fn a_gateway_that_is_not_there_shows_nothing() {
        let glimpse = Gateway::default().look();
        assert!(glimpse.threads.is_empty() && glimpse.metrics.is_empty());
    }
}
