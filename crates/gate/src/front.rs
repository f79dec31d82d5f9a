//! The protocols that players speak, each in a folder of its own. A new one is added to [`Front`],
//! and its type implements what [`rules`] asks: the compiler lists the rest.

pub(crate) mod carried;
pub(crate) mod cluster;
pub(crate) mod face;
pub(crate) mod netcode;
pub(crate) mod plain;
pub(crate) mod protocol;
pub(crate) mod room;
pub(crate) mod rules;
mod servers;
pub(crate) mod unreal;
mod watched;

pub use protocol::{Front, PACKET_KIND_NAMES, PACKET_KINDS};
