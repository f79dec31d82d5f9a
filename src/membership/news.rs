//! What is told in the log of how it stands with etcd, by gateways and agents alike: whenever that
//! becomes otherwise.

use ringgate_fleet::mirror;

/// `away_since_ms` is since when what is known may be out of date.
pub(crate) fn tell_away(away_since_ms: &mut Option<u64>, now_ms: u64, status: &mirror::Status) {
    match (*away_since_ms, status.is_current) {
        (None, false) => {
            *away_since_ms = Some(now_ms);
            let why = status.last_error.as_deref().unwrap_or("what it says is in doubt");
            tracing::warn!(
                event = "fleet_away",
                why,
                "what is known of the fleet may be out of date: {why}; serving on with it"
            );
        }
        (Some(since_ms), true) => {
            *away_since_ms = None;
            let away_ms = now_ms.saturating_sub(since_ms);
            tracing::info!(
                event = "fleet_current",
                away_ms,
                "what is known of the fleet is up to date, after {away_ms} ms"
            );
        }
        _ => {}
    }
}

/// Whether etcd has taken the last write, and the one before.
pub(crate) fn tell_space(before: &mut bool, lacks: bool) {
    match (std::mem::replace(before, lacks), lacks) {
        (false, true) => tracing::error!(
            event = "fleet_no_space",
            "etcd takes no writes: it has no space left (compact and defragment it, then `etcdctl alarm disarm`)"
        ),
        (true, false) => tracing::info!(event = "fleet_space", "etcd takes writes again"),
        _ => {}
    }
}

/// What is held back, and what was before.
pub(crate) fn tell_doubt(before: &mirror::Status, now: &mirror::Status) {
    let number = |status: &mirror::Status| status.doubt.as_ref().map(|(number, _)| *number);
    match &now.doubt {
        Some((doubt, why)) if number(before) != Some(*doubt) => {
            tracing::error!(
                event = "fleet_doubt",
                doubt,
                why = %why,
                "news of the fleet is held back: {why}; `ringgate fleet confirm {doubt}` here or `ringgate fleet confirm --all` has it believed"
            );
        }
        None if before.doubt.is_some() => {
            tracing::info!(event = "fleet_doubt_over", "news of the fleet is believed again");
        }
        _ => {}
    }
}
