//! The control plane: one thread beside the packet path, which reaches workers by mailbox and reads
//! what they publish. No worker ever waits for it.
//!
//! It serves the admin address and the control socket, listens for signals, reads the config again,
//! drains, writes the histogram file and tells the service manager how things stand. All of that
//! runs on one runtime (`runtime`); what takes long (a file write) does not hold up what must not
//! wait (a signal, a health check). Here it is made and served; `main_loop` is what it does then.
//!
//! Ending is a matter of two steps. A *drain* takes nobody in, and lets those who are there play on
//! until they leave or its time is over: SIGTERM, SIGINT or `POST /drain` begin one. Then the
//! workers stop, and tell the players who are left. The second signal skips the wait.

mod agents;
mod capture;
mod cluster;
mod deny;
mod denying;
mod draining;
mod events;
#[cfg(feature = "fleet")]
pub mod following;
mod fresh;
mod handover;
mod health;
mod hlog;
#[cfg(feature = "agent")]
pub mod host;
mod http;
mod keeper;
mod keeping;
mod latency;
mod listeners;
mod main_loop;
#[cfg_attr(not(feature = "fleet"), path = "control/alone.rs")]
mod membership;
mod metrics;
pub mod moving;
mod page;
pub mod plan;
mod recorder;
mod reload;
mod runtime;
mod sessions;
mod spent;
mod status;
mod streaming;
#[cfg(test)]
mod tests;
mod trace;
mod view;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, watch};

use crate::config::{Admin, Config, IoChoice};
use agents::Agents;
use cluster::Cluster;
use denying::Denials;
pub use denying::State;
use draining::Deadlines;
use events::Watcher;
pub use handover::Trunks;
use http::Command;
pub use keeper::DENIED_FILE;
use keeper::Keeper;
use listeners::Listeners;
use main_loop::{Attending, Busy, ControlLoop, Postponed};
pub use membership::Joining;
use membership::{Membership, Order};
use recorder::Recorder;
use ringgate_gate::{IdVec, ListenerId, Setup};
use ringgate_os::hand::Hand;
use ringgate_os::overflows::Overflows;
use ringgate_os::usage::Usage;
use ringgate_process::handover::{Channel, Program};
use ringgate_process::pages::{Pages, operators};
use ringgate_process::role::attend;
use ringgate_process::signals::Signals;
use ringgate_process::systemd::Notifier;
use ringgate_state::SpentFiles;
use ringgate_worker::handover::{DrainRow, Facts, Given, LeavingRow};
use ringgate_worker::{Fleet, Ready};
use runtime::Runtime;
use spent::SpentKeeper;
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

