//! `ringgate-loadgen ladder`: how much the gateway carries.

use std::fmt::Write as _;
use std::time::Duration;

use super::outcome::{Failure, Objections, print, write};
use super::players::PlayerArgs;
use super::run::ShapeArgs;
use super::values::duration;
use crate::measure::gateway::Gateway;
use crate::report::record::Record;
use crate::run::ladder::{Bounds, Search, Step};
use crate::run::steady::Steady;
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
    if args.from.is_nan()
        || args.from <= 0.0
        || args.factor.is_nan()
        || args.factor <= 1.0
        || args.shape.sessions == 0
    {
        return Err(Failure::BadInput(
            "--from must be above 0, --factor above 1, --sessions at least 1".into(),
        ));
    }
    let bounds = Bounds { loss: args.loss / 100.0, p99_ns: args.p99.as_nanos() as u64 };
    let mut search = Search::new(args.from, args.factor, args.halvings, bounds)
        .up_to(args.to.unwrap_or(f64::INFINITY));
    let mut csv = String::from("rate,loss,late,p50_ns,p99_ns,gateway_cores,own_cores,good\n");
    print(&format!(
        "{:>12}{:>12}{:>12}{:>11}{:>11}{:>14}{:>14}\n",
        "payloads/s", "loss", "late", "p50", "p99", "gateway cores", "own cores"
    ))?;
    let (mut objections, mut last_is_ours) = (Objections::default(), false);
    while let Some(rate) = search.next_rate() {
        let (step, record) = climb(args, rate)?;
        let remarks = record.imbalances().into_iter().chain(step.void.iter().cloned());
        let mut lines = row(&step, &bounds);
        for remark in remarks {
            let _ = writeln!(lines, "              {remark}");
        }
        print(&lines)?;
        write_csv(&step, &record, &bounds, &mut csv);
        // Players outside are the search's business: what counts is whether they bound the knee.
        objections.add(&record);
        objections.unproven.clear();
        // A step that is too much is too much, also where a game server that cannot keep up drops
        // what nobody else can count. But a good one must be good without doubt, and nobody may be
        // restarted.
        if record.restarts.is_empty() && record.is_one_gateway() && !step.is_good(&bounds) {
            objections.imbalances.clear();
        }
        if objections.is_interrupted() {
            break;
        }
        search.note(&step);
        last_is_ours |= !step.is_good(&bounds) && step.is_ours();
        if !objections.imbalances.is_empty() || record.summary().payloads.arrived == 0 {
            break;
        }
    }
    if let Some(path) = &args.csv {
        write(path, &csv)?;
    }
    conclude(&search, objections, last_is_ours)
}

/// Plays one step.
fn climb(args: &Args, rate: f64) -> Result<(Step, Record), Failure> {
    let (protocol, server, protocol_id) = args.players.dial()?;
    let mut shape = args.shape.clone();
    let at_once = shape.traffic().at_once;
    shape.hz = Some(rate / f64::from(shape.sessions) / f64::from(at_once));
    let scenario = shape.scenario();
    scenario.check().map_err(Failure::BadInput)?;
    let run = args.players.run(scenario, server, protocol, protocol_id, false)?;
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
    Ok((Step::of(rate, &record, (gateway.cores(), own.cores())), record))
}

fn write_csv(step: &Step, record: &Record, bounds: &Bounds, csv: &mut String) {
    let good = match &record.interrupted {
        Some(_) => "interrupted".to_owned(),
        None if !step.void.is_empty() => "void".to_owned(),
        None => step.is_good(bounds).to_string(),
    };
    let _ = writeln!(
        csv,
        "{:.0},{},{},{},{},{:.3},{:.3},{good}",
        step.rate,
        step.loss,
        step.late,
        step.p50_ns,
        step.p99_ns,
        step.gateway_cores,
        step.own_cores,
    );
}

/// Says where the knee is, or why there is none.
fn conclude(search: &Search, mut objections: Objections, is_ours: bool) -> Result<(), Failure> {
    if objections.interrupted.is_some() || !objections.imbalances.is_empty() {
        print("\nno knee: the climb ended before it was found\n")?;
        return objections.verdict();
    }
    let Some(knee) = search.knee() else {
        let Some(good) = search.good().map(|rate| count(rate as u64)) else {
            if search.void().is_empty() {
                return Err(Failure::Failed("the first rate was already too much".into()));
            }
            objections.unproven.push("no knee: the first rate was not measured".into());
            objections.unproven.extend_from_slice(search.void());
            return objections.verdict();
        };
        let why =
            format!("no knee: {good} payloads/s went well, and the rate above was not measured");
        objections.unproven.push(why);
        objections.unproven.extend_from_slice(search.void());
        return objections.verdict();
    };
    let above = if search.is_open() { "above " } else { "" };
    let note = if is_ours {
        " (a rate above it was too much for the generator, so it may be higher)"
    } else {
        ""
    };
    print(&format!("\nknee: {above}{} payloads/s each way{note}\n", count(knee as u64)))
}

fn row(step: &Step, bounds: &Bounds) -> String {
    let verdict = match (step.is_good(bounds), step.is_ours()) {
        _ if !step.void.is_empty() => "  not measured",
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
