//! The fleet's token service: a matchmaker asks where a player shall go, and gets a connect token.
//!
//! `desk` decides and touches nothing: from what is `known` of the fleet and the slots that this
//! service may promise (`book`, `ledger`), `choose` picks a backend and gateways, and `mint` makes
//! the token. Time and randomness are arguments. `wanted` reads what callers ask for, `callers`
//! says who they are and how much they may, `claims` tells other services what is promised,
//! `memory` answers a request that comes again, `journal` tells the next start what this one has
//! promised. Only `http` and `service` touch sockets, and `fleet` etcd.
#![deny(unsafe_code)]

pub mod book;
pub mod callers;
pub mod choose;
pub mod claims;
pub mod counters;
pub mod desk;
pub mod fleet;
pub mod glance;
pub mod http;
pub mod journal;
pub mod known;
pub mod ledger;
pub mod limits;
pub mod memory;
pub mod mint;
pub mod openapi;
mod promise;
pub mod random;
pub mod refusal;
pub mod service;
#[cfg(test)]
mod tests;
pub mod tls;
pub mod wanted;

pub use callers::{Caller, Scope};
pub use refusal::Refusal;
pub use service::Options;