/// What a control plane goes on with.
#[derive(Debug)]
pub struct Inherited {
    /// What was told first.
    pub facts: Facts,
    /// Backends that an operator sends nobody to.
    pub drains: Vec<DrainRow>,
    /// The same from a release that says no more than names, and until when.
    pub drained: Vec<(String, Option<u64>)>,
    /// Listeners that this config does not have, and that drain.
    pub leaving: Vec<(ListenerId, LeavingRow)>,
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
    pages: Pages,
    admin: Option<(TcpListener, SocketAddr)>,
    socket: Option<(UnixListener, PathBuf)>,
    /// Where successors come to.
    next: Option<(UnixListener, PathBuf)>,
    recorder: Recorder,
    keeper: Option<Keeper>,
    /// Where spent tokens are written, or why they cannot be.
    spent: Result<(SpentFiles, Hand), String>,
    commands: mpsc::Receiver<Command>,
    signals: Signals,
    /// Signals that wait until this process has the gateway.
    unheard: Vec<i32>,
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
            mut state,
            program,
            inherited,
            fleet: joining,
        } = settings;
        let runtime = Runtime::start(config.gateway.io != IoChoice::Mmsg)
            .map_err(|why| format!("cannot start the control thread's runtime: {why}"))?;
        let fleets = (fleet.desks(), setup.incarnation);
        let agents = Agents::open(&config, fleets, fleet.clock(), inherited.is_some())?;
        let mut view = View::new(&fleet, Arc::clone(&setup), config_file.clone(), kernel);
        if let Some(inherited) = &inherited {
            view.inherit(&inherited.facts);
        }
        view.show_agents(agents.window());
        let cluster =
            Cluster::open(&config, setup.incarnation, fleet.clock(), inherited.is_some())?;
        view.show_cluster(cluster.window());
        let view = Arc::new(view);
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let signals = runtime
            .block_on(async { Signals::listen() })
            .map_err(|why| format!("cannot catch signals: {why}"))?;
        view.live().admin = config.admin.clone().map(Arc::new);
        let has_folder = state.folder.is_ok();
        // What works later is made now: players may be here by then whom nobody else has.
        let sentence = |why: io::Error| why.to_string();
        let hand = Hand::ready("ringgate-spent").map_err(sentence)?;
        let spent = state.spent_files().map(|files| (files, hand));
        let (mut denials, keeper) = Denials::start(state, view.now_ns());
        let config = Arc::new(config);
        let membership = joining.map(|joining| {
            denials.set_fleet(joining.bans(), view.now_ns());
            Membership::new(joining, has_folder).map_err(sentence)
        });
        let membership = membership.transpose()?;
        view.live().denied = denials.shown();
        let before = inherited.as_ref().and_then(Inherited::admin);
        let bind = |admin: &Admin| {
            let bound = runtime.block_on(async {
                let listener = match before {
                    Some((fd, address)) if is_at(admin.bind, address) => operators::adopt_tcp(fd),
                    _ => operators::bind_tcp(admin.bind),
                };
                let listener = TcpListener::from_std(listener?)?;
                listener.local_addr().map(|address| (listener, address))
            });
            bound.map_err(|why| format!("cannot serve the admin address {}: {why}", admin.bind))
        };
        let admin = config.admin.as_ref().map(bind).transpose()?;
        let pages = http::pages(Arc::clone(&view), sender.clone());
        let recorder = Recorder::start(&runtime, &view, config.histograms.as_ref());
        let mut links = plan::links(&config);
        if let Some(inherited) = &inherited {
            links.inherit(inherited.facts.has_links, &setup);
        }
        let mut listeners = Listeners::of(&setup, links);
        if let Some(inherited) = &inherited {
            listeners.inherit(&inherited.facts.fronts);
        }
        let known = inherited.as_ref().map(|it| it.facts.manager.clone());
        let notifier = Arc::new(Notifier::from_env(known.unwrap_or_default()));
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
            busy: Busy::No,
            talk: None,
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
            cluster,
        };
        if let Some(inherited) = &inherited {
            main_loop.inherit(&fleet, inherited);
        }
        let (socket, next) = (None, None);
        Ok(Self {
            runtime,
            fleet,
            main_loop,
            pages,
            admin,
            socket,
            next,
            recorder,
            keeper,
            spent,
            commands,
            signals,
            unheard: Vec::new(),
        })
    }

    /// Goes on with what the process before this one has counted up to the barrier.
    pub fn go_on(&mut self, given: &Given) -> Result<(), String> {
        self.main_loop.view.go_on(&given.control);
        self.recorder.go_on(&given.latencies);
        self.main_loop.watcher.go_on(&given.told, &self.main_loop.setup);
        self.unheard.clone_from(&given.signals);
        given.fleet.as_ref().map_or(Ok(()), |row| self.main_loop.inherit_fleet(row))
    }

    /// Goes on with its agents' connections, once the workers turn.
    pub fn inherit_agents(&mut self, bytes: &[u8], fds: Vec<OwnedFd>) {
        let now_ns = self.main_loop.view.now_ns();
        let connected = self.main_loop.agents.inherit(bytes, fds, now_ns);
        self.main_loop.keep_connected(connected);
    }

    /// Adds what that process had recorded of latencies when its workers ended, once it says so.
    pub fn hear_recorded(&self, channel: Channel) {
        let published = self.fleet.published().to_vec();
        let names = latency::parties(&self.main_loop.setup);
        let hear = move || handover::hear_recorded(&channel, &published, &names);
        let thread = std::thread::Builder::new().name("ringgate-recorded".to_owned());
        if let Err(why) = thread.spawn(hear) {
            tracing::warn!("latencies of the process before are not taken over: {why}");
        }
    }

    /// Has the workers turn that were made of that process's.
    pub fn set_off(&mut self, workers: Ready) {
        self.fleet.set_off(workers);
        Signals::raise(&std::mem::take(&mut self.unheard));
        let now_ns = self.main_loop.view.now_ns();
        self.main_loop.agents.tick(now_ns);
    }

    /// Gives the sockets that agents and members of the cluster come to to the user that this
    /// process is about to become.
    pub fn give_agents(&self, uid: u32, gid: u32) -> io::Result<()> {
        self.main_loop.agents.give_to(uid, gid)?;
        self.main_loop.cluster.give_to(uid, gid)
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
        let listener = self.runtime.block_on(async { listening(listener) })?;
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
    pub fn histograms(&self) -> Option<&Path> {
        self.recorder.dir()
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
            pages,
            admin,
            socket,
            next,
            mut recorder,
            keeper,
            spent,
            mut commands,
            mut signals,
            unheard: _,
        } = self;
        main_loop.join(&fleet);
        let notifier = Arc::clone(&main_loop.notifier);
        notifier.serves(main_loop.view.facts().generation > 1);
        main_loop.keep_sockets(&fleet);
        let (spent, why_not) = SpentKeeper::start(spent, fleet.claims(), fleet.clock());
        main_loop.view.live().why_not_spent = why_not;
        let paths = [socket.as_ref().map(|(_, it)| it), next.as_ref().map(|(_, it)| it)];
        let announce = main_loop.announcements.as_ref().map(|_| main_loop.announce_path());
        let paths: Vec<PathBuf> = paths.into_iter().flatten().cloned().chain(announce).collect();
        let (ended, keeper) = runtime.block_on(async {
            let keeper = keeper.map(|keeper| tokio::spawn(keeper.run()));
            let (admin, socket) = (admin.map(|(it, _)| it), socket.map(|(it, _)| it));
            let mut doors = operators::serve(admin, socket, pages);
            if let Some((listener, _)) = next {
                doors.spawn(handover::serve(listener, main_loop.commands.clone()));
            }
            let (ending, ends) = watch::channel(false);
            let attend = async {
                let known = main_loop.known();
                let (main_loop, fleet, commands) = (&mut main_loop, &fleet, &mut commands);
                let mut role = Attending { main_loop, fleet, commands, known };
                let ended = attend(&mut role, &mut signals, &notifier).await;
                let Attending { main_loop, commands, .. } = role;
                main_loop.end_commands(commands).await;
                if matches!(ended, Ok(End::HandedOver)) {
                    operators::leave(doors).await;
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
            main_loop.tell_recorded(runtime.block_on(signals.unheard()));
            main_loop.denials.close();
            runtime.block_on(finish(&mut recorder, keeper));
            if let Some(spent) = spent {
                spent.finish();
            }
            return parted.map(|()| Some(signals));
        }
        // Before the workers stop: who asks from now on should hear that nobody is there.
        for path in paths {
            let _ = std::fs::remove_file(path);
        }
        main_loop.denials.close();
        main_loop.leave_fleet(Order::Leave);
        let stopped = fleet.stop();
        if let Some(spent) = spent {
            spent.finish();
        }
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
pub fn is_at(wanted: SocketAddr, bound: SocketAddr) -> bool {
    wanted.ip() == bound.ip() && (wanted.port() == 0 || wanted.port() == bound.port())
}

/// Whoever listens there. That messages are kept apart makes no difference to it.
fn listening(socket: OwnedFd) -> io::Result<UnixListener> {
    let listener = StdUnixListener::from(socket);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// A second descriptor, to pass on. Without one, the next process makes its own.
fn second(socket: &impl AsFd) -> Option<OwnedFd> {
    socket.as_fd().try_clone_to_owned().ok()
}

/// Requests of operators that wait for the control thread.
const COMMANDS_MAX: usize = 16;

const NS_PER_MS: u64 = 1_000_000;
