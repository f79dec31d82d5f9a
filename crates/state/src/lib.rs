//! What outlives a restart of the gateway: its folder, and in it who is denied and which tokens are
//! spent.
//!
//! Rules, their text and the folder know nothing of a running gateway. The control thread asks them
//! and tells the workers.
#![deny(unsafe_code)]

pub mod denylist;
pub mod folder;
pub mod spent;
pub mod text;

pub use denylist::{Change, Counts, DenyList, Effect, Refusal, Rule, Whom};
pub use folder::Folder;
pub use spent::{FoundSpent, SpentFiles};
pub use text::{Kept, Mistake};
