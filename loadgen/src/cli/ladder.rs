//! `ringgate-loadgen ladder`: how much the gateway carries, and what a round trip costs on the way
//! there.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use ringgate_os::clock;

use super::delivery::DeliveryArgs;
use super::outcome::{Failure, Objections, beside, print, write};
use super::players::{Dialled, PlayerArgs};
use super::run::ShapeArgs;
use super::values::duration;
use crate::measure::procfs::Machine;
use crate::report;
use crate::report::curve::{Bounds, Cost, Costs, Curve, Step};
use crate::report::record::Record;
use crate::run::Progress;
use crate::run::ladder::Search;
use crate::run::steady::{Hold, Steady, Who};
use crate::text::{count, percent, time};

/// Raises the rate until loss or latency pass a bound, and prints the knee, with the CPU that a
/// round trip costs at each rate.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    players: PlayerArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
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
    /// Play these rates instead, good or bad, and look for no knee
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', conflicts_with_all = ["from", "to", "factor", "halvings"])]
    at: Vec<f64>,
    /// The game server's process, to see its CPU time too
    #[arg(long, value_name = "PID")]
    game_pid: Option<u32>,
    /// Show how busy a core was as well, with all that ran there: for a contender that lives in the
    /// kernel, or one that shares its core with the game server
    #[arg(long, value_name = "CORE")]
    busy_core: Option<usize>,
    /// What the ladder is called in its report
    #[arg(long, value_name = "NAME", default_value = "ladder")]
    name: String,
    /// Write ladder.json and report.html here: cost over load as a curve, with the knee marked
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the steps here, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let is_rate = |rate: &f64| *rate > 0.0 && rate.is_finite();
    if !is_rate(&args.from)
        || !args.at.iter().all(is_rate)
        || args.factor.is_nan()
        || args.factor <= 1.0
        || args.shape.sessions == 0
    {
        return Err(Failure::BadInput(
            "--from and --at must be above 0, --factor above 1, --sessions at least 1".into(),
        ));
    }
    if let Some(out) = &args.out {
        std::fs::create_dir_all(out)
            .map_err(|why| Failure::Failed(format!("{}: {why}", out.display())))?;
    }
    // Once: no token may be shown twice.
    let dialled = args.players.dial()?;
    let mut ladder = Ladder::new(args)?;
    print(&ladder.heads())?;
    let mut ended = Ok(());
    while let Some(rate) = ladder.next_rate() {
        match climb(args, &dialled, rate) {
            Ok((step, record)) => {
                ended = print(&row(&step, &record, &ladder.curve.bounds));
                if !ladder.note(step, &record) || ended.is_err() {
                    break;
                }
            }
            // What the steps before have shown is worth having.
            Err(why) => {
                ended = Err(why);
                break;
            }
        }
    }
    ladder.conclude(ended)
}

/// A climb and what it has shown so far.
struct Ladder<'a> {
    args: &'a Args,
    search: Search,
    curve: Curve,
    csv: String,
    objections: Objections,
    last_is_ours: bool,
}

impl<'a> Ladder<'a> {
    fn new(args: &'a Args) -> Result<Self, Failure> {
        let bounds = Bounds { loss: args.loss / 100.0, p99_ns: args.p99.as_nanos() as u64 };
        let search = Search::new(args.from, args.factor, args.halvings, bounds)
            .up_to(args.to.unwrap_or(f64::INFINITY));
        let traffic = args.shape.traffic();
        let curve = Curve {
            name: args.name.clone(),
            started_unix_s: clock::unix_seconds(),
            arrivals: args.players.arrivals()?,
            sessions: args.shape.sessions,
            bytes: (traffic.bytes_min, traffic.bytes_max),
            machine: Machine::here(),
            bounds,
            ..Curve::default()
        };
        let (csv, objections) = (CSV_HEAD.into(), Objections::default());
        Ok(Self { args, search, curve, csv, objections, last_is_ours: false })
    }

    fn heads(&self) -> String {
        format!(
            "arrivals {}; CPU in µs for each round trip\n\
             {:>12}{:>12}{:>12}{:>11}{:>11}{:>10}{:>10}{:>10}{:>15}{:>11}\n",
            self.curve.arrivals.name(),
            "payloads/s",
            "loss",
            "99 % late",
            "p50",
            "p99",
            "gateway",
            "game",
            "core",
            "gateway cores",
            "own cores"
        )
    }

