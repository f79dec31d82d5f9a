//! `ringgate run`: the daemon.

mod privileges;
mod state;
pub(super) mod successor;

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::admin::RUN_DIR_DEFAULT;
use super::config_file::GATEWAY;
use super::logging;
use super::{Failure, first};
use crate::config::Config;
use crate::control::{Control, Joining, Settings, plan};
pub(super) use ringgate_commands::run_args::Args;
use ringgate_gate::Setup;
use ringgate_io::{StartError, socket};
use ringgate_link::announce::ANNOUNCE_SOCKET;
use ringgate_os::capabilities;
use ringgate_os::overflows::Overflows;
use ringgate_os::patience::patiently;
use ringgate_os::process;
use ringgate_os::stored::{self, Store};
use ringgate_os::usage::Usage;
use ringgate_process::confine;
use ringgate_process::handover::{self, CONTROL_SOCKET, Program};
use ringgate_process::privileges::Privileges;
use ringgate_report::text::Append as _;
use ringgate_worker::{CardShown, Fleet, Kept, Plan, Ports, START_RIGHTS};
use successor::Successor;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let file = args.config.or(GATEWAY);
    process::ignore_user_signals();
    // First: nobody else may take them for its own.
    let stored = stored::take();
    let config = logging::begin(
        args.log,
        || Config::load(&file),
        |it| (it.gateway.log, &it.gateway.log_level),
    )?;
    for notice in config.notices() {
        tracing::warn!("{notice}");
    }
    let (config, mut fleet) = join(config)?;
    let mut plan = plan::plan(&config).map_err(Failure::failed)?;
    let privileges = privileges::of(&config)?;
    let program = program()?;
    let mut config = config;
    let mut patience = Duration::ZERO;
    let rights = START_RIGHTS.map(capabilities::has);
    let predecessor = if args.take_over {
        successor::find(args.predecessor_on_stdin, &config.gateway.run_dir)?
    } else {
        None
    };
    if let Some(channel) = predecessor {
        let (joining, file, privileges) = (fleet.take(), file.as_path(), &privileges);
        let (own, program) = (Some(config), &program);
        let cell = OnceCell::new();
        let (plan_now, as_many) = (&plan, &cell);
        let successor =
            Successor { config: own, joining, file, plan: plan_now, as_many, privileges, program };
        if let Some(control) = successor.take_over(&channel)? {
            drop((stored, cell));
            control.hear_recorded(channel);
            return serve(control, privileges, plan, true);
        }
        tracing::warn!("the gateway to take over from has ended: starting without its players");
        // What was read may have gone into a control plane that is no more.
        (config, fleet) = join(Config::load(file)?)?;
        patience = DEATH_WITHIN;
    }
    // A gateway that serves here already is not disturbed: nothing has been made or removed yet.
    let admin = config.admin.as_ref().map(|admin| admin.bind);
    let store = std::env::var("NOTIFY_SOCKET").ok().and_then(|it| Store::connect(&it).ok());
    let mut kept = Kept::sort(stored, &plan, store.as_ref());
    let mut claim = || Ports::claim(&plan, admin, &mut kept);
    let mut claim = || patiently(patience, StartError::is_in_use, &mut claim);
    let mut ports = claim().map_err(Failure::failed)?;
    if rights != START_RIGHTS.map(capabilities::has) {
        drop(ports);
        begin_again(&program);
        ports = claim().map_err(Failure::failed)?;
    }
    // First: it makes its folder closed, and the histograms' may be one in it.
    let mut state = state::open(&config.gateway)?;
    make_folders(&config, plan.run_dir.is_some())?;
    let run_dir = config.gateway.run_dir.clone();
    // Before the first worker serves the first player.
    plan.deny(state.denied(fleet.as_ref()));
    plan.spent = state::spent_tokens(&mut state, &config.gateway);
    // They cannot be opened behind the next line.
    let kernel = (Overflows::open(), Usage::open());
    let (read, write) = privileges::folders(&config, &file);
    privileges.give_up_files(&read, &write)?;
    let joining = fleet;
    let fleet = Fleet::start_on(&plan, ports).map_err(Failure::failed)?;
    tell_driver(&fleet);
    // With the addresses that were bound.
    let setup = fleet.setup();
    privileges::give_state(&privileges, &state)?;
    privileges::give_histograms(&privileges, &config);
    let config_file = file;
    let settings = Settings {
        config_file,
        config,
        setup,
        kernel,
        state,
        program,
        inherited: None,
        fleet: joining,
    };
    let mut control = Control::start(fleet, settings).map_err(Failure::failed)?;
    privileges::give_agents(&privileges, &control)?;
    privileges::become_user(&privileges, &run_dir, plan.run_dir.is_some())?;
    open_socket(&mut control, &run_dir)?;
    open_announce_socket(&mut control, &run_dir);
    serve(control, &privileges, plan, false)
}

