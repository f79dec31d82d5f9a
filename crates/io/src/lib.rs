//! Drivers: they move datagrams between sockets and batches, and know no session, no key and no
//! header.
//!
//! [`AnyDriver`] is the [`Driver`] over the kernel's sockets. It owns the memory of both batches;
//! [`Driver::turn`] takes the receive slots back, reaps what has arrived and waits when nothing
//! has; [`Driver::flush`] sends what was written, once per turn unless the batch fills up. Which
//! interface of the kernel does the work is its secret: the tests run on both, and the gate cannot
//! tell.
//!
//! Over both, a driver receives without being woken while it is busy. A socket that sits in an
//! epoll set or has a receive pending charges whoever delivers to it for a wake-up call, datagram
//! by datagram (75 ns each, and 50 to 66 ns per send; docs/BENCHMARKS.md, the wire). So sockets are
//! *drained* turn by turn, and *armed* only before the driver sleeps.
#![deny(unsafe_code)]
#![cfg_attr(not(feature = "xdp"), allow(dead_code, reason = "whoever uses it is left out"))]

mod any;
mod bell;
#[cfg_attr(not(feature = "xdp"), path = "card/absent.rs")]
mod card;
mod cmsg;
mod errno;
mod error;
mod events;
pub mod filter;
mod gather;
mod interface;
mod mmsg;
mod open;
mod options;
mod receive;
mod send;
mod slots;
mod sockaddr;
pub mod socket;
pub mod spread;
mod table;
mod uring;

pub use self::any::{AnyDriver, SocketDriver, player_options};
pub use self::bell::Bell;
pub use self::card::{
    Card, CardBase, CardChoice, CardCounts, CardDrop, CardMode, CardNews, GivenBase, GivenQueue,
};
#[cfg(feature = "xdp")]
pub use self::card::{CardOptions, LeftSums, card_memory, look_at_card};
pub use self::error::StartError;
pub use self::interface::SocketKind;
pub use self::open::open;
#[cfg(feature = "xdp")]
pub use self::open::{open_with_card, open_with_given_card};
pub use self::options::{Choice, DriverOptions};
pub use ringgate_batch::{Driver, IoStats, Wait};
#[cfg(feature = "xdp")]
pub use ringgate_xdp::netlink::{Facts as CardFacts, Link as CardLink};
