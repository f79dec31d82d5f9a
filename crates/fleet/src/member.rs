//! A process of a fleet, whatever its role: it keeps a copy of what etcd tells, is registered
//! there, says what it holds back, and has everything written that it has said before it goes.
//!
//! What it reads and what it says of itself is its [`Role`]'s. `state` is how it stands, `own` says
//! when it writes its own key anew, and `copies` when the copy goes to disk: time comes in as an
//! argument, and none of them waits for anything. [`Member`] has the tasks that speak with etcd.

mod copies;
mod own;
mod run;
mod state;

pub use copies::{COPY_FILE, Copies, load};
pub use own::{Doubted, Facts, Own};
pub use ringgate_core::sync::lock;
pub use run::{CopyAt, LAST_WORDS, Member, Plan, Role, Seat, TICK, rewritten};
pub use state::{MemberState, MemberStatus};
