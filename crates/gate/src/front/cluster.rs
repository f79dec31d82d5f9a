//! Sessions that go on at another gateway of a cluster, whatever protocol their players speak: what
//! each is called there, who stands by for it, whose it is, and how it is taken.
//!
//! A front says what is its own of that in [`Clustering`](rules::Clustering): what another gateway
//! needs beside what all sessions have, and what proves that a datagram is a player's. All fronts
//! do the rest alike.

pub(crate) mod carried;
pub(crate) mod clustered;
pub(crate) mod doubt;
pub(crate) mod doubts;
pub(crate) mod over;
pub(crate) mod overs;
pub(crate) mod owning;
pub(crate) mod rules;
pub(crate) mod takeovers;
pub(crate) mod taking;
pub(crate) mod timers;
