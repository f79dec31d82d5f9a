//! The control plane of an agent: its pages, signals, and what the service manager is told.
//!
//! The same doors and the same rights as a gateway's, and far fewer pages.

mod handing;
mod pages;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::SignalKind;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::http::as_json;
use super::notify::{Known, Notifier};
use super::query::{Query, wrong};
use super::{LAST_ANSWERS, Signals, access, door, listening, metrics};
use crate::config::Admin;
use crate::control::Program;
use crate::hosting::{Member, Prepared};
pub use handing::{Facts, Plan, Taken, take_over};
use ringgate_agent::service::Agent;
use ringgate_os::process;
use ringgate_report::text::put;

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
    pub admin: Option<(StdTcpListener, Admin)>,
    /// How long a drain waits for players to leave.
    pub drain_timeout: Duration,
    /// The fleet, where it is in one.
    pub fleet: Option<Prepared>,
    /// What the next release is started by.
    pub program: Program,
    /// Another process has had the agent before.
    pub is_heir: bool,
    /// System calls are given up before it serves: it can start no program.
    pub is_confined: bool,
}

/// Binds an admin address.
pub fn bind_admin(address: SocketAddr) -> io::Result<StdTcpListener> {
    door::bound_tcp(address)
}

/// A control plane that serves once it is told to.
pub struct Control {
    runtime: tokio::runtime::Runtime,
    admin: Option<(TcpListener, Admin)>,
    socket: UnixListener,
    next: Option<UnixListener>,
    signals: Signals,
    settings: Settings,
    shared: Arc<Shared>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

/// What pages are made from.
struct Shared {
    agent: Arc<Agent>,
    /// Its place in a fleet, once that is looked after.
    fleet: OnceLock<Member>,
    /// Somebody wants it to end.
    ends: Notify,
    is_draining: std::sync::atomic::AtomicBool,
    program: Program,
    is_confined: bool,
    /// Of whoever hands it over.
    handing: Mutex<()>,
    /// The process that goes on; 0 while this one does.
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
pub fn start(agent: Agent, mut settings: Settings) -> io::Result<Control> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    settings.listener.set_nonblocking(true)?;
    let socket = UnixListener::from_std(settings.listener.try_clone()?)?;
    let admin = settings.admin.take().map(|(bound, admin)| {
        bound.set_nonblocking(true)?;
        Ok::<_, io::Error>((TcpListener::from_std(bound)?, admin))
    });
    let admin = admin.transpose()?;
    let of_next = |(socket, _): &(OwnedFd, PathBuf)| socket.try_clone();
    let successors = settings.next.as_ref().map(of_next).transpose()?;
    let next = settings.next.as_ref().map(of_next).transpose()?.map(listening).transpose()?;
    let signals = Signals::listen()?;
    drop(guard);
    let second = |listener: &TcpListener| {
        Ok::<_, io::Error>((listener.local_addr()?, listener.as_fd().try_clone_to_owned()?))
    };
    let doors = Doors {
        control: settings.listener.as_fd().try_clone_to_owned()?,
        admin: admin.as_ref().map(|(listener, _)| second(listener)).transpose()?,
        next: successors,
    };
    let shared = Arc::new(Shared {
        agent: Arc::new(agent),
        fleet: OnceLock::new(),
        ends: Notify::new(),
        is_draining: std::sync::atomic::AtomicBool::new(false),
        program: settings.program.clone(),
        is_confined: settings.is_confined,
        handing: Mutex::new(()),
        handed_to: AtomicU32::new(0),
        doors,
    });
    Ok(Control { runtime, admin, socket, next, signals, settings, shared })
}

impl Control {
    /// What is served, a line for each: tools and tests read these.
    pub fn announcement(&self) -> String {
        let mut text = String::new();
        let options = self.shared.agent.options();
        for gateway in &options.gateways {
            put(&mut text, format_args!("gateway {gateway}\n"));
        }
        if let Some(Ok(address)) = self.admin.as_ref().map(|(it, _)| it.local_addr()) {
            put(&mut text, format_args!("admin on {address}\n"));
        }
        put(&mut text, format_args!("control on {}\nready\n", self.settings.path.display()));
        text
    }

