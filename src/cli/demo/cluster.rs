//! `ringgate demo --cluster`: three gateways at one address, an agent, etcd and players in network
//! namespaces. One gateway is killed, and nobody may be lost.
//!
//! One process makes the network and takes it away again, whatever happens. Another one, among the
//! players, starts all others and plays. What somebody has started ends with it.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::SignalKind;

use super::network::{GATEWAYS, HOST, Names, Network, PLAYERS, PUBLIC, done};
use super::players::{Pace, Swarm};
use super::{Args, BACKEND, Failure, LogFormat, PROTOCOL_ID, RunDir, exit, logging, table};
use crate::cli::admin::Admin;
use crate::cli::files::{Existing, write_private};
use crate::cli::signal;
use ringgate_core::secret::Key;
use ringgate_os::clock::{self, Clock};
use ringgate_os::process;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !cfg!(feature = "agent") {
        return Err(Failure::bad_input(
            "this ringgate was built without the feature agent, which --cluster needs",
        ));
    }
    if args.players > PLAYERS_MAX {
        return Err(Failure::bad_input(format_args!(
            "--players: found {}, expected at most {PLAYERS_MAX} with --cluster",
            args.players
        )));
    }
    let stop = signal::stop_flag(|| ())?;
    let parent = parent_id();
    let is_among_players = std::env::var(MAKER).is_ok_and(|it| it == parent.to_string());
    let done = if is_among_players {
        play(args, Names(parent), Arc::clone(&stop))
    } else {
        make_network(args, &stop)
    };
    // Whatever has failed because of it.
    let is_told = stop.load(Ordering::Relaxed);
    done.map_err(|why| if is_told { Failure::failed("stopped") } else { why })
}

/// Makes the network, and has another process play in it.
fn make_network(args: &Args, stop: &AtomicBool) -> Result<(), Failure> {
    logging::init(args.log, (LogFormat::Human, ""))?;
    check()?;
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let names = Names(std::process::id());
    let _folder = RunDir::create()?;
    let _network = Network::create(names)?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &names.players()]).arg(program);
    command.args(std::env::args_os().skip(1)).env(MAKER, names.0.to_string());
    process::end_with_us(command.stdin(Stdio::null()).stderr(Stdio::piped()));
    let mut child = command.spawn().map_err(Failure::failed)?;
    let ended = loop {
        if let Some(ended) = child.try_wait().map_err(Failure::failed)? {
            break ended;
        }
        if stop.load(Ordering::Relaxed) {
            // It ends in order what it has started.
            let _ = process::signal(child.id(), SignalKind::terminate().as_raw_value());
        }
        clock::sleep(LOOK_EVERY);
    };
    let said = child.stderr.take().map(std::io::read_to_string);
    let said = said.and_then(Result::ok).unwrap_or_default();
    match said.trim_end().trim_start_matches("ringgate: ") {
        _ if ended.success() => Ok(()),
        "" => Err(Failure::failed(format_args!("the players' process has ended: {ended}"))),
        why => Err(Failure::failed(why)),
    }
}

/// Says everything that is missing, before anything is changed.
fn check() -> Result<(), Failure> {
    let is_missing = |it: &&str| Command::new(it).arg("--help").output().is_err();
    let mut missing: Vec<_> = ["ip", "etcd", "openssl"].into_iter().filter(is_missing).collect();
    if process::effective_uid() != 0 {
        missing.insert(0, "root");
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format_args!(
        "--cluster takes root, for network namespaces, and the programs ip, etcd and openssl; \
         missing here: {} (sudo; Debian and Ubuntu have the programs in iproute2, etcd-server and \
         openssl)",
        missing.join(", ")
    )))
}

