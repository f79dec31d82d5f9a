//! `ringgate demo`: the whole thing in one process, to be seen working: gateway, echo backend, real
//! clients over real sockets. A cluster is several processes.

mod cluster;
mod load;
mod network;
mod players;
mod table;

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Failure, exit};
use crate::config::{LogFormat, values};
use ringgate_core::proto::netcode::timing::SEND_INTERVAL_NS;
use ringgate_core::proto::replay::Policy;
use ringgate_core::secret::Key;
use ringgate_gate::pace::BatchDelay;
use ringgate_gate::{
    Allowed, Backend, BackendId, Limits, LinkKind, Listener, Netcode, Phase, Protocol, Route,
    Setup, TokenReuse,
};
use ringgate_io::Choice;
use ringgate_link::backend::{Event, Options};
use ringgate_os::process;
use ringgate_worker::{Fleet, Plan, Stages};

use super::logging::{self, LogArgs};
pub(super) use load::{Step, measure};
use players::{Home, Outcome, Pace, Swarm};
use table::Facts;

/// Shows the main job in about 12 seconds, without arguments and without privileges.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Players
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    players: u32,
    /// For how long they play; a number alone is seconds
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = seconds)]
    seconds: u64,
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=128))]
    workers: u16,
    /// Three gateways at one address behind a router, in network namespaces: one of them is killed,
    /// and nobody is lost. Takes root, the programs `ip`, `etcd` and `openssl`, and at most 2000
    /// players
    #[arg(long)]
    cluster: bool,
    #[command(flatten)]
    log: LogArgs,
}

fn seconds(text: &str) -> Result<u64, String> {
    let span = values::duration(text).map(|span| span.as_secs());
    let seconds = span.or_else(|| text.parse().ok()).filter(|it| (1..=600).contains(it));
    seconds.ok_or_else(|| format!("found {text:?}, expected a time such as 10s, from 1s to 10m"))
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.cluster {
        return cluster::run(args);
    }
    logging::init(args.log, (LogFormat::Human, ""))?;
    let run_dir = RunDir::create()?;
    let key = Key::generate().map_err(Failure::failed)?;
    let fleet = Fleet::start(&plan(args.players, args.workers, &run_dir, key.clone()))
        .map_err(Failure::failed)?;
    let server = fleet.addresses()[0][0];
    exit::print(&format!(
        "ringgate demo: {} players for {} s through {server}; {} workers, driver {}, cipher {}\n",
        args.players,
        args.seconds,
        fleet.worker_count(),
        fleet.driver(),
        fleet.kernel()
    ))?;
    if let Some(why) = fleet.why_not_uring() {
        exit::print(&format!("io_uring is not used: {why}\n"))?;
    }
    let game = EchoGame::start(&run_dir)?;
    let outcome = play(args, &fleet, server, &key)?;
    let facts = finish(fleet)?;
    game.stop()?;
    exit::print(&table::render(&outcome, &facts))?;
    let balanced = facts.workers.iter().all(|worker| worker.check_conservation().is_ok());
    let wrong = outcome.payloads_wrong + u64::from(outcome.closed);
    if balanced && wrong == 0 && outcome.connected == args.players {
        Ok(())
    } else {
        Err(Failure::failed("the demo did not go as it should: see the table"))
    }
}

fn plan(players: u32, workers: u16, run_dir: &RunDir, key: Key) -> Plan {
    let listener = Listener {
        name: "demo".to_owned(),
        protocol: Protocol::Netcode(Netcode {
            protocol_id: PROTOCOL_ID,
            keys: vec![key.into()],
            replay: Policy::NETCODE,
            keep_alive_ns: SEND_INTERVAL_NS,
            token_reuse: TokenReuse::Deny,
            delivers: false,
            unique_in: None,
            moves: Vec::new(),
            replace_after_ns: 2_000_000_000,
        }),
        public: Vec::new(),
        backends: vec![BackendId(0)],
        route: Route::Single,
        sessions_max: players,
        follow_port_switch: true,
        limits: Limits::NONE,
        phase: Phase::Serving,
    };
    let allow = Allowed { uids: vec![process::effective_uid()], gids: Vec::new() };
    let backend = Backend {
        name: BACKEND.to_owned(),
        link: LinkKind::Bundle { allow },
        slots: players,
        grace_ns: 1_000_000_000,
        retired: false,
        drained: false,
        intake: ringgate_gate::Intake::Anybody,
    };
    Plan {
        setup: Arc::new(Setup {
            batch_delay: BatchDelay::AUTO,
            ..Setup::new(vec![listener], vec![backend], 1)
        }),
        binds: vec![vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]],
        filter: vec![true],
        run_dir: Some(run_dir.0.clone()),
        expects_udp: false,
        narrows: false,
        card: None,
        spent: Vec::new(),
        workers,
        pin: false,
        io: Choice::Auto,
        spin: Duration::ZERO,
    }
}

