//! `ringgate size`: how many cores and hosts a fleet needs, from what a round trip costs here.

use std::num::NonZeroU32;
use std::thread::available_parallelism;
use std::time::Duration;

use serde_json::json;

use super::demo::{self, Step};
use super::exit::print;
use super::{Failure, doctor};
use crate::config::values;
use ringgate_report::text::{Append as _, bytes, count, time};

/// Say how many cores and hosts a fleet of players needs, from what this host measures in a few
/// seconds
///
/// Netcode players, and game processes with a bundle link on hosts of their own.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Players at a time
    #[arg(long, value_name = "N")]
    players: NonZeroU32,
    /// Payloads a second of each player, as many each way
    #[arg(long, value_name = "N", default_value = "30")]
    hz: NonZeroU32,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(28..=1200))]
    payload: u16,
    /// Cores of a host that the gateway may have [default: those of this host]
    #[arg(long, value_name = "N")]
    cores: Option<NonZeroU32>,
    /// Of a host's network, in gigabits a second each way
    #[arg(long, value_name = "N", default_value = "10")]
    gbit: NonZeroU32,
    /// What a round trip costs of a core, such as 1500ns or 5us: nothing is measured then
    #[arg(long, value_name = "TIME", value_parser = cost)]
    cost: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn cost(text: &str) -> Result<Duration, String> {
    let ns = text.strip_suffix("ns").and_then(|it| it.parse().ok()).map(Duration::from_nanos);
    let cost = ns.or_else(|| values::duration(text)).filter(|it| !it.is_zero());
    cost.ok_or_else(|| format!("found {text:?}, expected a time such as 1500ns or 5us"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (of_a_core, how) = match args.cost {
        Some(cost) => (BUSY / cost.as_secs_f64(), "as you say".to_owned()),
        None => {
            let load = demo::measure(args.payload, BUSY)?;
            let of_a_core = at_busy(&load.steps)
                .ok_or_else(|| Failure::failed("nothing came back: see `ringgate demo`"))?;
            let quick =
                if cfg!(debug_assertions) { ", by a build that is not optimised" } else { "" };
            (
                of_a_core,
                format!("measured here{quick}, driver {}, cipher {}", load.driver, load.cipher),
            )
        }
    };
    let here = || available_parallelism().map_or(1, |it| it.get() as u32);
    let asked = Asked {
        players: args.players.get(),
        hz: args.hz.get(),
        payload: u32::from(args.payload),
        cores_of_host: args.cores.map_or_else(here, NonZeroU32::get),
        gbit: args.gbit.get(),
    };
    let size = size(&asked, of_a_core);
    print(&if args.json {
        as_json(&asked, of_a_core, &size)
    } else {
        text(&asked, of_a_core, &how, &size)
    })
}

struct Asked {
    players: u32,
    hz: u32,
    payload: u32,
    cores_of_host: u32,
    gbit: u32,
}

#[derive(Debug, PartialEq)]
struct Size {
    /// Over all hosts, without the spare one.
    cores: u64,
    /// One more than are needed.
    hosts: u64,
    /// Each way, over all hosts.
    bytes_per_s: u64,
    /// Of one host, when the spare one is gone.
    host_sessions: u64,
    host_bytes_per_s: u64,
    host_memory: u64,
    /// Whether the network decides, and not the cores.
    by_network: bool,
}

/// How many round trips a second a core carries when it is as busy as tails allow: between the two
/// rates around that, or by the last one where none made it so busy.
fn at_busy(steps: &[Step]) -> Option<f64> {
    let last = steps.last().filter(|it| it.share > 0.0 && it.trips_per_s > 0.0)?;
    let before = steps.iter().rev().nth(1).filter(|it| it.share < BUSY && last.share > BUSY);
    Some(match before {
        Some(before) => {
            let part = (BUSY - before.share) / (last.share - before.share);
            before.trips_per_s + part * (last.trips_per_s - before.trips_per_s)
        }
        None => last.trips_per_s * BUSY / last.share,
    })
}

fn size(asked: &Asked, of_a_core: f64) -> Size {
    let players = u64::from(asked.players);
    let rate = players * u64::from(asked.hz);
    let alone = (rate as f64 / of_a_core).ceil().max(1.0) as u64;
    // Each of several workers finds fewer datagrams in a turn.
    let cores = if alone > 1 { (alone as f64 * OF_SEVERAL).ceil() as u64 } else { alone };
    let bytes_per_s = rate * u64::from(asked.payload + OVERHEAD);
    let line = f64::from(asked.gbit) * 1e9 / 8.0 * LINE;
    let for_cores = cores.div_ceil(u64::from(asked.cores_of_host));
    let for_network = (bytes_per_s as f64 / line).ceil() as u64;
    let needed = for_cores.max(for_network).max(1);
    let host_sessions = players.div_ceil(needed);
    let workers = cores.div_ceil(needed);
    Size {
        cores,
        hosts: needed + 1,
        bytes_per_s,
        host_sessions,
        host_bytes_per_s: bytes_per_s.div_ceil(needed),
        host_memory: PROCESS + host_sessions * doctor::SESSION_BYTES + workers * RECEIVE_BUFFER,
        by_network: for_network > for_cores,
    }
}

fn text(asked: &Asked, of_a_core: f64, how: &str, size: &Size) -> String {
    let Asked { players, hz, payload, cores_of_host, gbit } = asked;
    let mut text = String::new();
    let trips = count(u64::from(*players) * u64::from(*hz));
    let (players, cost) = (count(u64::from(*players)), time((BUSY * 1e9 / of_a_core) as u64));
    writeln!(
        text,
        "{players} players, {hz} payloads of {payload} bytes a second each way: {trips} round trips a second"
    );
    writeln!(
        text,
        "a core carries {} of them at {:.0} %, {cost} each ({how})\n",
        count(of_a_core as u64),
        BUSY * 100.0
    );
    writeln!(text, "cores      {}, a worker on each", count(size.cores));
    let why =
        if size.by_network { format!("{gbit} Gbit/s") } else { format!("{cores_of_host} cores") };
    writeln!(text, "hosts      {} of {why} each, one of them spare", count(size.hosts));
    writeln!(text, "sessions   {} on each host while one is away", count(size.host_sessions));
    writeln!(text, "memory     {} on each host", bytes(size.host_memory));
    writeln!(
        text,
        "bandwidth  {}/s each way, {}/s of it on each host",
        bytes(size.bytes_per_s),
        bytes(size.host_bytes_per_s)
    );
    text
}

fn as_json(asked: &Asked, of_a_core: f64, size: &Size) -> String {
    let page = json!({
        "schema": 1, "players": asked.players, "hz": asked.hz, "payload": asked.payload,
        "round_trips_per_core": of_a_core as u64, "cores": size.cores, "hosts": size.hosts,
        "bytes_per_s": size.bytes_per_s, "host_sessions": size.host_sessions,
        "host_bytes_per_s": size.host_bytes_per_s, "host_memory": size.host_memory,
    });
    format!("{page}\n")
}

/// How much of a core may be used, so that tails stay short; and of a line.
const BUSY: f64 = 0.6;
const LINE: f64 = 0.7;
/// What several workers cost more for each than one (docs/BENCHMARKS.md, under load).
const OF_SEVERAL: f64 = 1.2;
/// netcode's prefix, number and tag, and the headers of IPv4 and UDP.
const OVERHEAD: u32 = 21 + 28;
const PROCESS: u64 = 20 << 20;
/// Of each worker, twice for what the kernel books.
const RECEIVE_BUFFER: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked =
        Asked { players: 200_000, hz: 30, payload: 100, cores_of_host: 8, gbit: 10 };

    #[test]
    fn cores_decide_and_one_host_is_spare() {
        // 6,000,000 a second, 100,000 a core: 60 cores, and a fifth more for several.
        let size = size(&ASKED, 100_000.0);
        assert_eq!((size.cores, size.hosts, size.by_network), (72, 10, false));
        assert_eq!(size.bytes_per_s, 6_000_000 * 149);
        assert_eq!(size.host_sessions, 22_223);
        assert_eq!(size.host_memory, (20 << 20) + 22_223 * 1024 + 8 * (16 << 20));
    }

    #[test]
    fn a_line_that_is_too_short_decides() {
        // 894 MB/s each way, and 87.5 MB/s of a gigabit.
        let size = size(&Asked { gbit: 1, ..ASKED }, 1_000_000.0);
        assert_eq!((size.cores, size.hosts, size.by_network), (8, 12, true));
    }

    #[test]
    fn a_small_game_needs_a_core_and_two_hosts() {
        let size = size(&Asked { players: 10, hz: 1, ..ASKED }, 100_000.0);
        assert_eq!((size.cores, size.hosts, size.host_sessions), (1, 2, 10));
    }

    #[test]
    fn what_a_core_carries_lies_between_two_rates() {
        let step = |trips_per_s, share| Step { trips_per_s, share };
        let at = |steps: &[Step]| at_busy(steps).map(f64::round);
        assert_eq!(
            at(&[step(10_000.0, 0.2), step(20_000.0, 0.4), step(40_000.0, 0.8)]),
            Some(30_000.0)
        );
        // The players were at their end before the worker was.
        assert_eq!(at(&[step(10_000.0, 0.1), step(20_000.0, 0.2)]), Some(60_000.0));
        // One rate is too many already.
        assert_eq!(at(&[step(10_000.0, 0.9)]), Some(6_667.0));
        assert_eq!(at(&[step(0.0, 0.5)]), None);
        assert_eq!(at(&[]), None);
    }
}
