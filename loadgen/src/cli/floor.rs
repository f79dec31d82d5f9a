//! `ringgate-loadgen floor`: the gateway held against what this kernel can do at all.
//!
//! A bare echo and the gateway take turns on the same core, with the same players, rate and
//! datagram sizes, round after round, so that whatever else the machine is doing happens to both.
//! Published is the ratio of CPU per round trip, with its spread.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ringgate_os::clock;

use super::outcome::{Failure, Objections, beside, print, write};
use super::players::PlayerArgs;
use super::run::ShapeArgs;
use crate::measure::bursts::Bursts;
use crate::measure::gateway::Gateway;
use crate::players::Protocol;
use crate::players::arrivals::Arrivals;
use crate::run::engine::{Gather, Options};
use crate::run::steady::{Hold, Steady, Who};
use crate::run::{Progress, Run};
use crate::text::time;

/// Compares the gateway's CPU per round trip with a bare echo's on the same core.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    players: PlayerArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Rounds, each with both contenders
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Core of the gateway's worker, where the bare echo runs too
    #[arg(long, value_name = "CORE")]
    core: Option<usize>,
    /// 1: a bare echo; 2: a bare relay to a game process and back, for gateways with a udp link
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    hops: u8,
    /// Core of the game process behind the relay
    #[arg(long, value_name = "CORE")]
    game_core: Option<usize>,
    /// Write the rounds here, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<std::path::PathBuf>,
}

/// A contender's figures in one round.
#[derive(Clone, Copy, Debug)]
struct Figure {
    cpu_us: f64,
    p50_ns: u64,
    p99_ns: u64,
    loss: f64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (protocol, server, protocol_id) = args.players.dial()?;
    if matches!(protocol, Protocol::Unreal(_)) {
        return Err(Failure::BadInput("floor: a bare echo is none to Unreal's players".into()));
    }
    if args.hops == 2 && args.players.own_sockets {
        return Err(Failure::BadInput(
            "--own-sockets: a bare relay knows players by their addresses, not by their ports"
                .into(),
        ));
    }
    if args.rounds == 0 {
        return Err(Failure::BadInput("--rounds: at least 1".into()));
    }
    let gateway = args.players.gateway();
    if gateway.pid.is_none() {
        return Err(Failure::BadInput(
            "floor needs the gateway's process: --gateway-pid or --admin".into(),
        ));
    }
    let arrivals = args.players.arrivals()?;
    let bare = BareProcess::start(args)?;
    print(&format!(
        "arrivals {}\n{:>6}{:>14}{:>14}{:>9}{:>13}{:>13}{:>13}{:>13}\n",
        arrivals.name(),
        "round",
        "bare µs/trip",
        "gateway",
        "ratio",
        "bare p50",
        "gateway p50",
        "bare p99",
        "gateway p99"
    ))?;
    let (mut rows, mut csv) = (Vec::new(), String::from(CSV_HEAD));
    let mut ended = Ok(());
    for number in 1..=args.rounds {
        match round(args, &bare, (&protocol, server, protocol_id), &gateway) {
            Ok((bare, gateway)) => rows.push(note(number, bare, gateway, arrivals, &mut csv)?),
            // What the rounds before have shown is worth having.
            Err(why) => {
                ended = Err(why);
                break;
            }
        }
    }
    let written = write(args.csv.as_deref(), &csv);
    beside(conclude(args, &rows).and(ended), written)
}

/// Both contenders, one after the other.
fn round(
    args: &Args,
    bare: &BareProcess,
    (protocol, server, protocol_id): (&Protocol, SocketAddr, u64),
    gateway: &Gateway,
) -> Result<(Figure, Figure), Failure> {
    let base = Gateway { pid: Some(bare.pid()), admin: None };
    let bare_run = contender(args, protocol.bare(bare.address.into()), (bare.address, 0), &base)?;
    Ok((bare_run, contender(args, protocol.clone(), (server, protocol_id), gateway)?))
}

/// CPU per round trip of the bare contender and the gateway, and their ratio.
type Row = (f64, f64, f64);

/// Shows a round.
fn note(
    number: usize,
    bare: Figure,
    gateway: Figure,
    arrivals: Arrivals,
    csv: &mut String,
) -> Result<Row, Failure> {
    let ratio = gateway.cpu_us / bare.cpu_us;
    print(&format!(
        "{number:>6}{:>14.3}{:>14.3}{ratio:>9.3}{:>13}{:>13}{:>13}{:>13}{}\n",
        bare.cpu_us,
        gateway.cpu_us,
        time(bare.p50_ns),
        time(gateway.p50_ns),
        time(bare.p99_ns),
        time(gateway.p99_ns),
        loss_note(bare.loss, gateway.loss),
    ))?;
    let _ = writeln!(
        csv,
        "{number},{:.4},{:.4},{ratio:.4},{},{},{},{},{},{},{}",
        bare.cpu_us,
        gateway.cpu_us,
        bare.p50_ns,
        gateway.p50_ns,
        bare.p99_ns,
        gateway.p99_ns,
        bare.loss,
        gateway.loss,
        arrivals.name()
    );
    Ok((bare.cpu_us, gateway.cpu_us, ratio))
}

