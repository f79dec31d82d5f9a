//! What answers players: a game server behind the gateway, and a bare echo in the gateway's place;
//! and a bad network before either.

pub mod bare;
pub mod between;
pub mod game;
pub mod stays;
