//! What many gateways agree on, kept in etcd: which gateways, backends, keys and bans there are.
//!
//! `etcd` speaks to the servers, `mirror` keeps a copy of one prefix true, `lease` registers a
//! process under a name, and `member` is a process that does both. `values` and `keyspace` say what
//! stands where, `seal` and `epochs` are about the keys of listeners, `routing` about the tokens of
//! plain ones, `joins` about who has come, `asking` about what an operator asks all gateways,
//! `copy` is the last known truth on disk. What decides takes time and randomness as arguments;
//! only the shells (`mirror::run`, `lease::run`, `member::Member`, `asking::Asking`,
//! `decisions::Decisions`) and the client touch the network. Nothing of this is on the way of a
//! packet. Without the feature `etcd` there are the names and values only, and `servers`, what an
//! operator says of etcd.
#![deny(unsafe_code)]

#[cfg(feature = "etcd")]
pub mod asking;
pub mod backoff;
pub mod clocks;
#[cfg(feature = "etcd")]
pub mod copy;
#[cfg(feature = "etcd")]
pub mod decisions;
pub mod epochs;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod joins;
pub mod keyspace;
#[cfg(feature = "etcd")]
pub mod lease;
#[cfg(feature = "etcd")]
pub mod member;
#[cfg(feature = "etcd")]
pub mod mirror;
pub mod routing;
pub mod seal;
pub mod servers;
pub mod values;
