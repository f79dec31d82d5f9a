//! `ringgate drain`: has a running gateway end when its players have left.

use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{Admin, Answer, Place};
use super::exit::print;
use ringgate_os::{clock, utc};
use ringgate_report::text::count;

/// Have a running gateway take nobody in any more, and end when everybody has left
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Come back only when the gateway has ended
    #[arg(long)]
    wait: bool,
}

#[derive(Deserialize)]
struct Draining {
    sessions: u64,
    left_ms: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let Answer { status, body } = admin.post("/drain")?;
    let draining: Draining = match serde_json::from_str(&body) {
        Ok(draining) if status == 200 => draining,
        _ => return Err(admin.unexpected(status, &body)),
    };
    let Draining { sessions, left_ms } = draining;
    let left = utc::span(left_ms / 1000);
    print(&format!("draining: {} sessions, {left} at most\n", count(sessions)))?;
    if args.wait {
        wait(&admin);
    }
    Ok(())
}

/// The gateway answers until it has ended.
fn wait(admin: &Admin) {
    while admin.answers() {
        clock::sleep(ASK_EVERY);
    }
}

const ASK_EVERY: Duration = Duration::from_millis(200);
