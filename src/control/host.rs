//! The control plane of an agent: its pages, signals, and what the service manager is told.
//!
//! The same doors and the same rights as a gateway's, and far fewer pages.

mod draining;
mod handing;
mod pages;
mod reload;

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::request::Parts;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::SignalKind;
use tokio::sync::Notify;

use super::http;
use super::listening;
use crate::config::{Accepted, HostConfig};
use crate::hosting::{Member, Prepared};
use draining::Drain;
pub use handing::{Facts, Plan, Taken, take_over};
use reload::Live;
use ringgate_os::clock::Clock;
use ringgate_os::publishing::Roll;
use ringgate_os::{process, wiping};
use ringgate_process::handover::{CONTROL_SOCKET, Program};
use ringgate_process::pages::asked::{self, AskedDrain, Draining, Obeys, Upgraded};
use ringgate_process::pages::{
    self as chassis, AccessRefusal, For, JSON, NotDone, Page, Pages, Reply, Right, Rounds, Site,
    Visit, Visitor, hear, operators, stopping, typed, verdict,
};
use ringgate_process::reloads::{Outcome, Reloads};
use ringgate_process::role::{Role, attend};
use ringgate_process::signals::{self, Signals};
use ringgate_process::systemd::{Notifier, ServiceManager};
use ringgate_report::metrics::CONTENT_TYPE;
use ringgate_report::text::Append as _;
use ringgate_trunk::agent::service::Agent;

/// What an agent's control plane is told.
#[derive(Debug)]
pub struct Settings {
    /// The control socket.
    pub listener: StdUnixListener,
    /// Where that is, to be removed at the end.
    pub path: PathBuf,
    /// Where successors of root's come to, and where that is, to be removed at the end.
    pub next: Option<(OwnedFd, PathBuf)>,
    /// The admin address.
    pub admin: Option<StdTcpListener>,
    /// The file that is in force, and what it was read from.
    pub config: HostConfig,
    /// The same, to be read again.
    pub accepted: Accepted,
    /// The fleet, where it is in one.
    pub fleet: Option<Prepared>,
    /// What the next release is started by.
    pub program: Program,
    /// Another process has had the agent before.
    pub is_heir: bool,
    /// Whom that has told that the agent lives.
    pub manager: ServiceManager,
    /// System calls are given up before it serves: it can start no program.
    pub is_confined: bool,
    /// What it runs on, and hears signals by.
    pub hearing: Hearing,
}

/// What a control plane runs on, and what hears signals there.
#[derive(Debug)]
pub struct Hearing {
    runtime: tokio::runtime::Runtime,
    signals: Signals,
}

impl Hearing {
    /// Signals are caught from now on, and wait until the control plane serves.
    pub fn begin() -> io::Result<Self> {
        wiping::wipe_from_now_on();
        signals::check_room()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = runtime.block_on(async { Signals::listen() })?;
        Ok(Self { runtime, signals })
    }
}

/// Binds an admin address.
pub fn bind_admin(address: SocketAddr) -> io::Result<StdTcpListener> {
    operators::bind_tcp(address)
}

/// A control plane that serves once it is told to.
pub struct Control {
    runtime: tokio::runtime::Runtime,
    admin: Option<TcpListener>,
    socket: UnixListener,
    next: Option<UnixListener>,
    signals: Signals,
    fleet: Option<Prepared>,
    /// Sockets that are removed at the end.
    paths: Vec<PathBuf>,
    is_heir: bool,
    shared: Arc<Shared>,
}

ringgate_core::shown_by!(Control {});

/// What pages are made from.
struct Shared {
    agent: Arc<Agent>,
    live: Mutex<Live>,
    accepted: Accepted,
    notifier: Notifier,
    /// Its place in a fleet, once that is looked after.
    fleet: OnceLock<Member>,
    /// Another process has it, or it drains, or does not any more.
    news: Notify,
    drain: Mutex<Drain>,
    program: Program,
    is_confined: bool,
    /// Of what pages are made of.
    rounds: Rounds,
    /// Of whoever reads the file, or hands the agent over.
    handing: Mutex<()>,
    hands_over: AtomicBool,
    /// A signal has asked for a reload that this process has not begun.
    is_told_to_reload: AtomicBool,
    /// The process that goes on; 0 while this one does. It is known before what waits for the
    /// hand-over goes on.
    handed_to: AtomicU32,
    doors: Doors,
}

/// Second descriptors of what operators come in by, for the next process.
struct Doors {
    control: OwnedFd,
    admin: Option<(SocketAddr, OwnedFd)>,
    next: Option<OwnedFd>,
}

