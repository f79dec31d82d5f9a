//! `GET /sessions` and `POST /kick`: who is here, and out with one of them.
//!
//! Both ask all workers, who look through their tables beside their players' packets, and wait for
//! the answers.

use std::net::SocketAddr;
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use super::http::{AdminState, Command};
use super::view::Snapshot;
use crate::config::values::number;
use ringgate_gate::{
    Backend, BackendId, Ended, Found, Prefix, SessionInfo, Setup, Survey, Wanted, WorkerId,
};
use ringgate_process::pages::{NotDone, Query, Reply, Visit, as_json, note, wrong};

/// `GET /sessions?client_id=&session=&address=&backend=&limit=`.
pub(super) async fn show(visit: Visit<AdminState>) -> Reply {
    let Visit { site: state, uri, .. } = &visit;
    let query = Query::of(uri, &["client_id", "client", "session", "address", "backend", "limit"])?;
    let limit = query.read("limit", "a number up to 10000", |text| {
        text.parse().ok().filter(|limit| *limit <= LIMIT_MAX)
    })?;
    let limit = limit.unwrap_or(LIMIT);
    let place = place(&query);
    let wanted = wanted(&state.view().live().setup, &query)?;
    // A few are at one place for several workers' udp servers.
    let asked = if place.is_some() { LIMIT_MAX } else { limit };
    let (found, complete) = ask(state, wanted, None, asked).await?;
    let snapshot = state.view().snapshot();
    let is_at = |(worker, info): &&(WorkerId, SessionInfo)| {
        let (address, link_address) = addresses(&snapshot, *worker, info);
        place.is_none_or(|place| address == place || link_address == Some(place))
    };
    let there: Vec<_> = found.sessions.iter().filter(is_at).collect();
    let rows = there.iter().take(limit);
    let sessions: Vec<_> = rows.map(|(worker, info)| row(&snapshot, *worker, info)).collect();
    // How many there are like that; `complete` where every worker has answered.
    let count = if place.is_some() { there.len() as u64 } else { found.count };
    let page = json!({ "count": count, "complete": complete, "sessions": sessions });
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
    let place = place(query);
    let address = query.read("address", "an address, a prefix or IP:port", |text| {
        let all =
            |place: SocketAddr| Prefix::new(place.ip(), if place.is_ipv4() { 32 } else { 128 });
        place.map_or_else(|| text.parse().ok(), all)
    })?;
    let port = place.map(|it| it.port());
    let backend = query.text("backend").map(|name| backend_named(setup, name)).transpose()?;
    Ok(Wanted { client_id, session, address, port, backend, ..Wanted::default() })
}

/// Where the player is to be, if that is said with a port.
fn place(query: &Query) -> Option<SocketAddr> {
    query.text("address").and_then(|text| text.parse().ok())
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

/// The same where one that is away is meant, too, if it drains: it would drain when it is back.
pub(super) fn drained_named(setup: &Setup, name: &str) -> Result<BackendId, NotDone> {
    let is_away = |it: &Backend| it.retired && it.drained && it.name == name;
    let away = setup.backends.pairs().find_map(|(id, it)| is_away(it).then_some(id));
    backend_named(setup, name).or_else(|not_there| away.ok_or(not_there))
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

/// What `/sessions` and the beginning of a trace show of a session.
pub(super) fn row(snapshot: &Snapshot<'_>, worker: WorkerId, info: &SessionInfo) -> Value {
    let setup = &snapshot.live.setup;
    let (address, link_address) = addresses(snapshot, worker, info);
    let mut row = json!({
        // What links know it by.
        "session": format!("{:016x}", info.id),
        "client_id": info.client_id,
        // The same for readers whose numbers are floating.
        "client_id_text": info.client_id.to_string(),
        "listener": setup.listeners.get(info.listener).map_or("", |it| &it.name),
        "backend": setup.backends.get(info.backend).map_or("", |it| &it.name),
        "slot": info.slot.0,
        "address": address,
        "worker": worker.0,
        "silent_ms": snapshot.now_ns.saturating_sub(info.heard_ns) / NS_PER_MS,
        // Silence after which it is given up; 0 for never.
        "timeout_ms": info.timeout_ns / NS_PER_MS,
    });
    if let Some(link_address) = link_address {
        row["link_address"] = json!(link_address);
    }
    row
}

/// Where the player is, and where its udp server sees it.
fn addresses(
    snapshot: &Snapshot<'_>,
    worker: WorkerId,
    info: &SessionInfo,
) -> (SocketAddr, Option<SocketAddr>) {
    let report = snapshot.reports.get(usize::from(worker.0));
    let link_address = info.link_address.zip(report.and_then(|report| report.link_port));
    let link_address = link_address.map(|(local, port)| SocketAddr::new(local.ip(), port));
    (info.address.into(), link_address)
}

/// Sessions that are shown where the request does not say.
const LIMIT: usize = 100;
pub(super) const LIMIT_MAX: usize = 10_000;

/// Ten million sessions take a worker some five thousand turns.
const TRIES: u32 = 5000;
const TRY_EVERY: Duration = Duration::from_millis(2);

const NS_PER_MS: u64 = 1_000_000;
