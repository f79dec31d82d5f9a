//! Handing what a running process has to the next one: what both say to each other, and who owns
//! the players at each step.
//!
//! ```text
//!   successor                                 predecessor
//!      │ hello ────────────────────────────────▶ │   serves
//!      │ ◀──────────────────────────────────── welcome, with the facts
//!    prepares: config, drivers                   │   serves
//!      │ prepared ─────────────────────────────▶ │
//!      │ ◀──────────────────── listeners' sockets, early
//!      │ ◀──────────────────────────────────── ahead: a part of what the workers know
//!    reads it: tables, control plane             │   serves
//!      │ read ─────────────────────────────────▶ │
//!      │ ◀──────────────────────────────────── ahead: what has changed, again and again
//!      │ read ─────────────────────────────────▶ │
//!      │                                      freezes: the one barrier of all workers
//!      │ ◀──────────────────────────────────── other sockets, given
//!      │ ◀──────────────────────────────────── rest: what has changed since, in parts
//!      │ read ─────────────────────────────────▶ │   after each part but the last
//!    reads that                                  │   waits, and may still take it back
//!      │ taken ════════════════════════════════▶ │   the one moment at which the owner changes
//!    serves                                    leaves
//!      │ ◀──────────────────────────────────── recorded: latencies that nobody had asked for
//! ```
//!
//! [`steps`] decides and touches nothing, so that every death at every step can be played through;
//! [`channel`] is the socket between the two; [`message`] is what goes over it. What has no bound
//! (facts, state) goes in memory beside it ([`memory`]), never through a file.

pub mod channel;
pub mod entrance;
pub mod memory;
pub mod message;
pub mod steps;

pub use channel::Channel;
pub use message::Message;
pub use steps::{Giver, GiverStep, Heard, TAKEN_WITHIN, Taker, TakerStep};

/// The name of the control socket in `run_dir`.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The name in `run_dir` of the socket that successors come to.
pub const SOCKET: &str = "handover.sock";
