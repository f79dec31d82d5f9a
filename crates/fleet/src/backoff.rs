//! How long to wait before the next attempt: twice as long each time, and never the same for two
//! gateways, so that hundreds of them do not come back to a restarted server in one moment.

use ringgate_core::splitmix;

/// Waits that grow.
#[derive(Clone, Debug)]
pub struct Backoff {
    first_ms: u64,
    last_ms: u64,
    failures: u32,
    random: u64,
}

impl Backoff {
    /// From `first_ms` up to `last_ms`. The seed makes this process unlike others.
    pub const fn new(first_ms: u64, last_ms: u64, seed: u64) -> Self {
        Self { first_ms, last_ms, failures: 0, random: seed }
    }

    /// It has failed once more: how long to wait, between half and all of the step's time.
    pub fn next_wait_ms(&mut self) -> u64 {
        let doubled = self.first_ms.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX));
        let step = doubled.clamp(1, self.last_ms.max(1));
        self.failures = self.failures.saturating_add(1);
        step / 2 + self.random() % (step / 2 + 1)
    }

    /// It has worked.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }

    /// How often it has failed in a row.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// A number for jitter. Nothing secret depends on it.
    pub fn random(&mut self) -> u64 {
        splitmix::next(&mut self.random)
    }
}

/// Beyond that any sensible limit is reached.
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_begin_anew() {
        let mut backoff = Backoff::new(100, 5000, 7);
        for step in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let wait = backoff.next_wait_ms();
            assert!((step / 2..=step).contains(&wait), "{wait} of {step}");
        }
        backoff.reset();
        assert!(backoff.next_wait_ms() <= 100);
    }

    #[test]
    fn two_processes_wait_for_different_times() {
        let waits = |seed| {
            let mut backoff = Backoff::new(1000, 60_000, seed);
            (0..4).map(|_| backoff.next_wait_ms()).collect::<Vec<_>>()
        };
        assert_ne!(waits(1), waits(2));
    }
}
