//! What the tables of fronts have room for that not every gateway serves.
//!
//! It follows from the listeners that are there when a gate is made, and stays what it is when a
//! reload takes some of them away, or lets them have less. So a gate that goes on with what another
//! one has is made with that one's room where it is more than its own: places and addresses may be
//! anywhere in it.

use crate::setup::Setup;
use ringgate_core::carry::Broken;
use ringgate_core::limits::LISTENERS_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// There is a table of Unreal sessions.
    pub(crate) has_unreal: bool,
    /// Plain sessions that are half open, and sources that are barred. Without any there is no
    /// table of plain sessions.
    pub(crate) plain_unproven: u32,
}

ringgate_core::carried!(Room { has_unreal, plain_unproven });

impl Room {
    /// What the listeners of a setup need.
    pub(crate) fn of(setup: &Setup) -> Self {
        Self {
            has_unreal: setup.listeners.iter().any(|listener| listener.unreal().is_some()),
            plain_unproven: plain_unproven(setup) as u32,
        }
    }

    /// As much as either of the two.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            has_unreal: self.has_unreal || other.has_unreal,
            plain_unproven: self.plain_unproven.max(other.plain_unproven),
        }
    }

    /// What another process says about itself, if it can be so.
    pub(crate) fn checked(self) -> Result<Self, Broken> {
        let is_possible = self.plain_unproven as usize <= LISTENERS_MAX * HALF_OPEN_MAX + 1;
        if is_possible { Ok(self) } else { Err(Broken::Invalid("size")) }
    }

    /// Sessions that the table of Unreal ones has room for.
    pub(crate) fn unreal_sessions(self, setup: &Setup) -> usize {
        if self.has_unreal { setup.worker_sessions_max } else { 0 }
    }
}

/// Half-open sessions that a configuration may allow one listener.
pub(crate) const HALF_OPEN_MAX: usize = 65_536;

/// Half-open sessions and barred sources that listeners may have. None at all where no listener is
/// a plain one.
fn plain_unproven(setup: &Setup) -> usize {
    let rules = || setup.listeners.iter().filter_map(|listener| listener.plain());
    if rules().next().is_none() {
        return 0;
    }
    let half_open: usize = rules().map(|rules| rules.half_open_max.max(1) as usize).sum();
    // Who comes when all are there is let in before the oldest one goes.
    (half_open + 1).max(UNPROVEN_MIN)
}

/// What there is room for at least, so that a reload may add listeners. It takes no memory until it
/// is used.
const UNPROVEN_MIN: usize = 16_384;
