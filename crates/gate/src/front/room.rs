//! What the tables of fronts have room for that not every gateway serves.
//!
//! It follows from the listeners that are there when a gate is made, and stays what it is when a
//! reload takes some of them away, or lets them have less. So a gate that goes on with what another
//! one has is made with that one's room where it is more than its own: places and addresses may be
//! anywhere in it.

use crate::front::face::Fronts;
use crate::front::plain::state::PlainFront;
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
            plain_unproven: PlainFront::unproven_max(setup) as u32,
        }
    }

    /// What these have.
    pub(crate) fn there(fronts: &Fronts) -> Self {
        Self {
            has_unreal: fronts.unreal.sessions.places_max() > 0,
            plain_unproven: fronts.plain.unproven_max as u32,
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
const HALF_OPEN_MAX: usize = 65_536;
