//! The wire, sans I/O: no socket, no clock, no thread, no unsafe. Bytes come in as slices and leave
//! in the caller's buffers; `now` is an argument; AEAD work is described here and done by `crypto`.
#![forbid(unsafe_code)]

pub mod delivery;
pub mod netcode;
pub mod notify;
pub mod plain;
pub mod replay;
pub mod seq;
pub mod unreal;
