//! Bundle links over a network: what a gateway and the agent on a game host say to each other.
//!
//! A *trunk* is the connection between the two: a stream for everything that must arrive
//! ([`control`]), and beside it one *lane* of datagrams for each worker of the gateway
//! ([`lane::Lane`]), so that no worker waits for another. The records on it are those of the local
//! link, unchanged. `docs/PROTOCOLS.md` specifies both. [`relay::Relay`] is what an agent does
//! between a lane and the game processes on its host.
//!
//! Nothing here has a socket, a clock or a thread: time is an argument, TLS ([`tls::Stream`]) reads
//! from and writes to whatever the caller has, and datagrams leave from memory that the lane owns.
//! Nothing on the way of a payload allocates once a lane stands.

pub mod address;
pub mod arbitration;
pub mod beat;
pub mod control;
pub mod datagram;
pub mod games;
pub mod handshake;
pub mod keys;
pub mod lane;
mod order;
pub mod path;
mod pieces;
mod receiver;
pub mod relay;
pub mod rolls;
mod sections;
mod sender;
#[cfg(test)]
mod tests;
#[cfg(feature = "tls")]
pub mod tls;
