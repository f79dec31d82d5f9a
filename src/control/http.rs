//! The pages, and what changes the gateway: the same for the admin address and the control socket.
//!
//! `access` says who may do what, `door` how many connections there are and for how long. What is
//! left here is small on purpose: request bodies are not read, and all of it runs on the control
//! thread, which no packet passes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Request, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::access::{self, Visitor};
use super::denying::{Changed, Wish};
use super::fresh::{self, Rounds};
use super::query::{Query, Refusal};
use super::reload::Outcome;
use super::status::SCHEMA;
use super::view::{Snapshot, View};
use super::{capture, deny, handover, health, membership, metrics, page, sessions, status, trace};
use crate::config::Admin;
use ringgate_gate::{BackendId, Capture, Ended, Survey, Trace, Wanted};
use ringgate_os::publishing::Roll;
use ringgate_state as state;
use ringgate_worker::handover::{Channel, Early};

/// What an operator asks of the control thread.
pub(super) enum Command {
    /// Have what is known of the fleet told, by whoever is given the request for it.
    AskFleet(Roll, oneshot::Sender<Roll>),
    /// Believe what is held back of the fleet. Whether that is what is held back.
    ConfirmFleet { doubt: u64, reply: oneshot::Sender<bool> },
    /// Have the workers copy datagrams.
    Capture { capture: Arc<Capture>, reply: oneshot::Sender<()> },
    /// Take nobody in any more, and end when everybody has left.
    Drain { deadline: Option<Duration>, reply: oneshot::Sender<Draining> },
    /// Send nobody to a backend any more, or somebody again.
    DrainBackend {
        backend: BackendId,
        drained: bool,
        deadline: Option<Duration>,
        /// How many players it has.
        reply: oneshot::Sender<u32>,
    },
    /// Take players in again. Whether there was a drain.
    Undrain(oneshot::Sender<Result<bool, &'static str>>),
    /// Show the fleet as it is known now.
    ShowFleet(oneshot::Sender<()>),
    /// Look through all sessions.
    Survey {
        wanted: Wanted,
        ends: Option<Ended>,
        limit: usize,
        reply: oneshot::Sender<Arc<Survey>>,
    },
    /// Have the workers tell what they decide.
    Trace { trace: Arc<Trace>, reply: oneshot::Sender<()> },
    /// Deny players, or allow them again.
    ChangeDenied { wish: Wish, reply: oneshot::Sender<Result<Changed, state::Refusal>> },
    /// Read the config again, or only say what that would do.
    Reload { is_dry: bool, reply: oneshot::Sender<Outcome> },
    /// Start the next release and hand over to it.
    Upgrade(oneshot::Sender<handover::Outcome>),
    /// A successor has come by itself.
    Successor(Channel),
    /// A successor has prepared, and compared itself with that layout: what goes along with the
    /// workers' state should not change from here on.
    HoldStill { layout: Vec<u8>, reply: oneshot::Sender<Result<Early, String>> },
    /// It has what could be copied before the barrier.
    HandOver(Box<handover::Prepared>),
    /// A successor has not.
    HandOverEnded,
}

/// The drain that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draining {
    pub(super) sessions: u64,
    pub(super) left_ms: u64,
}

/// What requests are answered from.
#[derive(Clone)]
pub(super) struct AdminState {
    view: Arc<View>,
    commands: mpsc::Sender<Command>,
    /// One long page is made at a time. Requests wait for that off the thread, so that short pages
    /// (health) never wait for more than one of them.
    turn: Arc<Semaphore>,
    /// Of what pages are made of.
    rounds: Arc<Rounds>,
    /// A place for each trace.
    traces: Arc<Semaphore>,
    /// A place for each capture.
    captures: Arc<Semaphore>,
}

/// Whom a path is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// Everybody who reaches an address: it changes nothing and shows no player's address.
    Everybody,
    /// Those who may see where players are.
    Trusted,
    /// Those who may change the gateway.
    Changing,
}

/// Every path that there is. One that is not here does not exist, so a test that walks through
/// this list has seen all.
fn routes() -> Vec<(&'static str, For, MethodRouter<AdminState>)> {
    vec![
        ("/", For::Everybody, get(page::show)),
        ("/metrics", For::Everybody, get(show_metrics)),
        ("/healthz", For::Everybody, get(healthz)),
        ("/readyz", For::Everybody, get(readyz)),
        ("/status", For::Everybody, get(show_status)),
        ("/sessions", For::Trusted, get(sessions::show)),
        ("/trace", For::Trusted, get(trace::show)),
        ("/capture", For::Trusted, get(capture::show)),
        ("/denied", For::Trusted, get(deny::show)),
        ("/drain", For::Changing, post(drain)),
        ("/undrain", For::Changing, post(undrain)),
        ("/kick", For::Changing, post(sessions::kick)),
        ("/deny", For::Changing, post(deny::deny)),
        ("/allow", For::Changing, post(deny::allow)),
        ("/reload", For::Changing, post(reload)),
        ("/upgrade", For::Changing, post(upgrade)),
        ("/fleet/confirm", For::Changing, post(membership::confirm)),
    ]
}

