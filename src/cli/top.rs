//! `ringgate top`: a running gateway, second by second.
//!
//! Rates are what the gateway's counters have grown by between two looks. On a terminal the screen
//! is drawn anew each time; anywhere else every look is one line, for a log or a pipe.

use std::io::{self, IsTerminal};
use std::time::Duration;

use super::Failure;
use super::admin::page::{Status, Worker};
use super::admin::{Admin, Place};
use super::exit::{print, show};
use super::status::{backends, head, stages};
use crate::config::values;
use ringgate_os::clock::{self, Clock};
use ringgate_os::utc;
use ringgate_report::text::{Side, Table, bytes, count, put, time};

/// Watch a running gateway
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    /// Show one screen and end
    #[arg(long)]
    once: bool,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = values::duration(text).filter(|interval| !interval.is_zero());
    interval.ok_or_else(|| format!("found {text:?}, expected a duration such as 1s or 500ms"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let clock = Clock::start();
    let is_screen = io::stdout().is_terminal() && !args.once;
    let admin = args.place.find()?;
    let mut before = Look::take(&admin, clock)?;
    loop {
        clock::sleep(args.interval);
        let now = Look::take(&admin, clock)?;
        let change = Change { before: &before, now: &now };
        let text = match (args.once, is_screen) {
            (true, _) => return print(&screen(&change)),
            (false, true) => format!("{CLEAR}{}", screen(&change)),
            (false, false) => line(&change, clock::unix_seconds()),
        };
        if !show(&text)? {
            return Ok(());
        }
        before = now;
    }
}

/// The gateway at one moment.
struct Look {
    status: Status,
    at_ns: u64,
}

impl Look {
    fn take(admin: &Admin, clock: Clock) -> Result<Self, Failure> {
        let status = Status::ask(admin)?;
        Ok(Self { status, at_ns: clock.now_ns() })
    }
}

/// Two looks, one after the other.
struct Change<'a> {
    before: &'a Look,
    now: &'a Look,
}

impl Change<'_> {
    /// What a counter of the whole gateway has grown by in a second.
    fn rate(&self, counter: fn(&Status) -> u64) -> u64 {
        self.per_second(counter(&self.before.status), counter(&self.now.status))
    }

    /// The same for one worker.
    fn worker_rate(&self, index: usize, counter: fn(&Worker) -> u64) -> u64 {
        let of = |look: &Look| look.status.workers.get(index).map_or(0, counter);
        self.per_second(of(self.before), of(self.now))
    }

    /// A gateway that was restarted in between counts from zero again: that is no rate.
    fn per_second(&self, before: u64, now: u64) -> u64 {
        let ns = self.now.at_ns.saturating_sub(self.before.at_ns).max(1);
        (now.saturating_sub(before) as f64 * 1e9 / ns as f64).round() as u64
    }
}

fn screen(change: &Change<'_>) -> String {
    let status = &change.now.status;
    let totals = &status.totals;
    let mut text = head(status);
    put(
        &mut text,
        format_args!(
            "\n{} sessions, {} handshakes under way; {}/s in, {}/s out\n\n{}\n{}",
            count(totals.sessions),
            count(totals.handshakes_pending),
            bytes(change.rate(|status| status.totals.bytes_in)),
            bytes(change.rate(|status| status.totals.bytes_out)),
            workers(change),
            backends(status)
        ),
    );
    let drops = drops(change);
    if !drops.is_empty() {
        put(&mut text, format_args!("\ndrops per second: {}\n", drops.join(", ")));
    }
    if status.stages.iter().any(|stage| stage.count > 0) {
        put(&mut text, format_args!("\n{}", stages(status)));
    }
    if !status.conservation.holds {
        text.push_str(
            "\nNOT everything is accounted for: a bug in the gateway, please report it\n",
        );
    }
    text
}

fn workers(change: &Change<'_>) -> Table {
    let numbers = ["sessions", "turns/s", "in/s", "out/s", "drops/s", "kernel drops/s"];
    let numbers = numbers.map(|name| (name, Side::Right));
    let mut table = Table::new(&[&[("worker", Side::Left)], &numbers[..]].concat());
    for (at, worker) in change.now.status.workers.iter().enumerate() {
        let numbers = [
            worker.sessions,
            change.worker_rate(at, |worker| worker.turns),
            change.worker_rate(at, |worker| worker.datagrams_in),
            change.worker_rate(at, |worker| worker.packets_out),
            change.worker_rate(at, |worker| worker.drops),
            change.worker_rate(at, |worker| worker.socket_drops),
        ];
        table.row([worker.index.to_string()].into_iter().chain(numbers.map(count)));
    }
    table
}

/// Most frequent first.
fn drops(change: &Change<'_>) -> Vec<String> {
    let mut rates: Vec<_> = change
        .now
        .status
        .drops
        .iter()
        .map(|(why, now)| {
            let before = change.before.status.drops.get(why).copied().unwrap_or(0);
            (change.per_second(before, *now), why)
        })
        .filter(|(rate, _)| *rate > 0)
        .collect();
    rates.sort_by_key(|(rate, _)| std::cmp::Reverse(*rate));
    rates.into_iter().map(|(rate, why)| format!("{why} {}", count(rate))).collect()
}

fn line(change: &Change<'_>, unix_s: u64) -> String {
    let status = &change.now.status;
    let turn = status.stages.iter().find(|stage| stage.name == "turn");
    format!(
        "{}  {}  sessions {}  in/s {}  out/s {}  drops/s {}  kernel drops/s {}  turn p99 {}\n",
        utc::date(unix_s),
        status.state,
        count(status.totals.sessions),
        count(change.rate(|status| status.totals.datagrams_in)),
        count(change.rate(|status| status.totals.packets_out)),
        count(change.rate(|status| status.totals.drops)),
        count(change.rate(|status| status.totals.socket_drops)),
        time(turn.map_or(0, |turn| turn.p99_ns))
    )
}

/// Cursor home, and everything from there on erased.
const CLEAR: &str = "\x1b[H\x1b[2J";