/// What the workers have to do without.
fn tell_driver(fleet: &Fleet) {
    if let Some(why) = fleet.why_not_uring() {
        tracing::warn!(
            driver = fleet.driver(),
            "io_uring is not used, which costs a few per cent of a core (`io = \"mmsg\"` says that you know): {why}"
        );
    }
    if let Some(why) = fleet.why_all_awake() {
        tracing::warn!("workers_awake = \"auto\" has no effect, all workers are awake: {why}");
    }
    if let Some(why) = fleet.why_unrestricted() {
        tracing::warn!("this kernel does not restrict the workers' rings to their requests: {why}");
    }
}

/// What a start takes rights for was had as a successor, and the rights were given up: the same
/// program in this one's place has them again, where it is root's. Returns where that cannot be.
fn begin_again(program: &Program) {
    let args = program.args.iter().filter(|it| is_ours(it));
    let why = if process::effective_uid() == 0 {
        std::process::Command::new(&program.path).args(args).exec()
    } else {
        io::ErrorKind::PermissionDenied.into()
    };
    tracing::warn!(
        "rights that only a start has were given up: what takes them (io = \"xdp\", workers_awake = \"auto\") \
         takes a restart: {why}"
    );
}

/// What a gateway starts with, in a fleet or alone.
fn join(file: Config) -> Result<(Config, Option<Joining>), Failure> {
    let own = confine::becomes(file.gateway.user.as_deref()).ok().flatten();
    let own = own.map_or_else(process::effective_uid, |user| user.uid);
    Joining::of(file, own).map_err(Failure::failed)
}

/// The kernel closes what a dead process had open within this: its end of our conversation may be
/// closed before its other sockets are.
pub(super) const DEATH_WITHIN: Duration = Duration::from_secs(5);

fn serve(
    control: Control,
    privileges: &Privileges,
    plan: Plan,
    is_heir: bool,
) -> Result<(), Failure> {
    privileges.give_up_system_calls()?;
    if !logging::is_json() {
        logging::announce(&announcement(&plan.setup, &control), is_heir)?;
    }
    tell_start(&plan.setup, &control);
    // Keys are in it that a reload may take away.
    drop(plan);
    match control.serve().map_err(Failure::failed)? {
        Some(unheard) if first::is_this() => first::outlive(unheard, "run"),
        _ => Ok(()),
    }
}

/// How this process was started, for the next one: by the path that was asked for, which may be a
/// link that leads to the next release by then. Asked by another name, by the file's own path, as
/// it is now: later it may be that of a file which is gone.
pub(super) fn program() -> Result<Program, Failure> {
    let asked = std::env::args_os().next().map(PathBuf::from).filter(|path| path.is_absolute());
    let path = asked.map_or_else(std::env::current_exe, Ok);
    let path = path
        .map_err(|why| Failure::failed(format_args!("cannot tell where this program is: {why}")))?;
    let mut args: Vec<_> = std::env::args_os().skip(1).filter(is_ours).collect();
    args.extend(SUCCESSOR_ARGS.map(OsString::from));
    Ok(Program { path, args })
}

/// Whether an argument is one of a process that takes over from nobody, too.
fn is_ours(argument: &OsString) -> bool {
    !SUCCESSOR_ARGS.iter().any(|of_successor| *argument == **of_successor)
}

const SUCCESSOR_ARGS: [&str; 2] = ["--take-over", "--predecessor-on-stdin"];

/// Makes the folders that the config names. Without links, `run_dir` holds only the control socket,
/// which the daemon can do without ([`open_socket`] says so), as it can without histograms (who
/// writes them says so).
fn make_folders(config: &Config, has_links: bool) -> Result<(), Failure> {
    if let Some(histograms) = &config.histograms {
        let _ = std::fs::create_dir_all(&histograms.dir);
    }
    match std::fs::create_dir_all(&config.gateway.run_dir) {
        Err(why) if has_links => {
            let folder = config.gateway.run_dir.display();
            Err(Failure::failed(format_args!("cannot create run_dir {folder}: {why}")))
        }
        _ => Ok(()),
    }
}

