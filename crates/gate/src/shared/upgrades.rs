//! How often clients are told that their version is not served: 512 times in 300 seconds, as an
//! engine's server limits itself, over all workers and listeners.
//!
//! The times of those answers are kept, so that no stretch of 300 seconds has more of them. While
//! no more are allowed, the lock is not taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ringgate_core::carry::{Broken, Carry, Reader, Writer, time};

/// Shared by all workers.
pub(crate) struct Upgrades {
    /// Nothing may be sent before this.
    free_ns: AtomicU64,
    /// When the last ones were sent, oldest first. Invariant: at most [`UPGRADES_MAX`].
    sent_ns: Mutex<VecDeque<u64>>,
}

impl Upgrades {
    pub(crate) const fn new() -> Self {
        Self { free_ns: AtomicU64::new(0), sent_ns: Mutex::new(VecDeque::new()) }
    }

    /// Whether one may be sent now; it counts as sent then.
    pub(crate) fn admit(&self, now_ns: u64) -> bool {
        if now_ns < self.free_ns.load(Ordering::Relaxed) {
            return false;
        }
        let mut sent = self.sent_ns.lock().unwrap_or_else(PoisonError::into_inner);
        while sent.front().is_some_and(|at_ns| now_ns >= at_ns + PERIOD_NS) {
            sent.pop_front();
        }
        if sent.len() >= UPGRADES_MAX {
            let free_ns = sent.front().map_or(0, |at_ns| at_ns + PERIOD_NS);
            self.free_ns.store(free_ns, Ordering::Relaxed);
            return false;
        }
        sent.push_back(now_ns);
        true
    }

    /// Writes when the last ones were sent.
    pub(crate) fn hand_over(&self, out: &mut Writer<'_>) {
        let Self { free_ns, sent_ns } = self;
        free_ns.load(Ordering::Relaxed).write(out);
        sent_ns.lock().unwrap_or_else(PoisonError::into_inner).write(out);
    }

    /// Goes on where another process has stopped.
    pub(crate) fn take_over(&self, from: &mut Reader<'_>) -> Result<(), Broken> {
        let free_ns = time::read(from)?;
        let sent_ns = VecDeque::<u64>::read(from)?;
        if sent_ns.len() > UPGRADES_MAX || sent_ns.iter().any(|at_ns| time::check(*at_ns).is_err())
        {
            return Err(Broken::Invalid("number of upgrades"));
        }
        self.free_ns.store(free_ns, Ordering::Relaxed);
        *self.sent_ns.lock().unwrap_or_else(PoisonError::into_inner) = sent_ns;
        Ok(())
    }
}

const UPGRADES_MAX: usize = 512;

const PERIOD_NS: u64 = 300_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn no_stretch_of_five_minutes_has_more_than_512() {
        let upgrades = Upgrades::new();
        let mut sent = Vec::new();
        for n in 0..4000_u64 {
            let now_ns = S + n * S / 3;
            if upgrades.admit(now_ns) {
                sent.push(now_ns);
            }
        }
        assert!(sent.len() > 4 * UPGRADES_MAX, "{}", sent.len());
        for (at, first) in sent.iter().enumerate() {
            let stretch = sent[at..].iter().take_while(|it| **it < first + PERIOD_NS);
            assert!(stretch.count() <= UPGRADES_MAX);
        }
    }

    #[test]
    fn a_flood_gets_512_and_nothing_until_the_first_are_old() {
        let upgrades = Upgrades::new();
        let admitted = |now_ns| (0..10_000).filter(|_| upgrades.admit(now_ns)).count();
        assert_eq!(admitted(S), 512);
        assert_eq!(admitted(S + PERIOD_NS - 1), 0);
        assert_eq!(admitted(S + PERIOD_NS), 512);
    }
}
