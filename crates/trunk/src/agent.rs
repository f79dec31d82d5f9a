//! The agent: a process on a host with game processes, which is to them what a gateway is, and has
//! a trunk to each gateway elsewhere.
//!
//! [`service::start`] runs one. A thread for each gateway has all of it (`desk`): the trunk, a
//! local worker for each lane (`station`), the servers that speak plain UDP (`servers`). What
//! passes between a lane and local links is decided in [`protocol`](crate::protocol), and the
//! sockets of a trunk are those of [`socket`](crate::socket).

mod book;
pub mod counts;
mod crossings;
mod desk;
pub(crate) mod dial;
pub mod handed;
mod numbers;
pub mod options;
mod servers;
pub mod service;
mod station;
#[cfg(test)]
mod tests;
pub mod view;

pub use crate::protocol::relay::ARBITRATED;
pub use crate::protocol::rolls;