/// Starts everything, plays, kills a gateway, plays on, and says what has become of the players.
fn play(args: &Args, names: Names, stop: Arc<AtomicBool>) -> Result<(), Failure> {
    let mut cluster = Cluster { folder: RunDir::path(names.0), names, stop, running: Vec::new() };
    let key = Key::generate().map_err(Failure::failed)?;
    let gateways = cluster.start(args, &key)?;
    let server = SocketAddr::from((PUBLIC, PORT));
    exit::print(&format!(
        "ringgate demo: {} players for {} s at {server}, which {GATEWAYS} gateways have\n",
        args.players, args.seconds
    ))?;
    let mut swarm = Swarm::new(args.players, server, &key, Pace::DEMO, PLAYERS)?;
    swarm.connect()?;
    let patience = swarm.played() + PATIENCE;
    while !all_stand_by(&gateways, swarm.playing())? {
        cluster.play_for(LOOK_EVERY, &mut swarm)?;
        if swarm.played() > patience {
            return Err(Failure::failed("the gateways do not stand by for each other's sessions"));
        }
    }
    let (begin, seconds) = (swarm.played(), Duration::from_secs(args.seconds));
    cluster.play_for(seconds * 2 / 5, &mut swarm)?;

    let pages = pages(&gateways)?;
    let victim = (0..GATEWAYS).max_by_key(|at| owned(&pages[*at])).expect("there are some");
    let orphans = gateways[victim].players()?;
    swarm.listen_anew();
    cluster.kill(&gateways[victim].name);
    exit::print(&format!("       {} is killed\n", gateways[victim].name))?;
    cluster.play_for(WITHDRAWN_AFTER, &mut swarm)?;
    let others: Vec<_> = (0..GATEWAYS).filter(|at| *at != victim).collect();
    names.spread(&others.iter().map(|at| at + 1).collect::<Vec<_>>())?;
    let left = (begin + seconds).saturating_sub(swarm.played());
    cluster.play_for(left, &mut swarm)?;

    let lost = swarm.count_lost()?;
    let silences = swarm.silences(&orphans);
    let rows = gateways.iter().enumerate().map(|(at, gateway)| {
        Ok(table::Member {
            name: &gateway.name,
            page: if at == victim { None } else { Some(gateway.status()?) },
            had: owned(&pages[at]),
        })
    });
    let rows = rows.collect::<Result<Vec<_>, Failure>>()?;
    let holds = rows.iter().all(table::Member::accounts_for_everything);
    let outcome = swarm.leave()?;
    exit::print(&table::render_cluster(&outcome, lost, &silences, &rows))?;
    if lost == 0 && outcome.payloads_wrong == 0 && holds {
        Ok(())
    } else {
        Err(Failure::failed("the demo did not go as it should: see the table"))
    }
}

/// All that this process has started.
struct Cluster {
    folder: PathBuf,
    names: Names,
    stop: Arc<AtomicBool>,
    running: Vec<Process>,
}

/// A gateway, and where its pages are.
struct Gateway {
    name: String,
    admin: Admin,
}

