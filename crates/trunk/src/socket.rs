//! The sockets of a trunk, the same at both ends: what [`protocol`](crate::protocol) leaves to its
//! caller.
//!
//! A [`Trunk`] is one end with its connection ([`Line`]) and a UDP socket for each lane ([`Port`]);
//! [`Local`] is a bundle link to a process on this host. Nothing here has a thread or waits: the
//! caller watches all descriptors with one [`Epoll`](ringgate_os::notify::Epoll) and says what is
//! ready.

mod carried;
mod door;
mod guest;
mod known;
mod line;
mod local;
mod missed;
mod port;
pub mod rest;
#[cfg(test)]
pub(crate) mod tests;
mod trunk;
mod wire;

use std::sync::Arc;

pub use carried::adopt;
pub use door::Door;
pub use guest::{Guest, Hello};
pub use known::{CalledLink, Next, Said, Sign};
pub use line::Line;
pub use local::{Bundles, Local, Received};
pub use missed::Missed;
pub use port::{Buffers, Port};
pub use trunk::{End, Event, LaneReport, LaneStats, Lease, Settings, SocketLane, Trunk};

/// What the streams are encrypted with: Graviola, which needs no C compiler, and a processor that
/// suffices ([`ringgate_os::processor`]).
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls_graviola::default_provider())
}
