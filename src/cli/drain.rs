//! `ringgate drain`: has a running gateway end when its players have left.

use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{Admin, Answer, Place};
use super::exit::print;
use crate::config::values;
use ringgate_os::{clock, utc};
use ringgate_report::text::{count, put};

/// Have a running gateway or agent take nobody in any more, and end when everybody has left
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Only this backend: it takes no new players, and the gateway goes on
    #[arg(long, value_name = "NAME", conflicts_with = "wait")]
    backend: Option<String>,
    /// Who is still there then is told to leave [default: the config's; with
    /// --backend never]
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<Duration>,
    /// Come back only when the gateway has ended
    #[arg(long)]
    wait: bool,
}

#[derive(Deserialize)]
struct Draining {
    sessions: u64,
    left_ms: u64,
}

#[derive(Deserialize)]
struct DrainingBackend {
    players: u64,
}

fn deadline(text: &str) -> Result<Duration, String> {
    let span = values::duration(text).filter(|span| *span <= DEADLINE_MAX);
    span.ok_or_else(|| {
        format!("found {text:?}, expected a time such as 30s, 5m or 2h, 24h at most")
    })
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let mut path = "/drain?".to_owned();
    if let Some(deadline) = args.deadline {
        put(&mut path, format_args!("deadline_ms={}&", deadline.as_millis()));
    }
    if let Some(name) = &args.backend {
        put(&mut path, format_args!("backend={name}"));
        let Answer { status, body } = admin.post(&path)?;
        return match (status, serde_json::from_str(&body)) {
            (200, Ok(DrainingBackend { players })) => {
                let players = count(players);
                print(&format!("backend {name} takes no new players; {players} are there\n"))
            }
            (400 | 404, _) => Err(Failure::bad_input(body.trim_end())),
            _ => Err(admin.unexpected(status, &body)),
        };
    }
    let Answer { status, body } = admin.post(&path)?;
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

const DEADLINE_MAX: Duration = Duration::from_hours(24);

const ASK_EVERY: Duration = Duration::from_millis(200);
