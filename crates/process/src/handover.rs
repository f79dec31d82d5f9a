//! Handing what a running process has to the next one: what both say to each other, and who owns
//! the players at each step.
//!
//! ```text
//!   successor                                 predecessor
//!      │ hello ────────────────────────────────▶ │   serves
//!      │ ◀──────────────────────────────────── welcome: what there is
//!    prepares: config, drivers                   │   serves
//!      │ prepared ─────────────────────────────▶ │
//!      │ ◀──────────────────────────────────── early: listeners' sockets, what changes no more
//!      │ ◀──────────────────────────────────── ahead: a part of what the workers know
//!    reads it: tables, control plane             │   serves
//!      │ read ─────────────────────────────────▶ │
//!      │ ◀──────────────────────────────────── ahead: what has changed, again and again
//!      │ read ─────────────────────────────────▶ │
//!      │                                      freezes: the one barrier of all workers
//!      │ ◀──────────────────────────────────── given: other sockets, what else there is
//!      │ ◀──────────────────────────────────── rest: what has changed since, in parts
//!      │ read ─────────────────────────────────▶ │   after each part but the last
//!    reads that                                  │   waits, and may still take it back
//!      │ taken ════════════════════════════════▶ │   the one moment at which the owner changes
//!    serves                                    leaves
//!      │ ◀──────────────────────────────────── recorded: latencies that nobody had asked for
//! ```
//!
//! [`steps`] decides and touches nothing, so that every death at every step can be played through;
//! [`Giving`] and [`take_over`] are the two ends, whatever the role; [`channel`] is the socket
//! between them, and [`message`] what goes over it. What has no bound goes in memory beside it
//! ([`memory`]), never through a file: state in streams, which an [`Extent`] measures, and at three
//! moments an [`Envelope`], whose sections are the [parts](Part) of a role.
//!
//! A role says what it offers, lends and gives ([`Offers`], [`Gives`]), and what it makes of that
//! ([`Takes`]).

pub mod channel;
pub mod entrance;
pub mod envelope;
mod extent;
mod giving;
pub mod memory;
pub mod message;
mod program;
pub mod steps;
mod taking;

pub use channel::Channel;
pub use envelope::{Envelope, Part};
pub use extent::Extent;
pub use giving::{Gives, Giving, Offers, Pause, Recall};
pub use message::{Message, Moment};
pub use program::{Program, drains, may_hand_over};
pub use steps::Silence;
pub use taking::{Before, Taken, Takes, take_over};

/// The name of the control socket in `run_dir`.
pub const CONTROL_SOCKET: &str = "control.sock";

/// The name in `run_dir` of the socket that successors come to.
pub const SOCKET: &str = "handover.sock";

#[cfg(test)]
mod tests;
