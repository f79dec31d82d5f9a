//! Imitated players and game servers, without a socket or a clock: what the demo, `ringgate echo`,
//! the load generator and tests have in common.
//!
//! They find a gateway's faults, so they share none of its decisions. [`stamp`] is what payloads
//! say about themselves, [`received`] which of them have come; [`echo`] has a game server send
//! whole messages back, and [`unreal`] stands in for an engine's server.

pub mod echo;
pub mod received;
pub mod stamp;
pub mod unreal;

pub use received::{Arrival, Received};
pub use stamp::{STAMP_BYTES, Stamp};
