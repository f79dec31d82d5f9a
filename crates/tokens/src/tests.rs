//! The desk and the ledger together, over a fleet in memory: an etcd of a few lines, whose revision
//! counts, and several services that share it.

mod agents;
mod claims;
mod desk;
mod fleet;
mod joins;
mod journal;
mod slots;
mod work;
