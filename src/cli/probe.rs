//! `ringgate probe`: a real client that says at which step it fails, how long each step took, and
//! what that most probably means.
//!
//! It does what a player does, from where a player is: nothing of a gateway has to be reachable but
//! its public address. What a gateway does not answer it does not explain either, so silence has
//! several meanings here; `ringgate trace` tells on the gateway which it was.

mod about;
mod configured;
mod line;
mod netcode;
mod plain;
mod unreal;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::Failure;
use super::exit::print;
use crate::config::values;
use line::Trouble;
use ringgate_report::text::put;

/// Be a player for a moment, and say at which step it fails and why
///
/// At what a gateway's config file says, or with a token from the token service, or with one made
/// on the spot under the listener's key, or without any for other protocols. Exits with 0 if it was
/// let in (plain, or with --payload: answered), 1 if not.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The gateway's config file: protocol, address, key and protocol id are taken from there, and
    /// what is wrong with --token by these is said
    #[arg(long, value_name = "FILE", conflicts_with_all = ["key", "plain", "unreal"])]
    config: Option<PathBuf>,
    /// With --config: the listener's name, where there are several
    #[arg(long, value_name = "NAME", requires = "config")]
    listener: Option<String>,
    /// The player's connect token, as `ringgate token mint` or the token service made it
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    /// Make a token under this key of the listener's: a key file, or 64 hex digits. With --token:
    /// see whether the token was made under it
    #[arg(long, value_name = "K")]
    key: Option<String>,
    /// For a token made here: the listener's protocol id, decimal or 0x…
    #[arg(long, value_name = "N", value_parser = number, requires = "key", conflicts_with = "token")]
    protocol_id: Option<u64>,
    /// For a token made here: who the player is, decimal or 0x… [default: a random number]
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "token")]
    client_id: Option<u64>,
    /// For a token made here: with route = "user-data", the backend's name
    #[arg(long, value_name = "S", default_value = "", conflicts_with = "token")]
    user_data: String,
    /// Where players connect [default: the first server that the token names]
    #[arg(long, value_name = "ADDR", value_parser = server)]
    server: Option<SocketAddr>,
    /// A plain listener: send something, and wait for an answer of the game
    #[arg(long, requires = "server", conflicts_with_all = ["token", "key", "unreal", "protocol_id", "client_id"])]
    plain: bool,
    /// What is sent to the game as text, and its answer awaited; netcode: once let in, and only if
    /// it is given [default with --plain: ringgate probe]
    #[arg(long, value_name = "TEXT", value_parser = text, conflicts_with = "unreal")]
    payload: Option<Payload>,
    /// The same as hex digits
    #[arg(long, value_name = "HEX", value_parser = hex, conflicts_with_all = ["payload", "unreal"])]
    payload_hex: Option<Payload>,
    /// An Unreal listener: the handshake, up to the server's acknowledgement
    #[arg(long, requires = "server", conflicts_with_all = ["token", "key", "protocol_id", "client_id"])]
    unreal: bool,
    #[command(flatten)]
    engine: unreal::Engine,
    /// How long each step may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience)]
    timeout: Duration,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Debug)]
struct Payload(Vec<u8>);

impl Args {
    /// What is sent to the game, if anything was said.
    fn payload(&self) -> Option<&[u8]> {
        let said = self.payload.as_ref().or(self.payload_hex.as_ref());
        said.map(|payload| payload.0.as_slice())
    }

    /// The same for a game that says nothing by itself.
    fn plain_payload(&self) -> &[u8] {
        self.payload().unwrap_or(b"ringgate probe")
    }
}

/// What became of it.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    protocol: &'static str,
    server: SocketAddr,
    /// Where the player was, as this host sees it.
    from: SocketAddr,
    outcome: Outcome,
    /// In the order in which they were taken; the last one is where it ended.
    steps: Vec<Step>,
    took_ms: f64,
    /// What that means, the most probable first.
    means: Vec<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
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
struct Step {
    #[serde(rename = "step")]
    name: &'static str,
    /// What came of it.
    found: String,
    /// Datagrams that were sent for it.
    sent: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<f64>,
}

