//! `ringgate drain`: has a running gateway end when its players have left.

use std::io::{self, Write};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Failure;
use super::admin::{self, Admin, OneBackend, Place};
use super::exit::print;
use super::moving;
use ringgate_config::values;
use ringgate_os::clock::{self, Clock};
use ringgate_os::utc;
pub(super) use ringgate_process::pages::asked::Draining;
use ringgate_report::text::{Append as _, count};

/// Have a running gateway or agent take nobody in any more, and end when everybody has left
///
/// With a BACKEND, only that one takes no new players, and the gateway goes on. An upgrade keeps
/// that, a restart ends it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    backend: OneBackend,
    /// Move its players to this backend, or to those of this group that have free slots, without a
    /// reconnect
    #[arg(long, value_name = "GROUP", value_parser = admin::name)]
    move_to: Option<String>,
    /// Who is still there then is told to leave [default: the config's; of a backend
    /// never]
    #[arg(long, value_name = "TIME", value_parser = deadline)]
    deadline: Option<Duration>,
    /// Have other members of its cluster go on with its sessions. It ends once routers have sent it
    /// nothing for three seconds
    #[arg(long, conflicts_with_all = ["only", "backend", "move_to"])]
    hand_over: bool,
    /// Come back only when the gateway has ended, and say meanwhile how many are left
    #[arg(long, conflicts_with_all = ["only", "backend"])]
    wait: bool,
}

#[derive(Deserialize)]
pub(super) struct DrainingBackend {
    pub(super) players: u64,
}

pub(super) fn deadline(text: &str) -> Result<Duration, String> {
    values::time_within(text, ..=DEADLINE_MAX, "a time such as 30s, 5m or 2h, 24h at most")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let mut path = "/drain?".to_owned();
    if let Some(deadline) = args.deadline {
        write!(path, "deadline_ms={}&", deadline.as_millis());
    }
    if let Some(name) = args.backend.name() {
        write!(path, "backend={name}");
        let DrainingBackend { players } = admin.change(&path, &[400, 404])?;
        print(&format!("backend {name} takes no new players; {} are there\n", count(players)))?;
        // Its players play elsewhere, as far as there is room.
        let Some(to) = &args.move_to else { return Ok(()) };
        return moving::ask_for_all(&admin, (name, players), to)?.say(to);
    }
    if args.move_to.is_some() {
        return Err(Failure::bad_input("--move-to is for one backend: expected --backend NAME"));
    }
    if args.hand_over {
        path.push_str("hand_over=1");
    }
    let before = if args.wait { look(&admin) } else { None };
    let Draining { sessions, left_ms } = admin.change(&path, &[400, 409])?;
    let left = utc::span(left_ms / 1000);
    print(&format!("draining: {} sessions, {left} at most\n", count(sessions)))?;
    if args.wait {
        wait(&admin, before.as_ref())?;
    }
    Ok(())
}

fn look(admin: &Admin) -> Option<Value> {
    admin.get("/status").ok().and_then(|page| serde_json::from_str(&page).ok())
}

/// Waits until the process has ended, also where another has been started in its place. Says each
/// few seconds how far it is.
fn wait(admin: &Admin, before: Option<&Value>) -> Result<(), Failure> {
    let clock = Clock::start();
    let mut said_ns = 0;
    while admin.is_there()? {
        clock::sleep(ASK_EVERY);
        if clock.now_ns() - said_ns < SAY_EVERY.as_nanos() as u64 {
            continue;
        }
        said_ns = clock.now_ns();
        let Some(now) = look(admin) else { continue };
        if before.is_some_and(|before| before["incarnation"] != now["incarnation"]) {
            return Ok(());
        }
        if now["state"] != "draining" {
            return Err(Failure::failed("it has not ended: somebody has taken the drain back"));
        }
        // An agent has players.
        let sessions = now["totals"]["sessions"].as_u64().or_else(|| now["players"].as_u64());
        let sessions = count(sessions.unwrap_or_default());
        let left = now["drain_left_ms"].as_u64();
        let left = left.map(|ms| format!(", {} at most", utc::span(ms / 1000)));
        // Nothing is left to be done when stderr is gone.
        let _ = writeln!(io::stderr(), "{sessions} sessions are left{}", left.unwrap_or_default());
    }
    Ok(())
}

const DEADLINE_MAX: Duration = Duration::from_hours(24);

const ASK_EVERY: Duration = Duration::from_millis(200);

const SAY_EVERY: Duration = Duration::from_secs(2);
