//! Lanes of trunks in a worker's hands: payloads to and from game processes on other hosts are
//! sealed, sent, received and opened by the worker that has their players.
//!
//! [`Lanes::over`] is a driver around the worker's own, so neither gate nor driver knows of it: a
//! link that is *bound* to a lane has a local socket to the trunk's thread, by which the agent's
//! end of it says what must arrive, and ends. The thread keeps the stream and lends the lane
//! ([`WorkerInbox`]).

mod desk;
mod driver;
mod lanes;
mod links;

pub use desk::{Asked, Back, Left, Outcome, WorkerInbox};
pub use driver::{Out, Over};
pub use lanes::Lanes;
