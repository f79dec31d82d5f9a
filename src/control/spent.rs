//! Writes down which tokens are spent. Workers note it where all of them look and never wait; a
//! thread looks there fifty times a second, and writes what is new.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ringgate_gate::{Claims, Now, SpentToken};
use ringgate_os::clock::{self, Clock};
use ringgate_os::hand::Hand;
use ringgate_state::SpentFiles;

/// Why a restart would make tokens good again, if it would.
#[derive(Clone, Debug, Default)]
pub(super) struct WhyNotKept(Arc<Mutex<Option<Arc<str>>>>);

impl WhyNotKept {
    pub(super) fn get(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, why: Option<Arc<str>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}

/// The thread.
pub(super) struct SpentKeeper {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl SpentKeeper {
    /// Has it begin, where there are files to write to.
    pub(super) fn start(
        files: Result<(SpentFiles, Hand), String>,
        claims: &Arc<Claims>,
        clock: Clock,
    ) -> (Option<Self>, WhyNotKept) {
        let why_not = WhyNotKept::default();
        let (files, hand) = match files {
            Ok(files) => files,
            Err(why) => {
                why_not.set(Some(why.into()));
                return (None, why_not);
            }
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let (claims, shown) = (Arc::clone(claims), why_not.clone());
        let mut part = Part { files, claims, clock, why_not: shown };
        let run = move || {
            let mut next_look = LOOK_EVERY;
            loop {
                let is_last = stopped.recv_timeout(next_look) != Err(RecvTimeoutError::Timeout);
                next_look = if part.write_new() { LOOK_EVERY } else { AGAIN_AFTER };
                if is_last {
                    return;
                }
            }
        };
        (Some(Self { stop, thread: hand.work(run) }), why_not)
    }

    /// Writes what is left, and ends. No worker spends a token any more.
    pub(super) fn finish(self) {
        drop(self.stop);
        // It has said what it could not write.
        drop(self.thread.join());
    }
}

/// What the thread has.
struct Part {
    files: SpentFiles,
    claims: Arc<Claims>,
    clock: Clock,
    why_not: WhyNotKept,
}

impl Part {
    /// Whether everything is written.
    fn write_new(&mut self) -> bool {
        while self.claims.has_spent() {
            let spent = self.take_new();
            if spent.is_empty() {
                continue;
            }
            let now = Now { mono_ns: self.clock.now_ns(), unix_s: clock::unix_seconds() };
            // One that cannot be removed is tried again with the next tokens.
            let _ = self.files.forget_expired(now);
            let added = self.files.add(&spent, now);
            if added.is_err() {
                spent.chunks(AT_ONCE).for_each(|some| self.claims.take_back_spent(some));
            }
            self.tell(added.as_ref().err());
            if added.is_err() {
                return false;
            }
        }
        true
    }

    /// What is written together. A successor is given thousands, and a disk is waited for once for
    /// all that expire in the same minutes.
    fn take_new(&self) -> Vec<SpentToken> {
        let mut spent = Vec::new();
        while self.claims.has_spent() && spent.len() < WRITTEN_AT_ONCE {
            spent.extend(self.claims.take_spent(AT_ONCE));
        }
        spent
    }

    /// Once when it begins, once when it is over.
    fn tell(&self, failure: Option<&io::Error>) {
        match (failure, self.why_not.get()) {
            (Some(why), None) => {
                tracing::error!(
                    event = "spent_not_written",
                    why = %why,
                    "cannot write to state_dir which tokens are spent: {why}; after a restart those that have not expired are \
                     good again"
                );
                self.why_not.set(Some(why.to_string().into()));
            }
            (None, Some(_)) => {
                tracing::info!(event = "spent_written", "spent tokens are written down again");
                self.why_not.set(None);
            }
            _ => {}
        }
    }
}

/// A token that is spent may be forgotten in a kill that comes within this and the time of a write.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The workers' lock is held for so many at a time.
const AT_ONCE: usize = 256;

/// A disk takes as long for two megabytes as for one token.
const WRITTEN_AT_ONCE: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use ringgate_gate::ClaimLimits;
    use ringgate_state::Folder;

    fn claims() -> Arc<Claims> {
        Arc::new(Claims::new(1, &[1], ClaimLimits { sessions_max: 10, tokens_max: 2000 }))
    }

    #[test]
    fn what_cannot_be_written_is_tried_again_and_told() {
        let path =
            std::env::temp_dir().join(format!("ringgate-spent-keeper-{}", std::process::id()));
        let folder = Folder::take(&path).expect("it can be made");
        let files = SpentFiles::of(folder).expect("readable");
        let (claims, why_not) = (claims(), WhyNotKept::default());
        let clock = Clock::start();
        let mut part = Part { files, claims: Arc::clone(&claims), clock, why_not };
        let expire_s = u32::try_from(clock::unix_seconds() + 100).expect("before 2106");
        let mut bytes = [0; SpentToken::BYTES];
        bytes[24..].copy_from_slice(&expire_s.to_le_bytes());
        let mut token = SpentToken::from_bytes(&bytes).expect("a record");
        let now = Now { mono_ns: 0, unix_s: clock::unix_seconds() };
        assert!(claims.remember_spent(&token, now));
        claims.take_back_spent(&[token]);
        std::fs::remove_dir_all(&path).expect("ours");
        assert!(!part.write_new() && part.why_not.get().is_some() && claims.has_spent());
        std::fs::create_dir(&path).expect("ours");
        assert!(part.write_new() && part.why_not.get().is_none() && !claims.has_spent());
        assert_eq!(part.files.read().tokens, [token]);
        // What a predecessor has had is written together.
        for number in 1..=3 * AT_ONCE as u64 {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            token = SpentToken::from_bytes(&bytes).expect("a record");
            assert!(claims.remember_spent(&token, now));
            claims.take_back_spent(&[token]);
        }
        assert_eq!(part.take_new().len(), 3 * AT_ONCE);
        std::fs::remove_dir_all(&path).expect("ours");
    }
}
