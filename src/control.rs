//! The control plane: one thread beside the packet path, which reaches workers by mailbox and reads
//! what they publish. No worker ever waits for it.
//!
//! It serves the admin address and the control socket, listens for signals, reads the config again,
//! drains, writes the histogram file and tells the service manager how things stand. All of that
//! runs on one runtime ([`runtime`]); what takes long (a file write) does not hold up what must not
//! wait (a signal, a health check).
//!
//! Ending is a matter of two steps. A *drain* takes nobody in, and lets those who are there play on
//! until they leave or its time is over: SIGTERM, SIGINT or `POST /drain` begin one. Then the
//! workers stop, and tell the players who are left. The second signal skips the wait.

mod access;
mod agents;
mod capture;
mod deny;
mod denying;
mod door;
mod draining;
mod events;
mod handover;
mod health;
mod hlog;
pub mod host;
mod http;
mod keeper;
mod keeping;
mod latency;
mod listeners;
mod membership;
mod metrics;
mod notify;
mod page;
pub mod plan;
mod query;
mod recorder;
mod reload;
mod runtime;
mod sessions;
mod status;
mod streaming;
#[cfg(test)]
mod tests;
mod trace;
mod view;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::config::{Admin, Config, IoChoice, LoadError};
use crate::handover::{Channel, Facts, Given};
use crate::membership::{Known, Order, Prepared};
use crate::worker::{Fleet, Opened, Ready};
use agents::Agents;
use denying::Denials;
pub use denying::State;
use draining::Deadlines;
use events::Watcher;
pub use handover::Program;
use http::Command;
pub use keeper::DENIED_FILE;
use keeper::Keeper;
use listeners::Listeners;
use membership::Membership;
use notify::Notifier;
use recorder::Recorder;
use reload::{Next, Outcome};
use ringgate_gate::{Backend, BackendId, IdVec, ListenerId, Mail, Setup};
use ringgate_os::clock;
use ringgate_os::overflows::Overflows;
use ringgate_os::stored::Store;
use ringgate_os::usage::Usage;
use runtime::Runtime;
use view::View;

/// What the control plane starts from.
#[derive(Debug)]
pub struct Settings {
    /// The file that is read again on reload.
    pub config_file: PathBuf,
    /// What it says.
    pub config: Config,
    /// What the workers were told because of it.
    pub setup: Arc<Setup>,
    /// What tells full sockets from filters that refuse, and what the process takes of the host.
    pub kernel: (Overflows, Usage),
    /// What outlives a restart.
    pub state: State,
    /// How the daemon was started.
    pub program: Program,
    /// Of the process before this one.
    pub inherited: Option<Inherited>,
    /// The fleet, where the gateway is in one.
    pub fleet: Option<Joining>,
}

/// What a gateway in a fleet starts from.
#[derive(Debug)]
pub struct Joining {
    /// What is known so far, and how etcd is reached.
    pub prepared: Prepared,
    /// The config as the file says it. The other one has what is known besides.
    pub file: Config,
    /// What that was.
    pub known: Known,
}

/// What a control plane goes on with.
#[derive(Debug)]
pub struct Inherited {
    /// What was told first.
    pub facts: Facts,
    /// Backends that an operator sends nobody to, and until when.
    pub drained: Vec<(String, Option<u64>)>,
    /// The listening sockets of the admin address, the control socket and the next successors, each
    /// where there is one.
    pub doors: [Option<OwnedFd>; 3],
}

/// A control plane that is ready: signals are caught and the admin address is bound. What is
/// missing is the control socket, which belongs to the user that the process becomes.
pub struct Control {
    runtime: Runtime,
    fleet: Fleet,
    main_loop: ControlLoop,
    router: Router,
    admin: Option<(TcpListener, SocketAddr)>,
    socket: Option<(UnixListener, PathBuf)>,
    /// Where successors come to.
    next: Option<(UnixListener, PathBuf)>,
    recorder: Recorder,
    keeper: Option<Keeper>,
    events: Events,
    joining: Option<Prepared>,
}

