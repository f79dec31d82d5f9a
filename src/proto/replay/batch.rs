//! A whole batch of replay checks, for sessions that are spread over far more memory than any cache holds.
//!
//! A single check is a load that misses the cache, and a branch that waits for it. Checked one after another, each miss is
//! paid in full as soon as real work stands between the checks. A first pass that only reads starts all the misses together;
//! the second pass then finds its lines in the cache. No prefetch instruction is needed for that, so no unsafe code either.

use std::hint::black_box;

use super::{Policy, Refusal, Window};

/// One check of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'a> {
    /// The session's window.
    pub window: &'a Window,
    /// Its listener's policy.
    pub policy: &'a Policy,
    /// The sequence that a packet claims.
    pub sequence: u64,
}

/// Checks every probe against its window as [`Window::check`] does, and reports the verdicts in order.
#[inline]
pub fn check_batch(probes: &[Probe<'_>], mut report: impl FnMut(usize, Result<(), Refusal>)) {
    touch(probes);
    for (index, probe) in probes.iter().enumerate() {
        report(index, probe.window.check(probe.sequence, probe.policy));
    }
}

/// Reads from every cache line that the checks will need: the one with `latest`, and the one with the sequence's word.
#[inline]
fn touch(probes: &[Probe<'_>]) {
    let read = |sum: u64, probe: &Probe<'_>| {
        let (word, _) = probe.policy.locate(probe.sequence);
        sum ^ probe.window.latest ^ probe.window.words[word]
    };
    // The sum means nothing, but the compiler must believe that somebody wants it.
    black_box(probes.iter().fold(0, read));
}
