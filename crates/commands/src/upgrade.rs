//! `ringgate upgrade`: has a running gateway or agent start the next release and hand over to it.

use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{Admin, Answer, FilePlace};
use super::exit::print;
use ringgate_os::clock::{self, Clock};

/// Have a running gateway or agent hand its players to the release that is installed now
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: FilePlace,
}

#[derive(Deserialize)]
struct Outcome {
    upgraded: bool,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    pause_us: u64,
    #[serde(default)]
    why: String,
}

/// Which process has the gateway or the agent, and with how many players.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct Owner {
    pid: u32,
    /// Another one after each start, the same over an upgrade.
    incarnation: Option<String>,
    /// Of a gateway.
    totals: Option<Totals>,
    /// Of an agent.
    players: Option<u64>,
    agent: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Totals {
    sessions: u64,
}

impl Owner {
    /// `None` where a process answers in other words.
    fn of(admin: &Admin) -> Result<Option<Self>, Failure> {
        admin.get("/status").map(|page| serde_json::from_str(&page).ok())
    }

    const fn what(&self) -> &'static str {
        if self.agent.is_some() { "agent" } else { "gateway" }
    }

    fn players(&self) -> String {
        match (&self.totals, self.players) {
            (Some(Totals { sessions }), _) => format!("{sessions} sessions"),
            (None, Some(players)) => format!("{players} players"),
            (None, None) => "players".to_owned(),
        }
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    // One that is frozen is not waited for a second time.
    let before = Owner::of(&admin)?;
    let asked = admin.taking(TAKES).ask_mortal("/upgrade")?;
    let Some(Answer { status, body }) = asked else {
        let after = await_owner(&admin);
        let said = what_became(before.as_ref(), after.as_ref());
        return said.map_or_else(|why| Err(Failure::failed(why)), |said| print(&said));
    };
    let unexpected = || admin.unexpected(status, &body);
    let Outcome { upgraded, pid, pause_us, why } =
        serde_json::from_str(&body).map_err(|_| unexpected())?;
    match (status, upgraded) {
        (200, true) => {
            let (ms, tenths) = (pause_us / 1000, pause_us % 1000 / 100);
            print(&format!("upgraded: process {pid} goes on; players waited {ms}.{tenths} ms\n"))
        }
        (409, false) => {
            let what = before.map_or("gateway", |it| it.what());
            Err(Failure::failed(format_args!("the {what} goes on as it is: {why}")))
        }
        _ => Err(unexpected()),
    }
}

/// The process that was asked has ended. Waits for the one that goes on in its place.
fn await_owner(admin: &Admin) -> Option<Owner> {
    let clock = Clock::start();
    loop {
        let owner = Owner::of(admin).ok().flatten();
        if owner.is_some() || clock.now_ns() >= OWNER_WITHIN.as_nanos() as u64 {
            return owner;
        }
        clock::sleep(LOOK_EVERY);
    }
}

/// What has become of the sessions.
fn what_became(before: Option<&Owner>, after: Option<&Owner>) -> Result<String, String> {
    let what = before.or(after).map_or("gateway", Owner::what);
    let its = before.map_or_else(|| "sessions".to_owned(), Owner::players);
    let died = before.map_or_else(
        || format!("the process that had the {what} has died"),
        |it| format!("process {}, which had the {what}, has died", it.pid),
    );
    let Some(after) = after else {
        return Err(format!("{died}, and no other process answers: its {its} are gone"));
    };
    let (pid, left) = (after.pid, after.players());
    let is_same = |it: &Owner| it.incarnation.is_some() && it.incarnation == after.incarnation;
    match before {
        Some(before) if before.pid == pid => Err(format!(
            "the {what} has given no answer, and goes on as it is: process {pid}, with {left}"
        )),
        Some(before) if is_same(before) => Ok(format!(
            "upgraded: process {pid} goes on, with {left}; {died} before it could say how long players waited\n"
        )),
        Some(Owner { incarnation: Some(_), .. }) => {
            Err(format!("{died}; process {pid} has started without its {its}"))
        }
        _ => Err(format!("{died}; process {pid} has the {what} now, with {left}")),
    }
}

/// The next process has a minute to prepare, and another for each part that it reads: on a loaded
/// host that adds up, and who gives up on it does not end it.
const TAKES: Duration = Duration::from_mins(10);

/// A successor that finds nothing given begins anew, and waits for the addresses for some seconds.
const OWNER_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(pid: u32, incarnation: &str, sessions: u64) -> Owner {
        let (incarnation, totals) = (Some(incarnation.to_owned()), Some(Totals { sessions }));
        Owner { pid, incarnation, totals, ..Owner::default() }
    }

    #[test]
    fn what_has_become_of_the_sessions_is_said_whoever_has_died() {
        let before = owner(7, "a", 20);
        let became = |after: Option<Owner>| what_became(Some(&before), after.as_ref());
        let gone = became(None).expect_err("nobody serves");
        assert!(gone.contains("process 7,") && gone.contains("its 20 sessions are gone"), "{gone}");
        let anew = became(Some(owner(8, "b", 0))).expect_err("they are gone");
        assert!(anew.contains("process 8 has started without its 20 sessions"), "{anew}");
        let same = became(Some(owner(7, "a", 20))).expect_err("it is no upgrade");
        assert!(same.contains("goes on as it is: process 7, with 20 sessions"), "{same}");
        let done = became(Some(owner(8, "a", 19))).expect("it has taken over");
        assert!(done.starts_with("upgraded: process 8 goes on, with 19 sessions;"), "{done}");
        // An agent of a release that does not say which start of it this is.
        let old = Owner { pid: 7, players: Some(3), agent: Some("a".into()), ..Owner::default() };
        let next = Owner { pid: 8, incarnation: Some("a".into()), ..old.clone() };
        let said = what_became(Some(&old), Some(&next)).expect_err("it is not known");
        assert!(said.ends_with("process 8 has the agent now, with 3 players"), "{said}");
        let unknown = what_became(None, None).expect_err("nobody serves");
        assert!(unknown.contains("its sessions are gone"), "{unknown}");
    }
}
