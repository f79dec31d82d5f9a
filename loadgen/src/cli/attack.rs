//! `ringgate-loadgen attack`: what honest players feel during an attack.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::outcome::{Failure, Objections, beside, print, write};
use super::players::{Dialled, PlayerArgs};
use super::run::ShapeArgs;
use super::values::duration;
use ringgate_os::signals;

use crate::attack::{AttackStats, Attacker, Kind, Options, Orders, spawn};
use crate::measure::procfs::{self, cpu_s};
use crate::measure::tally::{Stage, Tally};
use crate::players::scenario::{Kind as PhaseKind, Phase, Scenario};
use crate::report::record::Record;
use crate::run::Progress;
use crate::text::{count, percent, time};

/// Attacks the gateway and shows what honest players felt before, during and after.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    players: PlayerArgs,
    #[command(flatten)]
    shape: ShapeArgs,
    /// What attackers do; several run one after the other, `all` runs each that suits the players'
    /// protocol
    #[arg(long, value_name = "KIND,…", value_delimiter = ',', default_value = "all")]
    kind: Vec<String>,
    /// Hostile datagrams per second
    #[arg(long, value_name = "RATE", default_value_t = 20_000)]
    rate: u64,
    /// How long before, during and after the attack each take
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "4s")]
    each: Duration,
    /// Write the results here, as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<std::path::PathBuf>,
}

/// What honest players felt in one part.
struct Part {
    tally: Tally,
    loss: f64,
    gateway_cores: f64,
    seconds: f64,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.tally.of(Stage::RoundTrip).is_empty()
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    // Once: no token may be shown twice.
    let dialled = args.players.dial()?;
    if args.players.players_at.is_some() {
        return Err(Failure::BadInput("--players-at: attackers know players on loopback".into()));
    }
    let mut kinds = kinds(&args.kind)?;
    // A socket of a player's own sends with that player's address alone.
    let is_out_of_reach = |kind: &Kind| args.players.own_sockets && kind.spoofs_players();
    let suits = |kind: &Kind| kind.suits(&dialled.0) && !is_out_of_reach(kind);
    if args.kind.iter().any(|name| name == "all") {
        kinds.retain(suits);
    } else if let Some(spoof) = kinds.iter().find(|kind| is_out_of_reach(kind)) {
        return Err(Failure::BadInput(format!(
            "--own-sockets: {} needs the players' shared socket",
            spoof.name()
        )));
    } else if let Some(odd) = kinds.iter().find(|kind| !suits(kind)) {
        return Err(Failure::BadInput(format!(
            "--kind: {} does not suit these players",
            odd.name()
        )));
    }
    let mut objections = Objections::default();
    let mut csv = String::from(
        "kind,sent,unsent,answers,amplification,part,p50_ns,p99_ns,loss,gateway_cores\n",
    );
    let mut ended = Ok(());
    for kind in kinds {
        let (stats, parts, record) = match one(args, kind, &dialled) {
            Ok(shown) => shown,
            // What the kinds before have shown is worth having.
            Err(why) => {
                ended = Err(why);
                break;
            }
        };
        ended = show(kind, &stats, &parts, &record, &mut csv);
        objections.add(&record);
        if objections.is_interrupted() || ended.is_err() {
            break;
        }
        if stats.sent == 0 {
            objections.unproven.push(format!("{}: the attacker sent nothing", kind.name()));
        }
        let names = LABELS.iter().zip(&parts).filter(|(_, part)| part.is_empty());
        objections.unproven.extend(names.map(|(label, _)| {
            format!("{}: no round trip was measured {label} the attack", kind.name())
        }));
    }
    beside(ended.and_then(|()| objections.verdict()), write(args.csv.as_deref(), &csv))
}

