//! `ringgate trace`: what a running gateway decides about one player's packets, as it decides it.

use std::io::BufRead;
use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Place};
use super::capture::lasts;
use super::exit::show;
use ringgate_config::values;
use ringgate_gate::Prefix;
use ringgate_os::utc;

/// Show every decision about one player's packets as it is made, and why
///
/// Of a netcode player by its client id, of any player by its address. A packet whose client id is
/// not known yet (a request whose token does not open) is only counted for a client id: an address
/// shows it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Place,
}

/// What is traced, and how it is shown.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The player's client id, or an address or a network such as 192.0.2.0/24
    #[arg(value_name = "PLAYER", group = "who", required_unless_present_any = ["address", "client_id"], value_parser = whom)]
    whom: Option<String>,
    /// The player's client id, decimal or 0x… (netcode only)
    #[arg(long, alias = "client", value_name = "ID", group = "who", value_parser = client)]
    client_id: Option<String>,
    /// An address, or a network such as 192.0.2.0/24
    #[arg(long, value_name = "PREFIX", group = "who", value_parser = prefix)]
    address: Option<String>,
    /// How long, an hour at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = lasts)]
    lasts: Duration,
    /// Print what comes as it is: one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Which {
    /// What a gateway is asked.
    pub(super) fn query(&self) -> String {
        let mut query = format!("for_ms={}", self.lasts.as_millis());
        let (client, address) = admin::sort(self.whom.as_deref());
        admin::say(&mut query, "client", client.or(self.client_id.as_deref()));
        admin::say(&mut query, "address", address.or(self.address.as_deref()));
        query
    }

    /// How long.
    pub(super) const fn lasts(&self) -> Duration {
        self.lasts
    }

    /// A line as it is shown, and whether it is the last; of a fleet with the gateway's name.
    pub(super) fn told(&self, line: &str, gateway: Option<&str>) -> (String, bool) {
        let read = serde_json::from_str::<Line>(line);
        let is_end =
            |line: &Line| line.event == "end" && line.reason.as_deref() != Some("handed_over");
        let is_whole = read.as_ref().is_ok_and(is_end);
        let text = match (read, gateway) {
            (Ok(read), Some(gateway)) if !self.json => format!("{gateway}  {}", read.in_words()),
            (Ok(read), None) if !self.json => read.in_words(),
            (_, Some(gateway)) => {
                format!("{{\"gateway\":\"{gateway}\",{}\n", line.strip_prefix('{').unwrap_or(line))
            }
            (_, None) => format!("{line}\n"),
        };
        (text, is_whole)
    }
}

/// A line, as far as it is shown.
#[derive(Deserialize)]
struct Line {
    event: String,
    unix_ms: Option<u64>,
    listener: Option<String>,
    address: Option<String>,
    client_id: Option<u64>,
    reason: Option<String>,
    text: String,
}

fn client(text: &str) -> Result<String, String> {
    let number = values::number(text).map(|id| id.to_string());
    number.ok_or_else(|| format!("found {text:?}, expected a number of 64 bits"))
}

fn whom(text: &str) -> Result<String, String> {
    client(text).or_else(|_| prefix(text))
}

fn prefix(text: &str) -> Result<String, String> {
    let read = text.parse::<Prefix>();
    read.map(|_| text.to_owned()).map_err(|why| format!("found {text:?}, {why}"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let path = format!("/trace?{}", args.which.query());
    let lines = gateway.stream(&path)?;
    let mut is_whole = false;
    for line in lines.lines() {
        let Ok(line) = line else { break };
        if line.is_empty() {
            continue;
        }
        let (text, is_end) = args.which.told(&line, None);
        is_whole |= is_end;
        if !show(&text)? {
            return Ok(());
        }
    }
    if is_whole {
        return Ok(());
    }
    Err(Failure::failed(
        "the gateway ended the trace too early: it has stopped, is another process now, or does not answer",
    ))
}

impl Line {
    /// Time of day, who and what.
    fn in_words(&self) -> String {
        let time = self.unix_ms.map_or(String::new(), |ms| {
            let date = utc::date(ms / 1000);
            format!("{}.{:03}  ", date.get(11..19).unwrap_or_default(), ms % 1000)
        });
        let listener = self.listener.as_ref().map_or(String::new(), |name| format!("{name}  "));
        let address = self.address.as_ref().map_or(String::new(), |it| format!("{it}  "));
        let client = self.client_id.map_or(String::new(), |id| format!("client {id}  "));
        format!("{time}{listener}{address}{client}{}\n", self.text)
    }
}