fn conclude(args: &Args, rows: &[Row]) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let column = |of: fn(&Row) -> f64| {
        let mut values: Vec<_> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let middle = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
        (middle, values[0], values[values.len() - 1])
    };
    let (bare_us, gateway_us, ratio) = (column(|r| r.0), column(|r| r.1), column(|r| r.2));
    let what = if args.hops == 2 { "bare two-hop relay" } else { "bare echo" };
    print(&format!(
        "\nCPU per round trip: {what} {:.3} µs, gateway {:.3} µs (medians)\nratio {:.3} (median of {}; {:.3} to {:.3})\n",
        bare_us.0,
        gateway_us.0,
        ratio.0,
        rows.len(),
        ratio.1,
        ratio.2
    ))
}

fn contender(
    args: &Args,
    protocol: Protocol,
    (server, protocol_id): (SocketAddr, u64),
    gateway: &Gateway,
) -> Result<Figure, Failure> {
    let scenario = args.shape.scenario();
    scenario.check().map_err(Failure::BadInput)?;
    let ramp_s = args.shape.ramp.as_secs_f64();
    let end_s = scenario.seconds();
    let (from_s, to_s) = (ramp_s + 1.0, end_s);
    let bursts = match (args.players.gather, gateway.pid) {
        (Some(_), Some(pid)) => Some(Arc::new(Bursts::new(pid, from_s, to_s))),
        _ => None,
    };
    let run = args.players.run(scenario, server, protocol, protocol_id, false)?;
    let gather = run.options.gather.map(|gather| Gather { bursts: bursts.clone(), ..gather });
    let run = Run {
        options: Options { gather, ..run.options },
        // What is watched here is CPU alone; the books are `run`'s business.
        gateway: Gateway { pid: gateway.pid, admin: None },
        ..run
    };
    let mut steady = Steady::new(gateway.pid.map(Who::Process), from_s, to_s);
    let mut hold = Hold::new(from_s);
    let watch = |progress: &Progress<'_>| {
        hold.watch(progress);
        steady.watch(progress);
    };
    let record = run.execute(watch).map_err(Failure::Failed)?;
    let mut objections = Objections::default();
    objections.add(&record);
    objections.verdict()?;
    let cpu_us = match &bursts {
        Some(bursts) => bursts.cpu_us_per_trip(),
        None => steady.cpu_us_per_trip(),
    };
    let cpu_us = cpu_us.ok_or_else(|| {
        Failure::Unproven(vec![
            "no round trips were seen: is --hold at least 3 s, and does the gateway answer?".into(),
        ])
    })?;
    let (p50_ns, p99_ns, loss) = hold.figures(&record);
    Ok(Figure { cpu_us, p50_ns, p99_ns, loss })
}

fn loss_note(bare: f64, gateway: f64) -> String {
    if bare == 0.0 && gateway == 0.0 {
        return String::new();
    }
    format!("  lost {:.4} % and {:.4} %", bare * 100.0, gateway * 100.0)
}

/// The bare contender, and the game process behind it where there are two hops.
struct BareProcess {
    children: Vec<Child>,
    address: SocketAddr,
}

impl BareProcess {
    fn start(args: &Args) -> Result<Self, Failure> {
        let mut this = Self { children: Vec::new(), address: SocketAddr::from(([0; 4], 0)) };
        let behind = match args.hops {
            2 => Some(this.spawn(args.game_core, None)?),
            _ => None,
        };
        this.address = this.spawn(args.core, behind)?;
        // Until it has drawn the line of `ready`, a fresh process still faults its pages in.
        clock::sleep(Duration::from_millis(100));
        Ok(this)
    }

    fn spawn(
        &mut self,
        core: Option<usize>,
        behind: Option<SocketAddr>,
    ) -> Result<SocketAddr, Failure> {
        let fail = |why: &dyn std::fmt::Display| {
            Failure::Failed(format!("cannot start a bare echo: {why}"))
        };
        let own = std::env::current_exe().map_err(|why| fail(&why))?;
        let mut command = Command::new(own);
        command.arg("bare-echo").stdout(Stdio::piped()).stdin(Stdio::null());
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        if let Some(behind) = behind {
            command.args(["--behind", &behind.to_string()]);
        }
        let mut child = command.spawn().map_err(|why| fail(&why))?;
        let stdout = child.stdout.take();
        self.children.push(child);
        let mut line = String::new();
        let mut reader = BufReader::new(stdout.ok_or_else(|| fail(&"it has no output"))?);
        reader.read_line(&mut line).map_err(|why| fail(&why))?;
        let address = line.trim().strip_prefix("listening on ").and_then(|text| text.parse().ok());
        address.ok_or_else(|| fail(&format_args!("it said {line:?}")))
    }

    fn pid(&self) -> u32 {
        self.children.last().map_or(0, Child::id)
    }
}

impl Drop for BareProcess {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const CSV_HEAD: &str = "round,bare_us,gateway_us,ratio,bare_p50_ns,gateway_p50_ns,bare_p99_ns,gateway_p99_ns,bare_loss,gateway_loss,arrivals\n";
