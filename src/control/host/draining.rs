//! The end of an agent, which waits for players to leave, and how it is called off.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;

use super::Shared;
use crate::control::http::{DEADLINE_MAX_MS, as_json, note};
use crate::control::query::Query;
use crate::control::status::SCHEMA;
use crate::control::web::{Reply, Visit};

/// Whether the agent waits for its end.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When that is, at the latest, on the agent's clock.
    until_ns: Option<u64>,
    /// Who has sent a signal waits for the end.
    is_by_signal: bool,
}

/// `POST /drain`, as at a gateway.
pub(super) async fn drain(visit: Visit<Arc<Shared>>) -> Reply {
    let Visit { site: shared, visitor, uri } = &visit;
    let query = Query::of(uri, &["deadline_ms"])?;
    let deadline = query.read("deadline_ms", "milliseconds, at most a day", |text| {
        text.parse().ok().filter(|ms| *ms <= DEADLINE_MAX_MS).map(Duration::from_millis)
    })?;
    note(visitor, "drain");
    let (sessions, left_ms) = shared.begin_drain(deadline);
    let answer =
        json!({ "schema": SCHEMA, "state": "draining", "sessions": sessions, "left_ms": left_ms });
    Ok(as_json(StatusCode::OK, &answer))
}

/// `POST /undrain`, as at a gateway.
pub(super) async fn undrain(visit: Visit<Arc<Shared>>) -> Reply {
    let Visit { site: shared, visitor, .. } = visit;
    note(&visitor, "undrain");
    let was_draining = shared.end_drain();
    let was_draining = was_draining.map_err(|why| (StatusCode::CONFLICT, format!("{why}\n")))?;
    let answer = json!({ "schema": SCHEMA, "state": "serving", "was_draining": was_draining });
    Ok(as_json(StatusCode::OK, &answer))
}

impl Shared {
    fn drain(&self) -> MutexGuard<'_, Drain> {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it waits for its end.
    pub(super) fn is_draining(&self) -> bool {
        self.drain().until_ns.is_some()
    }

    /// Whether nobody plays any more, or the time is over.
    pub(super) fn has_drained(&self) -> bool {
        let is_over = |until_ns| self.agent.clock().now_ns() >= until_ns;
        self.drain().until_ns.is_some_and(is_over) || self.agent.view().players() == 0
    }

    /// Somebody has sent a signal, and waits for the end.
    pub(super) fn drain_by_signal(&self) {
        self.begin_drain(None);
        self.drain().is_by_signal = true;
    }

    /// Begins a drain, or gives one that is under way another deadline. How many players there are,
    /// and for how many milliseconds they may stay.
    fn begin_drain(&self, deadline: Option<Duration>) -> (usize, u64) {
        let players = self.agent.view().players();
        let now_ns = self.agent.clock().now_ns();
        let mut drain = self.drain();
        let until_ns = match (drain.until_ns, deadline) {
            (Some(until_ns), None) => until_ns,
            _ => {
                let left = deadline.unwrap_or(self.live().config.agent.drain_timeout);
                let left_ms = left.as_millis();
                tracing::info!(event = "drain_begin", players, "draining for {left_ms} ms at most");
                self.notifier.stopping(left);
                if let Some(member) = self.fleet.get() {
                    member.drain();
                }
                self.agent.drain(left);
                now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
            }
        };
        drain.until_ns = Some(until_ns);
        self.news.notify_one();
        (players, until_ns.saturating_sub(now_ns) / NS_PER_MS)
    }

    /// Takes a drain back. Not one that a signal has begun. Whether there was one.
    fn end_drain(&self) -> Result<bool, &'static str> {
        let mut drain = self.drain();
        if drain.is_by_signal {
            return Err("a signal has begun this drain, and whoever sent it waits for the end");
        }
        if drain.until_ns.take().is_none() {
            return Ok(false);
        }
        self.agent.undrain();
        if let Some(member) = self.fleet.get() {
            member.undrain();
        }
        self.notifier.ready();
        tracing::info!(event = "undrain", "players are taken in again");
        Ok(true)
    }
}

const NS_PER_MS: u64 = 1_000_000;
