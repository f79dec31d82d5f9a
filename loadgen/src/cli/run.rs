//! `ringgate-loadgen run`: one scenario.

use std::path::PathBuf;
use std::time::Duration;

use super::delivery::DeliveryArgs;
use super::live::Live;
use super::outcome::{Failure, Objections, beside, print, write};
use super::players::PlayerArgs;
use super::table;
use super::values::duration;
use super::values::range;
use crate::players::impair::Impairments;
use crate::players::scenario::Scenario;
use crate::players::traffic::{Shape, Traffic};
use crate::report;
use crate::report::record::Record;
use crate::report::require::Requirements;
use crate::run::Run;

/// Plays one scenario and shows what it was like.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    players: PlayerArgs,
    #[command(flatten)]
    delivery: DeliveryArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// A file with phases instead of a shape
    #[arg(long, value_name = "FILE", conflicts_with_all = ["shape", "sessions", "hz", "bytes", "at_once", "ramp", "hold"])]
    scenario: Option<PathBuf>,
    /// A bad network, with Unreal's names: "PktLag=50 PktLagVariance=20 PktLoss=3"
    #[arg(long, value_name = "SETTINGS", value_parser = Impairments::parse)]
    impair: Option<Impairments>,
    #[command(flatten)]
    outcome: OutcomeArgs,
}

/// What players do, where no scenario says so.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ShapeArgs {
    /// What players do
    #[arg(long, value_enum, default_value = "fixed")]
    pub(super) shape: Shape,
    /// Players
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(super) sessions: u32,
    /// Payloads per second and player [default: the shape's]
    #[arg(long, value_name = "RATE")]
    pub(super) hz: Option<f64>,
    /// Payload size, or a range like 40-120 [default: the shape's]
    #[arg(long, value_name = "BYTES", value_parser = range)]
    pub(super) bytes: Option<(u16, u16)>,
    /// Payloads at each sending moment [default: the shape's]
    #[arg(long, value_name = "N")]
    pub(super) at_once: Option<u32>,
    /// Time over which players come
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(super) ramp: Duration,
    /// Time for which they play
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    pub(super) hold: Duration,
}

/// What becomes of the results.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct OutcomeArgs {
    /// Write run.json, run.hlog and report.html here
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
    /// Exit with 3 where a condition is missed: "p99<2ms,loss<0.1%"
    #[arg(long, value_name = "CONDITIONS")]
    pub(super) require: Option<Requirements>,
}

impl ShapeArgs {
    /// The shape's traffic, with what was asked for put in.
    pub(super) fn traffic(&self) -> Traffic {
        let mut traffic = self.shape.traffic();
        traffic.hz = self.hz.unwrap_or(traffic.hz);
        traffic.at_once = self.at_once.unwrap_or(traffic.at_once);
        if let Some((min, max)) = self.bytes {
            (traffic.bytes_min, traffic.bytes_max) = (min, max);
        }
        traffic
    }

    pub(super) fn scenario(&self) -> Scenario {
        Scenario::of_shape(self.shape, self.traffic(), self.sessions, self.ramp, self.hold)
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let scenario = scenario(args)?;
    args.delivery.check(&scenario)?;
    let (protocol, server, protocol_id) = args.players.dial()?;
    let protocol = args.delivery.over(protocol);
    let has_nat = scenario.impair.nat_switch_ns().is_some();
    if let Some(out) = &args.outcome.out {
        std::fs::create_dir_all(out)
            .map_err(|why| Failure::Failed(format!("{}: {why}", out.display())))?;
    }
    let run = Run {
        hlog: args.outcome.out.as_ref().map(|out| out.join("run.hlog")),
        ..args.players.run(scenario, server, protocol, protocol_id, has_nat)?
    };
    let mut live = Live::new(args.outcome.json);
    let record = run.execute(|progress| live.show(progress)).map_err(Failure::Failed)?;
    live.end();
    args.outcome.finish(&record)
}

fn scenario(args: &Args) -> Result<Scenario, Failure> {
    let mut scenario = match &args.scenario {
        None => args.shape.scenario(),
        Some(path) => {
            let fail = |why: String| Failure::BadInput(format!("{}: {why}", path.display()));
            let text = std::fs::read_to_string(path).map_err(|why| fail(why.to_string()))?;
            let mut scenario = Scenario::parse(&text).map_err(fail)?;
            if scenario.name.is_empty() {
                scenario.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            }
            scenario
        }
    };
    if let Some(impair) = &args.impair {
        scenario.impair = impair.clone();
    }
    scenario.check().map_err(Failure::BadInput)?;
    Ok(scenario)
}

impl OutcomeArgs {
    /// Prints, writes and judges a run.
    pub(super) fn finish(&self, record: &Record) -> Result<(), Failure> {
        let json = serde_json::to_string_pretty(record)
            .map_err(|why| Failure::Failed(format!("cannot write JSON: {why}")))?;
        let shown = if self.json { format!("{json}\n") } else { table::of(record) };
        let html = report::html(std::slice::from_ref(record));
        let file = |name: &str| self.out.as_ref().map(|out| out.join(name));
        let log = record.unwritten.clone().map_or(Ok(()), |why| Err(Failure::Failed(why)));
        let missed = self.require.as_ref().map(|all| all.missed(|what| record.measured(what)));
        let mut objections =
            Objections { missed: missed.unwrap_or_default(), ..Default::default() };
        objections.add(record);
        let written = [
            log,
            print(&shown),
            write(file("run.json").as_deref(), &json),
            write(file("report.html").as_deref(), &html),
        ];
        beside(objections.verdict(), written.into_iter().collect())
    }
}