/// All pages.
pub(super) fn router(view: Arc<View>, commands: mpsc::Sender<Command>) -> Router {
    let places = |count| Arc::new(Semaphore::new(count));
    let (traces, captures) = (places(trace::TRACES_MAX), places(capture::CAPTURES_MAX));
    let (turn, rounds) = (places(1), Arc::default());
    let state = AdminState { view, commands, turn, rounds, traces, captures };
    let with_route = |router: Router<AdminState>, (path, whom, methods)| {
        let methods: MethodRouter<AdminState> = methods;
        router.route(
            path,
            match whom {
                For::Everybody => methods,
                For::Trusted => methods.route_layer(from_fn(access::may_see_players)),
                For::Changing => methods.route_layer(from_fn(access::may_change)),
            },
        )
    };
    let router = routes().into_iter().fold(Router::new(), with_route);
    router
        .fallback(nothing)
        .layer(from_fn_with_state(state.clone(), see_to_now))
        .layer(from_fn_with_state(state.clone(), access::admit))
        .with_state(state)
}

/// Before any page that is asked for as of now.
async fn see_to_now(State(state): State<AdminState>, request: Request, next: Next) -> Response {
    fresh::see_to(&state.rounds, fresh::of_gateway(&state), request, next).await
}

async fn healthz(State(state): State<AdminState>) -> Response {
    verdict(health::is_healthy(&state.view.snapshot()), "")
}

async fn readyz(State(state): State<AdminState>, uri: Uri) -> Response {
    let snapshot = state.view.snapshot();
    let mut asked = uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("listener=")) {
        None => verdict(health::is_ready(&snapshot), &membership::detail(&snapshot)),
        Some(name) => match health::is_listener_ready(&snapshot, name) {
            Some(ready) => verdict(ready, &membership::detail(&snapshot)),
            None => (StatusCode::NOT_FOUND, "there is no listener of that name\n").into_response(),
        },
    }
}

async fn show_status(State(state): State<AdminState>) -> Response {
    let page = state.make(status::render).await;
    ([(header::CONTENT_TYPE, JSON)], page).into_response()
}

