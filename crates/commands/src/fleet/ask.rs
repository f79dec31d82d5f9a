//! `ringgate fleet sessions`, `kick`, `move`, `drain`, `undrain` and `trace`: the commands of one
//! gateway, for all of a fleet at once. They are asked through etcd, with the fleet's key.

use std::collections::BTreeMap;
use std::time::Duration;

use ringgate_fleet::asking::{Answers, Asking, BREAKS_OFF, LOOK_EVERY, TOO_LONG, deaf};
use ringgate_fleet::etcd::Client;
use ringgate_fleet::keyspace::Name;
use ringgate_fleet::values::{Gateway, Piece, Question, TEXT_BYTES_MAX, What};
use ringgate_os::clock::{self, Clock};
use ringgate_os::{host, utc};
use ringgate_report::text::{Append as _, count};
use serde::de::DeserializeOwned;

use super::super::admin::{self, OneBackend};
use super::super::drain::{self, Draining, DrainingBackend};
use super::super::exit::{print, show};
use super::super::kick::{self, Kicked};
use super::super::moving::{self, MoveAnswer};
use super::super::{Failure, sessions, trace};
use super::target::{Fleet, Target, away};
use super::wait;
use ringgate_config::values;

/// Show the sessions at all gateways of a fleet
#[derive(Debug, clap::Args)]
pub(super) struct SessionsArgs {
    #[command(flatten)]
    which: sessions::Which,
    #[command(flatten)]
    whole: Whole,
}

/// End the sessions of a player wherever it is in a fleet
#[derive(Debug, clap::Args)]
pub(super) struct KickArgs {
    #[command(flatten)]
    whom: kick::Whom,
    #[command(flatten)]
    whole: Whole,
}

/// Move a player to another backend wherever it is in a fleet, without a reconnect
#[derive(Debug, clap::Args)]
pub(super) struct MoveArgs {
    #[command(flatten)]
    whom: kick::Whom,
    #[command(flatten)]
    how: moving::How,
    #[command(flatten)]
    whole: Whole,
}

/// Have a backend take no new players at any gateway of a fleet, or a gateway nobody at all
#[derive(Debug, clap::Args)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    backend: OneBackend,
    /// Who is still there then is told to leave [default: the config's; of a backend never]
    #[arg(long, value_name = "TIME", value_parser = drain::deadline)]
    deadline: Option<Duration>,
    #[command(flatten)]
    whole: Whole,
}

/// Have a backend take players in again at all gateways of a fleet, or a gateway
#[derive(Debug, clap::Args)]
pub(super) struct UndrainArgs {
    #[command(flatten)]
    backend: OneBackend,
    #[command(flatten)]
    whole: Whole,
}

/// Show every decision about one player's packets at all gateways of a fleet, as it is made
#[derive(Debug, clap::Args)]
pub(super) struct TraceArgs {
    #[command(flatten)]
    which: trace::Which,
    #[command(flatten)]
    ask: Ask,
}

/// Asking for what is told at once.
#[derive(Debug, clap::Args)]
struct Whole {
    /// Print all answers as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    ask: Ask,
}

/// Which gateways are asked, and how long they may take.
#[derive(Debug, clap::Args)]
struct Ask {
    /// This gateway only; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = admin::name)]
    gateway: Vec<String>,
    /// Who has not answered by then is named
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = within)]
    within: Duration,
    #[command(flatten)]
    target: Target,
}

fn within(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(100)..=Duration::from_mins(1);
    values::time_within(text, bounds, "a time such as 5s, from 100ms to 60s")
}

pub(super) fn sessions(args: &SessionsArgs) -> Result<(), Failure> {
    let said = args.whole.ask(What::Sessions, args.which.query())?;
    said.tell::<sessions::Page>(|pages| {
        let named: Vec<_> = pages.into_iter().map(|(name, it)| (Some(name), it)).collect();
        Ok(sessions::render(&named))
    })
}

pub(super) fn kick(args: &KickArgs) -> Result<(), Failure> {
    args.whole.numbers(&args.whom)?;
    let whom = args.whom.named();
    let said = args.whole.ask(What::Kick, args.whom.query())?;
    said.tell::<Kicked>(|pages| {
        let mut text = String::new();
        for (gateway, kicked) in &pages {
            let told = kicked.told(whom).unwrap_or_default();
            told.lines().for_each(|line| writeln!(text, "{gateway}: {line}"));
        }
        if text.is_empty() { Err(nobody(whom, pages.len())) } else { Ok(text) }
    })
}

