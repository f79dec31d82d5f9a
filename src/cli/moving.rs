//! `ringgate move`: has a player play at another backend, without a reconnect.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Admin, Place};
use super::exit::print;
use super::kick::Whom;
use crate::config::values;
use ringgate_report::text::{count, put};

/// Move a player to another backend of a running gateway, without a reconnect
///
/// The game process there is asked, and may say no.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Where the player is to play: a backend, or a group of which the one with most room is asked
    #[arg(long, value_name = "BACKEND", value_parser = admin::name)]
    to: String,
    /// So long may the game process take to answer [default: 2s, 30s at most]
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// It hears that it has the player when the other one has heard that it has not
    #[arg(long)]
    confirm: bool,
    #[command(flatten)]
    place: Place,
}

/// What has become of it.
#[derive(Deserialize)]
pub(super) struct Moved {
    pub(super) moved: u64,
    refused: BTreeMap<String, u64>,
}

impl Moved {
    /// How many were not moved, and why.
    pub(super) fn refusals(&self) -> Option<String> {
        let refused = self.refused.values().sum::<u64>();
        let reasons = self.refused.iter().map(|(why, count)| format!("{why} {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        (refused > 0).then(|| format!("{} were not moved: {reasons}", count(refused)))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let span = values::duration(text).filter(|it| (1..=30_000).contains(&it.as_millis()));
    span.ok_or_else(|| format!("found {text:?}, expected a time such as 500ms, 30s at most"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let mut query = args.whom.query();
    if let Some(time) = args.time {
        put(&mut query, format_args!("&time_ms={}", time.as_millis()));
    }
    if args.confirm {
        query += "&confirm=true";
    }
    let moved = ask(&gateway, &query, &args.to)?;
    let (name, whom) = args.whom.named();
    match (moved.moved, moved.refusals()) {
        (0, None) => Err(Failure::failed(format_args!("{name} {whom} has no session here"))),
        (0, Some(why)) => Err(Failure::failed(format_args!("{name} {whom}: {why}"))),
        (moved, _) => print(&format!("moved {} to {}\n", count(moved), args.to)),
    }
}

/// Asks a gateway for a move.
pub(super) fn ask(gateway: &Admin, query: &str, to: &str) -> Result<Moved, Failure> {
    gateway.change(&format!("/sessions/move?{query}&to={to}"), &[400, 404])
}