impl Control {
    /// Binds the admin address, begins the histogram file, and catches signals. The error is one
    /// sentence.
    pub fn start(fleet: Fleet, settings: Settings) -> Result<Self, String> {
        let Settings {
            config_file,
            config,
            setup,
            kernel,
            state,
            program,
            inherited,
            fleet: joining,
        } = settings;
        let runtime = Runtime::start(config.gateway.io != IoChoice::Mmsg)
            .map_err(|why| format!("cannot start the control thread's runtime: {why}"))?;
        let counts = (fleet.worker_count(), setup.incarnation);
        let agents = Agents::open(&config, counts, fleet.clock(), inherited.is_some())?;
        let mut view = View::new(&fleet, Arc::clone(&setup), config_file.clone(), kernel);
        if let Some(inherited) = &inherited {
            view.inherit(&inherited.facts);
        }
        view.show_agents(agents.window());
        let view = Arc::new(view);
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let events = runtime
            .block_on(async { Events::listen(commands) })
            .map_err(|why| format!("cannot catch signals: {why}"))?;
        view.live().admin = config.admin.clone().map(Arc::new);
        let has_folder = state.folder.is_ok();
        let (mut denials, keeper) = Denials::start(state, view.now_ns());
        let config = Arc::new(config);
        let (joining, membership) = match joining {
            Some(Joining { mut prepared, file, known }) => {
                if !has_folder {
                    prepared.forget_copy();
                }
                denials.set_fleet(&known.bans, view.now_ns());
                (Some(prepared), Some(Membership::new(file, known)))
            }
            None => (None, None),
        };
        view.live().denied = denials.shown();
        let before = inherited.as_ref().and_then(Inherited::admin);
        let bind = |admin: &Admin| {
            let bound = runtime.block_on(async {
                match before {
                    Some((fd, address)) if is_at(admin.bind, address) => door::adopt_tcp(fd),
                    _ => door::bind_tcp(admin.bind),
                }
            });
            let bound = bound.and_then(|listener| Ok((listener.local_addr()?, listener)));
            bound
                .map(|(address, listener)| (listener, address))
                .map_err(|why| format!("cannot serve the admin address {}: {why}", admin.bind))
        };
        let admin = config.admin.as_ref().map(bind).transpose()?;
        let router = http::router(Arc::clone(&view), sender.clone());
        let recorder = Recorder::start(&runtime, &view, config.histograms.as_ref())?;
        let listeners = Listeners::of(&setup, plan::links(&config));
        let known = inherited.as_ref().map(|it| notify::Known {
            notify: it.facts.notify.clone(),
            watchdog_us: it.facts.watchdog_us.clone(),
        });
        let notifier = Notifier::from_env(known.unwrap_or_default());
        let doors = [admin.as_ref().and_then(|(it, _)| second(it)), None, None];
        let mut main_loop = ControlLoop {
            view,
            config_file,
            config,
            setup,
            store: keeping::store(notifier.known().notify.as_deref()),
            notifier,
            program,
            commands: sender,
            doors,
            admin_address: admin.as_ref().map(|(_, address)| *address),
            announcements: None,
            handing_over: HandingOver::No,
            heir: None,
            postponed: Vec::new(),
            watcher: Watcher::default(),
            retired_since: IdVec::new(),
            terms: 0,
            deadlines: Deadlines::new(),
            denials,
            listeners,
            membership,
            agents,
        };
        if let Some(inherited) = &inherited {
            main_loop.inherit(&fleet, inherited);
        }
        let (socket, next) = (None, None);
        Ok(Self {
            runtime,
            fleet,
            main_loop,
            router,
            admin,
            socket,
            next,
            recorder,
            keeper,
            events,
            joining,
        })
    }

    /// Goes on with what the process before this one has counted up to the barrier.
    pub fn go_on(&mut self, given: &Given) {
        self.main_loop.view.go_on(&given.control);
        self.recorder.go_on(&given.latencies);
        self.main_loop.watcher.go_on(&given.told, &self.main_loop.setup);
        if let (Some(prepared), Some(row)) = (&mut self.joining, &given.fleet) {
            prepared.inherit(handover::registration_of(row));
        }
    }

