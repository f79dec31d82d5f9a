//! Several gateways at one address: which of them has a session, when another may take it, and
//! which numbers its packets have.
//!
//! Gateways die, sleep, are cut off from each other and come back, and no clock and no lease tells
//! them apart from those that live. So a session has an [`Arbiter`] at the end that every gateway
//! must reach anyway to be of use to it: the agent in front of the game process, or that process's
//! library. Whoever wants to own a session claims it there, over the one who has had it so far;
//! what others bring from then on goes no further.
//!
//! ```text
//!   gateway: Member, and a Stake in each of its sessions          arbiter: a Standing of each session
//!     Stake::open, Stake::claim ── Question (open, claim) ──────▶ Arbiter::answer
//!     Stake::handle_answer ◀────── Answer (granted, fenced, ended) ──┘
//!     Stake::delivers_as ───────── payload, number, tenure ─────▶ Arbiter::hand_over ─▶ game process
//!     Stake::take_number ─▶ packet to the player
//!     Stake::end ───────────────── Question (end) ──────────────▶ Arbiter::answer ─▶ ended, for good
//! ```
//!
//! Everything here decides and touches nothing: no clock, no socket, no thread. It is judged by a
//! search through all orders of small worlds, and by large worlds from seeds (`tests`). What holds
//! in each of them:
//!
//! - No number is used twice under one key, by whatever process. A process has an [`Incarnation`]
//!   that no other has had, and uses each [`Term`] once under a key ([`Member`]).
//! - No packet of a player is handed to a game process twice: the arbiter has the replay window.
//! - What has ended stays ended. An arbiter that does not know a session says that it has ended, and
//!   a session opens only while its token is good; as long as that, it remembers which have ended.
//! - A game process sees one owner at any moment, and their tenures only grow.
//! - A player believes the one who takes over: later tenures have higher numbers.
//!
//! Out of scope: a process that is copied while it runs (a virtual machine that goes on from a
//! snapshot) has an incarnation twice.

mod arbiter;
mod member;
mod number;
mod question;
mod stake;

#[cfg(test)]
mod tests;

pub use arbiter::{Arbiter, Refused, Seen, Standing, Verdict};
pub use member::{Member, Wake};
pub use number::{AnswerNumbers, Incarnation, Numbers, PacketNumber, Tenure, Term};
pub use question::{Answer, Asked, KeyName, Question, Reply, SessionId};
pub use stake::{Heard, NoNumber, Stake, TermsUsedUp, Why};
