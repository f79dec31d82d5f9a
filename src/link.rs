//! What gateway and game process say to each other.
//!
//! [`bundle`] is the format of the bundle link: pure bytes, used by the gate on one side and by
//! game processes on the other. `docs/PROTOCOLS.md` describes it well enough to do without this
//! code.

pub mod bundle;
