//! The admin address: pages to read, and two buttons.
//!
//! Nobody is asked for a password, so it is meant for loopback or a management network; what is bounded here is the harm a
//! careless or hostile reader can do to the daemon. Connections are few (more wait in the kernel), a request's head has a
//! size and a deadline, a connection has an end, request bodies are not read, and all of it runs on the control thread,
//! which no packet passes. A browser's page from elsewhere cannot press the buttons: its requests carry an `Origin`, and
//! those are refused.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::reload::Outcome;
use super::view::View;
use super::{health, metrics, status};

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

/// The server, bound.
pub(super) struct Http {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

#[derive(Clone)]
struct Desk {
    view: Arc<View>,
    commands: mpsc::Sender<Command>,
}

impl Http {
    pub(super) async fn bind(
        address: SocketAddr,
        view: Arc<View>,
        commands: mpsc::Sender<Command>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .route("/status", get(show_status))
            .route("/metrics", get(show_metrics))
            .route("/drain", post(drain))
            .route("/reload", post(reload))
            .fallback(nothing)
            .with_state(Desk { view, commands });
        Ok(Self { listener, address, router })
    }

    /// The address that was bound.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves as long as the control thread runs.
    pub(super) async fn serve(self) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let place = Arc::clone(&places).acquire_owned().await;
            let place = place.expect("the semaphore is never closed");
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    tokio::spawn(converse(stream, self.router.clone(), place));
                }
                // Too few descriptors, or a peer that has gone again.
                Err(_) => tokio::time::sleep(ACCEPT_AGAIN_AFTER).await,
            }
        }
    }
}

async fn converse(stream: TcpStream, router: Router, _place: OwnedSemaphorePermit) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
}

async fn healthz(State(desk): State<Desk>) -> Response {
    verdict(health::is_healthy(&desk.view.snapshot()))
}

async fn readyz(State(desk): State<Desk>) -> Response {
    verdict(health::is_ready(&desk.view.snapshot()))
}

async fn show_status(State(desk): State<Desk>) -> Response {
    ([(header::CONTENT_TYPE, JSON)], status::render(&desk.view.snapshot())).into_response()
}

async fn show_metrics(State(desk): State<Desk>) -> Response {
    let page = metrics::render(&desk.view.snapshot());
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], page).into_response()
}

async fn drain(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    match desk.ask(&headers, Command::Drain).await {
        Ok(Draining { sessions, left_ms }) => {
            let answer = json!({ "state": "draining", "sessions": sessions, "left_ms": left_ms });
            as_json(StatusCode::OK, &answer)
        }
        Err(refusal) => refusal,
    }
}

async fn reload(State(desk): State<Desk>, headers: HeaderMap) -> Response {
    match desk.ask(&headers, Command::Reload).await {
        Ok(Ok(changes)) => {
            as_json(StatusCode::OK, &json!({ "reloaded": true, "changes": changes }))
        }
        Ok(Err(mistakes)) => {
            let answer = json!({ "reloaded": false, "mistakes": mistakes });
            as_json(StatusCode::UNPROCESSABLE_ENTITY, &answer)
        }
        Err(refusal) => refusal,
    }
}

async fn nothing() -> Response {
    let paths = "nothing is here; GET /metrics /healthz /readyz /status, POST /drain /reload\n";
    (StatusCode::NOT_FOUND, paths).into_response()
}

impl Desk {
    /// Has the control thread do something, and waits for its answer.
    async fn ask<T>(
        &self,
        headers: &HeaderMap,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, Response> {
        if headers.contains_key(header::ORIGIN) {
            let why = "requests from web pages are refused\n";
            return Err((StatusCode::FORBIDDEN, why).into_response());
        }
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

/// A scraper, an operator or two, and their tools. The largest page, of 128 workers and hundreds of backends, is about
/// 3 MiB, so even readers that never read hold little.
const CONNECTIONS_MAX: usize = 16;

/// hyper's smallest buffer, far more than any of our requests.
const HEAD_BYTES_MAX: usize = 8192;

/// For a request's head, and between two requests of one connection.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// For all requests of one connection together.
const CONNECTION_TIMEOUT: Duration = Duration::from_mins(10);

const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);
