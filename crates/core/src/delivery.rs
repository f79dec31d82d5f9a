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
//! An end may say why it ends ([`End::say_farewell`]); the other end hears that with what was sent
//! before ([`End::farewell`]).
//!
//! Packets that come late are dropped whole, so the last two differ only in what waits to be sent.
//! A caller that has to know what became of a message asks for a [`Report`].
//!
//! [`End`] does no I/O: `now` is an argument, packets come in as slices and leave in the caller's
//! buffer. The caller sends messages ([`End::send`]), hands in what arrives
//! ([`End::handle_packet`]), and after both, and when [`End::poll_timeout`] says so, takes packets
//! out ([`End::poll_transmit`]) and reports ([`End::poll_report`]) until there are none.
//!
//! ```
//! use ringgate_core::delivery::{Channel, End, Options, Report};
//!
//! let mut server = End::new(&Options::default(), 0);
//! let mut player = End::new(&Options::default(), 0);
//! let level = vec![7; 20_000];
//! server.send(Channel::Reliable(0), &level, Some(1)).expect("there is room");
//!
//! let (mut now_ns, mut packet, mut arrived) = (0, [0; 1200], Vec::new());
//! let report = loop {
//!     now_ns += 1_000_000; // in practice: a clock
//!     while let Some(len) = server.poll_transmit(now_ns, &mut packet) {
//!         // In practice: a payload of netcode, which may get lost.
//!         let on_message = |_, message: &[u8]| arrived = message.to_vec();
//!         player.handle_packet(now_ns, &packet[..len], on_message).expect("an honest server");
//!     }
//!     while let Some(len) = player.poll_transmit(now_ns, &mut packet) {
//!         server.handle_packet(now_ns, &packet[..len], |_, _| ()).expect("an honest player");
//!     }
//!     if let Some(report) = server.poll_report() {
//!         break report;
//!     }
//! };
//! assert_eq!(report, Report { token: 1, is_delivered: true });
//! assert_eq!(arrived, level);
//! ```
//!
//! Memory is taken when it is needed, kept for the next time until nothing was said for ten
//! seconds, and bounded: what waits to be sent by [`Options`], what has arrived and cannot be
//! handed over yet by [`RECEIVE_BYTES_MAX`], which both ends know. A peer that breaks a rule has
//! broken the connection: [`Fault`] says which.
//!
//! [`Notify`]: crate::proto::notify::Notify

mod buffers;
mod channels;
mod congestion;
mod end;
mod farewell;
mod flight;
mod held;
mod incoming;
mod least;
mod outgoing;
mod parts;
mod round_trip;
mod timers;
mod traffic;
mod types;
mod unreliable;

pub use end::End;
pub use incoming::RECEIVE_BYTES_MAX;
pub use traffic::Traffic;
pub use types::{
    Channel, Counts, Fault, Options, Quality, REORDER_NS, Refusal, Report, SendError, room_news,
};

#[cfg(test)]
mod tests;