    /// Adds what that process had recorded of latencies when its workers ended, once it says so.
    pub fn hear_recorded(&self, channel: Channel) {
        let published = self.fleet.published().to_vec();
        let hear = move || handover::hear_recorded(&channel, &published);
        let thread = std::thread::Builder::new().name("ringgate-recorded".to_owned());
        if let Err(why) = thread.spawn(hear) {
            tracing::warn!("latencies of the process before are not taken over: {why}");
        }
    }

    /// Has the workers turn that were made of that process's.
    pub fn set_off(&mut self, workers: Ready) {
        self.fleet.set_off(workers);
    }

    /// Gives the sockets that agents come to to the user that this process is about to become.
    pub fn give_agents(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.main_loop.agents.give_to(uid, gid)
    }

    /// Serves the control socket at `path`, too. It belongs to whom the process was when it was
    /// opened, and has to go on belonging to it.
    pub fn serve_socket(&mut self, listener: StdUnixListener, path: PathBuf) -> io::Result<()> {
        self.main_loop.doors[1] = second(&listener);
        let listener = self.runtime.block_on(async { UnixListener::from_std(listener) })?;
        self.socket = Some((listener, path));
        Ok(())
    }

    /// Listens to successors at `path`, too, under the same conditions.
    pub fn serve_successors(&mut self, listener: OwnedFd, path: PathBuf) -> io::Result<()> {
        self.main_loop.doors[2] = second(&listener);
        // Its messages are kept apart, which makes no difference to who listens.
        let listener = StdUnixListener::from(listener);
        listener.set_nonblocking(true)?;
        let listener = self.runtime.block_on(async { UnixListener::from_std(listener) })?;
        self.next = Some((listener, path));
        Ok(())
    }

    /// Has game processes register themselves there, under the same conditions.
    pub fn serve_announcements(&mut self, listener: OwnedFd) {
        self.main_loop.announcements = Some(listener);
    }

    /// Whether the gateway is in a fleet, with which game processes can be registered.
    pub const fn is_in_fleet(&self) -> bool {
        self.main_loop.membership.is_some()
    }

    /// Where the control socket is.
    pub fn socket_path(&self) -> Option<&Path> {
        self.socket.as_ref().map(|(_, path)| path.as_path())
    }

