//! What became of a player for a moment: the steps of its way in, and what they most probably mean.

use std::net::SocketAddr;

use serde::Serialize;

use super::line::Trouble;
use ringgate_report::text::Append as _;

/// What became of it.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    pub(super) protocol: &'static str,
    pub(super) server: SocketAddr,
    /// Where the player was, as this host sees it.
    pub(super) from: SocketAddr,
    pub(super) outcome: Outcome,
    /// In the order in which they were taken; the last one is where it ended.
    pub(super) steps: Vec<Step>,
    pub(super) took_ms: f64,
    /// What that means, the most probable first.
    pub(super) means: Vec<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// Let in, or answered.
    Connected,
    /// Let in, and the game has not answered.
    Unanswered,
    /// The gateway said that the player may not come in.
    Denied,
    /// Nothing came back.
    Silence,
    /// The host said that nobody listens there.
    Refused,
    /// The network said that it cannot be reached.
    Unreachable,
    /// This host does not let it out.
    Blocked,
    /// The server does not serve this version.
    WrongVersion,
}

/// One step of the way in.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    #[serde(rename = "step")]
    pub(super) name: &'static str,
    /// What came of it.
    pub(super) found: String,
    /// Datagrams that were sent for it.
    pub(super) sent: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) took_ms: Option<f64>,
}

impl Step {
    pub(super) fn new(
        step: &'static str,
        found: impl Into<String>,
        sent: u32,
        took_ns: Option<u64>,
    ) -> Self {
        Self { name: step, found: found.into(), sent, took_ms: took_ns.map(ms) }
    }
}

impl From<Trouble> for Outcome {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Blocked => Self::Blocked,
            Trouble::Refused => Self::Refused,
            Trouble::Unreachable => Self::Unreachable,
        }
    }
}

pub(super) fn render(report: &Report) -> String {
    let mut text = format!("{} {} from {}\n", report.protocol, report.server, report.from);
    for step in &report.steps {
        write!(text, "  {:<12}{}", step.name, step.found);
        if let Some(took_ms) = step.took_ms {
            write!(text, " after {took_ms:.1} ms");
        }
        match step.sent {
            0 | 1 => text.push('\n'),
            sent => writeln!(text, " (sent {sent} times)"),
        }
    }
    match report.outcome {
        Outcome::Connected => {
            writeln!(text, "let in after {:.1} ms", report.took_ms);
        }
        Outcome::Unanswered => text.push_str("let in, and not answered\n"),
        _ => text.push_str("not let in\n"),
    }
    for means in &report.means {
        writeln!(text, "  - {means}");
    }
    text
}

pub(super) fn json(report: &Report) -> String {
    let text = serde_json::to_string_pretty(report).expect("plain data");
    format!("{text}\n")
}

/// What trouble of the network means.
pub(super) fn network_means(outcome: Outcome, server: SocketAddr) -> Vec<String> {
    let port = server.port();
    match outcome {
        Outcome::Refused => vec![
            "nobody listens there: that host has said so (ICMP port unreachable)".to_owned(),
            "the gateway is not running, or its listener has another address: `ringgate status` there".to_owned(),
        ],
        Outcome::Unreachable => vec![
            "the network has said that the address cannot be reached".to_owned(),
            format!("a router or a firewall on the way refuses UDP to port {port}, or there is no route"),
        ],
        Outcome::Blocked => vec![
            "this host's own firewall does not let the datagram out (EPERM)".to_owned(),
            "`nft list ruleset` here shows the rule".to_owned(),
        ],
        _ => Vec::new(),
    }
}

/// How to find out on the gateway what silence has meant.
pub(super) fn ask_there(from: SocketAddr) -> String {
    let ip = from.ip();
    format!(
        "on the gateway, `ringgate trace --address {ip}` while this runs shows what it decides (behind NAT: with the public \
         address); if that shows nothing, the datagrams do not arrive: a filter on the way"
    )
}

pub(super) fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e4).round() / 100.0
}

/// Of the report in JSON.
pub(super) const SCHEMA: u32 = 1;
