//! The protocols that players speak, each in a folder of its own.

pub(crate) mod netcode;
pub(crate) mod unreal;
