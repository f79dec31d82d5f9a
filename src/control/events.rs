//! What an operator is told in the log without having asked: what has changed since the last look.
//!
//! Workers count, and never wait for a log. Once a second the control thread compares what they
//! have published with what it has told, so however much happens, a line for each kind of event
//! and second is all that is written. docs/reference/logs.md lists the events with their fields.

use std::collections::{HashMap, HashSet};

use super::view::Snapshot;
use ringgate_core::drops::DropReason;
use ringgate_gate::{BackendId, Ended, Front, LinkKind, LinkRefusal, ListenerId, Phase, Setup};
use ringgate_worker::handover::AlreadyLogged;

/// What the log knows.
#[derive(Default)]
pub(super) struct Watcher {
    next_ns: u64,
    backends: HashMap<(BackendId, String), bool>,
    /// Backends whose processes take nobody new by their own word.
    closed: HashSet<(BackendId, String)>,
    full: HashMap<(ListenerId, String), bool>,
    ended: [u64; Ended::COUNT],
    links: [u64; LinkRefusal::COUNT],
    refused: HashMap<DropReason, Refused>,
}

/// Players who were refused for one reason.
#[derive(Default)]
struct Refused {
    told: u64,
    told_ns: Option<u64>,
}

impl Watcher {
    /// Whether it is time to look again.
    pub(super) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// What was told, for the process after this one.
    pub(super) fn given(&self) -> AlreadyLogged {
        let counted = |name: &str, count: u64| (name.to_owned(), count);
        let Self { next_ns: _, backends, closed, full, ended, links, refused } = self;
        AlreadyLogged {
            closed: closed.iter().map(|(_, name)| name.clone()).collect(),
            backends: backends.iter().map(|((_, name), is_up)| (name.clone(), *is_up)).collect(),
            full: full.iter().map(|((_, name), is_full)| (name.clone(), *is_full)).collect(),
            links: LinkRefusal::ALL.map(|why| counted(why.name(), links[why as usize])).into(),
            ended: Ended::ALL.map(|why| counted(why.name(), ended[why as usize])).into(),
            refused: refused
                .iter()
                .map(|(why, it)| (why.name().to_owned(), it.told, it.told_ns))
                .collect(),
        }
    }

    /// Goes on where the process before this one has stopped. What has another name here is told as
    /// if it were new.
    pub(super) fn go_on(&mut self, given: &AlreadyLogged, setup: &Setup) {
        let AlreadyLogged { backends, closed, full, links, ended, refused } = given;
        let backends: HashMap<_, _> = backends.iter().map(|(name, is_up)| (name, *is_up)).collect();
        let closed: HashSet<_> = closed.iter().collect();
        for (id, backend) in setup.backends.pairs().filter(|(_, backend)| !backend.retired) {
            if let Some(is_up) = backends.get(&backend.name) {
                self.backends.insert((id, backend.name.clone()), *is_up);
            }
            if closed.contains(&backend.name) {
                self.closed.insert((id, backend.name.clone()));
            }
        }
        for (id, listener) in setup.listeners.pairs() {
            if let Some((name, is_full)) = full.iter().find(|(name, _)| *name == listener.name) {
                self.full.insert((id, name.clone()), *is_full);
            }
        }
        let count_of = |counts: &[(String, u64)], name: &str| {
            counts.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
        };
        self.links = LinkRefusal::ALL.map(|why| count_of(links, why.name()));
        self.ended = Ended::ALL.map(|why| count_of(ended, why.name()));
        for &why in TOLD_REFUSALS {
            if let Some((_, told, told_ns)) = refused.iter().find(|(name, ..)| name == why.name()) {
                self.refused.insert(why, Refused { told: *told, told_ns: *told_ns });
            }
        }
    }

    /// Writes what is new.
    pub(super) fn tell(&mut self, snapshot: &Snapshot<'_>) {
        self.next_ns = snapshot.now_ns + EVERY_NS;
        self.forget_gone(&snapshot.live.setup);
        self.tell_backends(snapshot);
        self.tell_intakes(snapshot);
        self.tell_listeners(snapshot);
        self.tell_links(snapshot);
        self.tell_ended(snapshot);
        self.tell_refused(snapshot);
    }

    /// What has not been told of refusals, before the daemon ends.
    pub(super) fn tell_last(&mut self, snapshot: &Snapshot<'_>) {
        self.refused.values_mut().for_each(|refused| refused.told_ns = None);
        self.tell(snapshot);
    }

    /// Names come and go in a fleet, each process's its own: what is over is told of no more.
    fn forget_gone(&mut self, setup: &Setup) {
        let has = |(id, name): &(BackendId, String)| {
            setup.backends.get(*id).is_some_and(|it| !it.retired && it.name == *name)
        };
        self.backends.retain(|it, _| has(it));
        self.closed.retain(has);
        self.full.retain(|(id, name), _| {
            let listener = setup.listeners.get(*id);
            listener.is_some_and(|it| it.phase != Phase::Closed && it.name == *name)
        });
    }