/// Opens the control socket, as whom the daemon remains. Where another daemon's is, this one does
/// not start: commands would reach the other. The default folder is the exception: daemons that
/// have never needed one of their own share it, so only the first has a socket there. Where this
/// user may not make one, the daemon serves all the same. Signals reach it in any case.
fn open_socket(control: &mut Control, run_dir: &Path) -> Result<(), Failure> {
    let path = run_dir.join(CONTROL_SOCKET);
    let why = match socket::control_listener(&path) {
        Ok(listener) => {
            control.serve_socket(listener, path).map_err(Failure::failed)?;
            return open_next_socket(control, run_dir);
        }
        Err(why) => why,
    };
    let is_taken = why.io_error().kind() == io::ErrorKind::AddrInUse;
    if is_taken && run_dir != Path::new(RUN_DIR_DEFAULT) {
        return Err(Failure::failed(why));
    }
    tracing::warn!(
        "gateway.run_dir: there is no control socket, so `ringgate status`, `drain`, `reload`, `upgrade` and the like do not \
         reach this daemon (signals do, and `--admin` where there is [admin]): {why}; give it a run_dir of its own"
    );
    Ok(())
}

/// Opens the socket that successors come to.
fn open_next_socket(control: &mut Control, run_dir: &Path) -> Result<(), Failure> {
    let without = "`run --take-over` does not reach this daemon";
    match open_beside(run_dir, handover::SOCKET, SUCCESSORS_MODE, without) {
        Some((socket, path)) => control.serve_successors(socket, path).map_err(Failure::failed),
        None => Ok(()),
    }
}

/// Opens the socket at which game processes register themselves, of a gateway in a fleet.
fn open_announce_socket(control: &mut Control, run_dir: &Path) {
    if control.is_in_fleet()
        && let Some((socket, _)) = open_announce(run_dir)
    {
        control.serve_announcements(socket);
    }
}

/// Opens the socket at which game processes register themselves.
pub(super) fn open_announce(run_dir: &Path) -> Option<(OwnedFd, PathBuf)> {
    let without = "game processes cannot register themselves";
    open_beside(run_dir, ANNOUNCE_SOCKET, ANNOUNCE_MODE, without)
}

/// Opens a socket in `run_dir` that a process can do without; the log says what is lacking then.
pub(super) fn open_beside(
    run_dir: &Path,
    name: &str,
    mode: u32,
    without: &str,
) -> Option<(OwnedFd, PathBuf)> {
    let path = run_dir.join(name);
    let socket = socket::link_listener(&path, mode);
    Some((socket.inspect_err(|why| tracing::warn!("{without}: {why}")).ok()?, path))
}

/// Whoever reaches the directory may connect; who is a backend is decided by its credentials.
const ANNOUNCE_MODE: u32 = 0o666;

/// For root, who comes in anyway.
pub(super) const SUCCESSORS_MODE: u32 = 0o600;

/// The same for the log, as events.
fn tell_start(setup: &Setup, control: &Control) {
    let fleet = control.fleet();
    for (listener, addresses) in setup.listeners.iter().zip(fleet.addresses()) {
        for address in addresses {
            let name = &listener.name;
            tracing::info!(event = "listening", listener = name, %address, "listener {name} on {address}");
        }
    }
    let agents: Vec<_> = control.agent_addresses().iter().map(ToString::to_string).collect();
    tracing::info!(
        event = "start",
        version = env!("CARGO_PKG_VERSION"),
        pid = std::process::id(),
        workers = fleet.worker_count(),
        driver = fleet.driver(),
        cipher = fleet.kernel(),
        agents = (!agents.is_empty()).then(|| agents.join(" ")),
        admin = control.admin_address().map(display),
        control = control.socket_path().map(|it| display(it.display())),
        histograms = control.histograms().map(|it| display(it.display())),
        "ready"
    );
}

/// What the daemon serves, a line for each address: tools and tests read these.
fn announcement(setup: &Setup, control: &Control) -> String {
    let fleet = control.fleet();
    let mut text = String::new();
    for (listener, addresses) in setup.listeners.iter().zip(fleet.addresses()) {
        for address in addresses {
            writeln!(text, "listener {} on {address}", listener.name);
        }
    }
    for address in control.agent_addresses() {
        writeln!(text, "agents on {address}");
    }
    if let Some(address) = control.admin_address() {
        writeln!(text, "admin on {address}");
    }
    if let Some(path) = control.socket_path() {
        writeln!(text, "control on {}", path.display());
    }
    if let Some(dir) = control.histograms() {
        writeln!(text, "histograms in {}", dir.display());
    }
    let (workers, driver, cipher) = (fleet.worker_count(), fleet.driver(), fleet.kernel());
    write!(text, "ready: {workers} workers, driver {driver}, cipher {cipher}");
    if let Some(CardShown { interface, mode, sums, .. }) = fleet.card().map(|card| card.shown()) {
        write!(text, ", xdp {interface} {mode}, checksums by {sums}");
    }
    text.push('\n');
    text
}
