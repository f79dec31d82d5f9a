//! ringgate's load generator: fleets of players, bad networks, attackers, and figures that can be
//! trusted.
//!
//! It judges the gateway, so it shares nothing of its mind: the wire, the cipher, the drivers and
//! the link to game servers, and never the gate. [`swarm`] is a thread's players without sockets or
//! clocks, [`engine`] the threads around them, [`scenario`] what happens when, [`tally`] what is
//! counted and measured.
#![forbid(unsafe_code)]

pub mod attack;
pub mod bare;
pub mod books;
pub mod cli;
pub mod engine;
pub mod gateway;
pub mod hlog;
pub mod impair;
pub mod kernel;
pub mod ladder;
pub mod procfs;
pub mod record;
pub mod report;
pub mod require;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod serve;
pub mod steady;
pub mod summary;
pub mod swarm;
pub mod tally;
pub use ringgate_report::text;
pub mod tokens;
pub mod traffic;
pub mod watch;