fn kinds(names: &[String]) -> Result<Vec<Kind>, Failure> {
    use clap::ValueEnum;
    if names.iter().any(|name| name == "all") {
        return Ok(Kind::value_variants().to_vec());
    }
    let one = |name: &String| {
        Kind::from_str(name, false).map_err(|_| {
            let known: Vec<_> =
                Kind::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
            let known: Vec<_> = known.iter().map(clap::builder::PossibleValue::get_name).collect();
            Failure::BadInput(format!("--kind: {name} is not one of all, {}", known.join(", ")))
        })
    };
    names.iter().map(one).collect()
}

fn one(
    args: &Args,
    kind: Kind,
    dialled: &Dialled,
) -> Result<(AttackStats, Vec<Part>, Record), Failure> {
    let (protocol, server, protocol_id) = dialled.clone();
    let scenario = scenario(args);
    scenario.check().map_err(Failure::BadInput)?;
    let run = args.players.run(scenario, server, protocol.clone(), protocol_id, false)?;
    let mut attack = Attack {
        options: Options {
            kind,
            rate: args.rate,
            server,
            protocol_id,
            protocol,
            victims: (args.shape.sessions / args.players.threads, crate::players::FIRST_PLAYER),
            io: run.options.io,
        },
        orders: Arc::new(Orders::default()),
        thread: None,
        failure: None,
        parts: Vec::new(),
        part: usize::MAX,
        cpu_before: 0.0,
    };
    let ramp_s = args.shape.ramp.as_secs_f64();
    let each_s = args.each.as_secs_f64();
    let cpu = || run.gateway.pid.map_or(0.0, |pid| cpu_s(&procfs::threads(pid)));
    let record = run.execute_with(|progress, mask| {
        let part = (progress.elapsed_s - progress.interval_s / 2.0 - ramp_s) / each_s;
        let next = (progress.elapsed_s + progress.interval_s / 2.0 - ramp_s) / each_s;
        attack.note(part, next, progress, cpu(), mask);
    });
    attack.orders.stop_sending.store(true, Ordering::Relaxed);
    attack.orders.stop_listening.store(true, Ordering::Relaxed);
    let stats = attack.thread.take().map(std::thread::JoinHandle::join);
    let mut record = record.map_err(Failure::Failed)?;
    if let Some(why) = attack.failure {
        return Err(Failure::Failed(why));
    }
    let stats = match stats {
        Some(Ok(Ok(stats))) => stats,
        None if record.interrupted.is_some() => AttackStats::default(),
        Some(Ok(Err(why))) => {
            return Err(Failure::Failed(format!("the attacker has failed: {why}")));
        }
        _ => return Err(Failure::Failed("the attack never began: is --each at least 2 s?".into())),
    };
    record.close_books(&stats.hostile());
    for (index, part) in attack.parts.iter_mut().enumerate() {
        let start_s = ramp_s + each_s * index as f64;
        part.loss = record.loss_within(start_s, start_s + each_s).unwrap_or(0.0);
        part.gateway_cores /= part.seconds.max(1e-9);
    }
    Ok((stats, attack.parts, record))
}

/// Ramp, then before, during and after as one phase.
fn scenario(args: &Args) -> Scenario {
    let phase = |name: &str, kind, seconds| Phase {
        name: name.into(),
        kind,
        seconds,
        sessions: Some(args.shape.sessions),
        traffic: args.shape.traffic(),
        churn_per_second: 0.0,
        reconnect: false,
    };
    let each_s = args.each.as_secs_f64();
    let phases = vec![
        phase("ramp", PhaseKind::Ramp, args.shape.ramp.as_secs_f64()),
        phase("before", PhaseKind::Hold, each_s),
        phase("attack", PhaseKind::Hold, each_s),
        phase("after", PhaseKind::Hold, each_s),
    ];
    Scenario { name: "attack".into(), phases, ..Scenario::default() }
}

/// An attack on its way through the run.
struct Attack {
    options: Options,
    orders: Arc<Orders>,
    thread: Option<std::thread::JoinHandle<std::io::Result<AttackStats>>>,
    failure: Option<String>,
    parts: Vec<Part>,
    part: usize,
    cpu_before: f64,
}