    fn next_rate(&self) -> Option<f64> {
        if self.args.at.is_empty() {
            return self.search.next_rate();
        }
        self.args.at.get(self.curve.steps.len()).copied()
    }

    /// Learns what a step was like. Whether to go on.
    fn note(&mut self, step: Step, record: &Record) -> bool {
        write_csv(&step, record, &self.curve, &mut self.csv);
        // Players outside are the search's business: what counts is whether they bound the knee.
        self.objections.add(record);
        self.objections.unproven.clear();
        let is_good = step.is_good(&self.curve.bounds);
        // A step that is too much is too much, also where a game server that cannot keep up drops
        // what nobody else can count. But a good one must be good without doubt, and nobody may be
        // restarted.
        if record.restarts.is_empty() && record.is_one_gateway() && !is_good {
            self.objections.imbalances.clear();
        }
        if self.objections.is_interrupted() {
            return false;
        }
        if self.args.at.is_empty() {
            self.search.note(&step);
        }
        self.last_is_ours |= !is_good && step.is_ours();
        self.curve.steps.push(step);
        self.objections.imbalances.is_empty() && record.summary().payloads.arrived > 0
    }

    /// Says where the knee is, or why there is none, and writes the files.
    fn conclude(mut self, ended: Result<(), Failure>) -> Result<(), Failure> {
        if self.curve.steps.is_empty() && ended.is_err() {
            return ended;
        }
        let is_cut_short = ended.is_err() || self.is_cut_short();
        let verdict = ended.and_then(|()| self.verdict());
        self.curve.ending = match (&verdict, self.search.good()) {
            (Ok(ending), _) => ending.clone(),
            (Err(_), Some(good)) if is_cut_short => {
                format!("{CUT_SHORT}; {} payloads/s went well", count(good as u64))
            }
            (Err(_), _) if is_cut_short => CUT_SHORT.into(),
            _ => "no knee".into(),
        };
        let json = serde_json::to_string_pretty(&self.curve)
            .map_err(|why| Failure::Failed(format!("cannot write JSON: {why}")))?;
        let html = report::curve::html(std::slice::from_ref(&self.curve));
        let file = |name: &str| self.args.out.as_ref().map(|out| out.join(name));
        let is_ending = verdict.is_ok() || is_cut_short;
        let written = [
            if is_ending { print(&format!("\n{}\n", self.curve.ending)) } else { Ok(()) },
            write(self.args.csv.as_deref(), &self.csv),
            write(file(report::CURVE_FILE).as_deref(), &json),
            write(file("report.html").as_deref(), &html),
        ];
        beside(verdict.map(drop), written.into_iter().collect())
    }

    fn is_cut_short(&self) -> bool {
        self.objections.interrupted.is_some() || !self.objections.imbalances.is_empty()
    }

    /// The closing sentence, or why nothing is proven.
    fn verdict(&mut self) -> Result<String, Failure> {
        let mut objections = self.objections.clone();
        if self.is_cut_short() {
            return objections.verdict().map(|()| String::new());
        }
        if !self.args.at.is_empty() {
            let void = self.curve.steps.iter().flat_map(|step| step.void.iter().cloned());
            objections.unproven.extend(void);
            objections.verdict()?;
            return Ok("these rates were asked for; no knee was looked for".into());
        }
        let Some(knee) = self.search.knee() else {
            let why = match self.search.good().map(|rate| count(rate as u64)) {
                None if self.search.void().is_empty() => {
                    return Err(Failure::Failed("the first rate was already too much".into()));
                }
                None => "no knee: the first rate was not measured".into(),
                Some(good) => format!(
                    "no knee: {good} payloads/s went well, and the rate above was not measured"
                ),
            };
            objections.unproven.push(why);
            objections.unproven.extend_from_slice(self.search.void());
            return objections.verdict().map(|()| String::new());
        };
        self.curve.knee = Some(knee).filter(|_| !self.search.is_open());
        let above = if self.search.is_open() { "above " } else { "" };
        let note = if self.last_is_ours {
            " (a rate above it was too much for the generator, so it may be higher)"
        } else {
            ""
        };
        Ok(format!("knee: {above}{} payloads/s each way{note}", count(knee as u64)))
    }
}

