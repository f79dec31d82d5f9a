//! `ringgate-loadgen ladder`: how much the gateway carries.

use std::fmt::Write as _;
use std::time::Duration;

use super::players::{PlayerArgs, duration};
use super::run::{ShapeArgs, write};
use super::{Failure, print};
use crate::gateway::Gateway;
use crate::ladder::{Bounds, Search, Step};
use crate::steady::Steady;
use crate::text::{count, percent, time};

/// Raises the rate until loss or latency pass a bound, and prints the knee.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    players: PlayerArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// First rate, in payloads per second over all players
    #[arg(long, value_name = "RATE", default_value_t = 20_000.0)]
    from: f64,
    /// Highest rate to try; without it the climb ends where the gateway gives way
    #[arg(long, value_name = "RATE")]
    to: Option<f64>,
    /// Each rate is so many times the one before
    #[arg(long, value_name = "FACTOR", default_value_t = 1.4)]
    factor: f64,
    /// Halvings between the last good and the first bad rate
    #[arg(long, value_name = "N", default_value_t = 3)]
    halvings: u32,
    /// Most loss of a good step, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1)]
    loss: f64,
    /// Highest 99th percentile of a good step
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10ms")]
    p99: Duration,
    /// Write the steps here, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<std::path::PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.from <= 0.0 || args.factor <= 1.0 || args.shape.sessions == 0 {
        return Err(Failure::BadInput(
            "--from must be above 0, --factor above 1, --sessions at least 1".into(),
        ));
    }
    let (protocol, server, protocol_id) = args.players.dial()?;
    let bounds = Bounds { loss: args.loss / 100.0, p99_ns: args.p99.as_nanos() as u64 };
    let mut search = Search::new(args.from, args.factor, args.halvings, bounds)
        .up_to(args.to.unwrap_or(f64::INFINITY));
    let mut csv = String::from("rate,loss,late,p50_ns,p99_ns,gateway_cores,own_cores,good\n");
    print(&format!(
        "{:>12}{:>12}{:>12}{:>11}{:>11}{:>14}{:>14}\n",
        "payloads/s", "loss", "late", "p50", "p99", "gateway cores", "own cores"
    ))?;
    while let Some(rate) = search.next_rate() {
        let mut shape = args.shape.clone();
        let at_once = shape.traffic().at_once;
        shape.hz = Some(rate / f64::from(shape.sessions) / f64::from(at_once));
        let scenario = shape.scenario();
        scenario.check().map_err(Failure::BadInput)?;
        let run = args.players.run(scenario, server, protocol.clone(), protocol_id, false)?;
        let steady = |gateway| {
            Steady::new(gateway, shape.ramp.as_secs_f64(), (shape.ramp + shape.hold).as_secs_f64())
        };
        let own = Gateway { pid: Some(std::process::id()), admin: None };
        let (mut gateway, mut own) = (steady(run.gateway), steady(own));
        let record = run
            .execute(|progress| {
                gateway.watch(progress);
                own.watch(progress);
            })
            .map_err(Failure::Failed)?;
        let step = Step::of(rate, &record, (gateway.cores(), own.cores()));
        search.note(&step);
        print(&row(&step, &bounds))?;
        for imbalance in record.imbalances() {
            print(&format!("              books do not balance: {imbalance}\n"))?;
        }
        let _ = writeln!(
            csv,
            "{rate:.0},{},{},{},{},{:.3},{:.3},{}",
            step.loss,
            step.late,
            step.p50_ns,
            step.p99_ns,
            step.gateway_cores,
            step.own_cores,
            step.is_good(&bounds)
        );
    }
    if let Some(path) = &args.csv {
        write(path, &csv)?;
    }
    match search.knee() {
        Some(knee) => {
            let above = if search.is_open() { "above " } else { "" };
            print(&format!("\nknee: {above}{} payloads/s each way\n", count(knee as u64)))
        }
        None => Err(Failure::Failed("the first rate was already too much".into())),
    }
}

fn row(step: &Step, bounds: &Bounds) -> String {
    let verdict = match (step.is_good(bounds), step.is_ours()) {
        (true, false) => "",
        (true, true) => "  (the generator was late)",
        (false, false) => "  too much",
        (false, true) => "  too much, and the generator was late: it may be what gave way",
    };
    format!(
        "{:>12}{:>12}{:>12}{:>11}{:>11}{:>14.2}{:>14.2}{verdict}\n",
        count(step.rate as u64),
        percent(step.loss),
        percent(step.late),
        time(step.p50_ns),
        time(step.p99_ns),
        step.gateway_cores,
        step.own_cores,
    )
}
