//! The local connections to game processes: who is there, what they are told, and what they say.

pub(crate) mod backlog;
pub(crate) mod from_game;
pub(crate) mod listening;
pub(crate) mod presence;
pub(crate) mod session_sockets;
pub(crate) mod state;
pub(crate) mod to_game;
