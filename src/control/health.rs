//! `GET /healthz` and `GET /readyz`: whether the daemon lives, and whether players should be sent
//! here.
//!
//! The first is for programs that restart a daemon that hangs: the process answers and every
//! worker turns. The second is for programs that send players: it says no while the gateway
//! drains, while a listener that is meant to serve has a worker that reaches none of its backends,
//! because the kernel decides which worker a player meets, and where no listener lets a player in.
//! One listener among others whose backends an operator has drained takes no host off the network.

use super::view::{Snapshot, is_up};
use ringgate_gate::{Backend, BackendId, Listener, Phase};
use ringgate_worker::Report;

/// `Err` says what is wrong.
pub(super) fn is_healthy(snapshot: &Snapshot<'_>) -> Result<(), String> {
    for (worker, report) in snapshot.reports.iter().enumerate() {
        let age_ns = snapshot.now_ns.saturating_sub(report.at_ns);
        if age_ns > STALE_NS {
            return Err(format!("worker {worker} has not turned for {} ms", age_ns / 1_000_000));
        }
    }
    Ok(())
}

/// `Err` says why players should go elsewhere, a line for each reason.
pub(super) fn is_ready(snapshot: &Snapshot<'_>) -> Result<(), String> {
    are_ready(snapshot, serving(snapshot))
}

/// The same for one listener; `None` where there is none of that name.
pub(super) fn is_listener_ready(snapshot: &Snapshot<'_>, name: &str) -> Option<Result<(), String>> {
    let listener = serving(snapshot).find(|listener| listener.name == name)?;
    Some(are_ready(snapshot, [listener]))
}

/// Listeners that let no new player in while others do, a line for each. Where none does, that is
/// why the gateway is not ready.
pub(super) fn closed_listeners(snapshot: &Snapshot<'_>) -> String {
    let all: Vec<_> = serving(snapshot).map(|it| why_closed(snapshot, it)).collect();
    if all.iter().all(Option::is_some) {
        return String::new();
    }
    all.into_iter().flatten().map(|why| why + "\n").collect()
}

/// Why a listener lets no new player in although nothing is wrong with it: it has no backend, or
/// none of them is to get new players.
pub(super) fn why_closed(snapshot: &Snapshot<'_>, listener: &Listener) -> Option<String> {
    let mut reasons = Vec::new();
    for (id, backend) in backends_of(snapshot, listener) {
        let reason = why_spared(snapshot, id, backend)?;
        reasons.push(format!("{} {reason}", backend.name));
    }
    if reasons.is_empty() {
        reasons.push("it has no backend".to_owned());
    }
    Some(format!("listener {} takes nobody new: {}", listener.name, reasons.join(", ")))
}

/// The backends of a listener that are not retired.
fn backends_of<'a>(
    snapshot: &'a Snapshot<'_>,
    listener: &'a Listener,
) -> impl Iterator<Item = (BackendId, &'a Backend)> {
    let backends = &snapshot.live.setup.backends;
    let all = listener.backends.iter().filter_map(|id| Some((*id, backends.get(*id)?)));
    all.filter(|(_, backend)| !backend.retired)
}

/// Why a backend is to get no new players.
fn why_spared(snapshot: &Snapshot<'_>, id: BackendId, backend: &Backend) -> Option<&'static str> {
    if backend.drained {
        Some("is drained")
    } else if backend.slots == 0 {
        Some("has no slots")
    } else if snapshot.is_closed(id) || !backend.intake.is_open() {
        Some("takes nobody by its own word")
    } else {
        None
    }
}

/// The listeners that the config has.
fn serving<'a>(snapshot: &'a Snapshot<'_>) -> impl Iterator<Item = &'a Listener> {
    snapshot.live.setup.listeners.iter().filter(|listener| listener.phase == Phase::Serving)
}

fn are_ready<'a>(
    snapshot: &Snapshot<'_>,
    listeners: impl IntoIterator<Item = &'a Listener>,
) -> Result<(), String> {
    is_healthy(snapshot)?;
    if snapshot.live.drain.is_some() {
        return Err("draining".to_owned());
    }
    let (mut reasons, mut closed, mut is_open) = (Vec::new(), Vec::new(), false);
    for listener in listeners {
        let why = why_closed(snapshot, listener);
        is_open |= why.is_none();
        closed.extend(why);
        reasons.extend(why_unready(snapshot, listener));
    }
    if !is_open {
        reasons.append(&mut closed);
    }
    if reasons.is_empty() { Ok(()) } else { Err(reasons.join("\n")) }
}

