//! The pages, and what changes the gateway: the same for the admin address and the control socket.
//!
//! `access` says who may do what, `door` how many connections there are and for how long, `web`
//! what a page is. All of it runs on the control thread, which no packet passes.

use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::http::request::Parts;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::access::{self, Right, Visitor};
use super::denying::{Changed, Wish};
use super::fresh::{self, Rounds};
use super::query::Query;
use super::reload::Outcome;
use super::status::SCHEMA;
use super::view::{Snapshot, View};
use super::web::{
    self, For, Page, Pages, Refusal, Reply, Response, Site, Visit, text, typed, verdict,
};
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

impl Site for AdminState {
    fn pages() -> Vec<Page<Self>> {
        vec![
            Page::new("/", For::Everybody, page::show),
            Page::new("/metrics", For::Everybody, show_metrics),
            Page::new("/healthz", For::Everybody, healthz),
            Page::new("/readyz", For::Everybody, readyz),
            Page::new("/status", For::Everybody, show_status),
            Page::new("/sessions", For::Trusted, sessions::show),
            Page::new("/trace", For::Trusted, trace::show),
            Page::new("/capture", For::Trusted, capture::show),
            Page::new("/denied", For::Trusted, deny::show),
            Page::new("/drain", For::Changing, drain),
            Page::new("/undrain", For::Changing, undrain),
            Page::new("/kick", For::Changing, sessions::kick),
            Page::new("/deny", For::Changing, deny::deny),
            Page::new("/allow", For::Changing, deny::allow),
            Page::new("/reload", For::Changing, reload),
            Page::new("/upgrade", For::Changing, upgrade),
            Page::new("/fleet/confirm", For::Changing, membership::confirm),
        ]
    }

    fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, access::Refusal> {
        access::judge(self.rules().as_deref(), visitor, head)
    }

    async fn publish(&self) -> Vec<String> {
        self.rounds.join(fresh::of_gateway(self)).await
    }
}

/// All pages.
pub(super) fn pages(view: Arc<View>, commands: mpsc::Sender<Command>) -> Pages {
    let places = |count| Arc::new(Semaphore::new(count));
    let (traces, captures) = (places(trace::TRACES_MAX), places(capture::CAPTURES_MAX));
    let (turn, rounds) = (places(1), Arc::default());
    web::pages(AdminState { view, commands, turn, rounds, traces, captures })
}

async fn healthz(visit: Visit<AdminState>) -> Reply {
    verdict(health::is_healthy(&visit.site.view.snapshot()), "")
}

async fn readyz(Visit { site: state, uri, .. }: Visit<AdminState>) -> Reply {
    let snapshot = state.view.snapshot();
    let mut asked = uri.query().unwrap_or_default().split('&');
    match asked.find_map(|pair| pair.strip_prefix("listener=")) {
        None => {
            let detail = health::closed_listeners(&snapshot) + &membership::detail(&snapshot);
            verdict(health::is_ready(&snapshot), &detail)
        }
        Some(name) => match health::is_listener_ready(&snapshot, name) {
            Some(ready) => verdict(ready, &membership::detail(&snapshot)),
            None => Err((StatusCode::NOT_FOUND, "there is no listener of that name\n".to_owned())),
        },
    }
}

async fn show_status(visit: Visit<AdminState>) -> Reply {
    Ok(typed(StatusCode::OK, JSON, visit.site.make(status::render).await))
}

async fn show_metrics(visit: Visit<AdminState>) -> Reply {
    let page = visit.site.make(metrics::render).await;
    Ok(typed(StatusCode::OK, metrics::CONTENT_TYPE, page))
}

async fn drain(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
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

async fn undrain(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
    let query = Query::of(uri, &["backend"])?;
    let Some(name) = query.text("backend") else {
        note(visitor, "undrain");
        return Ok(match state.ask(Command::Undrain).await? {
            Ok(was_draining) => as_json(
                StatusCode::OK,
                &json!({ "schema": SCHEMA, "state": "serving", "was_draining": was_draining }),
            ),
            Err(why) => text(StatusCode::CONFLICT, format!("{why}\n")),
        });
    };
    let backend = sessions::backend_named(state, name)?;
    note(visitor, &format!("undrain of backend {name}"));
    let undrain = |reply| Command::DrainBackend { backend, drained: false, deadline: None, reply };
    let players = state.ask(undrain).await?;
    let answer = json!({ "schema": SCHEMA, "backend": name, "players": players });
    Ok(as_json(StatusCode::OK, &answer))
}

async fn reload(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
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
async fn upgrade(Visit { site: state, visitor, .. }: Visit<AdminState>) -> Reply {
    if !matches!(visitor, Visitor::Unix { .. }) {
        let why = "an upgrade is asked for through the control socket\n";
        return Err((StatusCode::FORBIDDEN, why.to_owned()));
    }
    note(&visitor, "upgrade");
    Ok(match state.ask(Command::Upgrade).await? {
        Ok(handover::HandedOver { pid, pause_us }) => as_json(
            StatusCode::OK,
            &json!({ "schema": SCHEMA, "upgraded": true, "pid": pid, "pause_us": pause_us }),
        ),
        Err(why) => {
            let answer = json!({ "schema": SCHEMA, "upgraded": false, "why": why });
            as_json(StatusCode::CONFLICT, &answer)
        }
    })
}

/// Who asks for what goes into the log before it is done.
pub(super) fn note(visitor: &Visitor, what: &str) {
    tracing::info!(event = "asked", what, by = %visitor, "{visitor} asks for a {what}");
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

pub(super) fn as_json(status: StatusCode, answer: &serde_json::Value) -> Response {
    typed(status, JSON, format!("{answer}\n"))
}

/// A drain is over after a day at the most.
pub(super) const DEADLINE_MAX_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) const JSON: &str = "application/json";
