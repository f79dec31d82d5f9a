//! `ringgate move`: has a player play at another backend, without a reconnect.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::Failure;
use super::admin::{self, Admin, Place};
use super::exit::print;
use super::kick::Whom;
use ringgate_config::values;
use ringgate_core::limits::OFFERS_MAX;
use ringgate_fleet::values::question::{MOVE_MS, MOVE_MS_MAX, MOVE_TRIES};
use ringgate_report::text::count;

/// Move a player to another backend of a running gateway, without a reconnect
///
/// The game process there is asked, and may say no.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    whom: Whom,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    place: Place,
}

/// Where to, and how.
#[derive(Debug, clap::Args)]
pub(super) struct How {
    /// Where the player is to play: a backend, or a group of which the one with most room is asked
    /// first
    #[arg(long, value_name = "BACKEND", value_parser = admin::name)]
    pub(super) to: String,
    /// So long may the game process take to answer [default: 2s, 30s at most]
    #[arg(long, value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// It hears that it has the player when the other one has heard that it has not
    #[arg(long)]
    confirm: bool,
}

impl How {
    /// What stands in a query behind who it is.
    pub(super) fn query(&self) -> String {
        let mut query = format!("&to={}", self.to);
        admin::say(&mut query, "time_ms", self.time.map(|time| time.as_millis()));
        if self.confirm {
            query += "&confirm=true";
        }
        query
    }

    /// How long game processes may take to answer, as often as a gateway asks them.
    pub(super) fn takes(&self) -> Duration {
        takes(self.time, 1)
    }
}

/// How long a gateway may wait for so many players. It offers a few of them at a time.
fn takes(time: Option<Duration>, players: u64) -> Duration {
    let offers = players.div_ceil(OFFERS_MAX as u64).min(u32::MAX.into()) as u32;
    let once = time.unwrap_or_else(|| Duration::from_millis(MOVE_MS.into()));
    (once * MOVE_TRIES).saturating_mul(offers)
}

/// What has become of it.
#[derive(Deserialize)]
pub(super) struct MoveAnswer {
    pub(super) moved: u64,
    refused: BTreeMap<String, u64>,
    complete: bool,
}

impl MoveAnswer {
    /// How many were not moved, and why, and whether not all were asked.
    pub(super) fn left(&self) -> Option<String> {
        let refused = self.refused.values().sum::<u64>();
        let reasons = self.refused.iter().map(|(why, count)| format!("{why} {count}"));
        let reasons = reasons.collect::<Vec<_>>().join(", ");
        let refusals =
            (refused > 0).then(|| format!("{} were not moved: {reasons}", count(refused)));
        let more =
            (!self.complete).then(|| "not all players were found in time, ask again".to_owned());
        let left: Vec<_> = refusals.into_iter().chain(more).collect();
        (!left.is_empty()).then(|| left.join("; "))
    }

    /// Prints how many were moved; fails where not all were.
    pub(super) fn say(&self, to: &str) -> Result<(), Failure> {
        print(&format!("moved {} to {to}\n", count(self.moved)))?;
        self.left().map_or(Ok(()), |why| Err(Failure::failed(why)))
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(1)..=Duration::from_millis(MOVE_MS_MAX.into());
    values::time_within(text, bounds, "a time such as 500ms, 30s at most")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let gateway = args.place.find()?;
    let query = args.whom.query() + &args.how.query();
    let moved = ask(&gateway.taking(args.how.takes()), &query)?;
    let (name, whom) = args.whom.named();
    match (moved.moved, moved.left()) {
        (0, None) => Err(Failure::failed(format_args!("{name} {whom} has no session here"))),
        (0, Some(why)) => Err(Failure::failed(format_args!("{name} {whom}: {why}"))),
        _ => moved.say(&args.how.to),
    }
}

/// Asks a gateway to move all players of a backend, who were so many.
pub(super) fn ask_for_all(
    gateway: &Admin,
    (backend, players): (&str, u64),
    to: &str,
) -> Result<MoveAnswer, Failure> {
    ask(&gateway.taking(takes(None, players)), &format!("backend={backend}&to={to}"))
}

fn ask(gateway: &Admin, query: &str) -> Result<MoveAnswer, Failure> {
    gateway.change(&format!("/sessions/move?{query}"), &[400, 404])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_waits_for_as_long_as_a_gateway_may_take() {
        let seconds = Duration::from_secs;
        assert_eq!(takes(Some(seconds(30)), 1), seconds(90));
        assert_eq!([0, 1, 48, 49, 1000].map(|it| takes(None, it).as_secs()), [0, 6, 6, 12, 126]);
        assert!(takes(Some(seconds(30)), u64::MAX) > seconds(1 << 32));
    }

    #[test]
    fn who_was_not_asked_is_said_and_all_is_done_only_without_such() {
        let left = |refused: &str, complete: bool| {
            let answer = format!(r#"{{"moved":1,"refused":{{{refused}}},"complete":{complete}}}"#);
            serde_json::from_str::<MoveAnswer>(&answer).expect("as a gateway says it").left()
        };
        let (why, more) =
            ("3 were not moved: full 3", "not all players were found in time, ask again");
        assert_eq!(left("", true), None);
        assert_eq!(left(r#""full":3"#, true).as_deref(), Some(why));
        assert_eq!(left("", false).as_deref(), Some(more));
        assert_eq!(left(r#""full":3"#, false), Some(format!("{why}; {more}")));
    }
}
