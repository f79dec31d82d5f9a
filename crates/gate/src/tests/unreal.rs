//! Unreal players, gates and game servers in memory, on a clock that moves when a test says so.

mod denied;
mod drops;
mod gaps;
mod handovers;
mod handshakes;
mod layouts;
mod leaving;
mod linked;
mod moves;
mod network;
mod repeats;
pub(super) mod rig;
mod swaps;