    fn tell_backends(&mut self, snapshot: &Snapshot<'_>) {
        let workers = snapshot.reports.len();
        let setup = &snapshot.live.setup;
        for (id, backend) in setup.backends.pairs().filter(|(_, backend)| !backend.retired) {
            let workers_up = snapshot.workers_up(id);
            let is_up = workers_up == workers;
            let told = self.backends.get(&(id, backend.name.clone())).copied();
            let is_starting = told.is_none() && snapshot.now_ns < STARTING_NS;
            if told == Some(is_up) || is_starting && !is_up {
                continue;
            }
            self.backends.insert((id, backend.name.clone()), is_up);
            let (name, players) = (&backend.name, snapshot.players[id.index()]);
            if is_up {
                tracing::info!(
                    event = "backend_up",
                    backend = name,
                    players,
                    workers,
                    "backend {name} is up"
                );
            } else {
                let why = why_down(snapshot, id);
                tracing::warn!(
                    event = "backend_down",
                    backend = name,
                    players,
                    workers,
                    workers_up,
                    why,
                    "backend {name} is down: {why}; {players} players wait for it"
                );
            }
        }
    }

    /// Whether processes take players, by their own word on their links.
    fn tell_intakes(&mut self, snapshot: &Snapshot<'_>) {
        let setup = &snapshot.live.setup;
        for (id, backend) in setup.backends.pairs().filter(|(_, backend)| !backend.retired) {
            let (name, players) = (&backend.name, snapshot.players[id.index()]);
            let key = (id, name.clone());
            let is_closed = snapshot.is_closed(id);
            if is_closed == self.closed.contains(&key) {
                continue;
            }
            let (intake, what) = if is_closed {
                self.closed.insert(key);
                ("nobody", "takes nobody new, as it says itself")
            } else {
                self.closed.remove(&key);
                ("anybody", "does not say any more that it takes nobody")
            };
            tracing::info!(
                event = "backend_intake",
                backend = name,
                intake,
                players,
                "backend {name} {what}"
            );
        }
    }

    fn tell_listeners(&mut self, snapshot: &Snapshot<'_>) {
        let listeners = snapshot.live.setup.listeners.pairs();
        for (id, listener) in listeners.filter(|(_, it)| it.phase == Phase::Serving) {
            let (name, sessions_max) = (&listener.name, listener.sessions_max);
            let sessions = snapshot.sessions.get(id.index()).copied().unwrap_or_default();
            let key = (id, name.clone());
            let was_full = self.full.get(&key).copied().unwrap_or(false);
            // With some room between, or one player who comes and goes would fill the log.
            let is_full = sessions >= sessions_max
                || was_full && u64::from(sessions) * 10 >= u64::from(sessions_max) * 9;
            if is_full == was_full {
                continue;
            }
            self.full.insert(key, is_full);
            let listener = name;
            if is_full {
                tracing::warn!(
                    event = "listener_full",
                    listener,
                    sessions,
                    sessions_max,
                    "listener {name} is at its limit: newcomers are denied"
                );
            } else {
                tracing::info!(
                    event = "listener_has_room",
                    listener,
                    sessions,
                    sessions_max,
                    "listener {name} takes players again"
                );
            }
        }
    }

    fn tell_links(&mut self, snapshot: &Snapshot<'_>) {
        let totals = snapshot.totals().link_refusals;
        for why in LinkRefusal::ALL {
            let at = why as usize;
            let count = totals[at].saturating_sub(self.links[at]);
            self.links[at] = totals[at];
            if count == 0 {
                continue;
            }
            let last = snapshot.reports.iter().rev().find_map(|report| report.last_refused[at]);
            let (uid, gid) = (last.map(|last| last.uid), last.map(|last| last.gid));
            let pid = last.map(|last| last.pid).filter(|pid| *pid > 0);
            let whose = last.map_or(String::new(), |last| {
                format!(
                    ", the last of user {}, group {} and process {}",
                    last.uid, last.gid, last.pid
                )
            });
            let (reason, links) = (why.name(), if count == 1 { "link" } else { "links" });
            tracing::warn!(
                event = "link_refused",
                reason,
                count,
                uid,
                gid,
                pid,
                "closed {count} {links} of game processes: {reason}{whose}"
            );
        }
    }

