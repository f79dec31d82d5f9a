//! Several gateways at one address: which of them has a session, when another may take it, and
//! which numbers its packets have.
//!
//! Gateways die, sleep, are cut off from each other and come back, and no clock and no lease tells
//! them apart from those that live. So a session has an [`Arbiter`] at the end that every gateway
//! must reach anyway to be of use to it: the agent in front of the game process, or that process's
//! library. A gateway that wants to own a session claims it there, over the gateway that has had it
//! so far; what other gateways bring from then on goes no further.
//!
//! ```text
//!   gateway: a stake in each session             arbiter: a Standing of each session
//!     opens, claims ─── Question ───────────────▶ Arbiter::answer
//!     hears ◀────────── granted, fenced, ended ─────┘
//!     delivers ──────── payload, tenure, number ▶ Arbiter::hand_over ─▶ game process
//!     numbers ────────▶ packet to the player
//!     ends ──────────── Question ───────────────▶ Arbiter::answer: ended, for good
//! ```
//!
//! Everything here decides and touches nothing: no clock, no socket, no thread. Agents ask an
//! [`Arbiter`]; gateways number packets, appoint standbys and write [`Record`]s by what is here;
//! [`wire`] is what members tell each other. What must hold is judged by a search through all
//! orders of small worlds, and by larger worlds from seeds (`tests`). There a gateway is a model:
//! what it remembers of keys (`tests::member`), and its stake in each session (`tests::stake`).
//! Each rule below is also broken on purpose there, and that is found:
//!
//! - No number is used twice under one key, by whatever process. A process has an [`Incarnation`]
//!   that no other has had, and makes each [`Term`] once under a key. That alone is enough; no
//!   arbiter and no other gateway has to be heard for it.
//! - No packet of a player is handed to a game process twice: the arbiter has the replay window.
//! - What has ended stays ended. An arbiter that does not know a session says that it has ended. A
//!   session opens only while its token is good, and until then its end is remembered.
//! - A game process sees one owner at any moment, and their tenures only grow.
//! - It sees one session of a [`Player`] at any moment: whoever begins another one hears which
//!   gateway has the first.
//! - A player believes the gateway that takes over: later tenures have higher numbers.
//! - No gateway tells a player that a session has ended which goes on: its arbiter ends it first.
//!
//! What the rules do not need is a lease, a clock that two hosts share, or a question before each
//! step that cannot be taken back: an end is such a step, so the arbiter takes it. A claim names
//! the tenure that it is over. That is for peace and not for safety: of two gateways that claim at
//! once, the second hears which was first, and forwards to it.
//!
//! A session that is between two owners waits. One whose arbiter is gone has ended, as it has with
//! the agent today. A process that is copied while it runs (a virtual machine that goes on from a
//! snapshot) has an incarnation twice, and nothing here helps against that.

mod arbiter;
mod moves;
mod news;
mod number;
mod question;
mod record;
mod room;
mod standby;
pub mod wire;

#[cfg(test)]
mod tests;

pub use arbiter::{Arbiter, Refused, Seen, Standing, Verdict};
pub use moves::Moves;
pub use news::News;
pub use number::{Incarnation, PacketNumber, Tenure, Term};
pub use question::{Answer, Asked, Player, Question, Reply, SessionId, Wake};
pub use record::{NetcodeProof, PlainProof, Proof, RECORD_BYTES_MAX, Record, UnrealProof};
pub use room::NoRoom;
pub use standby::{HolderQuestions, Next, appoint};
