//! The copy of what is known, in the `state_dir` of a gateway or an agent. A start without one is a
//! start with nothing known, which etcd heals; so a copy that cannot be read keeps nobody from
//! starting.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ringgate_fleet::copy;
use ringgate_fleet::mirror::Truth;
use ringgate_os::clock;

/// The file in `state_dir`.
pub const COPY_FILE: &str = "fleet";

/// What the file holds, if it is of this prefix.
pub(crate) fn load(path: &Path, prefix: &Bytes) -> Truth {
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

/// Writes the file. Whether that could be done; if not, why is told.
pub(crate) async fn save(path: PathBuf, prefix: Bytes, truth: Truth) -> bool {
    let at = path.clone();
    let save = move || copy::save(&at, &prefix, &truth, clock::unix_seconds());
    let saved = tokio::task::spawn_blocking(save).await;
    let saved = saved.unwrap_or_else(|why| Err(io::Error::other(why)));
    if let Err(why) = &saved {
        let path = path.display();
        tracing::warn!(
            event = "fleet_copy_not_written",
            why = %why,
            "cannot write the copy of the fleet to {path}: {why}; a start while etcd is away would know nothing"
        );
    }
    saved.is_ok()
}
