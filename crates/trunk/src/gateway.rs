//! The gateway's end of trunks: where agents connect, which of them may serve what, and a thread
//! for each of them.
//!
//! A thread makes a link to one of the gateway's own workers for each link that the agent has, and
//! lends the worker its lane: what may be lost is the worker's to send and to receive, what must
//! arrive passes the thread. So whatever a gateway does with a local link (who may use a name,
//! grace, a hand-over to the next process) holds for these without a line in it.

mod crowd;
mod door;
pub(crate) mod guests;
mod handed;
mod links;
mod mailbox;
mod rules;
mod settings;
mod shared;
mod shown;
mod site;
#[cfg(test)]
mod tests;
mod told;
mod trunks;
mod trust;

pub use crate::protocol::datagram::Refusal;
pub use crate::protocol::keys::Rekey;
pub use crate::socket::rest::AtRest;
pub use rules::{NO_AGENT, Rule};
pub use settings::Settings;
pub use shown::{AgentShown, DoorShown, LaneShown, LinkCounts, Shown, TrunkShown};
pub use trunks::{Opened, Trunks, Window};