    /// Where HTTP is served.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|(_, address)| *address)
    }

    /// Where agents connect.
    pub fn agent_addresses(&self) -> Vec<SocketAddr> {
        self.main_loop.agents.addresses()
    }

    /// The folder of its sockets.
    pub fn run_dir(&self) -> &Path {
        &self.main_loop.config.gateway.run_dir
    }

    /// Where histograms are written.
    pub fn histogram_file(&self) -> Option<&Path> {
        self.recorder.path()
    }

    /// The workers.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Serves until the daemon is told to end, another process has taken over, or a worker fails.
    /// Returns the signals that have not been heard where another process goes on.
    pub fn serve(self) -> io::Result<Option<Signals>> {
        let Self {
            runtime,
            fleet,
            mut main_loop,
            router,
            admin,
            socket,
            next,
            mut recorder,
            keeper,
            mut events,
            joining,
        } = self;
        if let Some(prepared) = joining {
            main_loop.join(prepared)?;
            events.fleet = main_loop.known();
        }
        if main_loop.view.facts().generation > 1 {
            main_loop.notifier.taken_over();
        } else {
            main_loop.notifier.ready();
        }
        main_loop.keep_sockets(&fleet);
        let paths = [socket.as_ref().map(|(_, it)| it), next.as_ref().map(|(_, it)| it)];
        let announce = main_loop.announcements.as_ref().map(|_| main_loop.announce_path());
        let paths: Vec<PathBuf> = paths.into_iter().flatten().cloned().chain(announce).collect();
        let (ended, keeper) = runtime.block_on(async {
            let keeper = keeper.map(|keeper| tokio::spawn(keeper.run()));
            let mut doors = Vec::new();
            if let Some((listener, _)) = admin {
                doors.push(tokio::spawn(door::serve_tcp(listener, router.clone())));
            }
            if let Some((listener, _)) = socket {
                doors.push(tokio::spawn(door::serve_unix(listener, router)));
            }
            if let Some((listener, _)) = next {
                let commands = main_loop.commands.clone();
                doors.push(tokio::spawn(handover::serve(listener, commands)));
            }
            let (ending, ends) = watch::channel(false);
            let attend = async {
                let ended = main_loop.run(&fleet, &mut events).await;
                if matches!(ended, Ok(End::HandedOver)) {
                    // Who comes from now on comes to the next process.
                    doors.iter().for_each(tokio::task::JoinHandle::abort);
                    tokio::time::sleep(LAST_ANSWERS).await;
                }
                // The recorder finishes what it is writing.
                let _ = ending.send(true);
                ended
            };
            (tokio::join!(attend, recorder.run(ends)).0, keeper)
        });
        main_loop.leave_agents();
        if matches!(ended, Ok(End::HandedOver)) {
            main_loop.leave_fleet(Order::Part);
            let parted = fleet.part();
            main_loop.tell_recorded();
            main_loop.denials.close();
            runtime.block_on(finish(&mut recorder, keeper));
            return parted.map(|()| Some(events.signals));
        }
        // Before the workers stop: who asks from now on should hear that nobody is there.
        for path in paths {
            let _ = std::fs::remove_file(path);
        }
        main_loop.denials.close();
        main_loop.leave_fleet(Order::Leave);
        let stopped = fleet.stop();
        tracing::info!(event = "stop", "stopped");
        runtime.block_on(finish(&mut recorder, keeper));
        // A worker's own error says more than that there was one.
        stopped.and(ended).map(|_| None)
    }
}

/// Writes what is left.
async fn finish(recorder: &mut Recorder, keeper: Option<tokio::task::JoinHandle<()>>) {
    recorder.finish().await;
    if let Some(keeper) = keeper {
        drop(keeper.await);
    }
}

/// How serving has ended.
enum End {
    /// Nobody serves any more.
    Stop,
    /// Another process goes on.
    HandedOver,
}

impl Inherited {
    /// The admin address's listening socket, and where it is.
    fn admin(&self) -> Option<(&OwnedFd, SocketAddr)> {
        self.doors[0].as_ref().zip(self.facts.admin)
    }
}

/// Whether a socket is where it is wanted.
fn is_at(wanted: SocketAddr, bound: SocketAddr) -> bool {
    wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
}

/// A second descriptor, to pass on. Without one, the next process makes its own.
fn second(socket: &impl AsFd) -> Option<OwnedFd> {
    socket.as_fd().try_clone_to_owned().ok()
}

/// What a daemon is told by signals.
#[derive(Debug)]
pub struct Signals([(SignalKind, Signal); 4]);

impl Signals {
    fn listen() -> io::Result<Self> {
        let caught = |kind| Ok::<_, io::Error>((kind, signal(kind)?));
        Ok(Self([
            caught(SignalKind::terminate())?,
            caught(SignalKind::interrupt())?,
            caught(SignalKind::hangup())?,
            caught(SignalKind::user_defined2())?,
        ]))
    }

    /// The next one.
    pub async fn next(&mut self) -> SignalKind {
        let [terminate, interrupt, hang_up, user] = &mut self.0;
        tokio::select! {
            _ = terminate.1.recv() => terminate.0,
            _ = interrupt.1.recv() => interrupt.0,
            _ = hang_up.1.recv() => hang_up.0,
            _ = user.1.recv() => user.0,
        }
    }
}

/// What wakes the control thread.
struct Events {
    signals: Signals,
    commands: mpsc::Receiver<Command>,
    watch: tokio::time::Interval,
    /// What is known of the fleet, where the gateway is in one.
    fleet: Option<watch::Receiver<Arc<Known>>>,
}

/// One of them.
enum Event {
    Command(Command),
    Reload,
    Upgrade,
    Terminate,
    /// Something else is known of the fleet.
    Fleet,
    Tick,
}