async fn show_metrics(State(state): State<AdminState>) -> Response {
    let page = state.make(metrics::render).await;
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

async fn drain(
    State(state): State<AdminState>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Response {
    try_drain(&state, &visitor, &uri).await.unwrap_or_else(IntoResponse::into_response)
}

async fn try_drain(state: &AdminState, visitor: &Visitor, uri: &Uri) -> Result<Response, Refusal> {
    let query = Query::of(uri, &["backend", "deadline_ms"])?;
    let deadline = query.read("deadline_ms", "milliseconds, at most a day", |text| {
        text.parse().ok().filter(|ms| *ms <= DEADLINE_MAX_MS).map(Duration::from_millis)
    })?;
    let Some(name) = query.text("backend") else {
        note(visitor, "drain");
        let drain = |reply| Command::Drain { deadline, reply };
        let Draining { sessions, left_ms } = state.ask(drain).await?;
        let answer = json!({ "schema": SCHEMA, "state": "draining", "sessions": sessions, "left_ms": left_ms });
        return Ok(as_json(StatusCode::OK, &answer));
    };
    let backend = sessions::backend_named(state, name)?;
    note(visitor, &format!("drain of backend {name}"));
    let drain = |reply| Command::DrainBackend { backend, drained: true, deadline, reply };
    let players = state.ask(drain).await?;
    let left_ms = deadline.map(|it| it.as_millis() as u64);
    let answer =
        json!({ "schema": SCHEMA, "backend": name, "players": players, "left_ms": left_ms });
    Ok(as_json(StatusCode::OK, &answer))
}

async fn undrain(
    State(state): State<AdminState>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Response {
    try_undrain(&state, &visitor, &uri).await.unwrap_or_else(IntoResponse::into_response)
}

async fn try_undrain(
    state: &AdminState,
    visitor: &Visitor,
    uri: &Uri,
) -> Result<Response, Refusal> {
    let query = Query::of(uri, &["backend"])?;
    let Some(name) = query.text("backend") else {
        note(visitor, "undrain");
        return Ok(match state.ask(Command::Undrain).await? {
            Ok(was_draining) => as_json(
                StatusCode::OK,
                &json!({ "schema": SCHEMA, "state": "serving", "was_draining": was_draining }),
            ),
            Err(why) => (StatusCode::CONFLICT, format!("{why}\n")).into_response(),
        });
    };
    let backend = sessions::backend_named(state, name)?;
    note(visitor, &format!("undrain of backend {name}"));
    let undrain = |reply| Command::DrainBackend { backend, drained: false, deadline: None, reply };
    let players = state.ask(undrain).await?;
    let answer = json!({ "schema": SCHEMA, "backend": name, "players": players });
    Ok(as_json(StatusCode::OK, &answer))
}

async fn reload(
    State(state): State<AdminState>,
    Extension(visitor): Extension<Visitor>,
    uri: Uri,
) -> Response {
    try_reload(&state, &visitor, &uri).await.unwrap_or_else(IntoResponse::into_response)
}

async fn try_reload(state: &AdminState, visitor: &Visitor, uri: &Uri) -> Result<Response, Refusal> {
    let query = Query::of(uri, &["dry_run"])?;
    let is_dry = query.read("dry_run", "1", |text| (text == "1").then_some(()))?.is_some();
    note(visitor, if is_dry { "dry run of a reload" } else { "reload" });
    Ok(match state.ask(|reply| Command::Reload { is_dry, reply }).await? {
        Ok(changes) => as_json(
            StatusCode::OK,
            &json!({ "schema": SCHEMA, "reloaded": !is_dry, "changes": changes }),
        ),
        Err(mistakes) => {
            let answer = json!({ "schema": SCHEMA, "reloaded": false, "mistakes": mistakes });
            as_json(StatusCode::UNPROCESSABLE_ENTITY, &answer)
        }
    })
}

/// Only through the control socket: a token that a page may change things with should start no
/// program.
async fn upgrade(
    State(state): State<AdminState>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    if !matches!(visitor, Visitor::Unix { .. }) {
        let why = "an upgrade is asked for through the control socket\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    note(&visitor, "upgrade");
    match state.ask(Command::Upgrade).await {
        Ok(Ok(handover::HandedOver { pid, pause_us })) => as_json(
            StatusCode::OK,
            &json!({ "schema": SCHEMA, "upgraded": true, "pid": pid, "pause_us": pause_us }),
        ),
        Ok(Err(why)) => {
            let answer = json!({ "schema": SCHEMA, "upgraded": false, "why": why });
            as_json(StatusCode::CONFLICT, &answer)
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Who asks for what goes into the log before it is done.
pub(super) fn note(visitor: &Visitor, what: &str) {
    tracing::info!(event = "asked", what, by = %visitor, "{visitor} asks for a {what}");
}

async fn nothing() -> Response {
    let paths = |changes: bool| {
        let routes =
            routes().into_iter().filter(move |(_, whom, _)| (*whom == For::Changing) == changes);
        routes.map(|(path, ..)| path).collect::<Vec<_>>().join(" ")
    };
    let text = format!("nothing is here; GET {}, POST {}\n", paths(false), paths(true));
    (StatusCode::NOT_FOUND, text).into_response()
}

impl AdminState {
    /// What `[admin]` says now.
    pub(super) fn rules(&self) -> Option<Arc<Admin>> {
        self.view.live().admin.clone()
    }

    /// Where snapshots are taken.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The same, for what outlives the request.
    pub(super) fn shared_view(&self) -> Arc<View> {
        Arc::clone(&self.view)
    }

    /// A place for a trace, where one is free.
    pub(super) fn trace_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.traces).try_acquire_owned().ok()
    }

    /// A place for a capture, where one is free.
    pub(super) fn capture_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.captures).try_acquire_owned().ok()
    }

    /// A page that takes some time to make.
    async fn make(&self, render: impl FnOnce(&Snapshot<'_>) -> String) -> String {
        let _turn = self.turn.acquire().await.expect("the semaphore is never closed");
        // What has come meanwhile goes first.
        tokio::task::yield_now().await;
        render(&self.view.snapshot())
    }

    /// Has the control thread do something, and waits for its answer.
    pub(super) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Refusal> {
        let stopping = || (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

/// `detail` is what is worth knowing either way, as lines.
fn verdict(verdict: Result<(), String>, detail: &str) -> Response {
    match verdict {
        Ok(()) => (StatusCode::OK, format!("ok\n{detail}")).into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n{detail}")).into_response(),
    }
}

pub(super) fn as_json(status: StatusCode, answer: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], format!("{answer}\n")).into_response()
}

/// A drain is over after a day at the most.
pub(super) const DEADLINE_MAX_MS: u64 = 24 * 60 * 60 * 1000;

const JSON: &str = "application/json";
