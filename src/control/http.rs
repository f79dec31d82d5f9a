//! The pages, and what changes the gateway: the same for the admin address and the control socket.
//!
//! `access` says who may do what, `door` how many connections there are and for how long. What is
//! left here is small on purpose: request bodies are not read, and all of it runs on the control
//! thread, which no packet passes.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::{StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::access::{self, Visitor};
use super::reload::Outcome;
use super::status::SCHEMA;
use super::view::{Snapshot, View};
use super::{health, metrics, page, status};
use crate::config::Admin;

/// What an operator asks of the control thread.
pub(super) enum Command {
    /// Take nobody in any more, and end when everybody has left.
    Drain(oneshot::Sender<Draining>),
    /// Read the config again.
    Reload(oneshot::Sender<Outcome>),
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
}

/// All pages.
pub(super) fn router(view: Arc<View>, commands: mpsc::Sender<Command>) -> Router {
    let state = AdminState { view, commands, turn: Arc::new(Semaphore::new(1)) };
    Router::new()
        .route("/", get(page::show))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/status", get(show_status))
        .route("/metrics", get(show_metrics))
        .route("/drain", post(drain).route_layer(from_fn(access::may_change)))
        .route("/reload", post(reload).route_layer(from_fn(access::may_change)))
        .fallback(nothing)
        .layer(from_fn_with_state(state.clone(), access::admit))
        .with_state(state)
}

async fn healthz(State(state): State<AdminState>) -> Response {
    verdict(health::is_healthy(&state.view.snapshot()))
}

async fn readyz(State(state): State<AdminState>, uri: Uri) -> Response {
    let snapshot = state.view.snapshot();
    let mut asked = uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("listener=")) {
        None => verdict(health::is_ready(&snapshot)),
        Some(name) => match health::is_listener_ready(&snapshot, name) {
            Some(ready) => verdict(ready),
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
) -> Response {
    note(&visitor, "drain");
    match state.ask(Command::Drain).await {
        Ok(Draining { sessions, left_ms }) => {
            let answer = json!({ "schema": SCHEMA, "state": "draining", "sessions": sessions, "left_ms": left_ms });
            as_json(StatusCode::OK, &answer)
        }
        Err(refusal) => refusal,
    }
}

async fn reload(
    State(state): State<AdminState>,
    Extension(visitor): Extension<Visitor>,
) -> Response {
    note(&visitor, "reload");
    match state.ask(Command::Reload).await {
        Ok(Ok(changes)) => as_json(
            StatusCode::OK,
            &json!({ "schema": SCHEMA, "reloaded": true, "changes": changes }),
        ),
        Ok(Err(mistakes)) => {
            let answer = json!({ "schema": SCHEMA, "reloaded": false, "mistakes": mistakes });
            as_json(StatusCode::UNPROCESSABLE_ENTITY, &answer)
        }
        Err(refusal) => refusal,
    }
}

/// Who asks for what goes into the log before it is done.
fn note(visitor: &Visitor, what: &str) {
    tracing::info!(event = "asked", what, by = %visitor, "{visitor} asks for a {what}");
}

async fn nothing() -> Response {
    let paths = "nothing is here; GET / /metrics /healthz /readyz /status, POST /drain /reload\n";
    (StatusCode::NOT_FOUND, paths).into_response()
}

impl AdminState {
    /// What `[admin]` says now.
    pub(super) fn rules(&self) -> Option<Arc<Admin>> {
        self.view.live().admin.clone()
    }

    /// A page that takes some time to make.
    async fn make(&self, render: impl FnOnce(&Snapshot<'_>) -> String) -> String {
        let _turn = self.turn.acquire().await.expect("the semaphore is never closed");
        // What has come meanwhile goes first.
        tokio::task::yield_now().await;
        render(&self.view.snapshot())
    }

    /// Has the control thread do something, and waits for its answer.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Response> {
        let stopping = || (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())
    }
}

fn verdict(verdict: Result<(), String>) -> Response {
    match verdict {
        Ok(()) => (StatusCode::OK, "ok\n").into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

fn as_json(status: StatusCode, answer: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], format!("{answer}\n")).into_response()
}

const JSON: &str = "application/json";
