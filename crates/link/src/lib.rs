//! What gateway and game process say to each other.
//!
//! [`bundle`] is the format of the bundle link: pure bytes, used by the gate on one side and by
//! game processes on the other. [`announce`] is how a game process registers itself with the
//! gateway's fleet. [`backend`] is the library that game servers link.
//! `docs/PROTOCOLS.md` describes both well enough to do without either.
#![cfg_attr(feature = "backend", doc = "", doc = include_str!("../README.md"))]
#![deny(unsafe_code)]

pub mod announce;
#[cfg(feature = "backend")]
pub mod backend;
pub mod bundle;

#[cfg(feature = "backend")]
pub use backend::Backend;
