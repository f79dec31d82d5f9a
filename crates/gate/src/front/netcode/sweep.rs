//! The search for forgotten handshakes: round the whole table once a second, a little in each turn.

ringgate_core::carried!(Sweep { at, swept_ns as time });

/// How far the search for forgotten handshakes has come: round the whole table once a second, a
/// little in each turn.
pub(crate) struct Sweep {
    /// The next place to be looked at.
    pub(crate) at: u32,
    /// When the last places were looked at.
    swept_ns: u64,
}

impl Sweep {
    pub(crate) const fn new(now_ns: u64) -> Self {
        Self { at: 0, swept_ns: now_ns }
    }

    /// When to go on at the latest.
    pub(crate) const fn due_ns(&self) -> u64 {
        self.swept_ns + SWEEP_STEP_NS
    }

    /// How many of so many places are due now.
    pub(crate) fn take_due(&mut self, places: u32, now_ns: u64) -> u32 {
        let elapsed_ns = now_ns.saturating_sub(self.swept_ns).min(SWEEP_NS);
        self.swept_ns = now_ns;
        (u64::from(places) * elapsed_ns).div_ceil(SWEEP_NS) as u32
    }
}

/// A table full of handshakes that will never be finished is free again a second after they have
/// expired.
const SWEEP_NS: u64 = 1_000_000_000;

/// An idle worker looks this often.
const SWEEP_STEP_NS: u64 = 100_000_000;
