//! `ringgate fleet top`: a fleet, look by look. On a terminal each look fills the screen; anywhere
//! else it is one line, for a log or a pipe. It does not end when etcd does: who looks wants to see
//! it come back.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ringgate_os::{clock, utc};
use ringgate_report::text::count;

use super::super::Failure;
use super::super::exit::show;
use super::status;
use super::survey::Survey;
use super::target::{Target, runtime};
use ringgate_config::values;

/// Watch a fleet
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show one look and end
    #[arg(long)]
    once: bool,
    /// Show each backend too
    #[arg(long)]
    backends: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = interval)]
    interval: Duration,
    #[command(flatten)]
    target: Target,
}

fn interval(text: &str) -> Result<Duration, String> {
    values::time_within(text, INTERVAL_MIN.., "a duration such as 2s, 100ms at least")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let fleet = args.target.find()?;
    let (client, runtime) = (fleet.client()?, runtime()?);
    let fills_screen = io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        let looked = runtime.block_on(Survey::of_some(&client, &fleet.keyspace));
        let now_s = clock::unix_seconds();
        let text = match looked {
            Ok(survey) if args.once || fills_screen => {
                status::render(&survey, now_s, args.backends)
            }
            Ok(survey) => line(&survey, now_s),
            // What cannot be asked at all is told at once.
            Err(why) if args.once || is_first => return Err(why),
            Err(why) => format!("{}  no answer: {why}\n", utc::date(now_s)),
        };
        let whole = if fills_screen && !args.once { format!("{CLEAR}{text}") } else { text };
        if !show(&whole)? || args.once {
            return Ok(());
        }
        is_first = false;
        clock::sleep(args.interval);
    }
}

/// A look in one line.
pub(super) fn line(survey: &Survey, now_s: u64) -> String {
    let sum = |of: fn(&ringgate_fleet::values::Backend) -> u32| -> u64 {
        survey.backends.values().map(|it| u64::from(of(it))).sum()
    };
    let sessions: u64 = survey.gateways.values().map(|it| u64::from(it.sessions)).sum();
    let agents = match survey.agents.len() {
        0 => String::new(),
        agents => format!("{agents} agents; "),
    };
    let draining = survey.gateways.values().filter(|it| it.draining).count();
    format!(
        "{}  {} gateways ({draining} draining), {} sessions; {agents}{} backends, {} players of {} slots; {} token services\n",
        utc::date(now_s),
        survey.gateways.len(),
        count(sessions),
        count(survey.backends.len() as u64),
        count(sum(|it| it.used)),
        count(sum(|it| it.slots)),
        survey.services.len(),
    )
}

/// To the corner, and everything away that is there.
const CLEAR: &str = "\x1b[H\x1b[2J";
const INTERVAL_MIN: Duration = Duration::from_millis(100);
