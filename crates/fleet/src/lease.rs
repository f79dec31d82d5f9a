//! Registration: keys that stand in etcd for as long as their process lives, and a little longer.
//!
//! `machine` decides, `run` does what it asks for. A lease is kept alive at a third of its time. If
//! it ends while the process lives (a stall, a partition), the process registers anew: what the
//! others saw is true. Of two processes with one name the one whose key was there first has it,
//! because a key is only created if it is absent. A successor adopts the lease of its predecessor
//! ([`Handed`]), and nobody else sees that the process has changed.

pub mod machine;
pub mod run;
#[cfg(test)]
mod tests;

pub use machine::{Ask, Handed, Registration, Standing, Words};
