//! ringgate's load generator: fleets of players, bad networks, attackers, and figures that can be
//! trusted.
//!
//! It measures the gateway, so it shares none of its decisions: the wire, the cipher, the drivers
//! and the link to game servers, and never the gate. From the ground up, each using only what
//! stands before it:
//!
//! - [`rng`]: repeatable randomness.
//! - [`measure`]: what is counted and timed, here, in the kernel and in the gateway's process.
//! - [`players`]: a thread's players, without sockets or clocks, and what is to happen when.
//! - [`servers`]: what stands behind or in place of the gateway.
//! - [`report`]: what remains of a run, whether it proves anything, tables and pages.
//! - [`run`]: the threads, and a run from start to end.
//! - [`attack`]: hostile traffic beside the players.
//! - [`cli`]: the commands.
#![forbid(unsafe_code)]

pub mod attack;
pub mod cli;
pub mod measure;
pub mod players;
pub mod report;
pub mod rng;
pub mod run;
pub mod servers;
pub use ringgate_report::text;
