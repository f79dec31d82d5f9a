//! ringgate: a gateway in front of fleets of game servers.
//!
//! The crate is split so that the parts that decide anything can be driven without a socket or a
//! clock. `proto` knows the wire, `crypto` seals and opens batches, `gate` joins both into one
//! worker's mind; together with `link`'s codec they are the *pure core*, which builds with
//! `--no-default-features` on any platform. `io` moves bytes and knows none of it; `worker` is the
//! only place where the two meet. `docs/ARCHITECTURE.md` holds the map and the reasons.
#![deny(unsafe_code)]

pub mod buf;
pub mod crypto;
pub mod drops;
pub mod gate;
pub mod limits;
pub mod link;
pub mod netcode;
pub mod proto;
pub mod secret;
pub mod sim;
pub mod text;

#[cfg(feature = "hlog")]
pub mod hlog;
#[cfg(feature = "io")]
pub mod io;
#[cfg(feature = "io")]
pub mod os;

#[cfg(feature = "daemon")]
pub mod cli;
#[cfg(feature = "daemon")]
pub mod config;
#[cfg(feature = "daemon")]
pub mod control;
#[cfg(feature = "daemon")]
pub mod worker;