impl Step {
    fn new(step: &'static str, found: impl Into<String>, sent: u32, took_ns: Option<u64>) -> Self {
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

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let report = match (&args.config, args.server) {
        (Some(file), _) => configured::probe(args, file)?,
        (None, Some(server)) if args.plain => {
            plain::probe(server, args.plain_payload(), args.timeout)?
        }
        (None, Some(server)) if args.unreal => {
            unreal::probe(server, &args.engine.profile(), args.timeout)?
        }
        _ => netcode::probe(args)?,
    };
    print(&if args.json { json(&report) } else { render(&report) })?;
    match report.outcome {
        Outcome::Connected => Ok(()),
        _ => {
            let why = report.means.first().map_or("not let in", |means| means.as_str());
            Err(Failure::failed(format_args!("{}: {why}", report.server)))
        }
    }
}

fn render(report: &Report) -> String {
    let mut text = format!("{} {} from {}\n", report.protocol, report.server, report.from);
    for step in &report.steps {
        put(&mut text, format_args!("  {:<12}{}", step.name, step.found));
        if let Some(took_ms) = step.took_ms {
            put(&mut text, format_args!(" after {took_ms:.1} ms"));
        }
        match step.sent {
            0 | 1 => text.push('\n'),
            sent => put(&mut text, format_args!(" (sent {sent} times)\n")),
        }
    }
    match report.outcome {
        Outcome::Connected => {
            put(&mut text, format_args!("let in after {:.1} ms\n", report.took_ms));
        }
        Outcome::Unanswered => text.push_str("let in, and not answered\n"),
        _ => text.push_str("not let in\n"),
    }
    for means in &report.means {
        put(&mut text, format_args!("  - {means}\n"));
    }
    text
}

fn json(report: &Report) -> String {
    let text = serde_json::to_string_pretty(report).expect("plain data");
    format!("{text}\n")
}

/// What trouble of the network means.
fn network_means(outcome: Outcome, server: SocketAddr) -> Vec<String> {
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
fn ask_there(from: SocketAddr) -> String {
    let ip = from.ip();
    format!(
        "on the gateway, `ringgate trace --address {ip}` while this runs shows what it decides (behind NAT: with the public \
         address); if that shows nothing, the datagrams do not arrive: a filter on the way"
    )
}

fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e4).round() / 100.0
}

fn number(text: &str) -> Result<u64, String> {
    values::number(text).ok_or_else(|| format!("found {text:?}, expected a number of 64 bits"))
}

fn server(text: &str) -> Result<SocketAddr, String> {
    values::reachable_address(text)
        .ok_or_else(|| format!("found {text:?}, expected an IP:port such as 203.0.113.9:40000"))
}

fn text(text: &str) -> Result<Payload, String> {
    let is_sendable = (1..=PAYLOAD_MAX).contains(&text.len());
    let payload = is_sendable.then(|| Payload(text.as_bytes().to_vec()));
    payload.ok_or_else(|| format!("expected 1 to {PAYLOAD_MAX} bytes"))
}

fn hex(text: &str) -> Result<Payload, String> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
    let bytes = bytes.filter(|bytes| (1..=PAYLOAD_MAX).contains(&bytes.len()));
    bytes.map(Payload).ok_or_else(|| format!("expected 2 to {} hex digits", 2 * PAYLOAD_MAX))
}

fn patience(text: &str) -> Result<Duration, String> {
    let span = values::duration(text).filter(|it| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(it));
    span.ok_or_else(|| format!("found {text:?}, expected a time such as 5s, from 100ms to 1m"))
}

/// Of the report in JSON.
const SCHEMA: u32 = 1;

const PAYLOAD_MAX: usize = 1200;

const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