    /// Serves until it is told to end, and everybody has left or the time is over. Returns what
    /// hears signals where another process goes on.
    pub fn serve(self) -> io::Result<Option<Signals>> {
        let Self { runtime, admin, socket, next, mut signals, mut settings, shared } = self;
        let served = runtime.block_on(async {
            if let Some(prepared) = settings.fleet.take() {
                let member = Member::start(prepared, Arc::clone(&shared.agent));
                drop(shared.fleet.set(member));
            }
            let unix = tokio::spawn(door::serve_unix(socket, router(&shared, Arc::default())));
            let tcp = admin.map(|(listener, admin)| {
                let rules = Arc::new(Some(admin));
                tokio::spawn(door::serve_tcp(listener, router(&shared, rules)))
            });
            if let Some(listener) = next {
                tokio::spawn(handing::serve(listener, Arc::clone(&shared)));
            }
            let served = attend(&shared, &settings, &mut signals).await;
            if shared.is_handed_over() {
                // Who comes from now on comes to the next process.
                unix.abort();
                tcp.iter().for_each(tokio::task::JoinHandle::abort);
                tokio::time::sleep(LAST_ANSWERS).await;
                shared.pass_on(&signals.unheard().await);
            }
            served
        });
        drop(runtime);
        if shared.is_handed_over() {
            return served.map(|()| Some(signals));
        }
        let next = settings.next.iter().map(|(_, path)| path);
        next.chain([&settings.path]).for_each(|path| drop(std::fs::remove_file(path)));
        served.map(|()| None)
    }
}

/// Signals, and what they lead to.
async fn attend(
    shared: &Arc<Shared>,
    settings: &Settings,
    signals: &mut Signals,
) -> io::Result<()> {
    let drain_timeout = settings.drain_timeout;
    let notifier = Notifier::from_env(Known::default());
    if settings.is_heir {
        notifier.taken_over();
    } else {
        notifier.ready();
    }
    let mut told_to_end = None;
    let mut alive = tokio::time::interval(notifier.watchdog().unwrap_or(Duration::from_hours(1)));
    loop {
        tokio::select! {
            _ = alive.tick() => if shared.agent.is_healthy() { notifier.alive() },
            () = shared.ends.notified() => break,
            signal = signals.next() => match signal {
                kind if kind == SignalKind::hangup() => tell_hang_up(),
                kind if kind == SignalKind::user_defined2() => {
                    tracing::info!(event = "asked", what = "upgrade", by = "SIGUSR2", "told to hand over to the next release");
                    let shared = Arc::clone(shared);
                    tokio::spawn(async move { handing::hand_over(&shared, None).await });
                }
                kind => {
                    told_to_end = Some(kind);
                    break;
                }
            },
        }
    }
    if shared.is_handed_over() {
        // It was told so when it had nothing to end any more.
        shared.pass_on(told_to_end.map(|it| it.as_raw_value()).as_slice());
        notifier.handed_over(shared.handed_to.load(Ordering::Relaxed));
        return Ok(());
    }
    shared.is_draining.store(true, std::sync::atomic::Ordering::Relaxed);
    let players = shared.agent.view().players();
    tracing::info!(
        event = "drain_begin",
        players,
        "draining for {} ms at most",
        drain_timeout.as_millis()
    );
    notifier.stopping(drain_timeout);
    if let Some(member) = shared.fleet.get() {
        member.drain();
    }
    shared.agent.drain(drain_timeout);
    let end = Instant::now() + drain_timeout;
    while shared.agent.view().players() > 0 && Instant::now() < end {
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN_AFTER) => if shared.agent.is_healthy() { notifier.alive() },
            signal = signals.next() => {
                if [SignalKind::terminate(), SignalKind::interrupt()].contains(&signal) {
                    break;
                }
            }
        }
    }
    if let Some(member) = shared.fleet.get() {
        member.leave().await;
    }
    tracing::info!(event = "stop", players = shared.agent.view().players(), "ending");
    Ok(())
}