/// Plays one step.
fn climb(args: &Args, dialled: &Dialled, rate: f64) -> Result<(Step, Record), Failure> {
    let (protocol, server, protocol_id) = dialled.clone();
    let protocol = args.delivery.over(protocol);
    let mut shape = args.shape.clone();
    let at_once = shape.traffic().at_once;
    shape.hz = Some(rate / f64::from(shape.sessions) / f64::from(at_once));
    let scenario = shape.scenario();
    scenario.check().map_err(Failure::BadInput)?;
    args.delivery.check(&scenario)?;
    let run = args.players.run(scenario, server, protocol, protocol_id, false)?;
    let (from_s, to_s) = (shape.ramp.as_secs_f64(), (shape.ramp + shape.hold).as_secs_f64());
    let who = [
        run.gateway.pid.map(Who::Process),
        args.game_pid.map(Who::Process),
        args.busy_core.map(Who::Core),
        Some(Who::Process(std::process::id())),
    ];
    let mut watched = who.map(|who| Steady::new(who, from_s, to_s));
    let mut hold = Hold::new(from_s);
    let watch = |progress: &Progress<'_>| {
        hold.watch(progress);
        for steady in &mut watched {
            steady.watch(progress);
        }
    };
    let record = run.execute(watch).map_err(Failure::Failed)?;
    let [gateway, game, core, own] = watched.map(|steady| steady.cost());
    let (p50_ns, p99_ns, loss) = hold.figures(&record);
    let step = Step::of(rate, &record, Costs { gateway, game, core, own });
    Ok((Step { loss, p50_ns, p99_ns, ..step }, record))
}

fn write_csv(step: &Step, record: &Record, curve: &Curve, csv: &mut String) {
    let good = match &record.interrupted {
        Some(_) => "interrupted".to_owned(),
        None if !step.void.is_empty() => "void".to_owned(),
        None => step.is_good(&curve.bounds).to_string(),
    };
    let us = |cost: Cost| cost.us_per_trip.map_or_else(String::new, |us| format!("{us:.4}"));
    let costs = &step.costs;
    let _ = writeln!(
        csv,
        "{:.0},{},{},{},{},{:.3},{:.3},{good},{},{},{},{},{},{}",
        step.rate,
        step.loss,
        step.late,
        step.p50_ns,
        step.p99_ns,
        costs.gateway.cores,
        costs.own.cores,
        curve.arrivals.name(),
        step.late_p99_ns,
        us(costs.gateway),
        us(costs.game),
        us(costs.core),
        record.summary().players.elsewhere,
    );
}

fn row(step: &Step, record: &Record, bounds: &Bounds) -> String {
    let verdict = match (step.is_good(bounds), step.is_ours()) {
        _ if !step.void.is_empty() => "  not measured",
        (true, false) => "",
        (true, true) => "  (the generator was late)",
        (false, false) => "  too much",
        (false, true) => "  too much, and the generator was late: it may be what gave way",
    };
    let us = |cost: Cost| cost.us_per_trip.map_or_else(|| "–".into(), |us| format!("{us:.2}"));
    let costs = &step.costs;
    let mut lines = format!(
        "{:>12}{:>12}{:>12}{:>11}{:>11}{:>10}{:>10}{:>10}{:>15.2}{:>11.2}{verdict}\n",
        count(step.rate as u64),
        percent(step.loss),
        time(step.late_p99_ns),
        time(step.p50_ns),
        time(step.p99_ns),
        us(costs.gateway),
        us(costs.game),
        us(costs.core),
        costs.gateway.cores,
        costs.own.cores,
    );
    for remark in record.imbalances().into_iter().chain(step.void.iter().cloned()) {
        let _ = writeln!(lines, "              {remark}");
    }
    lines
}

const CUT_SHORT: &str = "no knee: the climb ended before it was found";

const CSV_HEAD: &str = "rate,loss,late,p50_ns,p99_ns,gateway_cores,own_cores,good,arrivals,late_p99_ns,gateway_us,game_us,core_us,elsewhere\n";
