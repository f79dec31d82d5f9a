//! Unreal players, gates and game servers in memory, on a clock that moves when a test says so.

mod drops;
mod handshakes;
mod moves;
mod network;
mod rig;