/// A process that ends with this.
struct Process {
    name: String,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cluster {
    /// Starts etcd, an agent with its game process, and the gateways, and waits until these have
    /// told each other of everything.
    fn start(&mut self, args: &Args, key: &Key) -> Result<Vec<Gateway>, Failure> {
        self.certify()?;
        let program = std::env::current_exe().map_err(Failure::failed)?;
        let url = format!("http://{HOST}:2379");
        let mut etcd = Command::new("etcd");
        etcd.args(["--data-dir", "etcd", "--listen-client-urls", &url]);
        self.run("etcd", etcd.args(["--advertise-client-urls", &url]))?;
        self.wait("etcd", "has not answered", || TcpStream::connect((HOST, 2379)).is_ok())?;

        let fleet_key = Key::generate().map_err(Failure::failed)?;
        let mut gateways = Vec::new();
        for number in 1..=GATEWAYS {
            let name = format!("gate-{number}");
            let text = gateway_file(number, args, [key, &fleet_key]);
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &self.names.gateway(number)]).arg(&program);
            self.file(&format!("{name}.toml"), &text)?;
            self.run(&name, command.args(["run", "--config", &format!("{name}.toml")]))?;
            let admin = Admin::of_run_dir(&self.folder.join(&name));
            gateways.push(Gateway { name, admin });
        }
        self.file("host.toml", &agent_file(args))?;
        self.run("host", Command::new(&program).args(["agent", "--config", "host.toml"]))?;
        let echo = ["echo", "--socket", "host", "--name", BACKEND];
        self.run("echo", Command::new(&program).args(echo))?;
        for gateway in &gateways {
            self.wait(&gateway.name, "is not ready", || gateway.is_ready())?;
        }
        Ok(gateways)
    }

    /// An authority, and a certificate of it for each that needs to be known.
    fn certify(&self) -> Result<(), Failure> {
        let openssl = |words: &str| {
            done(Command::new("openssl").current_dir(&self.folder).args(words.split(' ')))
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=demo"))?;
        let gateway = |number| {
            let is = format!("DNS:gate-{number}.{CLUSTER}.ringgate-cluster,IP:10.1.{number}.2");
            (format!("gate-{number}"), is)
        };
        let host = ("host".to_owned(), "DNS:host".to_owned());
        for (name, is) in (1..=GATEWAYS).map(gateway).chain([host]) {
            self.file(&format!("{name}.ext"), &format!("subjectAltName={is}"))?;
            openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"))?;
            openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
                 -extfile {name}.ext -out {name}.pem"
            ))?;
        }
        Ok(())
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        write_private(&self.folder.join(name), text.as_bytes(), Existing::Keep(""))
    }

    fn run(&mut self, name: &str, command: &mut Command) -> Result<(), Failure> {
        let log = File::create(self.log(name)).map_err(Failure::failed)?;
        let errors = log.try_clone().map_err(Failure::failed)?;
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = process::end_with_us(command).spawn().map_err(Failure::failed)?;
        self.running.push(Process { name: name.to_owned(), child });
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    /// Waits for what a process has to come to.
    fn wait(&mut self, name: &str, how: &str, is_so: impl Fn() -> bool) -> Result<(), Failure> {
        let clock = Clock::start();
        while !is_so() {
            self.look()?;
            if Duration::from_nanos(clock.now_ns()) > PATIENCE {
                return Err(self.fails(name, how));
            }
            clock::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Whether to go on.
    fn look(&mut self) -> Result<(), Failure> {
        let has_ended = |it: &mut Process| !matches!(it.child.try_wait(), Ok(None));
        if let Some(at) = self.running.iter_mut().position(has_ended) {
            return Err(self.fails(&self.running[at].name, "has ended"));
        }
        if self.stop.load(Ordering::Relaxed) { Err(Failure::failed("stopped")) } else { Ok(()) }
    }

    fn fails(&self, name: &str, how: &str) -> Failure {
        let text = std::fs::read_to_string(self.log(name)).unwrap_or_default();
        let last = text.lines().next_back().unwrap_or("nothing");
        Failure::failed(format_args!("{name} {how}; it says: {last}"))
    }

    /// As a host dies that loses its power.
    fn kill(&mut self, name: &str) {
        self.running.retain(|it| it.name != name);
    }

    /// Plays on, with a line for each second.
    fn play_for(&mut self, span: Duration, swarm: &mut Swarm) -> Result<(), Failure> {
        let end = swarm.played() + span;
        while swarm.played() < end {
            self.look()?;
            let second = swarm.played().as_secs() + 1;
            swarm.play_until(end.min(Duration::from_secs(second)))?;
            if swarm.played().as_secs() == second {
                exit::print(&format!("{}\n", table::progress(second, swarm.playing(), swarm)))?;
            }
        }
        Ok(())
    }
}

impl Gateway {
    fn status(&self) -> Result<Value, Failure> {
        self.admin.read(&self.admin.fetch("/status?as_of=now")?, &[])
    }

    /// It takes players, and knows of all players of all others, as they do of its own.
    fn is_ready(&self) -> bool {
        let takes_players = self.admin.fetch("/readyz").is_ok_and(|it| it.status == 200);
        let Some(status) = self.status().ok().filter(|_| takes_players) else { return false };
        let members = status["cluster"]["members"].as_array();
        let is_there = |it: &&Value| {
            ["forwards", "complete", "can_stand_by"].iter().all(|what| it[*what] == true)
        };
        let count = members.into_iter().flatten().filter(is_there).count();
        status["cluster"]["incarnation"].is_u64() && count + 1 == GATEWAYS
    }

    /// The client ids of its players.
    fn players(&self) -> Result<Vec<u64>, Failure> {
        let page: Value = self.admin.read(&self.admin.fetch("/sessions?limit=10000")?, &[])?;
        let sessions = page["sessions"].as_array();
        let ids = sessions.into_iter().flatten().filter_map(|it| it["client_id"].as_u64());
        Ok(ids.collect())
    }
}

fn pages(gateways: &[Gateway]) -> Result<Vec<Value>, Failure> {
    gateways.iter().map(Gateway::status).collect()
}

fn owned(page: &Value) -> u64 {
    table::of_sessions(page, "owned")
}

/// Another gateway could go on with each session of so many players.
fn all_stand_by(gateways: &[Gateway], players: u64) -> Result<bool, Failure> {
    let pages = pages(gateways)?;
    let has_standbys = |page: &Value| table::of_members(page, "stands_by") == owned(page);
    Ok(pages.iter().all(has_standbys) && pages.iter().map(owned).sum::<u64>() == players)
}

fn gateway_file(number: usize, args: &Args, [key, fleet_key]: [&Key; 2]) -> String {
    let (key, fleet_key) = (key.to_hex(), fleet_key.to_hex());
    let (name, address, Args { players, workers, .. }) =
        (format!("gate-{number}"), format!("10.1.{number}.2"), args);
    let identity = format!("ca = \"ca.pem\"\ncertificate = \"{name}.pem\"\nkey = \"{name}.key\"\n");
    format!(
        r#"[gateway]
run_dir = "{name}"
state_dir = "{name}-state"
workers = {workers}
pin = false
[[listener]]
name = "demo"
protocol = "netcode"
bind = ["{PUBLIC}:{PORT}"]
protocol_id = "{PROTOCOL_ID:#x}"
keys = [{{ hex = "{key}" }}]
max_sessions = {players}
backends = ["{BACKEND}"]
limits = {{ requests_per_block = 0, handshakes_per_block = 0 }}
[[backend]]
name = "{BACKEND}"
link = "bundle"
slots = {players}
[fleet]
endpoints = ["http://{HOST}:2379"]
prefix = "/demo"
name = "{name}"
region = "here"
host = "{name}"
key = {{ hex = "{fleet_key}" }}
[[agent]]
name = "host"
bind = "{address}:{AGENTS}"
backends = ["{BACKEND}"]
{identity}[cluster]
name = "{CLUSTER}"
bind = "{address}:4700"
{identity}"#
    )
}

fn agent_file(Args { players, .. }: &Args) -> String {
    let gateways: Vec<_> =
        (1..=GATEWAYS).map(|number| format!("\"10.1.{number}.2:{AGENTS}\"")).collect();
    format!(
        r#"[agent]
name = "host"
gateways = [{}]
ca = "ca.pem"
certificate = "host.pem"
key = "host.key"
run_dir = "host"
[[backend]]
name = "{BACKEND}"
link = "bundle"
slots = {players}
"#,
        gateways.join(", ")
    )
}

/// The variable that tells who plays which process has made the network.
const MAKER: &str = "RINGGATE_DEMO_MAKER";
const CLUSTER: &str = "demo";
/// All of them come at once, and each token is claimed in etcd.
const PLAYERS_MAX: u32 = 2000;
const PORT: u16 = 40000;
/// Where gateways take agents in.
const AGENTS: u16 = 4900;
/// How long the router takes to notice a death.
const WITHDRAWN_AFTER: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long something may take to start.
const PATIENCE: Duration = Duration::from_mins(1);
