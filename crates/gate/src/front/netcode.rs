//! Players of netcode 1.02: their sessions and handshakes, and what happens to each of their
//! datagrams.

pub(crate) mod answers;
pub(crate) mod arrival;
pub(crate) mod clustering;
pub(crate) mod connection;
pub(crate) mod deliver;
pub(crate) mod departed;
pub(crate) mod explain;
pub(crate) mod fetch;
pub(crate) mod filter;
pub(crate) mod former;
pub(crate) mod handed;
pub(crate) mod handshake;
pub(crate) mod lineup;
pub(crate) mod linger;
pub(crate) mod listener;
pub(crate) mod messages;
pub(crate) mod moving;
pub(crate) mod players;
pub(crate) mod port_switch;
pub(crate) mod residents;
pub(crate) mod rivals;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod session_sockets;
pub(crate) mod socket_queue;
pub(crate) mod sources;
pub(crate) mod spending;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod takeover;
pub(crate) mod timers;
pub(crate) mod trials;
pub(crate) mod user_data;