/// A gateway would read its file again.
fn tell_hang_up() {
    let why = "an agent reads its file when it starts, and its certificates for each connection";
    tracing::warn!(event = "reload_refused", mistake = why, "nothing is read again: {why}");
}

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(100);

fn router(shared: &Arc<Shared>, rules: Arc<Option<Admin>>) -> Router {
    let admit = move |request, next| {
        let rules = Arc::clone(&rules);
        async move { access::admit_by(rules.as_ref().as_ref(), request, next).await }
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(show_status))
        .route("/metrics", get(show_metrics))
        .route("/drain", post(drain).route_layer(from_fn(access::may_change)))
        .route("/fleet/confirm", post(confirm).route_layer(from_fn(access::may_change)))
        .route("/upgrade", post(handing::upgrade).route_layer(from_fn(access::may_change)))
        .layer(from_fn(admit))
        .with_state(Arc::clone(shared))
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    if shared.agent.is_healthy() {
        (StatusCode::OK, "ok\n").into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "a thread has ended\n").into_response()
    }
}

/// Ready is an agent that a gateway has let in, and that does not end.
async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    let view = shared.agent.view();
    let why = if shared.is_draining() {
        "it is draining"
    } else if view.up() == 0 {
        "no gateway is connected"
    } else {
        let detail = shared.fleet.get().map(|it| pages::detail(&it.status())).unwrap_or_default();
        return (StatusCode::OK, format!("ok\n{detail}")).into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response()
}

async fn show_status(State(shared): State<Arc<Shared>>) -> Response {
    let fleet = shared.fleet.get().map(Member::status);
    let page =
        pages::status(&shared.agent, fleet.as_ref(), shared.uptime_s(), shared.is_draining());
    ([(header::CONTENT_TYPE, "application/json")], page).into_response()
}

async fn show_metrics(State(shared): State<Arc<Shared>>) -> Response {
    let fleet = shared.fleet.get().map(Member::status);
    let page =
        pages::metrics(&shared.agent, fleet.as_ref(), shared.uptime_s(), shared.is_draining());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

async fn drain(State(shared): State<Arc<Shared>>) -> Response {
    shared.ends.notify_one();
    (StatusCode::OK, "draining\n").into_response()
}

/// `POST /fleet/confirm?doubt=NUMBER`, as at a gateway.
async fn confirm(State(shared): State<Arc<Shared>>, uri: Uri) -> Response {
    let doubt = Query::of(&uri, &["doubt"])
        .and_then(|query| query.read("doubt", "a number", |text| text.parse().ok()))
        .and_then(|doubt| doubt.ok_or_else(|| wrong("expected doubt=NUMBER")));
    match doubt {
        Ok(doubt) => {
            let confirmed = shared.fleet.get().is_some_and(|member| member.confirm(doubt));
            as_json(StatusCode::OK, &json!({ "schema": 1, "confirmed": confirmed }))
        }
        Err(why) => why.into_response(),
    }
}

impl Shared {
    fn uptime_s(&self) -> u64 {
        self.agent.clock().now_ns() / 1_000_000_000
    }

    fn is_handed_over(&self) -> bool {
        self.handed_to.load(Ordering::Relaxed) != 0
    }

    /// Has the process that goes on hear signals that have come too late for this one. One that
    /// may not send signals any more, or is somebody else by now, cannot help it.
    fn pass_on(&self, signals: &[i32]) {
        let heir = self.handed_to.load(Ordering::Relaxed);
        for number in signals {
            let _ = process::signal(heir, *number);
        }
    }

    fn is_draining(&self) -> bool {
        self.is_draining.load(std::sync::atomic::Ordering::Relaxed)
    }
}
