//! Tests of a whole gate: players, game processes and attackers that speak to it in memory.

mod basics;
mod clients;
mod drops;
mod games;
mod handshakes;
mod lifecycle;
mod links;
mod ports;
mod rig;
mod routing;
mod sessions;
mod udp;
mod unreal;
