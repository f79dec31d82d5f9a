//! A whole batch of replay checks, for sessions that are spread over far more memory than any cache
//! holds.
//!
//! A check is a load that misses the cache, and a branch that waits for it. Where the work of a
//! whole packet stands between two checks, every miss is paid in full; where checks follow each
//! other, the CPU has many misses under way at once. With a million sessions that is 320 ns a
//! packet against 40 (benches/replay.rs). A separate pass that only reads, as a prefetch would,
//! gains nothing on top of that: it cost 10 % more there.

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

/// Checks every probe against its window as [`Window::check`] does, and reports the verdicts in
/// order. Do nothing heavy in `report`: it stands between the checks.
#[inline]
pub fn check_batch(probes: &[Probe<'_>], mut report: impl FnMut(usize, Result<(), Refusal>)) {
    for (index, probe) in probes.iter().enumerate() {
        report(index, probe.window.check(probe.sequence, probe.policy));
    }
}