impl Events {
    fn listen(commands: mpsc::Receiver<Command>) -> io::Result<Self> {
        Ok(Self {
            signals: Signals::listen()?,
            commands,
            watch: tokio::time::interval(WATCH_EVERY),
            fleet: None,
        })
    }

    async fn next(&mut self) -> Event {
        let fleet = async {
            match &mut self.fleet {
                Some(known) => {
                    if known.changed().await.is_err() {
                        // Its thread has ended before this one: nothing comes any more.
                        pending::<()>().await;
                    }
                }
                None => pending().await,
            }
        };
        tokio::select! {
            () = fleet => Event::Fleet,
            signal = self.signals.next() => match signal {
                kind if kind == SignalKind::hangup() => Event::Reload,
                kind if kind == SignalKind::user_defined2() => Event::Upgrade,
                _ => Event::Terminate,
            },
            Some(command) = self.commands.recv() => Event::Command(command),
            _ = self.watch.tick() => Event::Tick,
        }
    }
}

/// A reload that can be carried out.
struct Reloading {
    config: Config,
    /// What the file says of it, in a fleet.
    file: Option<Config>,
    next: Next,
    agents: agents::NextAgents,
    /// Not heard yet. Dropped, they close.
    opened: Vec<(ListenerId, Opened)>,
}

/// What runs while the workers do: takes commands and signals, and tells the workers.
struct ControlLoop {
    view: Arc<View>,
    config_file: PathBuf,
    config: Arc<Config>,
    setup: Arc<Setup>,
    notifier: Notifier,
    /// Where players' sockets are kept.
    store: Option<Store>,
    watcher: Watcher,
    /// The revision of the setup that retired each backend which is retired.
    retired_since: IdVec<BackendId, Option<u64>>,
    /// Signals to end that have come.
    terms: u32,
    deadlines: Deadlines,
    denials: Denials,
    listeners: Listeners,
    membership: Option<Membership>,
    agents: Agents,
    program: Program,
    /// To itself, for what threads beside it have found out.
    commands: mpsc::Sender<Command>,
    /// Second descriptors of the admin address, the control socket and the one for successors.
    doors: [Option<OwnedFd>; 3],
    admin_address: Option<SocketAddr>,
    /// Where game processes register themselves.
    announcements: Option<OwnedFd>,
    handing_over: HandingOver,
    /// Who has the gateway now.
    heir: Option<Channel>,
    /// What would change what is handed over, until that has succeeded or failed.
    postponed: Vec<Postponed>,
}

/// How far a hand-over has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandingOver {
    /// There is none.
    No,
    /// Somebody prepares to take over.
    Preparing,
    /// The state is being copied, so nothing may change that goes along.
    Copying,
}

/// What waits for the end of a hand-over.
enum Postponed {
    Command(Command),
    Reload,
    /// Something else is known of the fleet.
    Fleet,
}

impl ControlLoop {
    /// Until it is time to stop the workers.
    async fn run(&mut self, fleet: &Fleet, events: &mut Events) -> io::Result<End> {
        let mut alive_at_ns = 0;
        while self.terms < TERMS_TO_STOP {
            match events.next().await {
                Event::Command(Command::HandOver(prepared)) => {
                    if self.hand_over(fleet, *prepared) {
                        return Ok(End::HandedOver);
                    }
                }
                Event::Command(command) => self.obey_in_time(fleet, command),
                Event::Upgrade => {
                    tracing::info!(
                        event = "asked",
                        what = "upgrade",
                        by = "SIGUSR2",
                        "told to hand over to the next release"
                    );
                    self.upgrade(fleet, None);
                }
                Event::Reload => {
                    tracing::info!(
                        event = "asked",
                        what = "reload",
                        by = "SIGHUP",
                        "told to reload"
                    );
                    self.reload_in_time(fleet);
                }
                Event::Terminate => {
                    self.terms += 1;
                    tracing::info!(event = "asked", what = "drain", by = "a signal", "told to end");
                    self.drain(fleet, None);
                }
                Event::Fleet => self.hear_fleet_in_time(fleet),
                Event::Tick if fleet.has_failed() => {
                    return Err(io::Error::other("a worker has failed"));
                }
                Event::Tick if self.has_drained() => break,
                Event::Tick => {
                    self.show_life(&mut alive_at_ns);
                    if self.handing_over != HandingOver::Copying {
                        self.end_overdue(fleet);
                        self.watch_denied(fleet);
                        self.close_drained(fleet);
                        self.agents.tick(self.view.now_ns());
                        self.tell_fleet(fleet);
                    }
                    if self.watcher.is_due(self.view.now_ns()) {
                        self.watcher.tell(&self.view.snapshot());
                    }
                }
            }
        }
        self.tell_end();
        Ok(End::Stop)
    }

