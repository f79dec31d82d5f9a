//! ringgate: a gateway in front of fleets of game servers. The daemon: the commands that serve and
//! play, and the way in for those who operate it.
//!
//! What decides about packets lies in `crates/`, where it is driven without a socket or a clock;
//! `worker` is the only place where drivers and gates meet. `docs/ARCHITECTURE.md` holds the map
//! and the reasons.
#![deny(unsafe_code)]
#![cfg_attr(
    not(all(
        feature = "agent",
        feature = "fleet",
        feature = "tokens",
        feature = "top",
        feature = "xdp"
    )),
    allow(dead_code, unused_imports, reason = "whoever uses it is left out")
)]

pub mod cli;
pub mod control;
#[cfg(feature = "agent")]
pub mod hosting;
#[cfg(feature = "fleet")]
pub mod membership;

pub use ringgate_config as config;
