//! What is true on the wire, and the arithmetic that proves it: for gateways, game clients and
//! token services alike.
//!
//! `proto` knows the formats, `crypto` seals and opens in batches, `netcode` joins both into
//! connect tokens and a client, `delivery` carries whole messages in a connection's payloads.
//! Nothing of an operating system is in here: no socket, no clock, no thread. Time is an argument,
//! and so is randomness, unless the feature `random` is on.
#![deny(unsafe_code)]

pub mod carry;
pub mod crypto;
pub mod delivery;
pub mod drops;
pub mod endpoint;
pub mod limits;
mod lists;
pub mod netcode;
pub mod proto;
pub mod secret;
pub mod splitmix;
pub mod sync;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