/// Why a listener does not reach the backends that are to get new players, where it has any.
fn why_unready(snapshot: &Snapshot<'_>, listener: &Listener) -> Option<String> {
    if listener.netcode().is_some_and(|rules| rules.keys.is_empty()) {
        return Some(format!("listener {}: the fleet has no key for it", listener.name));
    }
    let wanted: Vec<_> = backends_of(snapshot, listener)
        .filter(|(id, backend)| why_spared(snapshot, *id, backend).is_none())
        .collect();
    let reaches_none = |report: &Report| !wanted.iter().any(|(id, _)| is_up(report, *id));
    let worker = snapshot.reports.iter().position(reaches_none).filter(|_| !wanted.is_empty())?;
    let names: Vec<_> = wanted.iter().map(|(_, backend)| backend.name.as_str()).collect();
    let (name, names) = (&listener.name, names.join(", "));
    Some(format!("listener {name}: worker {worker} reaches no backend of {names}"))
}

/// Workers leave a report every 50 ms; one that misses a hundred is stuck.
const STALE_NS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests as sample;
    use super::super::view::Drain;
    use super::*;
    use ringgate_gate::{ListenerId, Setup};

    #[test]
    fn a_worker_that_leaves_no_reports_is_not_healthy() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        assert_eq!(is_healthy(&snapshot), Ok(()));
        snapshot.reports[1].at_ns = sample::NOW_NS - STALE_NS - 1;
        assert_eq!(is_healthy(&snapshot), Err("worker 1 has not turned for 5000 ms".to_owned()));
        assert_eq!(is_ready(&snapshot), is_healthy(&snapshot));
    }

    #[test]
    fn each_listener_that_is_meant_to_serve_has_to_reach_a_backend() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        snapshot.reports[1].backends_up = vec![false, true];
        let mut setup = Setup::clone(&snapshot.live.setup);
        let second =
            Listener { name: "us-east".to_owned(), ..setup.listeners[ListenerId(0)].clone() };
        setup.listeners.push(Listener { backends: vec![BackendId(0)], ..second.clone() });
        setup.listeners.push(Listener { name: "empty".to_owned(), backends: Vec::new(), ..second });
        snapshot.live.setup = Arc::new(setup.clone());
        assert_eq!(is_ready(&snapshot), Ok(()), "a retired backend, or none, is no wish to serve");
        setup.backends[BackendId(0)].retired = false;
        snapshot.live.setup = Arc::new(setup);
        let why = "listener us-east: worker 0 reaches no backend of arena-1".to_owned();
        assert_eq!(is_ready(&snapshot), Err(why.clone()));
        assert_eq!(is_listener_ready(&snapshot, "us-east"), Some(Err(why)));
        assert_eq!(is_listener_ready(&snapshot, "eu-west"), Some(Ok(())));
        assert_eq!(is_listener_ready(&snapshot, "nowhere"), None);
    }

    #[test]
    fn a_listener_that_takes_nobody_new_says_so_and_fails_alone() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        snapshot.reports[1].backends_up = vec![false, true];
        let mut setup = Setup::clone(&snapshot.live.setup);
        setup.backends[BackendId(1)].drained = true;
        snapshot.live.setup = Arc::new(setup.clone());
        let why = "listener eu-west takes nobody new: arena-1 is drained".to_owned();
        assert_eq!(is_ready(&snapshot), Err(why.clone()), "there is no other listener");
        let mut other = setup.backends[BackendId(1)].clone();
        (other.drained, other.name) = (false, "arena-2".to_owned());
        setup.backends.push(other);
        let open = Listener {
            name: "us-east".to_owned(),
            backends: vec![BackendId(2)],
            ..setup.listeners[ListenerId(0)].clone()
        };
        setup.listeners.push(open);
        snapshot.live.setup = Arc::new(setup.clone());
        snapshot.reports.iter_mut().for_each(|it| it.backends_up = vec![false, true, true]);
        assert_eq!(is_ready(&snapshot), Ok(()));
        assert_eq!(closed_listeners(&snapshot), format!("{why}\n"));
        assert_eq!(is_listener_ready(&snapshot, "eu-west"), Some(Err(why)));
        assert_eq!(is_listener_ready(&snapshot, "us-east"), Some(Ok(())));
        setup.backends[BackendId(2)].slots = 0;
        setup.listeners[ListenerId(0)].backends.clear();
        snapshot.live.setup = Arc::new(setup);
        let why = "listener eu-west takes nobody new: it has no backend\n\
                   listener us-east takes nobody new: arena-2 has no slots";
        assert_eq!(is_ready(&snapshot), Err(why.to_owned()));
    }

    #[test]
    fn every_worker_has_to_reach_a_backend_that_is_not_retired() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        let nowhere = Err("listener eu-west: worker 1 reaches no backend of arena-1".to_owned());
        assert_eq!(is_ready(&snapshot), nowhere);
        snapshot.reports[1].backends_up = vec![true, false];
        assert_eq!(is_ready(&snapshot), nowhere, "the retired one does not count");
        snapshot.reports[1].backends_up = vec![false, true];
        assert_eq!(is_ready(&snapshot), Ok(()));
        snapshot.live.drain =
            Some(Drain { since_ns: 0, until_ns: 1, hands_over: false, sent_on: (0, 0) });
        assert_eq!(is_ready(&snapshot), Err("draining".to_owned()));
        assert_eq!(is_healthy(&snapshot), Ok(()));
    }
}
