//! `GET /healthz` and `GET /readyz`: whether the daemon lives, and whether players should be sent here.
//!
//! The first is for whoever restarts a daemon that hangs: the process answers and every worker turns. The second is for
//! whoever sends players: it says no while the gateway drains, and while there is a worker that reaches no game process,
//! because the kernel decides which worker a player meets.

use super::view::{Snapshot, is_up};

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

/// `Err` says why players should go elsewhere.
pub(super) fn is_ready(snapshot: &Snapshot<'_>) -> Result<(), String> {
    is_healthy(snapshot)?;
    if snapshot.live.drain.is_some() {
        return Err("draining".to_owned());
    }
    for (worker, report) in snapshot.reports.iter().enumerate() {
        let backends = snapshot.live.setup.backends.iter().enumerate();
        let mut active = backends.filter(|(_, backend)| !backend.retired);
        if !active.any(|(at, _)| is_up(report, at)) {
            return Err(format!("worker {worker} reaches no backend"));
        }
    }
    Ok(())
}

/// Workers leave a report every 50 ms; one that misses a hundred is stuck.
const STALE_NS: u64 = 5_000_000_000;

#[cfg(test)]
mod tests {
    use super::super::tests as sample;
    use super::super::view::Drain;
    use super::*;

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
    fn every_worker_has_to_reach_a_backend_that_is_not_retired() {
        let facts = sample::facts();
        let mut snapshot = sample::snapshot(&facts);
        let nowhere = Err("worker 1 reaches no backend".to_owned());
        assert_eq!(is_ready(&snapshot), nowhere);
        snapshot.reports[1].backends_up = vec![true, false];
        assert_eq!(is_ready(&snapshot), nowhere, "the retired one does not count");
        snapshot.reports[1].backends_up = vec![false, true];
        assert_eq!(is_ready(&snapshot), Ok(()));
        snapshot.live.drain = Some(Drain { since_ns: 0, until_ns: 1 });
        assert_eq!(is_ready(&snapshot), Err("draining".to_owned()));
        assert_eq!(is_healthy(&snapshot), Ok(()));
    }
}
