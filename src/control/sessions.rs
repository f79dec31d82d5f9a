//! `GET /sessions` and `POST /kick`: who is here, and out with one of them.
//!
//! Both ask all workers, who look through their tables beside their players' packets, and wait for
//! the answers.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::http::{AdminState, Command};
use super::view::Snapshot;
use crate::config::values::number;
use ringgate_gate::{
    BackendId, Ended, Found, Prefix, SessionInfo, Setup, Survey, Wanted, WorkerId,
};
use ringgate_process::pages::{NotDone, Query, Reply, Visit, as_json, note, wrong};

#[derive(Serialize)]
struct Page<'a> {
    /// How many there are like that.
    count: u64,
    /// Every worker has answered.
    complete: bool,
    sessions: Vec<Row<'a>>,
}

#[derive(Serialize)]
pub(super) struct Row<'a> {
    /// What links know it by.
    session: String,
    client_id: u64,
    /// The same for readers whose numbers are floating.
    client_id_text: String,
    listener: &'a str,
    backend: &'a str,
    slot: u32,
    /// Where the player is.
    address: SocketAddr,
    /// Where its udp server sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    link_address: Option<SocketAddr>,
    worker: u16,
    silent_ms: u64,
    /// Silence after which it is given up; 0 for never.
    timeout_ms: u64,
}

/// `GET /sessions?client_id=&session=&address=&backend=&limit=`.
pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, uri, .. } = &visit;
    let query = Query::of(uri, &["client_id", "client", "session", "address", "backend", "limit"])?;
    let limit = query.read("limit", "a number up to 10000", |text| {
        text.parse().ok().filter(|limit| *limit <= LIMIT_MAX)
    })?;
    let place = query.text("address").and_then(|text| text.parse::<SocketAddr>().ok());
    let wanted = wanted(&state.view().live().setup, &query)?;
    let (found, complete) = ask(state, wanted, None, limit.unwrap_or(LIMIT)).await?;
    let snapshot = state.view().snapshot();
    let rows = found.sessions.iter().map(|(worker, info)| row(&snapshot, *worker, info));
    let is_at = |row: &Row<'_>| {
        place.is_none_or(|place| row.address == place || row.link_address == Some(place))
    };
    let sessions: Vec<_> = rows.filter(is_at).collect();
    let count = if place.is_some() { sessions.len() as u64 } else { found.count };
    let page = Page { count, complete, sessions };
    let page = serde_json::to_value(&page).expect("plain data");
    Ok(as_json(StatusCode::OK, page))
}

/// `POST /kick?client_id=` or `?session=`.
pub(super) async fn kick(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, visitor, uri } = &visit;
    let query = Query::of(uri, &["client_id", "client", "session"])?;
    let wanted = wanted(&state.view().live().setup, &query)?;
    let whom = match (wanted.client_id, wanted.session) {
        (Some(client_id), _) => format!("client {client_id}"),
        (None, Some(session)) => format!("session {session:016x}"),
        (None, None) => return Err(wrong("expected client_id=ID or session=ID")),
    };
    note(visitor, &format!("kick of {whom}"));
    let (found, complete) = ask(state, wanted, Some(Ended::ByOperator), 0).await?;
    let ended = found.count;
    tracing::info!(
        event = "kicked",
        whom,
        ended,
        by = %visitor,
        "ended {ended} sessions of {whom}, as {visitor} has asked"
    );
    Ok(as_json(StatusCode::OK, json!({ "ended": ended, "complete": complete })))
}

pub(super) fn wanted(setup: &Setup, query: &Query) -> Result<Wanted, NotDone> {
    let client_id = client_id(query)?;
    let session =
        query.read("session", "16 hex digits", |text| u64::from_str_radix(text, 16).ok())?;
    let address = query.read("address", "an address, a prefix or IP:port", |text| {
        let place = text.parse::<SocketAddr>().ok();
        let all =
            |place: SocketAddr| Prefix::new(place.ip(), if place.is_ipv4() { 32 } else { 128 });
        place.map_or_else(|| text.parse().ok(), all)
    })?;
    let backend = query.text("backend").map(|name| backend_named(setup, name)).transpose()?;
    Ok(Wanted { client_id, session, address, backend, ..Wanted::default() })
}

/// The player whom `client_id` names, or `client`, as releases before 0.2 call it.
pub(super) fn client_id(query: &Query) -> Result<Option<u64>, NotDone> {
    let name = if query.text("client_id").is_some() { "client_id" } else { "client" };
    query.read(name, "a client id", number)
}

/// The backend that has this name now.
pub(super) fn backend_named(setup: &Setup, name: &str) -> Result<BackendId, NotDone> {
    let mut known = setup.backends.pairs().filter(|(_, backend)| !backend.retired);
    let found = known.find_map(|(id, backend)| (backend.name == name).then_some(id));
    found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no backend {name:?}\n")))
}

/// Asks all workers, and waits until they have answered, or long enough. Returns whether all have.
pub(super) async fn ask(
    state: &AdminState,
    wanted: Wanted,
    ends: Option<Ended>,
    limit: usize,
) -> Result<(Found, bool), NotDone> {
    let survey = state.ask(|reply| Command::Survey { wanted, ends, limit, reply }).await?;
    Ok(answer(&survey).await)
}

/// What has become of a question.
pub(super) async fn answer(survey: &Survey) -> (Found, bool) {
    for _ in 0..TRIES {
        if survey.is_done() {
            break;
        }
        tokio::time::sleep(TRY_EVERY).await;
    }
    (survey.found(), survey.is_done())
}

pub(super) fn row<'a>(snapshot: &'a Snapshot<'_>, worker: WorkerId, info: &SessionInfo) -> Row<'a> {
    let setup = &snapshot.live.setup;
    let port = snapshot.reports.get(usize::from(worker.0)).and_then(|report| report.link_port);
    let link_address = info.link_address.zip(port);
    Row {
        session: format!("{:016x}", info.id),
        client_id: info.client_id,
        client_id_text: info.client_id.to_string(),
        listener: setup.listeners.get(info.listener).map_or("", |it| &it.name),
        backend: setup.backends.get(info.backend).map_or("", |it| &it.name),
        slot: info.slot.0,
        address: info.address.into(),
        link_address: link_address.map(|(local, port)| SocketAddr::new(local.ip(), port)),
        worker: worker.0,
        silent_ms: snapshot.now_ns.saturating_sub(info.heard_ns) / NS_PER_MS,
        timeout_ms: info.timeout_ns / NS_PER_MS,
    }
}

/// Sessions that are shown where the request does not say.
const LIMIT: usize = 100;
pub(super) const LIMIT_MAX: usize = 10_000;

/// Ten million sessions take a worker some five thousand turns.
const TRIES: u32 = 5000;
const TRY_EVERY: Duration = Duration::from_millis(2);

const NS_PER_MS: u64 = 1_000_000;
