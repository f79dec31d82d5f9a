//! The copy of what is known, in the `state_dir` of a gateway or an agent. A start without one is a
//! start with nothing known, which etcd heals; so a copy that cannot be read keeps nobody from
//! starting.

use bytes::Bytes;

use crate::copy::{self, StateFile};
use crate::mirror::Truth;

/// The file in `state_dir`.
pub const COPY_FILE: &str = "fleet";

/// When the file is to be written again.
#[derive(Debug, Default)]
pub struct Copies {
    /// What is to be written.
    to_save: Option<Truth>,
    saved_ms: u64,
    is_unsaved: bool,
    /// The last one could not be written.
    pub has_failed: bool,
}

impl Copies {
    /// This is known now, and perhaps it has `changed`. It is to be written at most once in
    /// `every_ms`.
    pub fn see(&mut self, now_ms: u64, truth: &Truth, changed: bool, every_ms: u64) {
        self.is_unsaved |= changed;
        if self.is_unsaved && now_ms >= self.saved_ms + every_ms {
            (self.is_unsaved, self.saved_ms) = (false, now_ms);
            self.to_save = Some(truth.clone());
        }
    }

    /// Nothing more will be known: what is not written yet is to be.
    pub fn finish(&mut self, truth: &Truth) {
        if self.is_unsaved {
            self.to_save = Some(truth.clone());
        }
    }

    /// What is to be written, once.
    pub const fn take(&mut self) -> Option<Truth> {
        self.to_save.take()
    }
}

/// What the file holds, if it is of this prefix.
pub fn load(file: &StateFile, prefix: &Bytes, now_s: u64) -> Truth {
    match copy::load(file) {
        Ok(Some(copy)) if copy.prefix == *prefix => {
            let age_s = now_s.saturating_sub(copy.saved_s);
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
            tracing::warn!(
                event = "fleet_copy_unreadable",
                why = %why,
                "cannot read the copy of the fleet in {file}: {why}; starting without it"
            );
            Truth::default()
        }
    }
}

/// Writes the file. Whether that could be done; if not, why is told.
pub(super) async fn save(file: StateFile, prefix: Bytes, truth: Truth, now_s: u64) -> bool {
    let bytes = move || Ok(copy::encode(&prefix, &truth, now_s));
    let saved = file.clone().replace(bytes).await;
    if let Err(why) = &saved {
        tracing::warn!(
            event = "fleet_copy_not_written",
            why = %why,
            "cannot write the copy of the fleet to {file}: {why}; a start while etcd is away would know nothing"
        );
    }
    saved.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_MS: u64 = 2_000;

    fn truth(revision: i64) -> Truth {
        Truth { revision, ..Truth::default() }
    }

    #[test]
    fn what_changes_often_is_written_now_and_then_and_at_the_end() {
        let mut copies = Copies::default();
        let mut written = Vec::new();
        for (now_ms, revision, changed) in
            [(100, 1, false), (2_000, 2, true), (2_100, 3, true), (3_900, 4, false)]
        {
            copies.see(now_ms, &truth(revision), changed, EVERY_MS);
            written.extend(copies.take().map(|truth| truth.revision));
        }
        assert_eq!(written, [2], "nothing new, then once in two seconds");
        // Nothing has to change again for what is waiting.
        copies.see(4_000, &truth(5), false, EVERY_MS);
        assert_eq!(copies.take().map(|truth| truth.revision), Some(5));
        copies.finish(&truth(5));
        assert!(copies.take().is_none(), "that is written already");
        copies.see(4_100, &truth(6), true, EVERY_MS);
        copies.finish(&truth(6));
        assert_eq!(copies.take().map(|truth| truth.revision), Some(6));
        assert!(copies.take().is_none(), "once");
    }
}