/// Opens what is to be served.
pub fn start(agent: Agent, settings: Settings) -> io::Result<Control> {
    let Settings { listener, path, next, admin, config, accepted, fleet, program, .. } = settings;
    let Settings { is_heir, manager, is_confined, hearing, .. } = settings;
    let Hearing { runtime, signals } = hearing;
    let guard = runtime.enter();
    listener.set_nonblocking(true)?;
    let socket = UnixListener::from_std(listener.try_clone()?)?;
    let admin = admin.map(|bound| {
        bound.set_nonblocking(true)?;
        TcpListener::from_std(bound)
    });
    let admin = admin.transpose()?;
    let of_next = |(socket, _): &(OwnedFd, PathBuf)| socket.try_clone();
    let successors = next.as_ref().map(of_next).transpose()?;
    let paths = next.iter().map(|(_, path)| path.clone()).chain([path]).collect();
    let next = next.as_ref().map(of_next).transpose()?.map(listening).transpose()?;
    drop(guard);
    let second = |listener: &TcpListener| {
        Ok::<_, io::Error>((listener.local_addr()?, listener.as_fd().try_clone_to_owned()?))
    };
    let doors = Doors {
        control: listener.as_fd().try_clone_to_owned()?,
        admin: admin.as_ref().map(second).transpose()?,
        next: successors,
    };
    let shared = Arc::new(Shared {
        agent: Arc::new(agent),
        live: Mutex::new(Live::new(config)),
        accepted,
        notifier: Notifier::from_env(manager),
        fleet: OnceLock::new(),
        news: Notify::new(),
        drain: Mutex::default(),
        program,
        is_confined,
        rounds: Rounds::default(),
        handing: Mutex::new(()),
        hands_over: AtomicBool::new(false),
        is_told_to_reload: AtomicBool::new(false),
        handed_to: AtomicU32::new(0),
        doors,
    });
    Ok(Control { runtime, admin, socket, next, signals, fleet, paths, is_heir, shared })
}

impl Control {
    /// What is served, a line for each: tools and tests read these.
    pub fn announcement(&self) -> String {
        let mut text = String::new();
        let options = self.shared.agent.options();
        for gateway in &options.gateways {
            writeln!(text, "gateway {gateway}");
        }
        if let Some(Ok(address)) = self.admin.as_ref().map(TcpListener::local_addr) {
            writeln!(text, "admin on {address}");
        }
        let path = options.run_dir.join(CONTROL_SOCKET);
        writeln!(text, "control on {}\nready", path.display());
        text
    }

    /// Serves until it is told to end, and everybody has left or the time is over. Returns what
    /// hears signals where another process goes on.
    pub fn serve(self) -> Option<Signals> {
        let Self { runtime, admin, socket, next, mut signals, fleet, paths, is_heir, shared } =
            self;
        runtime.block_on(async {
            if let Some(prepared) = fleet {
                let member = Member::start(prepared, Arc::clone(&shared.agent));
                drop(shared.fleet.set(member));
            }
            let pages: Pages = chassis::pages(Arc::clone(&shared));
            let mut doors = operators::serve(admin, Some(socket), pages);
            if let Some(listener) = next {
                doors.spawn(handing::serve(listener, Arc::clone(&shared)));
            }
            shared.notifier.serves(is_heir);
            let mut role = Attending(Arc::clone(&shared));
            attend(&mut role, &mut signals, &shared.notifier).await;
            shared.end().await;
            if shared.is_handed_over() {
                operators::leave(doors).await;
                shared.pass_on(&signals.unheard().await);
            }
        });
        drop(runtime);
        // A thread beside reads the file, or hands over: it is not cut short.
        drop(shared.handing.lock());
        if shared.is_handed_over() {
            return Some(signals);
        }
        for path in paths {
            let _ = std::fs::remove_file(path);
        }
        None
    }
}

/// The agent while it serves.
struct Attending(Arc<Shared>);

impl Role for Attending {
    type End = ();
    const LOOK_EVERY: Duration = Duration::from_millis(100);

    fn is_healthy(&self) -> bool {
        self.0.agent.is_healthy()
    }

    async fn wake(&mut self) -> Option<()> {
        self.0.news.notified().await;
        self.0.is_handed_over().then_some(())
    }

    fn look(&mut self) -> Option<()> {
        self.0.settle_gateways();
        self.0.has_drained().then_some(())
    }

    fn reload(&mut self) {
        self.0.is_told_to_reload.store(true, Ordering::Relaxed);
        tokio::spawn(reload::run(Arc::clone(&self.0), false));
    }

    fn upgrade(&mut self) {
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move { handing::hand_over(&shared, None).await });
    }

    fn drain(&mut self) {
        self.0.drain_by_signal();
    }

    fn stop(&mut self) {}
}

impl Shared {
    /// Says who goes on, or that nobody does.
    async fn end(&self) {
        if self.is_handed_over() {
            // It was told so when it had nothing to read or to end any more.
            let reloads = self.is_told_to_reload.load(Ordering::Relaxed);
            let told =
                [(reloads, SignalKind::hangup()), (self.is_told_to_end(), SignalKind::terminate())];
            let told = told.into_iter().filter(|(is_told, _)| *is_told);
            let numbers: Vec<_> = told.map(|(_, kind)| kind.as_raw_value()).collect();
            self.pass_on(&numbers);
            self.notifier.handed_over(self.handed_to.load(Ordering::Relaxed));
            return;
        }
        self.notifier.stopping(Duration::ZERO);
        if let Some(member) = self.fleet.get() {
            member.leave().await;
        }
        tracing::info!(event = "stop", players = self.agent.view().players(), "ending");
    }
}

