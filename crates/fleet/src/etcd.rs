//! A client for etcd's gRPC interface, as small as this crate's needs: ranges, transactions, leases
//! and watches over one HTTP/2 connection, to one member at a time.
//!
//! `wire` is the protobuf encoding, `kv`, `lease` and `watch` the messages, `frame` the envelope of
//! gRPC, `line` what a client asks over, `channel` a socket as one, `client` what chooses a member
//! and holds the credentials. The messages are written by hand, because there are few of them and
//! they never change: no generator, no `protoc`. Whatever a server answers is hostile input:
//! bounded, and refused when malformed.

pub mod channel;
pub mod client;
pub mod error;
pub mod frame;
pub mod kv;
pub mod lease;
pub mod line;
#[cfg(feature = "tls")]
mod tls;
pub mod txn;
pub mod watch;
pub mod wire;

pub use client::Client;
pub use error::{Code, Error};
pub use line::Dial;

pub use crate::servers::{Credentials, Endpoint, Options, TlsFiles};
