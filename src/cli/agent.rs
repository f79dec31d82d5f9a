//! `ringgate agent`: what game processes on a host without a gateway connect to. What it does
//! stands in `ringgate_trunk::agent`; here it is configured, started and stopped.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringgate_io::{StartError, socket};
use ringgate_os::patience::patiently;
use ringgate_os::process;
use ringgate_process::confine::Calls;
use ringgate_process::privileges::{self, Privileges};
use ringgate_process::systemd::ServiceManager;
use ringgate_trunk::agent::options::Options;
use ringgate_trunk::agent::service::{self, Agent};

use super::config_file::{AGENT, RoleFile};
use super::logging::{self, LogArgs};
use super::run::{DEATH_WITHIN, SUCCESSORS_MODE, open_announce, open_beside, program, successor};
use super::{Failure, first};
use crate::config::{self, Accepted, Admin, HostConfig};
use crate::control::host::{self as control, Facts, Hearing, Settings, Taken};
use crate::control::is_at;
use crate::hosting::{self, Prepared};
use crate::membership::{COPY_FILE, LEASES_FILE};
use ringgate_process::handover::{self, CONTROL_SOCKET, Channel, Program};
use ringgate_state::Folder;

/// Serve the game processes of this host to gateways on other hosts, until SIGTERM
///
/// The file has [agent] and a [[backend]] for each game process.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: RoleFile,
    /// Take over from the agent that runs with this file, with its trunks and its
    /// players; where none runs, start as ever
    #[arg(long)]
    take_over: bool,
    /// The agent has started this process itself, and talks to it here
    #[arg(long, hide = true, requires = "take_over")]
    predecessor_on_stdin: bool,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let served = args.file.to_serve(AGENT, config::explain_host, HostConfig::load)?;
    let Some(file) = &served else { return Ok(()) };
    process::ignore_user_signals();
    let read = logging::begin(
        args.log,
        || Accepted::load(file),
        |(it, _)| (it.agent.log, &it.agent.log_level),
    )?;
    let config = &read.0;
    let starting = Starting::new(config, file)?;
    let run_dir = &config.agent.run_dir;
    let predecessor =
        if args.take_over { successor::find(args.predecessor_on_stdin, run_dir)? } else { None };
    let Some(channel) = predecessor else { return starting.start(read, Duration::ZERO) };
    if let Some((agent, settings)) = starting.take_over(&channel, read)? {
        return starting.serve(agent, settings);
    }
    tracing::warn!("the agent to take over from has ended: starting without its players");
    starting.start(Accepted::load(file)?, DEATH_WITHIN)
}

/// A file, and what it was read from.
type Read = (HostConfig, Accepted);

/// How an agent starts, whoever had it before.
struct Starting {
    privileges: Privileges,
    program: Program,
}

impl Starting {
    /// Gives up files, too: that binds only threads which are started later.
    fn new(config: &HostConfig, file: &Path) -> Result<Self, Failure> {
        let agent = &config.agent;
        let privileges = Privileges::of(agent.user.as_deref(), agent.confine, Calls::Agent)?;
        let program = program()?;
        make_folders(config)?;
        let (read, write) = folders(config, file);
        privileges.give_up_files(&read, &write)?;
        Ok(Self { privileges, program })
    }

    /// One that nobody has, or whose process ends within this time.
    fn start(self, (config, accepted): Read, patience: Duration) -> Result<(), Failure> {
        let run_dir = config.agent.run_dir.clone();
        let path = run_dir.join(CONTROL_SOCKET);
        let is_in_use = |why: &io::Error| why.kind() == io::ErrorKind::AddrInUse;
        let bind = |admin: &Admin| patiently(patience, is_in_use, || bind_admin(admin));
        let bound = config.admin.as_ref().map(bind).transpose();
        let bound = bound.map_err(Failure::failed)?;
        self.become_user(&config)?;
        // First: where another agent has this folder, no socket of it is touched.
        let listener =
            patiently(patience, StartError::is_in_use, || socket::control_listener(&path));
        let listener = listener.map_err(Failure::failed)?;
        let incarnation = getrandom::u64().map_err(Failure::failed)?;
        let fleet = join(&config, incarnation)?;
        let agent = service::start(options(&config, &accepted, incarnation));
        let settings = Settings {
            listener,
            path,
            next: open_next(&run_dir),
            admin: bound,
            config,
            accepted,
            fleet,
            program: self.program.clone(),
            is_heir: false,
            manager: ServiceManager::default(),
            is_confined: self.privileges.is_confined(),
            hearing: Hearing::begin().map_err(Failure::failed)?,
        };
        self.serve(agent.map_err(Failure::failed)?, settings)
    }