    fn tell_ended(&mut self, snapshot: &Snapshot<'_>) {
        let totals = snapshot.totals().sessions_closed;
        for why in TOLD_ENDINGS {
            let at = why as usize;
            let count = totals[at].saturating_sub(self.ended[at]);
            self.ended[at] = totals[at];
            if count > 0 {
                let (reason, sessions) =
                    (why.name(), if count == 1 { "session" } else { "sessions" });
                tracing::warn!(
                    event = "sessions_ended",
                    reason,
                    count,
                    "ended {count} {sessions}: {reason}"
                );
            }
        }
    }

    /// The first refusal for a reason at once, and how many there were once a minute.
    fn tell_refused(&mut self, snapshot: &Snapshot<'_>) {
        let drops = snapshot.totals().drops;
        for &why in TOLD_REFUSALS {
            let total = drops.of(why);
            let refused = self.refused.entry(why).or_default();
            let is_quiet =
                refused.told_ns.is_some_and(|at_ns| snapshot.now_ns < at_ns + SUMMARY_EVERY_NS);
            let count = total.saturating_sub(refused.told);
            if count == 0 || is_quiet {
                continue;
            }
            (refused.told, refused.told_ns) = (total, Some(snapshot.now_ns));
            let reason = why.name();
            tracing::warn!(
                event = "refused",
                reason,
                count,
                total,
                "refused {count} times: {reason} (docs/reference/drop-reasons.md explains it; at most once a minute)"
            );
        }
    }
}

fn why_down(snapshot: &Snapshot<'_>, id: BackendId) -> String {
    let setup = &snapshot.live.setup;
    let backend = &setup.backends[id];
    let is_unreal = setup.listeners.iter().any(|listener| {
        listener.backends.contains(&id) && Front::of(&listener.protocol) == Front::Unreal
    });
    match &backend.link {
        LinkKind::Bundle { .. } if is_unreal => {
            "no server answers behind an agent that is connected to every worker".to_owned()
        }
        LinkKind::Bundle { .. } => "no game process is connected to every worker".to_owned(),
        LinkKind::Udp { address } if is_unreal => {
            format!("no server answers at {address}")
        }
        LinkKind::Udp { address } => format!("no process listens at {address}"),
    }
}

/// What ends sessions without the player's or the game's doing.
const TOLD_ENDINGS: [Ended; 2] = [Ended::BackendGone, Ended::SequenceGap];

/// What keeps players out. Junk is counted and not told.
const TOLD_REFUSALS: &[DropReason] = &[
    DropReason::AddressDenied,
    DropReason::ClientDenied,
    DropReason::RequestRateLimited,
    DropReason::RequestVersion,
    DropReason::RequestProtocol,
    DropReason::RequestExpired,
    DropReason::RequestForged,
    DropReason::TokenUnreadable,
    DropReason::TokenNotForUs,
    DropReason::TokenUsedElsewhere,
    DropReason::TokenSpent,
    DropReason::TokenHistoryFull,
    DropReason::TokenClaimed,
    DropReason::TokenUnclaimed,
    DropReason::TokenClaimsFull,
    DropReason::RequestBackendFull,
    DropReason::RequestBackendDown,
    DropReason::BackendDrained,
    DropReason::BackendStarting,
    DropReason::RequestSessionsFull,
    DropReason::AddressFull,
    DropReason::SiteFull,
    DropReason::BlockFull,
    DropReason::BlockHandshakesFull,
    DropReason::PendingFull,
    DropReason::RequestDeferred,
    DropReason::BucketMoved,
    DropReason::Draining,
    DropReason::ResponseBackendFull,
    DropReason::ResponseBackendDown,
    DropReason::ResponseSessionsFull,
    DropReason::PlacesResting,
    DropReason::UnrealVersion,
    DropReason::UnrealNetworkVersion,
    DropReason::ResponseHistoryFull,
];

const EVERY_NS: u64 = 1_000_000_000;

/// How often a reason is told that goes on.
const SUMMARY_EVERY_NS: u64 = 60_000_000_000;

/// Game processes may take so long to connect after a start until they are missed.
const STARTING_NS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::control::tests::{facts, snapshot};

    /// As where each match is a backend of its own: the one before has the number still.
    #[test]
    fn what_is_gone_is_forgotten() {
        let facts = facts();
        let mut snapshot = snapshot(&facts);
        let mut watcher = Watcher::default();
        watcher.tell(&snapshot);
        let told = watcher.given();
        assert!(!told.backends.is_empty());
        let setup = Arc::make_mut(&mut snapshot.live.setup);
        let ids: Vec<_> = setup.backends.pairs().map(|(id, _)| id).collect();
        for (number, id) in ids.into_iter().enumerate() {
            let backend = &mut setup.backends[id];
            (backend.name, backend.retired) = (format!("match-{number}"), false);
        }
        watcher.tell(&snapshot);
        let names: Vec<_> = watcher.given().backends.into_iter().map(|(name, _)| name).collect();
        assert!(names.iter().all(|name| name.starts_with("match-")), "{names:?}");
    }
}