impl Site for Shared {
    fn pages() -> Vec<Page<Self>> {
        let mut pages = vec![
            Page::new("/healthz", For::Everybody, healthz),
            Page::new("/readyz", For::Everybody, readyz),
            Page::new("/status", For::Everybody, show_status),
            Page::new("/metrics", For::Everybody, show_metrics),
            Page::new("/drain", For::Changing, asked::drain),
            Page::new("/undrain", For::Changing, asked::undrain),
        ];
        pages.extend(asked::pages());
        pages
    }

    fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, AccessRefusal> {
        let config = Arc::clone(&self.live().config);
        http::judge(config.admin.as_ref(), visitor, head)
    }

    async fn publish(&self) -> Vec<String> {
        self.rounds.join(round(self)).await
    }
}

/// A round of publishing: every thread, and then what is made of what they show. Those who did not
/// publish.
async fn round(shared: &Shared) -> Vec<String> {
    let (clock, mut roll) = (Clock::start(), Roll::new());
    shared.agent.ask(&mut roll);
    let mut silent = hear(roll, &clock).await;
    silent.retain(|name| !shared.agent.has_ended(name));
    if let Some(member) = shared.fleet.get() {
        let mut roll = Roll::new();
        member.ask(&mut roll);
        silent.extend(hear(roll, &clock).await);
    }
    silent
}

async fn healthz(visit: Visit<Shared>) -> Reply {
    let is_healthy = visit.site.agent.is_healthy();
    verdict(if is_healthy { Ok(()) } else { Err("a thread has ended".to_owned()) }, "")
}

/// Ready is an agent that a gateway has let in, and that does not end.
async fn readyz(Visit { site: shared, .. }: Visit<Shared>) -> Reply {
    let view = shared.agent.view();
    let why = if shared.is_draining() {
        "it is draining"
    } else if view.up() == 0 {
        "no gateway is connected"
    } else {
        let detail = shared.fleet.get().map(|it| it.status().member.troubles()).unwrap_or_default();
        return verdict(Ok(()), &detail);
    };
    verdict(Err(why.to_owned()), "")
}

async fn show_status(Visit { site: shared, .. }: Visit<Shared>) -> Reply {
    let fleet = shared.fleet.get().map(Member::status);
    let page = pages::status(&shared.agent, fleet.as_ref(), shared.uptime_s(), shared.standing());
    Ok(typed(StatusCode::OK, JSON, page))
}

async fn show_metrics(Visit { site: shared, .. }: Visit<Shared>) -> Reply {
    let fleet = shared.fleet.get().map(Member::status);
    let page = pages::metrics(&shared.agent, fleet.as_ref(), shared.uptime_s(), shared.standing());
    Ok(typed(StatusCode::OK, CONTENT_TYPE, page))
}

impl Obeys for Shared {
    async fn drain(self: &Arc<Self>, asked: AskedDrain) -> Result<Draining, NotDone> {
        self.begin_drain(asked.deadline).ok_or_else(stopping)
    }

    async fn undrain(self: &Arc<Self>) -> Result<Result<bool, &'static str>, NotDone> {
        self.end_drain().ok_or_else(stopping)
    }

    async fn reload(self: &Arc<Self>, is_dry: bool) -> Result<Outcome, NotDone> {
        reload::run(Arc::clone(self), is_dry).await.ok_or_else(stopping)
    }

    async fn upgrade(self: &Arc<Self>) -> Result<Upgraded, NotDone> {
        Ok(handing::hand_over(self, None).await)
    }

    async fn confirm(self: &Arc<Self>, doubt: u64) -> Result<bool, NotDone> {
        // Whoever has the agent is to hear it.
        if self.is_handed_over() {
            return Err(stopping());
        }
        Ok(self.fleet.get().is_some_and(|member| member.confirm(doubt)))
    }
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle_gateways(&self) {
        for gateway in self.agent.settle() {
            tracing::info!(event = "gateway_left", gateway, "gateway {gateway} is left");
        }
    }

    fn uptime_s(&self) -> u64 {
        self.agent.clock().now_ns() / 1_000_000_000
    }

    /// For how many milliseconds it drains, if it does, and how reading the file again has gone.
    fn standing(&self) -> (Option<u64>, Reloads) {
        (self.drain_left_ms(), self.live().reloads)
    }

    fn is_handed_over(&self) -> bool {
        self.handed_to.load(Ordering::Relaxed) != 0
    }

    /// Whether it is not known yet who goes on.
    fn is_being_handed_over(&self) -> bool {
        self.hands_over.load(Ordering::Acquire)
    }

    /// Has the process that goes on hear signals that have come too late for this one. One that
    /// may not send signals any more, or is somebody else by now, cannot help it.
    fn pass_on(&self, signals: &[i32]) {
        let heir = self.handed_to.load(Ordering::Relaxed);
        for number in signals {
            let _ = process::signal(heir, *number);
        }
    }
}