    /// Why the daemon stops now.
    fn tell_end(&mut self) {
        let snapshot = self.view.snapshot();
        self.watcher.tell_last(&snapshot);
        let sessions = snapshot.totals().sessions;
        let is_over = snapshot.live.drain.is_some_and(|drain| snapshot.now_ns >= drain.until_ns);
        let reason = match (self.terms >= TERMS_TO_STOP, is_over) {
            (true, _) => "second_signal",
            (false, true) => "deadline",
            (false, false) => "empty",
        };
        tracing::info!(
            event = "drain_end",
            reason,
            sessions,
            "the drain is over: {sessions} sessions are left"
        );
    }

    fn obey(&mut self, fleet: &Fleet, command: Command) {
        // The client may have closed its connection without waiting for the answer.
        match command {
            Command::ConfirmFleet { doubt, reply } => answer(reply, self.confirm_fleet(doubt)),
            Command::Capture { capture, reply } => {
                fleet.tell_all(|| Mail::Capture(Arc::clone(&capture)));
                answer(reply, ());
            }
            Command::Drain { deadline, reply } => answer(reply, self.drain(fleet, deadline)),
            Command::DrainBackend { backend, drained, deadline, reply } => {
                answer(reply, self.drain_backend(fleet, backend, drained, deadline));
            }
            Command::Undrain(reply) => answer(reply, self.undrain(fleet)),
            Command::Survey { wanted, ends, limit, reply } => {
                answer(reply, draining::survey(fleet, wanted, ends, limit));
            }
            Command::Trace { trace, reply } => {
                fleet.tell_all(|| Mail::Trace(Arc::clone(&trace)));
                answer(reply, ());
            }
            Command::ChangeDenied { wish, reply } => {
                answer(reply, self.change_denied(fleet, wish));
            }
            Command::Reload { is_dry, reply } => answer(reply, self.reload(fleet, is_dry)),
            Command::Upgrade(reply) => self.upgrade(fleet, Some(reply)),
            Command::Successor(channel) => self.welcome(fleet, channel),
            Command::HoldStill { layout, reply } => answer(reply, self.hold_still(&layout)),
            // The loop itself takes the first.
            Command::HandOver(_) | Command::HandOverEnded => self.end_hand_over(fleet),
        }
    }

    /// Goes on where the process before this one stopped.
    fn inherit(&mut self, fleet: &Fleet, inherited: &Inherited) {
        let mut setup = Setup::clone(&self.setup);
        for (name, until_ns) in &inherited.drained {
            let is_meant = |it: &Backend| it.name == *name && !it.retired;
            let found = setup.backends.pairs().find(|(_, it)| is_meant(it)).map(|(id, _)| id);
            let Some(id) = found else { continue };
            setup.backends[id].drained = true;
            if let Some(until_ns) = until_ns {
                self.deadlines.insert(id, *until_ns);
            }
        }
        if !inherited.drained.is_empty() {
            self.revise(fleet, setup);
        }
    }

