//! What outlives a restart of a process: its folder, and in it who is denied, which tokens are
//! spent, and whatever else is to be kept until a moment.
//!
//! Rules, their text and the folder know nothing of a running gateway. The control thread asks them
//! and tells the workers.
#![deny(unsafe_code)]

pub mod denylist;
pub mod folder;
pub mod spans;
pub mod spent;
pub mod text;

pub use denylist::{Change, Counts, DenyList, Effect, Refusal, Rule, Whom};
pub use folder::{Folder, Lasting};
pub use spans::SpanFiles;
pub use spent::{FoundSpent, SpentFiles};
pub use text::{Kept, Mistake};
