//! A copy of one prefix of etcd that stays true: listed at a revision, watched from the next,
//! resumed after every failure, and compared with what the servers count.
//!
//! `machine` decides and touches nothing (`face` is how it is spoken to): time is an argument,
//! questions are values, and what comes back is handed in, so a simulator can drive it through
//! every failure by seed. `run` does what it asks for. `truth` is what is known, `staging` a list
//! on its way in; `judge` says what may not be believed without an operator, and `reads` what
//! values tell that.

pub mod face;
pub mod judge;
pub mod machine;
pub mod reads;
pub mod run;
mod staging;
#[cfg(test)]
mod tests;
pub mod truth;

pub use face::{Ask, MEMORY_MS, Options, Status};
pub use judge::{Doubt, Loss};
pub use machine::Machine;
pub use reads::Reads;
pub use truth::{Change, Entry, Truth};