impl Attack {
    /// An interval is over: it belonged to `part`, and the next one belongs to `next`.
    fn note(
        &mut self,
        part: f64,
        next: f64,
        progress: &Progress<'_>,
        cpu_s: f64,
        mask: impl FnOnce() -> Option<std::os::fd::OwnedFd>,
    ) {
        let number =
            |part: f64| if (0.0..3.0).contains(&part) { part as usize } else { usize::MAX };
        if let Some(part) = self.parts.get_mut(number(part)) {
            part.tally.merge(progress.interval);
            part.seconds += progress.interval_s;
            part.gateway_cores += (cpu_s - self.cpu_before).max(0.0);
        }
        self.cpu_before = cpu_s;
        if signals::kept().is_some() {
            // No new part is begun.
            return;
        }
        let next = number(next);
        if next == self.part {
            return;
        }
        self.part = next;
        if next < 3 {
            let tally = Tally::new();
            self.parts.push(Part { tally, loss: 0.0, gateway_cores: 0.0, seconds: 0.0 });
        }
        match next {
            1 => self.begin(mask()),
            2 => self.orders.stop_sending.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    fn begin(&mut self, mask: Option<std::os::fd::OwnedFd>) {
        let attacker = Attacker::open(self.options.clone(), mask).map_err(|why| why.to_string());
        let thread = attacker.and_then(|attacker| {
            spawn(attacker, Arc::clone(&self.orders)).map_err(|why| why.to_string())
        });
        match thread {
            Ok(thread) => self.thread = Some(thread),
            Err(why) => self.failure = Some(format!("the attack could not begin: {why}")),
        }
    }
}

/// The three parts.
const LABELS: [&str; 3] = ["before", "during", "after"];

fn show(
    kind: Kind,
    stats: &AttackStats,
    parts: &[Part],
    record: &Record,
    csv: &mut String,
) -> Result<(), Failure> {
    use std::fmt::Write as _;
    let name = kind.name();
    let mut text = format!(
        "{name}: {} datagrams sent ({} could not be), {} answers, amplification {:.4}\n",
        count(stats.sent),
        count(stats.unsent),
        count(stats.answers),
        stats.amplification()
    );
    let _ = writeln!(text, "  arrivals {}", record.summary().pace.sentence());
    for (part, label) in parts.iter().zip(LABELS) {
        let p = |percentile| part.tally.percentile_ns(Stage::RoundTrip, percentile);
        let _ = writeln!(
            text,
            "  {label:<8} p50 {:>9}  p99 {:>9}  lost {:>10}  gateway {:.2} cores",
            time(p(50.0)),
            time(p(99.0)),
            percent(part.loss),
            part.gateway_cores
        );
        let _ = writeln!(
            csv,
            "{name},{},{},{},{:.5},{label},{},{},{},{:.3}",
            stats.sent,
            stats.unsent,
            stats.answers,
            stats.amplification(),
            p(50.0),
            p(99.0),
            part.loss,
            part.gateway_cores
        );
    }
    let players = record.summary().players;
    let _ = writeln!(
        text,
        "  honest   {} of {} in, {} sessions lost",
        count(players.connected),
        count(players.came),
        count(players.lost)
    );
    for remark in record.remarks() {
        let _ = writeln!(text, "  {remark}");
    }
    for (name, value) in record.gateway_metrics.iter().filter(|(_, value)| **value >= 1.0) {
        let reason =
            name.strip_prefix("ringgate_drops_total{").and_then(|name| name.strip_suffix('}'));
        let kernel =
            (name == "ringgate_socket_drops_total").then_some("by the kernel or its filter");
        if let Some(reason) = reason.or(kernel) {
            let _ = writeln!(text, "  dropped  {reason} {}", count(*value as u64));
        }
    }
    match record.imbalances() {
        none if none.is_empty() => text.push_str("  books    balance to the datagram\n"),
        imbalances => imbalances.iter().for_each(|why| {
            let _ = writeln!(text, "  books    DO NOT BALANCE: {why}");
        }),
    }
    print(&format!("{text}\n"))
}
