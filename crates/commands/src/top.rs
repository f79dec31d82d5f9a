//! `ringgate top`: a running gateway, second by second.
//!
//! Rates are what the gateway's counters have grown by between two looks. On a terminal they fill
//! the screen until `q`; anywhere else every look is one line, for a log or a pipe. Neither ends
//! when the gateway does: who looks wants to see it come back.

mod change;
mod keyboard;
mod picture;
mod terminal;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::Failure;
use super::admin::{Admin, FilePlace};
use super::exit::{print, show};
use change::{Change, Look};
use ringgate_config::values;
use ringgate_os::clock::{self, Clock};
use ringgate_os::utc;

/// Watch a running gateway
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: FilePlace,
    /// Show one screen and end
    #[arg(long)]
    once: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    values::time_within(text, values::LASTING, "a duration such as 1s or 500ms")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let clock = Clock::start();
    let admin = args.place.find()?;
    let first = Look::take(&admin, clock)?;
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    match (args.once, is_terminal) {
        (true, _) => {
            clock::sleep(args.interval);
            let now = Look::take(&admin, clock)?;
            print(&view::screen(&Change { before: &first, now: &now }))
        }
        (false, true) => terminal::watch(&admin, args.interval, clock, first),
        (false, false) => lines(&admin, args.interval, clock, first),
    }
}

/// A line for each look, until nobody reads them any more.
fn lines(admin: &Admin, interval: Duration, clock: Clock, mut before: Look) -> Result<(), Failure> {
    loop {
        clock::sleep(interval);
        let unix_s = clock::unix_seconds();
        let line = match Look::take(admin, clock) {
            Ok(now) => {
                let line = view::line(&Change { before: &before, now: &now }, unix_s);
                before = now;
                line
            }
            Err(why) => format!("{}  no answer: {why}\n", utc::date(unix_s)),
        };
        if !show(&line)? {
            return Ok(());
        }
    }
}