    /// All that another process has. `None` where it has ended without giving anything.
    fn take_over(
        &self,
        channel: &Channel,
        (config, accepted): Read,
    ) -> Result<Option<(Agent, Settings)>, Failure> {
        let run_dir = config.agent.run_dir.clone();
        let (mut bound, mut hearing) = (None, None);
        let prepare = |facts: &Facts| {
            // The process before this one passes signals on as soon as it is not the owner.
            hearing = Some(Hearing::begin().map_err(|why| why.to_string())?);
            let fleet = Prepared::of(&config, facts.incarnation)?;
            let is_bound = |it: &&Admin| facts.admin.is_some_and(|at| is_at(it.bind, at));
            if let Some(admin) = config.admin.as_ref().filter(|it| !is_bound(it)) {
                bound = Some(bind_admin(admin).map_err(|why| why.to_string())?);
            }
            self.become_user(&config).map_err(|why| why.to_string())?;
            // As at a start: it could never connect again.
            accepted.identity()?;
            Ok((options(&config, &accepted, facts.incarnation), fleet))
        };
        let taken = control::take_over(channel, prepare);
        let taken =
            taken.map_err(|why| Failure::failed(format_args!("cannot take over: {why}")))?;
        let (Some(taken), Some(hearing)) = (taken, hearing) else { return Ok(None) };
        let Taken { heir, control, admin, next, fleet, manager } = taken;
        let gateways =
            fleet.as_ref().and_then(Prepared::gateways).unwrap_or(&config.agent.gateways);
        let (agent, connects) = heir.set_off(gateways);
        if let Err(why) = connects {
            tracing::error!("cannot connect to other gateways than before: {why}; reload the file");
        }
        let next = match next {
            Some(socket) => Some((socket, run_dir.join(handover::SOCKET))),
            None => open_next(&run_dir),
        };
        let settings = Settings {
            listener: UnixListener::from(control),
            path: run_dir.join(CONTROL_SOCKET),
            next,
            admin: bound
                .or_else(|| admin.map(TcpListener::from))
                .filter(|_| config.admin.is_some()),
            config,
            accepted,
            fleet: fleet.map(|fleet| with_door(fleet, &run_dir)),
            program: self.program.clone(),
            is_heir: true,
            manager,
            is_confined: self.privileges.is_confined(),
            hearing,
        };
        Ok(Some((agent, settings)))
    }

    /// Becomes who makes everything that game processes and operators come to.
    fn become_user(&self, config: &HostConfig) -> Result<(), Failure> {
        let Some(user) = self.privileges.user() else { return Ok(()) };
        self.privileges.hand_over(&config.agent.run_dir)?;
        if config.fleet.is_some() {
            let path = &config.agent.state_dir;
            let folder = Folder::take(path).and_then(|folder| {
                let given = folder.give_to(user.uid, user.gid, &[COPY_FILE, LEASES_FILE]);
                given.map_err(|why| why.to_string())
            });
            folder.map_err(|why| {
                let path = path.display();
                Failure::failed(format_args!("cannot hand state_dir {path} over: {why}"))
            })?;
        }
        Ok(self.privileges.become_user()?)
    }

    fn serve(&self, agent: Agent, settings: Settings) -> Result<(), Failure> {
        let is_heir = settings.is_heir;
        let control = control::start(agent, settings).map_err(Failure::failed)?;
        self.privileges.give_up_system_calls()?;
        logging::announce(&control.announcement(), is_heir)?;
        let (event, what) = if is_heir { ("taken_over", "goes on") } else { ("start", "ready") };
        tracing::info!(event, version = env!("CARGO_PKG_VERSION"), "{what}");
        match control.serve() {
            Some(unheard) if first::is_this() => first::outlive(unheard, "agent"),
            _ => Ok(()),
        }
    }
}

/// What the config names and what has to be there before anything is given up.
fn make_folders(config: &HostConfig) -> Result<(), Failure> {
    let agent = &config.agent;
    std::fs::create_dir_all(&agent.run_dir).map_err(|why| {
        let run_dir = agent.run_dir.display();
        Failure::failed(format_args!("cannot create run_dir {run_dir}: {why}"))
    })?;
    if config.fleet.is_some()
        && let Err(why) = Folder::make(&agent.state_dir)
    {
        let dir = agent.state_dir.display();
        tracing::warn!(
            "cannot create state_dir {dir}: {why}; a start while etcd is away would find no gateway"
        );
    }
    Ok(())
}

/// What a confined agent may read, and what it may write.
fn folders(config: &HostConfig, file: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let names = privileges::of_resolver(config.resolver_files());
    let certificates = config.agent.identity().folders().into_iter();
    let etcd = config.fleet.iter().flat_map(config::Fleet::tls_files);
    let etcd = etcd.flat_map(|file| privileges::of_file(file));
    let read = privileges::of_config(file).into_iter().chain(certificates).chain(etcd);
    let read = read.chain(names).collect();
    let state = config.fleet.as_ref().map(|_| config.agent.state_dir.clone());
    (read, [config.agent.run_dir.clone()].into_iter().chain(state).collect())
}

fn bind_admin(admin: &Admin) -> io::Result<TcpListener> {
    let named = |why: io::Error| {
        io::Error::new(why.kind(), format!("cannot serve the admin address {}: {why}", admin.bind))
    };
    control::bind_admin(admin.bind).map_err(named)
}

/// Opens the socket that successors of root's come to.
fn open_next(run_dir: &Path) -> Option<(OwnedFd, PathBuf)> {
    let without = "`agent --take-over` does not reach this agent";
    open_beside(run_dir, handover::SOCKET, SUCCESSORS_MODE, without)
}

/// What it takes to be in a fleet, where the file has one.
fn join(config: &HostConfig, incarnation: u64) -> Result<Option<Prepared>, Failure> {
    let prepared = Prepared::of(config, incarnation).map_err(Failure::failed)?;
    Ok(prepared.map(|prepared| with_door(prepared, &config.agent.run_dir)))
}

/// Has game processes register themselves, unless they do already.
fn with_door(mut prepared: Prepared, run_dir: &Path) -> Prepared {
    if !prepared.serves_announcements()
        && let Some((socket, _)) = open_announce(run_dir)
    {
        prepared.serve_announcements(socket);
    }
    prepared
}

fn options(config: &HostConfig, accepted: &Accepted, incarnation: u64) -> Options {
    let HostConfig { agent, .. } = config;
    let accepted = accepted.clone();
    Options {
        name: agent.name.clone(),
        gateways: agent.gateways.clone(),
        identity: Arc::new(move || accepted.identity()),
        run_dir: agent.run_dir.clone(),
        backends: hosting::backends(config),
        patience: agent.drain_timeout,
        incarnation,
    }
}