fn play(args: &Args, fleet: &Fleet, server: SocketAddr, key: &Key) -> Result<Outcome, Failure> {
    let mut swarm = Swarm::new(args.players, server, key, Pace::DEMO, Home::LOOPBACK)?;
    for second in 1..=args.seconds {
        swarm.play_until(Duration::from_secs(second))?;
        let sessions: u64 =
            fleet.published().iter().map(|worker| worker.report().counters.sessions).sum();
        exit::print(&format!("{}\n", table::progress(second, sessions, &swarm)))?;
    }
    swarm.leave()
}

/// Stops the gateway and collects its last words.
fn finish(fleet: Fleet) -> Result<Facts, Failure> {
    let published = fleet.published().to_vec();
    fleet.stop().map_err(Failure::failed)?;
    let mut facts = Facts { workers: Vec::new(), stages: Stages::new(), socket_drops: 0 };
    for worker in published {
        let report = worker.report();
        facts.socket_drops += report.socket_drops;
        facts.workers.push(report.counters);
        if let Some(recorded) = worker.exchange(None) {
            facts.stages.add(&recorded);
        }
    }
    Ok(facts)
}

/// A game server that sends every payload back, in a thread of its own.
struct EchoGame {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<std::io::Result<()>>,
}

impl EchoGame {
    /// Connects to all workers before it returns.
    fn start(run_dir: &RunDir) -> Result<Self, Failure> {
        let mut backend = Options::new(&run_dir.0, BACKEND).connect().map_err(Failure::failed)?;
        while !backend.is_up() {
            backend.wait(Some(Duration::from_secs(1))).map_err(Failure::failed)?;
            let mut events = backend.poll().map_err(Failure::failed)?;
            while let Some((event, _)) = events.next() {
                if let Event::LinkLost { loss, .. } = event {
                    return Err(Failure::failed(format_args!("the echo backend: {loss:?}")));
                }
            }
            backend.flush();
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                backend.wait(Some(Duration::from_millis(100)))?;
                let mut events = backend.poll()?;
                while let Some((event, outbox)) = events.next() {
                    if let Event::Payload { session, bytes } = event {
                        let _ = outbox.send(session, bytes);
                    }
                }
                backend.flush();
            }
            Ok(())
        });
        Ok(Self { stop, thread })
    }

    fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Release);
        let ended = self.thread.join().map_err(|_| Failure::failed("the echo backend panicked"))?;
        ended.map_err(Failure::failed)
    }
}

/// A directory for sockets and files that goes with the demo.
struct RunDir(PathBuf);

impl RunDir {
    /// Nobody else may look in there. What is there already is of a demo that was killed.
    fn create() -> Result<Self, Failure> {
        let dir = Self::path(std::process::id());
        let _ = std::fs::remove_dir_all(&dir);
        let fail = |why| Failure::failed(format_args!("{}: {why}", dir.display()));
        DirBuilder::new().mode(0o700).create(&dir).map_err(fail)?;
        Ok(Self(dir))
    }

    /// That of the demo whose process this is.
    fn path(pid: u32) -> PathBuf {
        std::env::temp_dir().join(format!("ringgate-demo-{pid}"))
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const PROTOCOL_ID: u64 = 0x7269_6e67_6761_7465;
const BACKEND: &str = "echo";
