//! A thread's players, without the thread: no socket, no clock; and what decides what they do.
//!
//! [`Swarm`] is the players; [`scenario`] says who comes and goes when, [`traffic`] what they send
//! and [`arrivals`] at which moments, [`impair`] what the network between does to it, [`tokens`]
//! who lets them in.

mod addresses;
pub mod arrivals;
mod inbound;
mod levels;
mod lifecycle;
mod messages;
mod outbound;
mod plain;
mod player;
mod population;
mod push;
pub mod scenario;
mod schedule;
mod staged;
mod swarm;
mod talker;
pub mod tokens;
pub mod traffic;
mod unreal;
mod wheel;

pub use ringgate_impair as impair;

pub use self::addresses::{Addresses, FIRST_PLAYER, THREADS_MAX, loopback_address};
pub use self::plain::{Plain, Sequence, TokenAt};
pub use self::push::{Ack, PUSH_BYTES, Push, since};
pub use self::staged::TX_SLOTS;
pub use self::swarm::{Gauges, Now, Protocol, SecondLoss, Setup, Swarm};
pub use self::talker::Delivery;
pub use self::unreal::{UNREAL_PAYLOAD_BYTES_MAX, Unreal};
pub use self::wheel::TICK_NS;
pub(crate) use self::wheel::{Wheel, tick_of};
pub(crate) use ringgate_bots::Received;
pub use ringgate_bots::{STAMP_BYTES, Stamp};