pub(super) fn move_player(args: &MoveArgs) -> Result<(), Failure> {
    let MoveArgs { whom, how, whole } = args;
    whole.numbers(whom)?;
    let query = whom.query() + &how.query();
    let said = whole.ask_for(What::Move, query, how.takes())?;
    said.tell::<MoveAnswer>(|pages| {
        let line = |(gateway, it): &(&str, MoveAnswer)| match (it.moved, it.left()) {
            (0, None) => String::new(),
            (0, Some(why)) => format!("{gateway}: {why}\n"),
            (moved, None) => format!("{gateway}: moved {moved} to {}\n", how.to),
            (moved, Some(why)) => format!("{gateway}: moved {moved} to {}; {why}\n", how.to),
        };
        let lines: String = pages.iter().map(line).collect();
        if pages.iter().any(|(_, it)| it.moved > 0) {
            return Ok(lines);
        }
        if lines.is_empty() {
            return Err(nobody(whom.named(), pages.len()));
        }
        Err(Failure::failed(lines.trim_end()))
    })
}

pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let mut query = args.whole.scope(&args.backend)?;
    admin::say(&mut query, "deadline_ms", args.deadline.map(|it| it.as_millis()));
    let said = args.whole.ask(What::Drain, query)?;
    let Some(name) = args.backend.name() else {
        return said.tell_each(|it: Draining| {
            let (sessions, left) = (count(it.sessions), utc::span(it.left_ms / 1000));
            format!("draining: {sessions} sessions, {left} at most")
        });
    };
    said.tell_each(|it: DrainingBackend| {
        format!("backend {name} takes no new players; {} are there", count(it.players))
    })
}

pub(super) fn undrain(args: &UndrainArgs) -> Result<(), Failure> {
    let said = args.whole.ask(What::Undrain, args.whole.scope(&args.backend)?)?;
    said.tell_each(|_: serde_json::Value| match args.backend.name() {
        Some(name) => format!("backend {name} takes players again"),
        None => "players are taken in again".to_owned(),
    })
}

fn nobody((name, whom): (&str, &str), gateways: usize) -> Failure {
    Failure::failed(format_args!("{name} {whom} has no session at {gateways} gateways"))
}

impl Whole {
    /// Whether it is clear which session is meant.
    fn numbers(&self, whom: &kick::Whom) -> Result<(), Failure> {
        if whom.session.is_some() && self.ask.gateway.len() != 1 {
            return Err(Failure::bad_input(
                "sessions are numbered by each gateway for itself: --session takes --gateway NAME",
            ));
        }
        Ok(())
    }

    /// What a drain is about. The whole fleet is nothing that a slip of the hand should empty.
    fn scope(&self, backend: &OneBackend) -> Result<String, Failure> {
        match backend.name() {
            Some(name) => Ok(format!("backend={name}")),
            None if self.ask.gateway.is_empty() => {
                Err(Failure::bad_input("expected a BACKEND, or --gateway NAME for a whole gateway"))
            }
            None => Ok(String::new()),
        }
    }

    fn ask(&self, what: What, query: String) -> Result<Said, Failure> {
        self.ask_for(what, query, Duration::ZERO)
    }

    /// Asks for what takes so long until there is anything to say.
    fn ask_for(&self, what: What, query: String, takes: Duration) -> Result<Said, Failure> {
        let fleet = self.ask.target.find()?;
        let question = question(what, query)?;
        let key = fleet.key()?.clone();
        let within = self.ask.within + takes;
        let answers = fleet.ask(async |client| {
            let gateways = self.ask.gateways(&fleet, client).await?;
            let fleet = (fleet.keyspace.clone(), key);
            let times = (within, Duration::ZERO);
            let asked = Answers::of(client, fleet, &question, gateways, times).await;
            asked.map_err(|why| away(&why))
        })?;
        Ok(Said { what, answers, within, json: self.json })
    }
}

fn question(what: What, query: String) -> Result<Question, Failure> {
    let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    let by: String = format!("{user} at {}", host::name());
    let by = by.chars().filter(|it| it.is_ascii_graphic() || *it == ' ').take(TEXT_BYTES_MAX);
    let question = Question { at: clock::unix_seconds(), by: by.collect(), what, query };
    ringgate_fleet::values::Stored::check(&question).map_err(Failure::bad_input)?;
    Ok(question)
}

impl Ask {
    /// The gateways that are meant, of those that are registered.
    async fn gateways(
        &self,
        fleet: &Fleet,
        client: &Client,
    ) -> Result<BTreeMap<Name, Gateway>, Failure> {
        let all = wait::gateways(client, &fleet.keyspace).await.map_err(|why| away(&why))?;
        let mut meant = all.clone();
        if !self.gateway.is_empty() {
            meant.retain(|name, _| self.gateway.iter().any(|it| it == name.as_str()));
        }
        let unknown = self.gateway.iter().find(|it| !all.contains_key(it.as_str()));
        let known: Vec<_> = all.keys().map(Name::as_str).collect();
        match unknown {
            Some(name) => Err(Failure::bad_input(format_args!(
                "no gateway {name} is registered (there are {})",
                known.join(", ")
            ))),
            None if all.is_empty() => {
                let prefix = String::from_utf8_lossy(&fleet.keyspace.all()).into_owned();
                Err(Failure::failed(format_args!("no gateway is registered below {prefix}")))
            }
            None => Ok(meant),
        }
    }
}

