//! A player's end of a gateway's listener with `delivery = "gateway"`: netcode 1.02, and on it
//! whole messages that arrive once and in order, or are reported as lost. For games and bots.
//!
//! Three layers, of which a game takes the one that fits:
//!
//! - [`Client`] has UDP sockets of the standard library and the system's clock. A game calls
//!   [`Client::turn`] once a frame, or lets it wait, and takes [`Event`]s out.
//! - [`Connection`] has neither: time is an argument, datagrams come in and go out as slices. For
//!   games with a network layer of their own, and for tests.
//! - [`Session`] has no cipher either, for programs that seal and open the packets of many players
//!   in batches, as the load generator does.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use ringgate_client::{Channel, Client, Event, Options};
//! use ringgate_core::netcode::ConnectToken;
//!
//! fn play(token: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//!     let mut client = Client::connect(&ConnectToken::decode(token)?, &Options::default())?;
//!     while !client.is_finished() {
//!         client.turn(Duration::from_millis(10))?;
//!         while let Some(event) = client.poll_event() {
//!             match event {
//!                 Event::Connected { slot, .. } => println!("in slot {slot}"),
//!                 Event::Message(channel, bytes) => println!("{channel:?}: {bytes:?}"),
//!                 Event::Reported(report) => println!("{report:?}"),
//!                 Event::NextServer { server, .. } => println!("on to {server}"),
//!                 Event::Closed(reason) => println!("{}", reason.name()),
//!             }
//!         }
//!         if client.is_connected() {
//!             client.send(Channel::Sequenced(0), b"where I am", None)?;
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! **Endings.** A game server may close a session after delivery: then everything that it had sent
//! before has come, and [`Client::farewell`] has its reason and its text beside [`Event::Closed`].
//! A player who leaves with [`Client::disconnect_after`] does the same to its server.
//!
//! **Failing over.** A token names up to 32 servers. Where one denies, falls silent while the
//! client asks, or says goodbye, the client turns to the next. Nothing of the connection before is
//! carried over: what was queued or under way is reported as not delivered, if a report was asked
//! for, and channels begin anew.
#![forbid(unsafe_code)]

mod client;
mod connection;
mod event;
mod inbox;
mod session;
mod sockets;

pub use client::Client;
pub use connection::{Connection, Statistics};
pub use event::{Event, Farewell, Reason};
pub use session::{Options, Session, SessionEvent};

pub use ringgate_core::delivery::{Channel, Fault, Quality, Report, SendError};
pub use ringgate_core::netcode::State;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
