//! A bad network, on purpose, with the names and meanings that Unreal developers know from their
//! packet simulation settings: for the load generator and its proxy.
//!
//! What happens to a packet is decided here ([`Impairments`], [`Path`], [`Fate`]), from a seed and
//! before anything is sent; keeping what is delayed is the caller's business.

pub mod rng;
pub mod settings;

pub use settings::{Fate, Impairments, Path};
