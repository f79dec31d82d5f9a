//! The end of an agent, which waits for players to leave, and how it is called off.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::Shared;
use ringgate_process::handover::{Recall, drains};
use ringgate_process::pages::asked::Draining;

/// Whether the agent waits for its end.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// When that is, at the latest, on the agent's clock.
    until_ns: Option<u64>,
    /// Who has sent a signal waits for the end.
    is_by_signal: bool,
    /// What ends the conversation with a process that prepares to go on.
    recall: Option<Recall>,
}

/// A drain that nobody can begin or take back meanwhile, nor a hand-over.
pub(super) type DrainHeld<'a> = MutexGuard<'a, Drain>;

impl Drain {
    /// Nobody takes over from an agent that drains.
    pub(super) fn check_none(&self) -> Result<(), String> {
        self.until_ns.map_or(Ok(()), |_| Err(self.why_not_handed_over()))
    }

    fn why_not_handed_over(&self) -> String {
        drains("agent", self.is_by_signal)
    }

    /// Notes what a drain has to end first, once there is none.
    pub(super) fn set_recall(&mut self, recall: Option<Recall>) {
        self.recall = recall;
    }
}

impl Shared {
    /// Behind the barrier of a hand-over this waits for its end.
    pub(super) fn drain(&self) -> DrainHeld<'_> {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it waits for its end.
    pub(super) fn is_draining(&self) -> bool {
        self.drain().until_ns.is_some()
    }

    /// For how many milliseconds it waits for its end, if it does.
    pub(super) fn drain_left_ms(&self) -> Option<u64> {
        let left_ns = self.drain().until_ns?.saturating_sub(self.agent.clock().now_ns());
        Some(Duration::from_nanos(left_ns).as_millis() as u64)
    }

    /// Whether it has waited for its end, and nobody plays any more, or the time is over. Nobody
    /// prepares to go on by then: who did was recalled.
    pub(super) fn has_drained(&self) -> bool {
        let Some(until_ns) = self.drain().until_ns else { return false };
        if self.is_being_handed_over() {
            return false;
        }
        self.agent.clock().now_ns() >= until_ns || self.agent.view().players() == 0
    }

    /// Somebody has sent a signal, and waits for the end.
    pub(super) fn drain_by_signal(&self) {
        self.drain().is_by_signal = true;
        // Where another process goes on, that is told of the signal.
        self.begin_drain(None);
    }

    /// Whether somebody has sent a signal to end.
    pub(super) fn is_told_to_end(&self) -> bool {
        self.drain().is_by_signal
    }

    /// Begins a drain, or gives one that is under way another deadline. How many players there are,
    /// and for how many milliseconds they may stay; `None` where another process goes on.
    pub(super) fn begin_drain(&self, deadline: Option<Duration>) -> Option<Draining> {
        let players = self.agent.view().players();
        let now_ns = self.agent.clock().now_ns();
        let mut drain = self.drain();
        if self.is_handed_over() {
            return None;
        }
        let until_ns = match (drain.until_ns, deadline) {
            (Some(until_ns), None) => until_ns,
            _ => {
                let left = deadline.unwrap_or(self.live().config.agent.drain_timeout);
                let left_ms = left.as_millis();
                tracing::info!(event = "drain_begin", players, "draining for {left_ms} ms at most");
                if let Some(member) = self.fleet.get() {
                    member.drain();
                }
                self.agent.drain(left);
                now_ns.saturating_add(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX))
            }
        };
        drain.until_ns = Some(until_ns);
        if let Some(recall) = &drain.recall {
            recall.recall(drain.why_not_handed_over());
        }
        let left = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        self.notifier.draining(left, drain.is_by_signal);
        self.news.notify_one();
        Some(Draining { sessions: players as u64, left_ms: left.as_millis() as u64 })
    }

    /// Takes a drain back. Not one that a signal has begun. Whether there was one; `None` where
    /// another process goes on.
    pub(super) fn end_drain(&self) -> Option<Result<bool, &'static str>> {
        let mut drain = self.drain();
        if self.is_handed_over() {
            return None;
        }
        if drain.is_by_signal {
            let why = "a signal has begun this drain, and whoever sent it waits for the end";
            return Some(Err(why));
        }
        if drain.until_ns.take().is_none() {
            return Some(Ok(false));
        }
        self.agent.undrain();
        if let Some(member) = self.fleet.get() {
            member.undrain();
        }
        self.notifier.ready();
        tracing::info!(event = "undrain", "players are taken in again");
        Some(Ok(true))
    }
}