    /// Reads the config again, and tells the workers if that is possible; only finds out whether it
    /// is, in a dry run.
    fn reload(&mut self, fleet: &Fleet, is_dry: bool) -> Outcome {
        if self.view.live().drain.is_some() {
            return Err(vec!["the gateway is draining".to_owned()]);
        }
        if is_dry {
            return self.prepare(fleet).map(|prepared| prepared.next.changes);
        }
        self.notifier.reloading();
        let outcome = self.try_reload(fleet);
        self.notifier.ready();
        let mut live = self.view.live();
        live.reloads.last_refused = outcome.is_err();
        match &outcome {
            Ok(changes) => {
                live.setup = Arc::clone(&self.setup);
                live.admin = self.config.admin.clone().map(Arc::new);
                live.reloads.done += 1;
                live.reloads.config_unix_s = clock::unix_seconds();
                tracing::info!(
                    event = "reload",
                    changes = changes.join("; "),
                    "the config was read again"
                );
            }
            Err(mistakes) => {
                live.reloads.refused += 1;
                for mistake in mistakes {
                    tracing::error!(
                        event = "reload_refused",
                        mistake,
                        "the config was not changed: {mistake}"
                    );
                }
            }
        }
        outcome
    }

    fn try_reload(&mut self, fleet: &Fleet) -> Outcome {
        let Reloading { config, file, next, agents, opened } = self.prepare(fleet)?;
        for notice in config.notices() {
            tracing::warn!("{notice}");
        }
        self.keep_opened(&opened);
        self.setup = fleet.adopt(&next.setup, opened);
        self.note_retired();
        let before = std::mem::replace(&mut self.config, Arc::new(config));
        self.view.live().setup = Arc::clone(&self.setup);
        self.agents.adopt(agents, self.view.now_ns());
        self.note_movements(fleet, &next, &before);
        self.note_file(file);
        Ok(next.changes)
    }

    /// Does everything of a reload that may fail, and nothing that shows.
    fn prepare(&self, fleet: &Fleet) -> Result<Reloading, Vec<String>> {
        let read = Config::load(&self.config_file).map_err(|why| sentences(&why))?;
        let (config, file) = self.with_fleet(read);
        let is_free = |id| self.is_free(id);
        let next = self.with_known(fleet, |known| {
            reload::next(&self.config, &self.setup, &config, is_free, known)
        })?;
        let opened = self.open_added(fleet, &next, &config)?;
        let agents = self.agents.prepare(&config)?;
        Ok(Reloading { config, file, next, agents, opened })
    }

    /// Whether nothing knows a retired backend's number any more: every worker has retired it, so
    /// nobody is sent there, and its last player has left since.
    fn is_free(&self, backend: BackendId) -> bool {
        let since = self.retired_since.get(backend).copied().flatten();
        since.is_some_and(|revision| self.view.has_adopted(revision))
            && self.view.players(backend) == 0
    }

    /// Notes with which setup backends were retired.
    fn note_retired(&mut self) {
        let Self { setup, retired_since, .. } = self;
        retired_since.resize_with(setup.backends.len(), || None);
        for (backend, since) in setup.backends.iter().zip(retired_since) {
            *since = backend.retired.then(|| since.unwrap_or(setup.revision));
        }
    }

    /// Tells the service manager now and then that the workers turn, as long as they do.
    fn show_life(&self, alive_at_ns: &mut u64) {
        let now_ns = self.view.now_ns();
        let Some(every) = self.notifier.watchdog() else { return };
        if now_ns >= *alive_at_ns && health::is_healthy(&self.view.snapshot()).is_ok() {
            self.notifier.alive();
            *alive_at_ns = now_ns + every.as_nanos() as u64;
        }
    }
}

fn answer<T>(reply: oneshot::Sender<T>, with: T) {
    drop(reply.send(with));
}

fn sentences(error: &LoadError) -> Vec<String> {
    error.to_string().lines().map(str::to_owned).collect()
}

/// How often the fleet's health and, while draining, its sessions are looked at.
const WATCH_EVERY: Duration = Duration::from_millis(50);

/// The first signal drains, the second stops.
const TERMS_TO_STOP: u32 = 2;

/// For answers that are on their way when another process goes on.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

/// Requests of operators that wait for the control thread.
const COMMANDS_MAX: usize = 16;

const NS_PER_MS: u64 = 1_000_000;
