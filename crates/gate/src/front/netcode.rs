//! Players of netcode 1.02: their sessions and handshakes, and what happens to each of their
//! datagrams.

pub(crate) mod arrival;
pub(crate) mod departed;
pub(crate) mod fetch;
pub(crate) mod filter;
pub(crate) mod handshake;
pub(crate) mod lineup;
pub(crate) mod players;
pub(crate) mod port_switch;
pub(crate) mod residents;
pub(crate) mod seal;
pub(crate) mod session;
pub(crate) mod sources;
pub(crate) mod spending;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod timers;
pub(crate) mod trials;
