//! `ringgate agent`: what game processes on a host without a gateway connect to. What it does
//! stands in the package `ringgate-agent`; here it is configured, started and stopped.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringgate_agent::options::{Allowed, Backend, Link, Options};
use ringgate_agent::service::{self, Agent};
use ringgate_io::socket;
use ringgate_link::announce::ANNOUNCE_SOCKET;
use ringgate_os::process;

use super::logging::{self, LogArgs};
use super::{CONTROL_SOCKET, Failure, exit};
use crate::config::{self, HostConfig};
use crate::control::host::{self as control, Facts, Settings, Taken};
use crate::handover::Channel;
use crate::hosting::Prepared;

/// Serve the game processes of this host to gateways on other hosts, until SIGTERM
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(super) struct Args {
    /// A file with [agent] and a [[backend]] for each game process
    #[arg(long, value_name = "FILE", required_unless_present = "explain")]
    config: Option<PathBuf>,
    /// Only look whether the file is right
    #[arg(long)]
    check: bool,
    /// Print every field of such a file with its meaning
    #[arg(long, conflicts_with = "config")]
    explain: bool,
    /// Take over from the agent that runs with this file
    #[arg(long, hide = true, requires = "predecessor_on_stdin")]
    take_over: bool,
    /// That agent has started this process itself, and talks to it here
    #[arg(long, hide = true, requires = "take_over")]
    predecessor_on_stdin: bool,
    #[command(flatten)]
    log: LogArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let Some(file) = &args.config else { return exit::print(&config::explain_host()) };
    if args.check {
        HostConfig::load(file)?;
        return exit::print(&format!("{}: ok\n", file.display()));
    }
    process::ignore_user_signals();
    let config = logging::begin(args.log, || HostConfig::load(file), |config| config.agent.log)?;
    let (run_dir, drain_timeout) = (config.agent.run_dir.clone(), config.agent.drain_timeout);
    let (admin, program) = (config.admin.clone(), super::run::program()?);
    let path = run_dir.join(CONTROL_SOCKET);
    let settings = |listener, fleet, inherited| Settings {
        listener,
        path,
        admin,
        drain_timeout,
        fleet,
        program,
        inherited,
    };
    if args.predecessor_on_stdin {
        let Taken { heir, control, admin } = take_over(config, file)?;
        let agent = heir.set_off().map_err(Failure::failed)?;
        return serve(agent, settings(UnixListener::from(control), None, Some(admin)));
    }
    std::fs::create_dir_all(&run_dir).map_err(|why| {
        Failure::failed(format_args!("cannot create run_dir {}: {why}", run_dir.display()))
    })?;
    // First: where another agent has this folder, nothing of it is touched.
    let listener =
        socket::control_listener(&run_dir.join(CONTROL_SOCKET)).map_err(Failure::failed)?;
    let incarnation = getrandom::u64().map_err(Failure::failed)?;
    let fleet = join(&config, incarnation)?;
    let agent = service::start(options(config, file, incarnation)).map_err(Failure::failed)?;
    serve(agent, settings(listener, fleet, None))
}

/// What another process has, which has started this one.
fn take_over(config: HostConfig, file: &Path) -> Result<Taken, Failure> {
    let channel = std::io::stdin().as_fd().try_clone_to_owned().and_then(Channel::from_fd);
    let channel =
        channel.map_err(|why| Failure::bad_input(format_args!("--predecessor-on-stdin: {why}")))?;
    let options = |facts: &Facts| match config.fleet {
        None => Ok(options(config, file, facts.incarnation)),
        Some(_) => Err("an agent in a fleet is not replaced while it runs".to_owned()),
    };
    let taken = control::take_over(&channel, options);
    let taken = taken.map_err(|why| Failure::failed(format_args!("cannot take over: {why}")))?;
    // The service manager starts an agent again that has ended.
    taken.ok_or_else(|| Failure::failed("the agent to take over from has ended"))
}

fn serve(agent: Agent, settings: Settings) -> Result<(), Failure> {
    let is_heir = settings.inherited.is_some();
    let control = control::start(agent, settings).map_err(Failure::failed)?;
    exit::print(&control.announcement())?;
    let (event, what) = if is_heir { ("taken_over", "goes on") } else { ("start", "ready") };
    tracing::info!(event, version = env!("CARGO_PKG_VERSION"), "{what}");
    control.serve().map_err(Failure::failed)
}

/// What it takes to be in a fleet, where the file has one.
fn join(config: &HostConfig, incarnation: u64) -> Result<Option<Prepared>, Failure> {
    let prepared = Prepared::of(config, incarnation).map_err(Failure::failed)?;
    let Some(mut prepared) = prepared else { return Ok(None) };
    let state_dir = &config.agent.state_dir;
    if let Err(why) = std::fs::create_dir_all(state_dir) {
        let dir = state_dir.display();
        tracing::warn!(
            "cannot create state_dir {dir}: {why}; a start while etcd is away would find no gateway"
        );
    }
    let path = config.agent.run_dir.join(ANNOUNCE_SOCKET);
    match socket::link_listener(&path, ANNOUNCE_MODE) {
        Ok(socket) => prepared.serve_announcements(socket),
        Err(why) => tracing::warn!("game processes cannot register themselves: {why}"),
    }
    Ok(Some(prepared))
}

fn options(config: HostConfig, file: &Path, incarnation: u64) -> Options {
    let HostConfig { agent, backends, .. } = config;
    let file = file.to_owned();
    let own = process::effective_uid();
    let identity = move || {
        let config = HostConfig::load(&file).map_err(|why| why.to_string())?;
        config.agent.identity.agent()
    };
    Options {
        name: agent.name,
        gateways: agent.gateways,
        identity: Arc::new(identity),
        run_dir: agent.run_dir,
        backends: backends.into_iter().map(|it| backend(it, own)).collect(),
        incarnation,
    }
}

/// Whoever reaches the folder may connect; who is a backend is decided by its credentials.
const ANNOUNCE_MODE: u32 = 0o666;

fn backend(backend: config::Backend, own: u32) -> Backend {
    let link = match backend.link {
        config::Link::Udp(SocketAddr::V4(address)) => Link::Udp(address),
        config::Link::Udp(SocketAddr::V6(_)) => unreachable!("the config was checked"),
        // As at a gateway: nobody in particular means who runs the agent.
        config::Link::Bundle(config::Allowed { uids, gids })
            if uids.is_empty() && gids.is_empty() =>
        {
            Link::Bundle(Allowed { uids: vec![own], gids })
        }
        config::Link::Bundle(config::Allowed { uids, gids }) => {
            Link::Bundle(Allowed { uids, gids })
        }
    };
    Backend { name: backend.name, link }
}
