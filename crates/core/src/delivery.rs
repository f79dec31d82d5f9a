//! Messages over a network that loses: acknowledgements, reliable channels, fragments. One end of
//! it, for a gateway, a game client or a bot; both ends are alike.
//!
//! What goes over the network are packets of at most 1200 bytes, which fit into the payloads of
//! netcode ([`proto::delivery`](crate::proto::delivery) has their layout). [`Notify`] tells of each
//! packet whether it arrived; on that stand three kinds of channels, 256 of each:
//!
//! - *reliable*: messages of up to 64 KiB arrive once, whole and in the order in which they were
//!   sent. What a lost packet said is said again in a later one.
//! - *sequenced*: a newer message makes older ones worthless. What has not left when a newer one
//!   comes never leaves.
//! - *unreliable*: a message leaves once, and arrives or does not.
//!
//! Packets that come late are dropped whole, so the last two differ only in what waits to be sent.
//! Whoever wants to know what became of a message asks for a [`Report`].
//!
//! [`End`] does no I/O: `now` is an argument, packets come in as slices and leave in the caller's
//! buffer. The caller sends messages ([`End::send`]), hands in what arrives
//! ([`End::handle_packet`]), and after both, and when [`End::poll_timeout`] says so, takes packets
//! out ([`End::poll_transmit`]) and reports ([`End::poll_report`]) until there are none.
//!
//! Memory is taken when it is needed, kept for the next time, and bounded: what waits to be sent by
//! [`Options`], what has arrived and cannot be handed over yet by [`RECEIVE_BYTES_MAX`], which both
//! ends know. A peer that breaks a rule has broken the connection: [`Fault`] says which.
//!
//! [`Notify`]: crate::proto::notify::Notify

mod buffers;
mod channels;
mod congestion;
mod end;
mod flight;
mod incoming;
mod least;
mod outgoing;
mod parts;
mod round_trip;
mod timers;
mod types;
mod unreliable;

pub use end::End;
pub use incoming::RECEIVE_BYTES_MAX;
pub use types::{Channel, Fault, Options, Quality, Refusal, Report, SendError};

#[cfg(test)]
mod tests;