/// What has been answered.
struct Said {
    what: What,
    answers: Answers,
    within: Duration,
    json: bool,
}

impl Said {
    /// Prints a line for each gateway.
    fn tell_each<P: DeserializeOwned>(&self, line: impl Fn(P) -> String) -> Result<(), Failure> {
        self.tell(|pages| {
            let mut text = String::new();
            for (gateway, it) in pages {
                writeln!(text, "{gateway}: {}", line(it));
            }
            Ok(text)
        })
    }

    /// Shows it, and fails where somebody has not done it.
    fn tell<P: DeserializeOwned>(
        &self,
        words: impl FnOnce(Vec<(&str, P)>) -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        let (mut pages, mut unknown, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (gateway, (status, text)) in &self.answers.whole {
            match (status, serde_json::from_str(text)) {
                (200, Ok(page)) => pages.push((gateway.as_str(), page)),
                // It has no such backend, which others have.
                (404, _) => unknown.push(text.trim_end()),
                _ => refused.push(format!("{gateway}: {}", text.trim_end())),
            }
        }
        let said = match unknown.first() {
            Some(why) if pages.is_empty() && refused.is_empty() => {
                Err(Failure::bad_input(format_args!("{why} at any gateway that has answered")))
            }
            _ if pages.is_empty() => Ok(String::new()),
            _ => match words(pages) {
                // Somebody else may have what was asked for.
                Err(_) if !self.answers.silent.is_empty() => Ok(String::new()),
                said => said,
            },
        };
        if self.json {
            print(&format!("{}\n", self.answers.json(self.what)))?;
            said?;
        } else {
            print(&said?)?;
        }
        refused.extend(silent(&self.answers.silent, self.within));
        if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused.join("; "))) }
    }
}

/// Who has not answered, in words.
fn silent(names: &[(Name, &str)], within: Duration) -> Option<String> {
    let one = |(name, why): &(Name, &str)| match *why {
        "" => name.to_string(),
        why => format!("{name} ({why})"),
    };
    let names: Vec<_> = names.iter().map(one).collect();
    (!names.is_empty()).then(|| format!("not answered within {within:?}: {}", names.join(", ")))
}

pub(super) fn trace(args: &TraceArgs) -> Result<(), Failure> {
    let fleet = args.ask.target.find()?;
    let question = question(What::Trace, args.which.query())?;
    let key = fleet.key()?.clone();
    fleet.ask(async |client| {
        let mut gateways = args.ask.gateways(&fleet, client).await?;
        let deaf = deaf(&mut gateways);
        let with = (fleet.keyspace.clone(), key);
        let begun = Asking::begin(client.clone(), with, &question, &gateways).await;
        let mut asking = begun.map_err(|why| away(&why))?;
        let followed = Told::default().follow(args, &mut asking, deaf).await;
        // Nobody has to wait for its end.
        asking.end().await;
        followed
    })
}

/// What a trace has told so far.
#[derive(Default)]
struct Told {
    /// What has come of a line whose end has not.
    begun: BTreeMap<String, String>,
    refused: Vec<String>,
}

impl Told {
    async fn follow(
        &mut self,
        args: &TraceArgs,
        asking: &mut Asking,
        mut missing: Vec<(Name, &'static str)>,
    ) -> Result<(), Failure> {
        let (clock, mut is_late) = (Clock::start(), false);
        let longest = args.which.lasts() + args.ask.within;
        while !asking.is_over() {
            for piece in asking.hear().await.map_err(|why| away(&why))? {
                if !self.tell(args, piece)? {
                    return Ok(());
                }
            }
            if !is_late && clock.now_ns() > args.ask.within.as_nanos() as u64 {
                is_late = true;
                missing.extend(asking.give_up_silent().map(|name| (name, "")));
            }
            if clock.now_ns() > longest.as_nanos() as u64 {
                missing.extend(asking.give_up().map(|name| (name, BREAKS_OFF)));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.refused.extend(silent(&missing, args.ask.within));
        let refused = self.refused.join("; ");
        if refused.is_empty() { Ok(()) } else { Err(Failure::failed(refused)) }
    }

    /// Whether somebody reads on.
    fn tell(&mut self, args: &TraceArgs, piece: Piece) -> Result<bool, Failure> {
        let Piece { gateway, status, text, .. } = piece;
        if status != 200 {
            let what = if status == TOO_LONG { "the trace ends: " } else { "" };
            self.refused.push(format!("{gateway}: {what}{}", text.trim_end()));
            return Ok(true);
        }
        let whole = self.begun.remove(&gateway).unwrap_or_default() + &text;
        let (lines, begun) = whole.rsplit_once('\n').unwrap_or(("", &whole));
        for line in lines.lines().filter(|it| !it.is_empty()) {
            if !show(&args.which.told(line, Some(&gateway)).0)? {
                return Ok(false);
            }
        }
        self.begun.insert(gateway, begun.to_owned());
        Ok(true)
    }
}
