//! The copy of what is known, in `state_dir`. A start without one is a start with nothing known,
//! which etcd heals; so a copy that cannot be read keeps nobody from starting.

use std::path::Path;

use bytes::Bytes;
use ringgate_fleet::copy;
use ringgate_fleet::mirror::Truth;
use ringgate_os::clock;

/// The file in `state_dir`.
pub const COPY_FILE: &str = "fleet";

/// What the file holds, if it is of this prefix.
pub(super) fn load(path: &Path, prefix: &Bytes) -> Truth {
    match copy::load(path) {
        Ok(Some(copy)) if copy.prefix == *prefix => {
            let age_s = clock::unix_seconds().saturating_sub(copy.saved_s);
            let keys = copy.truth.entries.len();
            tracing::info!(
                event = "fleet_copy_read",
                keys,
                age_s,
                "began with {keys} keys of the fleet that were known {age_s} s ago"
            );
            copy.truth
        }
        Ok(Some(_)) => {
            tracing::info!("the copy of the fleet in state_dir is of another prefix: not used");
            Truth::default()
        }
        Ok(None) => Truth::default(),
        Err(why) => {
            let path = path.display();
            tracing::warn!(
                event = "fleet_copy_unreadable",
                why = %why,
                "cannot read the copy of the fleet in {path}: {why}; starting without it"
            );
            Truth::default()
        }
    }
}
