//! What answers players: a game server behind the gateway, and a bare echo in the gateway's place.

pub mod bare;
pub mod game;
